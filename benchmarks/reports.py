"""What reports cost: reports a second that a writer takes, bytes a report, a fit that reports.

Run `python benchmarks/reports.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import (
    arrays,
    bar,
    dense_model,
    interleaved,
    keras,
    noise,
    ratio,
    table,
    table_of_fits,
    timed_fit,
    versions,
)

from keras_steps import StepCSVLogger, StepHistory, StepTensorBoard
from keras_steps.table_writer import TableWriter
from keras_steps.tensorboard_writer import TensorBoardWriter

REPORTS = 5_000
BATCH, BATCHES, INPUTS = 32, 1_000, 64
SCALARS = {
    "loss": 0.4312,
    "accuracy": 0.871,
    "learning_rate": 0.00098,
    "steps_per_second": 412.3,
    "examples_per_second": 13193.6,
    "epoch": 3.0,
}


def main() -> int:
    print(versions())
    writers()
    return 0 if fits() else 1


def writers() -> None:
    """Print how many reports of six scalars each writer takes in a second."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made: dict[str, Callable[[], Any]] = {
            "TensorBoard": lambda: TensorBoardWriter(folder / "logs", 0, ["val_"]),
            "CSV": lambda: TableWriter(folder / "metrics.csv", 0),
            "JSON lines": lambda: TableWriter(folder / "metrics.jsonl", 0),
        }
        for title, make in made.items():
            before = _bytes_in(folder)
            writer = make()
            start = time.perf_counter()
            for step in range(1, REPORTS + 1):
                writer.write(step, SCALARS)
            writer.flush()
            seconds = time.perf_counter() - start
            writer.close()
            size = (_bytes_in(folder) - before) / REPORTS
            rows.append(
                [
                    title,
                    f"{REPORTS / seconds:,.0f}",
                    f"{seconds / REPORTS * 1e6:.0f}",
                    f"{size:.0f}",
                ]
            )
    table(f"writers, {REPORTS} reports", ["", "reports/s", "µs a report", "bytes a report"], rows)


def fits() -> bool:
    """Print fits that report every 100 steps beside bare ones; returns whether they passed."""
    model = dense_model([256, 256], INPUTS, keras.optimizers.SGD(1e-3))
    x, y = arrays(BATCH * BATCHES, INPUTS)
    folder = tempfile.TemporaryDirectory()

    def fit(callbacks: Callable[[], list[Any]]) -> Callable[[], float]:
        data = {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
        return timed_fit(model, lambda: data, BATCHES, callbacks)

    home = folder.name
    variants = {
        "bare": fit(list),
        "bare, again": fit(list),
        "StepTensorBoard(100)": fit(lambda: [StepTensorBoard(f"{home}/logs", 100)]),
        "StepCSVLogger(100)": fit(lambda: [StepCSVLogger(f"{home}/metrics.csv", 100)]),
        "StepHistory(100)": fit(lambda: [StepHistory(100)]),
    }
    if find_spec("tensorflow"):  # which Keras's TensorBoard needs on every backend
        variants["Keras TensorBoard(100)"] = fit(
            lambda: [
                keras.callbacks.TensorBoard(f"{home}/keras", update_freq=100, write_graph=False)
            ]
        )
    with folder:
        figures = interleaved(variants, 40)
    table_of_fits("a fit that reports every 100 steps", BATCHES, figures)
    bare = figures["bare"]
    apart = noise(bare, figures["bare, again"])
    print(f"  noise (the two bare fits of a repetition lie apart by, in 3 of 4): {apart:.3f}\n")
    names = ("StepTensorBoard(100)", "StepCSVLogger(100)", "StepHistory(100)")
    ratios = {name: ratio(figures[name], bare) for name in names}
    return all([bar(f"{name} ÷ bare fit", r, 1 + apart) for name, r in ratios.items()])


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
