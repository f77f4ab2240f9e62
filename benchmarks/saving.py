"""What a save costs: how long it holds the training up, and how long until the file is there.

Run `python benchmarks/saving.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from measuring import IS_TF_KERAS, arrays, bar, dense_model, keras, table, versions

from keras_steps import keras_internals as internals

REPETITIONS = {1_000_000: 7, 50_000_000: 5}
INPUTS = 64


def main() -> int:
    print(versions())
    return 0 if all([measure(parameters) for parameters in REPETITIONS]) else 1


def measure(parameters: int) -> bool:
    """Print how each way saves a model of that size with Adam; returns whether ours passed."""
    model = trained(parameters)
    held = internals.state_variables(model)
    there = list(internals.copied(held).values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways: dict[str, Callable[[], tuple[float, float]]] = {
            "copy in memory": lambda: copying(there),
            "prepare_save, .keras": lambda: ours(model, folder / "ours.keras"),
            "prepare_save, .weights.h5": lambda: ours(model, folder / "ours.weights.h5"),
            "ModelCheckpoint": checkpoint(keras.callbacks.ModelCheckpoint, model, folder),
        }
        if not IS_TF_KERAS and find_spec("orbax"):
            ways["OrbaxCheckpoint"] = orbax(model, folder)
        figures: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        order = Random(0)
        for _ in range(REPETITIONS[parameters] + 1):
            for way in order.sample(list(ways), len(ways)):
                figures[way].append(ways[way]())
    first = {way: f.pop(0)[0] for way, f in figures.items()}
    rows = {
        way: [min(f)[0], *(median(times) for times in zip(*f, strict=True)), first[way]]
        for way, f in figures.items()
    }
    megabytes = sum(array.nbytes for array in there) / 1e6
    table(
        f"{model.count_params():,} parameters with Adam, {megabytes:.0f} MB of state, ms",
        ["", "quickest stall", "median stall", "median until done", "first stall"],
        [[way, *(f"{s * 1e3:.0f}" for s in times)] for way, times in rows.items()],
    )
    limit = 1.5 * min(figures["copy in memory"])[0] * 1e3 + 30
    return all(
        [
            bar(f"quickest stall of {way}", min(figures[way])[0] * 1e3, limit, " ms")
            for way in ways
            if way.startswith("prepare_save")
        ]
    )


def trained(parameters: int) -> Any:
    """Two hidden layers of one width, after a batch."""
    width = round((parameters + INPUTS**2 / 4) ** 0.5 - INPUTS / 2)
    model = dense_model([width, width], INPUTS, keras.optimizers.Adam(1e-3))
    x, y = arrays(8, INPUTS)
    model.fit(x, y, batch_size=8, verbose=0)
    return model


def copying(there: list[Any]) -> tuple[float, float]:
    """What a save can hardly undercut: NumPy copies of arrays of the same sizes."""
    start = time.perf_counter()
    copies = [array.copy() for array in there]
    seconds = time.perf_counter() - start
    assert len(copies) == len(there)
    return seconds, seconds


def ours(model: Any, path: Path) -> tuple[float, float]:
    weights_only = path.name.endswith(".weights.h5")
    start = time.perf_counter()
    save = internals.prepare_save(model, weights_only=weights_only)
    stall = time.perf_counter() - start
    save.write(path)
    return stall, time.perf_counter() - start


def checkpoint(make: Any, model: Any, folder: Path) -> Callable[[], tuple[float, float]]:
    """Keras's callback at an epoch's end, which writes before it returns."""
    callback = make(str(folder / "theirs.keras"))
    callback.set_model(model)

    def save() -> tuple[float, float]:
        start = time.perf_counter()
        callback.on_epoch_end(0, {})
        seconds = time.perf_counter() - start
        return seconds, seconds

    return save


def orbax(model: Any, folder: Path) -> Callable[[], tuple[float, float]]:
    """Keras's callback on Orbax at an epoch's end, which writes in the background."""
    callback = keras.callbacks.OrbaxCheckpoint(
        str(folder / "orbax"), save_freq="epoch", max_to_keep=1
    )
    callback.set_model(model)
    callback.on_train_begin()
    epochs = iter(range(1_000))

    def save() -> tuple[float, float]:
        start = time.perf_counter()
        model.optimizer.iterations.assign(model.optimizer.iterations + 1)  # its name for the save
        callback.on_epoch_end(next(epochs), {})
        stall = time.perf_counter() - start
        callback.wait_until_finished()
        return stall, time.perf_counter() - start

    return save


if __name__ == "__main__":
    sys.exit(main())
