"""evaluate_checkpoints: evaluations in a process beside the training."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_steps import clock as clocks
from keras_steps import preflight
from keras_steps.arguments import number
from keras_steps.atomic import sha256_of
from keras_steps.checkpoint_index import Entry, Index
from keras_steps.checkpoint_loading import load_weights
from keras_steps.checkpoints import Checkpoint
from keras_steps.evaluation_data import PreparedData
from keras_steps.evaluation_sources import EvaluationFunction, EvaluationSource, sources_by_prefix
from keras_steps.keras_internals import is_compiled
from keras_steps.reports import scalars
from keras_steps.timelines import local_path
from keras_steps.user_writers import Writer, as_writer, drop_past

_POLL_SECS = 1.0


def evaluate_checkpoints(
    model: Any,
    directory: str | os.PathLike[str],
    data: Any,
    writer: Writer | Callable[[int, dict[str, float]], Any],
    *,
    timeout: float,
) -> list[Checkpoint]:
    """Evaluate each checkpoint of a training that runs beside, until that has ended.

    For evaluations that the training should not wait for: in a second process, on another
    device. It takes each checkpoint that is in the directory and each that comes, once, in
    the order of steps; one that the training deletes before its turn is left out. It returns
    when the last is evaluated of a run that has ended, or if none has come for `timeout`
    seconds, as after a kill. Where the training goes back to an earlier step, so does this.

    Args:
        model: A model of the same structure, built and compiled with the metrics to evaluate.
            It is given the weights of each checkpoint, and keeps the last ones. For functions
            as data it need not be compiled.
        directory: What StepCheckpoint was given. It need not be there yet.
        data: As EvaluateEveryN takes it: arrays as (x, y), a dataset, a function that evaluates
            the model by itself and returns a dict of scalars, or a dict from prefixes to those.
            Results bear the prefix; without a dict `val_`.
        writer: As ReportEveryN takes it: a function of (step, scalars), or an object with
            `write(step, scalars)`, `flush()` and `close()`, called with a checkpoint's step.
        timeout: Seconds to wait for the next checkpoint, after the last is evaluated; 0: only
            those that are there; math.inf: until the run has ended.

    Returns:
        What was evaluated, by step; its `scores` are those of the training and the results.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the model is not built or not compiled, the data are empty, without an
            end, or can be gone through only once, `timeout` is negative, or the index in the
            directory is damaged; later, if a checkpoint does not fit the model, naming its file.

    Example:

    >>> import keras, tempfile, numpy as np
    >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> data = np.zeros((32, 4)), np.zeros((32, 1))
    >>> evaluate_checkpoints(model, tempfile.mkdtemp(), data, print, timeout=0)
    []
    """
    _require_built(model)
    place = local_path(directory, "evaluate_checkpoints(directory)")
    seconds = number(timeout, "evaluate_checkpoints(timeout)")
    if not seconds >= 0:
        raise ValueError(f"evaluate_checkpoints(timeout) must be at least 0; received {timeout!r}.")
    out = as_writer(writer, "evaluate_checkpoints(writer)")
    sources = sources_by_prefix(data, "evaluate_checkpoints")
    for source in sources.values():
        _require_repeatable(source, model)
    prepared = {prefix: source.prepare(model) for prefix, source in sources.items()}
    evaluated: list[Checkpoint] = []
    try:
        for entry in _coming(place, seconds):
            kept = [one for one in evaluated if one.step < entry.step]
            if len(kept) < len(evaluated):
                drop_past(out, kept[-1].step if kept else 0)
                evaluated = kept
            if _load(model, place, entry):
                results = _results(prepared)
                out.write(entry.step, dict(results))
                out.flush()
                scores = {**entry.scores, **results}
                evaluated.append(Checkpoint(place / entry.file, entry.step, scores))
    finally:
        out.close()
    return evaluated


def _require_built(model: Any) -> None:
    if isinstance(model, type) or not hasattr(model, "load_weights"):
        raise TypeError(f"evaluate_checkpoints(model) must be a Keras model; received {model!r}.")
    if not model.built:
        raise ValueError(
            f"evaluate_checkpoints: the model {model.name!r} is not built. Begin it with an Input "
            "or call it on a batch, so that weights can be loaded."
        )


def _require_repeatable(source: EvaluationSource, model: Any) -> None:
    """See that each checkpoint can be evaluated on it."""
    if isinstance(source, EvaluationFunction):
        return
    if not is_compiled(model):
        raise ValueError(
            f"evaluate_checkpoints: the model {model.name!r} is not compiled. Compile it with loss "
            "and metrics."
        )
    if source.is_one_shot:
        raise ValueError(
            f"{source.name} received a generator, which is used up after one checkpoint. Pass "
            "arrays, a tf.data.Dataset, PyDataset or DataLoader."
        )
    if source.size() == math.inf:
        raise ValueError(f"{source.name} has no end. Pass a part of it, such as data.take(100).")


def _coming(place: Path, timeout: float) -> Iterator[Entry]:
    """Each checkpoint in turn, once; waits for the next."""
    seen: set[tuple[int, str]] = set()
    since = clocks.now()
    while True:
        index = Index.read(place)
        new = [entry for entry in index.entries if (entry.step, entry.sha256) not in seen]
        entry = next((entry for entry in new if entry.size_in(place) is not None), None)
        if entry is not None:
            seen |= {(one.step, one.sha256) for one in new if one.step <= entry.step}
            yield entry
            since = clocks.now()
            continue
        left = since + timeout - clocks.now()
        if index.ended is not None or left <= 0:
            return
        clocks.wait(min(_POLL_SECS, left))


def _load(model: Any, place: Path, entry: Entry) -> bool:
    """Whether the model has the checkpoint's weights now; not if its file is gone or damaged."""
    path = place / entry.file
    try:
        if sha256_of(path) != entry.sha256:
            preflight.warn(f"{path} is damaged, and is not evaluated: its checksum does not fit.")
            return False
        load_weights(model, path)
    except FileNotFoundError:  # retention has dropped it
        return False
    return True


def _results(prepared: Mapping[str, PreparedData | EvaluationFunction]) -> dict[str, float]:
    results: dict[str, float] = {}
    for prefix, data in prepared.items():
        found = scalars(data.evaluate())
        results |= {prefix + name: value for name, value in found.items()}
    return results
