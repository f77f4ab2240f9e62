"""What a backup costs: how long it holds the training up, and how soon a resume goes on.

Run `python benchmarks/backups.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from measuring import (
    FLAVOUR,
    IS_TF_KERAS,
    arrays,
    bar,
    dense_model,
    interleaved,
    keras,
    ratio,
    table,
    versions,
)
from saving import INPUTS, copying, trained

from keras_steps import OnStep, StepBackupAndRestore, StopAtStep
from keras_steps import keras_internals as internals
from keras_steps.background import let_all_finish
from keras_steps.run import Run

REPETITIONS = {1_000_000: 7, 50_000_000: 5}
BATCH, BATCHES, DONE = 32, 10_000, 9_000
LONGEST_READ, LONGEST_SEEK = 1.2, 1.0


def main() -> int:
    print(versions())
    passed = [stall(parameters) for parameters in REPETITIONS]
    return 0 if all([*passed, *resumes()]) else 1


# ---------------------------------------------------------------- the stall


class Timed(StepBackupAndRestore):
    """Notes how long each backup holds the training up, the state of JAX being published too."""

    def __init__(self, directory: Path, copies: list[float], held: list[Any]) -> None:
        super().__init__(directory, every=1, keep=1, on_signal=())
        self.stalls: list[float] = []
        self.until_done: list[float] = []
        self.copies, self.held = copies, held

    def before_first_update(self, run: Run) -> None:
        super().before_first_update(run)
        fire = run._fire

        def timed() -> None:
            if not run._agenda:
                return
            let_all_finish()
            self.copies.append(copying(self.held)[0])
            start = time.perf_counter()
            fire()
            self.stalls.append(time.perf_counter() - start)
            let_all_finish()
            self.until_done.append(time.perf_counter() - start)

        run._fire = timed  # type: ignore[method-assign]


def stall(parameters: int) -> bool:
    """Print how long backups of a model of that size with Adam take; whether ours passed."""
    model = trained(parameters)
    held = list(internals.copied(internals.state_variables(model)).values())
    x, y = arrays(8 * (REPETITIONS[parameters] + 2), INPUTS)
    with tempfile.TemporaryDirectory() as name:
        backup = Timed(Path(name) / "backup", [], held)
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[backup])
    counted = slice(1, REPETITIONS[parameters] + 1)  # what the last batch brings is not made here
    ways = {
        "copy in memory": (backup.copies[counted], backup.copies[counted]),
        "StepBackupAndRestore": (backup.stalls[counted], backup.until_done[counted]),
    }
    rows = [
        [way, min(held_up), median(held_up), median(done)] for way, (held_up, done) in ways.items()
    ]
    megabytes = sum(array.nbytes for array in held) / 1e6
    table(
        f"{model.count_params():,} parameters with Adam, {megabytes:.0f} MB of state, ms",
        ["", "quickest stall", "median stall", "median until done"],
        [[way, *(f"{seconds * 1e3:.0f}" for seconds in times)] for way, *times in rows],
    )
    limit = 1.5 * rows[0][1] * 1e3 + 30
    return bar("quickest stall of a backup", rows[1][1] * 1e3, limit, " ms")


# ---------------------------------------------------------------- going on


class Stored:
    """Batches from a storage that takes a millisecond for each."""

    def __init__(self) -> None:
        self.x, self.y = arrays(BATCH, INPUTS)

    def read(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.001)
        return self.x + index, self.y

    def epoch(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return map(self.read, range(BATCHES))


def read_sources() -> dict[str, Callable[[], Any]]:
    """Data that can only be read from their beginning."""
    stored = Stored()
    sources: dict[str, Callable[[], Any]] = {"generator": lambda: (b for b in stored.epoch())}
    if FLAVOUR == "torch":
        import torch

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self) -> Iterator[Any]:
                return stored.epoch()

        sources["iterable DataLoader"] = lambda: torch.utils.data.DataLoader(
            Stream(), batch_size=None
        )
    elif find_spec("tensorflow"):
        import tensorflow as tf

        kinds = (tf.TensorSpec((BATCH, INPUTS)), tf.TensorSpec((BATCH, 1)))
        sources["tf.data"] = lambda: tf.data.Dataset.from_generator(
            stored.epoch, output_signature=kinds
        )
    return sources


def sought_sources() -> dict[str, Callable[[], dict[str, Any]]]:
    """Data that have an index."""
    x, y = arrays(BATCH * BATCHES, INPUTS)
    base = keras.utils.Sequence if IS_TF_KERAS else keras.utils.PyDataset

    class Indexed(base):  # type: ignore[misc, valid-type]
        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> Any:
            rows = slice(index * BATCH, (index + 1) * BATCH)
            return x[rows], y[rows]

    sources: dict[str, Callable[[], dict[str, Any]]] = {
        "arrays, shuffled": lambda: {"x": x, "y": y, "batch_size": BATCH, "shuffle": True}
    }
    if not IS_TF_KERAS:
        sources["PyDataset, shuffled"] = lambda: {"x": Indexed(), "shuffle": True}
    if FLAVOUR == "torch":
        import torch

        data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        sources["map-style DataLoader, shuffled"] = lambda: {
            "x": torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
        }
    return sources


def resumes() -> Iterator[bool]:
    """Print how long a resume takes from the call of fit to its first new step."""
    rows, verdicts = [], []
    for name, source in read_sources().items():

        def of_fit(source: Callable[[], Any] = source) -> dict[str, Any]:
            return {"x": source(), "steps_per_epoch": BATCHES}

        *times, part = going_on(of_fit, source)
        rows.append([name, *times, f"{part:.2f}"])
        verdicts.append((f"resume ÷ plain iteration, {name}", part, LONGEST_READ, ""))
    for name, arguments in sought_sources().items():
        resumed, fresh, *_ = going_on(arguments)
        rows.append([name, resumed, fresh, None, ""])
        verdicts.append((f"resume, {name}", resumed - fresh, LONGEST_SEEK, " s"))
    table(
        f"from the call of fit to the first new step, behind {DONE} of {BATCHES} batches, s",
        ["", "resumed", "fresh", "plain iteration", "(resumed - fresh) ÷ plain"],
        [[n, *("" if t is None else f"{t:.2f}" for t in times), r] for n, *times, r in rows],
    )
    for verdict in verdicts:
        yield bar(*verdict)


def going_on(
    arguments: Callable[[], dict[str, Any]], source: Callable[[], Any] = tuple
) -> tuple[float, float, float, float]:
    """Median seconds of a resume, of a fresh start and of reading the batches that are done.

    The last figure is what a resume takes beyond a fresh start, as a multiple of that reading.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first_new_step(folder / "backup", arguments(), until=DONE)
        number = iter(range(1_000))

        def resumed() -> float:
            copy = folder / str(next(number))
            shutil.copytree(folder / "backup", copy)
            return first_new_step(copy, arguments(), until=DONE + 1)

        def fresh() -> float:
            return first_new_step(folder / str(next(number)), arguments(), until=1)

        def plain() -> float:
            start = time.perf_counter()
            deque(islice(source(), DONE), maxlen=0)
            return time.perf_counter() - start

        figures = interleaved({"resumed": resumed, "fresh": fresh, "plain": plain}, 0, least=3)
    more = [a - b for a, b in zip(figures["resumed"], figures["fresh"], strict=True)]
    resume, start, read = map(median, figures.values())
    return resume, start, read, ratio(more, figures["plain"])


def first_new_step(directory: Path, data: dict[str, Any], *, until: int) -> float:
    """Seconds from the call of a fit that is backed up to its step `until`."""
    keras.backend.clear_session()
    model = dense_model([8], INPUTS, keras.optimizers.SGD(1e-3))
    done: list[float] = []
    callbacks = [
        StepBackupAndRestore(directory, every=DONE, on_signal=()),
        OnStep(until, lambda step, logs: done.append(time.perf_counter())),
        StopAtStep(until),
    ]
    start = time.perf_counter()
    model.fit(**data, verbose=0, callbacks=callbacks)
    (end,) = done
    return end - start


if __name__ == "__main__":
    sys.exit(main())
