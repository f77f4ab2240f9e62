"""Whether memory and cost stay flat over a million executions.

Run `python benchmarks/long_run.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from statistics import median
from typing import Any

import numpy as np
from driven import Driven
from measuring import (
    FLAVOUR,
    arrays,
    bar,
    dense_model,
    keras,
    quiet_logger,
    table,
    versions,
)

from keras_steps import (
    EverySecs,
    LogEveryN,
    OnStep,
    StepScheduled,
    StepScheduledLR,
    StopAtStep,
    schedules,
)

EXECUTIONS = 10**6
FIT_STEPS = 20_000
TENTHS = 10
LAPS = 10  # of each tenth


class Fired:
    """Counts calls at the right steps; keeps nothing else."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.times = 0

    def __call__(self, step: int, logs: dict[str, float]) -> None:
        self.times += 1
        assert step == self.times * self.every, f"fired at {step}"


def stack(every: int, fired: Fired, last_step: int) -> list[Any]:
    """Callbacks that report, call, set two hyperparameters and stop; one watches the time.

    Args:
        every: Steps between two learning rates, each another number.
        fired: Called every 100 steps.
        last_step: Where to stop.
    """
    return [
        StopAtStep(last_step),
        LogEveryN(1000, start=0, logger=quiet_logger()),
        OnStep(fired.every, fired),
        OnStep(EverySecs(3600), lambda step, logs: None),
        StepScheduledLR(schedules.cosine(1e-3, last_step), every=every),
        StepScheduled(lambda value: None, lambda step: step / last_step, every=1000),
    ]


def main() -> int:
    print(versions())
    flat = [without_fit(), in_fit()]
    return 0 if all(flat) else 1


def without_fit() -> bool:
    """Drive a million executions whose compiled step is `CountingStep`."""
    model = tiny_model()
    fired = Fired(100)
    step = CountingStep(model)
    run = Driven(model, stack(10, fired, EXECUTIONS + 1), step)
    step.adapter = model.train_function
    marks = Marks()
    for _ in range(TENTHS):
        for _ in range(LAPS):
            run(EXECUTIONS // TENTHS // LAPS)
            marks.lap(EXECUTIONS // TENTHS // LAPS)
        marks.take()
    run.end()
    assert fired.times == EXECUTIONS // 100, fired.times
    return marks.show(f"{EXECUTIONS:,} executions without fit", "ns/execution", 1e9)


def in_fit() -> bool:
    """A real fit of a trivial model, of which the first tenth more is to warm up."""
    model = tiny_model()
    x, y = arrays(8 * 1000, 4)
    lap = FIT_STEPS // TENTHS // LAPS
    warm = FIT_STEPS // TENTHS
    marks = Marks()

    def mark(step: int, logs: dict[str, float]) -> None:
        if step == warm:
            marks.begin()
        elif step > warm:
            marks.lap(lap)
            if step % (LAPS * lap) == 0:
                marks.take()

    callbacks = [*stack(1, Fired(100), FIT_STEPS + warm + lap // 2), OnStep(lap, mark)]
    model.fit(x, y, batch_size=8, epochs=10**6, verbose=0, callbacks=callbacks)
    return marks.show(f"{FIT_STEPS:,} steps of fit", "µs/step", 1e6)


def tiny_model() -> Any:
    """A compiled model that has made a step, so that all its variables are there."""
    model = dense_model([2], 4, keras.optimizers.Adam(1e-3))
    x, y = arrays(8, 4)
    model.fit(x, y, batch_size=8, verbose=0)
    model.optimizer.iterations.assign(0)
    return model


class CountingStep:
    """In the place of the compiled step: counts in Python, and puts the count where it belongs.

    A write to a variable costs fifty times what is measured here. So the optimizer's counter
    and the sums of the loss are brought up to date only in those executions after which the
    adapter will look at them, as it says itself in `attention_at`. A look at another time
    would find an old count, and `Fired` a wrong step.
    """

    def __init__(self, model: Any) -> None:
        self.adapter: Any = None
        self._count = 0
        loss = model.metrics[0]
        self._variables = [model.optimizer.iterations, loss.total, loss.count]
        if FLAVOUR == "jax":
            counter = _index(model.optimizer.variables, self._variables[0])
            sums = [_index(model.metrics_variables, v) for v in self._variables[1:]]
            self._places = [(2, counter), *((3, index) for index in sums)]

    def __call__(self, *args: Any) -> Any:
        self._count = count = self._count + 1
        run = self.adapter.run
        if run.executions < run.attention_at:
            return ({}, args[0]) if FLAVOUR == "jax" else {}
        # Arrays: TensorFlow keeps each Python number that it has turned into a tensor, for ever.
        values = [np.array(value) for value in (count, 0.5 * count, count)]
        if FLAVOUR != "jax":
            for variable, value in zip(self._variables, values, strict=True):
                variable.assign(value.astype(_dtype(variable)))
            return {}
        state = [list(group) for group in args[0]]
        for (group, index), value in zip(self._places, values, strict=True):
            dtype = state[group][index].dtype
            state[group][index] = keras.ops.convert_to_tensor(value, dtype=dtype)
        return {}, tuple(state)


def _dtype(variable: Any) -> str:
    """Its name in numpy: keras.Variable has a string, tf.Variable an object."""
    return getattr(variable.dtype, "name", variable.dtype)


def _index(variables: list[Any], variable: Any) -> int:
    return next(i for i, other in enumerate(variables) if other is variable)


class Marks:
    """Time and memory along a run."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float, int, float]] = []
        self.begin()

    def begin(self) -> None:
        self._laps: list[float] = []
        self._blocks, self._rss = _memory()
        self._since = time.perf_counter()

    def lap(self, executions: int) -> None:
        """Note what each of so many executions has cost."""
        self._laps.append((time.perf_counter() - self._since) / executions)
        self._since = time.perf_counter()

    def take(self) -> None:
        """End a tenth."""
        blocks, rss = _memory()
        grown = blocks - self._blocks, rss - self._rss
        self._rows.append((median(self._laps), min(self._laps), *grown))
        self._laps = []
        self._since = time.perf_counter()

    def show(self, title: str, unit: str, scale: float) -> bool:
        """Print the marks, and whether they are flat."""
        table(
            title,
            ["tenth", unit, "fastest lap", "Python blocks", "resident MB"],
            [
                [
                    str(tenth),
                    f"{usual * scale:.0f}",
                    f"{least * scale:.0f}",
                    f"{b:+d}",
                    f"{mb:+.1f}",
                ]
                for tenth, (usual, least, b, mb) in enumerate(self._rows, 1)
            ],
        )
        fastest = [row[1] for row in self._rows]
        half = len(fastest) // 2
        slower = min(fastest[half:]) / min(fastest[:half])
        first, last = self._rows[0], self._rows[-1]
        return all(
            [
                bar("fastest lap, second half ÷ first half", slower, 1.2),
                bar("growth from the first mark to the last, blocks", last[2] - first[2], 1000),
                bar("growth from the first mark to the last, MB", last[3] - first[3], 5),
            ]
        )


def _memory() -> tuple[int, float]:
    """Blocks that Python holds, and MB that the process holds."""
    gc.collect()
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            rss = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    else:  # the most so far
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return sys.getallocatedblocks(), rss


if __name__ == "__main__":
    sys.exit(main())
