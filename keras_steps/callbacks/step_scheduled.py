"""StepScheduled and StepScheduledLR: hyperparameters as functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from keras_steps.foreign_schedules import Schedule, ScheduleValues
from keras_steps.keras_internals import (
    Variables,
    core_optimizer,
    learning_rate_source,
    reads_attributes_each_step,
)
from keras_steps.run import Run
from keras_steps.step_callback import StepCallback
from keras_steps.triggers import Trigger, as_trigger


class StepScheduled(StepCallback):
    """Sets a hyperparameter to `schedule(step)` before each update.

    Update number s, counted from 0, uses `schedule(s)`, as in Keras and optax; a batch
    that brings no update keeps the value. With several batches an execution it is the
    value for the execution's first update.

    Args:
        target: What to set. A string names an attribute of the optimizer, such as
            `"weight_decay"`; a variable is assigned; a function is called with the value.
        schedule: A pure function from the step, an int, to a number: one of
            `keras_steps.schedules`, of Keras's or optax's, or your own.
        every: The steps at which the value changes: an interval, or a trigger of steps.
            Between them it is that of the largest grid point so far, 0 counting as one.
        optimizer: As in StepCallback.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If `every` is less than 1 or a matter of seconds. At train begin, if the
            target is not there, or is a Python attribute of the optimizer that the compiled
            training step has taken for a constant. Before an update, if the schedule returns
            something other than a finite number.

    Example:

    >>> strength = []
    >>> callback = StepScheduled(strength.append, lambda step: min(1.0, step / 1000))
    """

    acts_before_updates = True
    _least = -math.inf

    def __init__(
        self,
        target: Any,
        schedule: Schedule,
        *,
        every: int | Trigger = 1,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(optimizer=optimizer)
        name = type(self).__name__
        if not (isinstance(target, str) or hasattr(target, "assign") or callable(target)):
            raise TypeError(
                f"{name}(target) must be the name of an attribute of the optimizer, a variable, or "
                f"a function of the value; received {target!r}."
            )
        if not callable(schedule):
            raise TypeError(
                f"{name}(schedule) must be a function from the step to a number; received "
                f"{schedule!r}."
            )
        self.every = as_trigger(every, f"{name}(every)")
        if self.every.next_time(0.0) is not None:
            raise ValueError(
                f"{name}(every) must be a matter of steps, so that a resumed run gets the same "
                f"values; received {self.every!r}."
            )
        self.target = target
        self.schedule = schedule
        self.value: float | None = None
        self.due_step: int | None = 0
        self._values = ScheduleValues(schedule)

    @property
    def label(self) -> str | None:
        """The name under which reports show the value."""
        if isinstance(self.target, str):
            return self.target
        return getattr(self.target, "name", None) or getattr(self.target, "__name__", "scheduled")

    def begin(self, run: Run) -> None:
        self.value = None
        self._set = self._setter(run)
        for other in run.callbacks:
            if other is self or not isinstance(other, StepScheduled):
                continue
            if _is_same(other.target, self.target) and run.clock_of(other) is run.clock_of(self):
                raise ValueError(
                    f"Two callbacks set {self.label or 'the learning rate'} of the same optimizer; "
                    "keep one. schedules.join puts schedules one after the other."
                )
        self._value_at(run.clock_of(self).step)

    def apply(self, step: int, variables: Variables) -> int | None:
        """Set the value for the update after `step`; returns the step of the next change."""
        value = self._value_at(step)
        if value != self.value:
            self._set(value, variables)
            self.value = value
        return self.every.next_step(step)

    def _value_at(self, step: int) -> float:
        point = self.every.latest_step(step) or 0
        value = self._values(point)
        try:
            number = math.nan if isinstance(value, (bool, str)) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < self._least:
            raise ValueError(
                f"{type(self).__name__}: schedule({point}) returned {value!r}; expected a finite "
                f"number{' of at least 0' if self._least == 0 else ''}."
            )
        return number

    def _setter(self, run: Run) -> Callable[[float, Variables], Any]:
        if not isinstance(self.target, str):
            if hasattr(self.target, "assign"):
                return self._assigner(self.target, run)
            return lambda value, variables: self.target(value)
        if self.target in ("learning_rate", "lr"):  # tf_keras: a copy of it, with a schedule
            raise ValueError(f"StepScheduled({self.target!r}): use StepScheduledLR for this.")
        optimizer = core_optimizer(self.optimizer_of(run.model))
        if not hasattr(optimizer, self.target):
            raise ValueError(
                f"StepScheduled({self.target!r}): {type(optimizer).__name__} has no attribute of "
                "this name."
            )
        current = getattr(optimizer, self.target)
        if hasattr(current, "assign"):
            return self._assigner(current, run)
        if not reads_attributes_each_step(run.model):
            raise ValueError(
                f"StepScheduled({self.target!r}): {type(optimizer).__name__}.{self.target} is the "
                f"Python value {current!r}, which the compiled training step takes for a constant: "
                "setting it would do nothing. Compile the model with run_eagerly=True, or let the "
                "training step read a variable and pass that variable as the target."
            )
        return lambda value, variables: setattr(optimizer, self.target, value)

    def _assigner(self, variable: Any, run: Run) -> Callable[[float, Variables], Any]:
        if "float" not in str(getattr(variable, "dtype", "float")):
            raise ValueError(
                f"{type(self).__name__}: its target is a variable of type {variable.dtype}, which "
                "can't hold the schedule's values. An optimizer built with a whole number, as "
                "SGD(1), has such a learning rate; write SGD(1.0)."
            )
        run.variables.require(variable, type(self).__name__)
        return lambda value, variables: variables.assign(variable, value)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)


class StepScheduledLR(StepScheduled):
    """Sets the learning rate to `schedule(step)` before each update.

    For an optimizer that was built with a number as its learning rate, within
    LossScaleOptimizer too. Under gradient accumulation the schedule sees updates, not
    batches as Keras's own schedules do.

    Args:
        schedule: As in StepScheduled; its values are at least 0.
        every: As in StepScheduled.
        optimizer: As in StepCallback.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: As StepScheduled; at train begin, if the optimizer was built with a
            schedule or another callable, or the rate would be negative.

    Example:

    >>> from keras_steps import schedules
    >>> callback = StepScheduledLR(schedules.warmup(500, schedules.cosine(1e-3, 9_500)))
    """

    _least = 0.0

    def __init__(
        self,
        schedule: Schedule,
        *,
        every: int | Trigger = 1,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__("learning_rate", schedule, every=every, optimizer=optimizer)

    @property
    def label(self) -> None:
        """None: reports show the rate as they read it from the optimizer."""
        return None

    def _setter(self, run: Run) -> Callable[[float, Variables], Any]:
        optimizer = self.optimizer_of(run.model)
        source = learning_rate_source(optimizer)
        if not hasattr(source, "assign"):
            raise ValueError(
                f"StepScheduledLR: {type(core_optimizer(optimizer)).__name__} was built with "
                f"{source!r} as its learning rate, which can't be set from outside. Build it with "
                "a number, as in Adam(learning_rate=0.001), or leave the rate to the optimizer "
                "and drop StepScheduledLR."
            )
        return self._assigner(source, run)
