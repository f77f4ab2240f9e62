"""The table that the laws run over: every callback, in every setting that Keras can do.

A callback added to the library joins with a row; a setting, with an entry in SETTINGS.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    arrays,
    fit,
    keras,
    loss_scaled,
    make_model,
    mirrored_scope,
    no_scope,
)

import keras_steps as ks

BATCHES = 23
OVERFLOW = 2
"""The batch whose gradients overflow in the loss-scale settings."""


@dataclass(frozen=True)
class Setting:
    """How a model is compiled, and the step after each of its executions over 23 batches."""

    steps: list[int]
    optimizer: Callable[[], Any] = lambda: keras.optimizers.SGD(0.01)
    spe: int = 1
    overflows: int = 0
    scope: Callable[[], Any] = no_scope

    def steps_of_two_fits(self):
        """The step after each execution of a fit of one epoch and another one after it."""
        per_step = getattr(self.optimizer(), "gradient_accumulation_steps", None)
        if per_step is None:
            return [*self.steps, *(self.steps[-1] + step for step in self.steps)]
        counts = _ENDS_OF_4 if self.spe == 4 else range(1, BATCHES + 1)
        return [*self.steps, *((BATCHES + count) // per_step for count in counts)]

    def model(self):
        compile_args = {} if self.spe == 1 else {"steps_per_execution": self.spe}
        with self.scope():
            return make_model(self.optimizer(), **compile_args)

    def data(self):
        x, y = arrays(BATCHES)
        if self.overflows:
            x[OVERFLOW * BATCH : (OVERFLOW + 1) * BATCH] = np.inf
        return x, y

    def fit(self, model, callbacks, **fit_args):
        x, y = self.data()
        return fit(model, callbacks, x=x, y=y, batch_size=BATCH, shuffle=False, **fit_args)


def _accumulating():
    return keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)


_ENDS_OF_4 = [4, 8, 12, 16, 20, 23]
_one_overflow = [1, 2, *range(2, 23)]

SETTINGS = {"plain": Setting(list(range(1, 24)))}
if FLAVOUR != "torch":  # refuses steps_per_execution > 1
    SETTINGS["plain, spe 4"] = Setting(_ENDS_OF_4, spe=4)
if IS_TF_KERAS:  # counts a batch that overflows
    SETTINGS["loss scale"] = Setting(
        list(range(1, 24)), lambda: loss_scaled(keras.optimizers.SGD(0.01)), overflows=1
    )
else:
    SETTINGS["loss scale"] = Setting(
        _one_overflow, lambda: loss_scaled(keras.optimizers.SGD(0.01)), overflows=1
    )
    SETTINGS["accumulation"] = Setting([n // 2 for n in range(1, 24)], _accumulating)
    if FLAVOUR != "torch":
        SETTINGS["accumulation, spe 4"] = Setting(
            [n // 2 for n in _ENDS_OF_4], _accumulating, spe=4
        )
        SETTINGS["loss scale, spe 4"] = Setting(
            [3, 7, 11, 15, 19, 22],
            lambda: loss_scaled(keras.optimizers.SGD(0.01)),
            spe=4,
            overflows=1,
        )
if ON_TENSORFLOW:  # of Keras 3, spe > 1 and accumulation fail under Mirrored in Keras itself
    SETTINGS["mirrored"] = Setting(list(range(1, 24)), scope=mirrored_scope)
if IS_TF_KERAS:
    SETTINGS["mirrored, spe 4"] = Setting(_ENDS_OF_4, spe=4, scope=mirrored_scope)


@dataclass
class Events:
    """What a callback did, by step."""

    steps: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """A callback for the laws.

    Attributes:
        make: Builds it, from the Events it is to fill in.
        at_end: Whether it fires at the end of a run that is done.
        before_updates: Whether it sets what the next update uses, instead of firing after.
        acts_on_overflow: Whether it does more than to watch where gradients overflow.
        bad: Constructions that must raise: call, error, text.
    """

    make: Callable[[Events], Any]
    bad: list[tuple[Callable[[], Any], type[Exception], str]]
    at_end: bool = False
    before_updates: bool = False
    acts_on_overflow: bool = False

    def expected(self, after_executions: list[int]) -> list[int]:
        """The steps at which it fires: those after an execution that crossed the grid."""
        if self.before_updates:
            begins = [0, *after_executions[:-1]]
            return list(dict.fromkeys(GRID.latest_step(step) or 0 for step in begins))
        fired, before = [], 0
        for step in after_executions:
            if GRID.crosses(before, step):
                fired.append(step)
            before = step
        return fired + [before] * (self.at_end and fired[-1] != before)


class _Lines(logging.Logger):
    def __init__(self, events):
        super().__init__("lines")
        self.events = events

    def info(self, line, *args):
        self.events.steps.append(int(line))

    def __deepcopy__(self, memo):
        return self  # as a logger that logging.getLogger knows


class _Subclass(ks.StepCallback):
    def __init__(self, every, events):
        super().__init__(every)
        self.events = events

    def on_step(self, step, logs):
        assert ks.global_step(self.model) == step
        self.events.steps.append(step)


def _seen(callback, events, step, logs):
    events.steps.append(step)
    type(callback).on_step(callback, step, logs)


def _observed(callback, events):
    """The same callback, which notes its firings."""
    callback.on_step = partial(_seen, callback, events)
    return callback


def _progress_bar(events):
    bar = _observed(ks.StepProgressBar(), events)
    bar.trigger = GRID  # it goes by the clock on the wall
    return bar


_PLACES = TemporaryDirectory(prefix="keras_steps_")
atexit.register(_PLACES.cleanup)


def _new_place(name):
    return Path(mkdtemp(dir=_PLACES.name)) / name


GRID = ks.EverySteps(5)


def rows_for(setting):
    """The rows that the laws hold for in a setting."""
    return {
        name: row for name, row in ROWS.items() if not (setting.overflows and row.acts_on_overflow)
    }


def _evaluates(events):
    return _observed(ks.EvaluateEveryN(arrays(2, seed=7), 5, prefix="test_"), events)


def _looks_for_nan(events):
    return _observed(ks.StopOnNaN(5, action="rollback"), events)


def _profiles(events):
    return _observed(ks.StepProfiler(_new_place("traces"), 5, duration=4), events)


ROWS = {
    "OnStep": Row(
        make=lambda events: ks.OnStep(5, lambda step, logs: events.steps.append(step)),
        bad=[
            (lambda: ks.OnStep(0, print), ValueError, "at least 1; received 0"),
            (
                lambda: ks.OnStep(5, "print"),
                TypeError,
                "function of .step, logs.; received 'print'",
            ),
        ],
    ),
    "StepCallback": Row(
        make=lambda events: _Subclass(5, events),
        bad=[
            (lambda: ks.StepCallback(2.5), TypeError, "must be an integer; received 2.5"),
            (lambda: ks.StepCallback("5"), TypeError, "number of steps or a trigger"),
            (lambda: ks.StepCallback(5, optimizer=3), TypeError, "name of the model's attribute"),
        ],
    ),
    "LogEveryN": Row(
        make=lambda events: ks.LogEveryN(5, start=0, message="{step}", logger=_Lines(events)),
        at_end=True,
        bad=[
            (lambda: ks.LogEveryN(-1), ValueError, "at least 1; received -1"),
            (lambda: ks.LogEveryN(message="{"), ValueError, "no format string"),
        ],
    ),
    "ReportEveryN": Row(
        make=lambda events: _observed(ks.ReportEveryN(lambda step, scalars: None, 5), events),
        at_end=True,
        bad=[
            (lambda: ks.ReportEveryN(print, 0), ValueError, "at least 1; received 0"),
            (lambda: ks.ReportEveryN("wandb"), TypeError, "has no write and no flush"),
            (lambda: ks.ReportEveryN(dict), TypeError, "received <class 'dict'>"),
            (lambda: ks.ReportEveryN(_OnlyWrites()), TypeError, "which has no flush and no close"),
            (lambda: ks.ReportEveryN(print, extra=3), TypeError, "extra. must be a function"),
        ],
    ),
    "StepTensorBoard": Row(
        make=lambda events: _observed(ks.StepTensorBoard(_new_place("logs"), 5), events),
        at_end=True,
        bad=[
            (lambda: ks.StepTensorBoard(3), TypeError, "log_dir. must be a path; received 3"),
            (lambda: ks.StepTensorBoard(""), ValueError, "log_dir. must be a path"),
            (lambda: ks.StepTensorBoard("gs://b/logs"), ValueError, "on this machine"),
            (lambda: ks.StepTensorBoard(every=0), ValueError, "at least 1; received 0"),
            (
                lambda: ks.StepTensorBoard(histograms_every=0),
                ValueError,
                "histograms_every. must be at least 1",
            ),
        ],
    ),
    "StepCSVLogger": Row(
        make=lambda events: _observed(ks.StepCSVLogger(_new_place("metrics.csv"), 5), events),
        at_end=True,
        bad=[
            (lambda: ks.StepCSVLogger(None), TypeError, "must be a path; received None"),
            (lambda: ks.StepCSVLogger("m.csv", "5"), TypeError, "number of steps or a trigger"),
        ],
    ),
    "StepHistory": Row(
        make=lambda events: _observed(ks.StepHistory(5), events),
        at_end=True,
        bad=[
            (lambda: ks.StepHistory(0), ValueError, "at least 1; received 0"),
            (lambda: ks.StepHistory(max_points=2), ValueError, "at least 10; received 2"),
        ],
    ),
    "StepProgressBar": Row(
        make=_progress_bar,
        at_end=True,
        bad=[
            (lambda: ks.StepProgressBar(0), ValueError, "last_step. must be at least 1"),
            (lambda: ks.StepProgressBar(1.5), TypeError, "must be an integer; received 1.5"),
        ],
    ),
    "EvaluateEveryN": Row(
        make=_evaluates,
        at_end=True,
        bad=[
            (lambda: ks.EvaluateEveryN(arrays(1), 0), ValueError, "at least 1; received 0"),
            (lambda: ks.EvaluateEveryN(arrays(1), steps=0), ValueError, "at least 1; received 0"),
            (lambda: ks.EvaluateEveryN(arrays(1), prefix="val"), ValueError, "received 'val'"),
            (lambda: ks.EvaluateEveryN(3), TypeError, "received 3"),
        ],
    ),
    "StepCheckpoint": Row(
        make=lambda events: _observed(
            ks.StepCheckpoint(_new_place("checkpoints"), 5, overwrite=True), events
        ),
        at_end=True,
        bad=[
            (lambda: ks.StepCheckpoint(""), ValueError, "directory. must be a path"),
            (lambda: ks.StepCheckpoint("c", max_to_keep=0), ValueError, "at least 1; received 0"),
            (lambda: ks.StepCheckpoint("c", monitor=3), TypeError, "received 3"),
            (lambda: ks.StepCheckpoint("c", mode="least"), ValueError, "received 'least'"),
            (lambda: ks.StepCheckpoint("c", listeners=[print]), TypeError, "before_save"),
        ],
    ),
    "StepBackupAndRestore": Row(
        make=lambda events: _observed(
            ks.StepBackupAndRestore(_new_place("backup"), 5, on_signal=()), events
        ),
        bad=[
            (lambda: ks.StepBackupAndRestore(""), ValueError, "directory. must be a path"),
            (lambda: ks.StepBackupAndRestore("gs://b/c"), ValueError, "on this machine"),
            (lambda: ks.StepBackupAndRestore("b", keep=0), ValueError, "at least 1; received 0"),
            (lambda: ks.StepBackupAndRestore("b", on_signal="SIGTERM"), TypeError, "tuple"),
            (lambda: ks.StepBackupAndRestore("b", exit_code=-1), ValueError, "received -1"),
            (lambda: ks.StepBackupAndRestore("b", on_change="ask"), ValueError, "received 'ask'"),
        ],
    ),
    "StopOnNaN": Row(
        make=_looks_for_nan,
        at_end=True,
        acts_on_overflow=True,
        bad=[
            (lambda: ks.StopOnNaN(action="go on"), ValueError, "received 'go on'"),
            (lambda: ks.StopOnNaN(max_rollbacks=0), ValueError, "at least 1; received 0"),
        ],
    ),
    "StepScheduled": Row(
        make=lambda events: ks.StepScheduled(
            lambda value: events.steps.append(int(value)), float, every=5
        ),
        before_updates=True,
        bad=[
            (lambda: ks.StepScheduled("momentum", 0.9), TypeError, "function from the step"),
            (lambda: ks.StepScheduled(3, float), TypeError, "name of an attribute"),
            (
                lambda: ks.StepScheduled(print, float, every=ks.EverySecs(1)),
                ValueError,
                "a matter of steps",
            ),
        ],
    ),
    "StepScheduledLR": Row(
        make=lambda events: ks.StepScheduledLR(_Asked(events), every=5),
        before_updates=True,
        bad=[(lambda: ks.StepScheduledLR(0.1), TypeError, "received 0.1")],
    ),
}


if FLAVOUR != "torch":  # refused there
    ROWS["StepProfiler"] = Row(
        make=_profiles,
        bad=[
            (lambda: ks.StepProfiler("traces", 5, duration=5), ValueError, "duration"),
            (lambda: ks.StepProfiler("traces", 5, duration=0), ValueError, "at least 1"),
        ],
    )


class _OnlyWrites:
    def write(self, step, scalars):
        pass


class _Asked:
    """A constant schedule that notes at which steps it is asked."""

    def __init__(self, events):
        self.events = events

    def __call__(self, step):
        if step not in self.events.steps:
            self.events.steps.append(step)
        return 0.01


class InOrder(ks.StepCallback):
    """Names its place in the order at step 5."""

    def __init__(self, order, names):
        super().__init__(5)
        self.order = order
        self.names = names

    def on_step(self, step, logs):
        self.names.append((step, self.order.name))
