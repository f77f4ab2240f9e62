"""Whether a metric is better when it is smaller or larger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from keras_steps.keras_internals.flavour import backend_of

_RISES = re.compile(
    r"(^|_)(acc|accuracy|auc|precision|recall|(precision|recall)_at_\w+|sensitivity_at_\w+|"
    r"specificity_at_\w+|f1_score|f_?beta_score|r2_score|correlation|io_?u|cosine_similarity)$"
)
_FALLS = re.compile(
    r"(^|_)(loss|error|crossentropy|divergence|hinge|poisson|logcosh|bce|mae|mse|mape|msle|rmse)$"
)
_NUMBER = re.compile(r"_\d+$")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def direction_of(model: Any, name: str) -> str | None:
    """Whether the quantity `name` is to fall, "min", or to rise, "max"; None: can't be told.

    The model's metric of that name decides, and where there is none that can tell, the name
    itself, by how Keras names its own. Keras 3 marks metrics with `_direction`, "up" or
    "down", for its EarlyStopping and ModelCheckpoint. tf_keras has no such mark, and takes
    whatever does not end with acc, accuracy or auc for something that falls: here, the class
    tells instead. Metrics given to `compile` are found before they are built.

    Args:
        model: A compiled model, or None.
        name: As in fit's logs, without the prefix of an evaluation. Several outputs put
            theirs before it, and Keras a number behind a second one.
    """
    plain = _NUMBER.sub("", name)
    for wanted in (name, plain):
        of_that_name = [m for m in _metrics(model) if _ends_with(wanted, m.name)]
        known = {_direction_of_metric(metric) for metric in of_that_name} - {None}
        if len(known) == 1:
            return known.pop()
    return _by_name(plain)


def _ends_with(name: str, metric_name: str) -> bool:
    return name == metric_name or name.endswith(f"_{metric_name}")


def _direction_of_metric(metric: Any) -> str | None:
    marked = getattr(metric, "_direction", None)
    if marked in ("up", "down"):
        return {"up": "max", "down": "min"}[marked]
    names = (_WORD_BEGINS.sub("_", base.__name__).lower() for base in type(metric).__mro__)
    return next(filter(None, map(_by_name, names)), None)


def _by_name(name: str) -> str | None:
    if _RISES.search(name):
        return "max"
    return "min" if _FALLS.search(name) else None


def _metrics(model: Any) -> Iterator[Any]:
    """The model's metrics, and those given to `compile`, which may not have been built yet.

    Keras 3 keeps what was given in a CompileMetrics among `model.metrics`, tf_keras in
    `model.compiled_metrics`, both under the same names.
    """
    if model is None:
        return
    found = list(model.metrics)
    if backend_of(model) == "tf_keras" and model.compiled_metrics is not None:
        found.append(model.compiled_metrics)
    for each in found:
        if hasattr(each, "_user_metrics"):
            yield from _leaves([each._user_metrics, each._user_weighted_metrics])
        else:
            yield each


def _leaves(structure: Any) -> Iterator[Any]:
    """The metric objects among what `compile` takes: names, functions, objects, nested."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        for part in structure:
            yield from _leaves(part)
    elif hasattr(structure, "update_state"):
        yield structure
