"""Whether the device still computes while the host prepares data, with callbacks in fit.

Run `python benchmarks/overlap.py` on JAX or torch; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from measuring import (
    FAR,
    EmptyHooks,
    arrays,
    bar,
    dense_model,
    idle_stack,
    interleaved,
    keras,
    noise,
    quiet_logger,
    ratio,
    table_of_fits,
    timed_fit,
    versions,
)

from keras_steps import LogEveryN, OnStep, StepScheduledLR, StopAtStep, schedules

BATCH, BATCHES, INPUTS = 128, 40, 512
HOST_MILLISECONDS = (0, 10, 20)
SECONDS = 26  # for each of them


def reporting_stack() -> list[Any]:
    """Three callbacks that act every 10 steps, none of which looks at the weights."""
    return [
        StopAtStep(FAR),
        LogEveryN(10, start=0, logger=quiet_logger()),
        StepScheduledLR(schedules.cosine(1e-3, 10**6), every=10),
    ]


def scheduling_stack() -> list[Any]:
    """A callback that sets the learning rate before each update."""
    return [StepScheduledLR(schedules.cosine(1e-3, 10**6))]


def looking_stack() -> list[Any]:
    """The same and one that may look at the weights, which JAX has to hand out first."""
    return [*reporting_stack(), OnStep(10, lambda step, logs: None)]


def main() -> int:
    print(versions())
    model = dense_model([1024] * 3, INPUTS, keras.optimizers.SGD(1e-3))
    passed = [overlap(model, milliseconds) for milliseconds in HOST_MILLISECONDS]
    return 0 if all(passed) else 1


def overlap(model: Any, host: int) -> bool:
    """Print the table for so many ms of host work a batch; returns whether it passed."""
    x, y = arrays(BATCH * BATCHES, INPUTS)

    def data() -> Iterator[Any]:
        for start in range(0, len(x), BATCH):
            time.sleep(host / 1e3)
            yield x[start : start + BATCH], y[start : start + BATCH]

    def fit(callbacks: Callable[[], list[Any]]) -> Callable[[], float]:
        return timed_fit(
            model, lambda: {"x": data(), "steps_per_epoch": BATCHES}, BATCHES, callbacks
        )

    folder = tempfile.TemporaryDirectory()

    def tensorboard() -> list[Any]:
        return [keras.callbacks.TensorBoard(folder.name, update_freq=10**6, write_graph=False)]

    variants = {
        "bare": fit(list),
        "bare, again": fit(list),
        "our 4, nothing due": fit(idle_stack),
        "ours, a schedule each step": fit(scheduling_stack),
        "ours, reports every 10": fit(reporting_stack),
        "ours, looks at the model every 10": fit(looking_stack),
        "an empty on_train_batch_end": fit(lambda: [EmptyHooks()]),
    }
    if find_spec("tensorflow"):  # which Keras's TensorBoard needs on every backend
        variants["Keras TensorBoard(10**6)"] = fit(tensorboard)
    with folder:
        figures = interleaved(variants, SECONDS)
    table_of_fits(f"{host} ms of host work a batch", BATCHES, figures)
    bare = figures["bare"]
    idle = ratio(figures["our 4, nothing due"], bare)
    within = noise(bare, figures["bare, again"])
    return bar("idle fit ÷ bare fit, within 1 + noise", idle, 1 + within)


if __name__ == "__main__":
    sys.exit(main())
