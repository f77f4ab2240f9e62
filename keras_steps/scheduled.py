"""Scheduled: what StepScheduled and StepScheduledLR have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from keras_steps.foreign_schedules import Schedule, ScheduleValues
from keras_steps.keras_internals import Variables
from keras_steps.roles import SetsBeforeUpdates
from keras_steps.run import Run
from keras_steps.step_callback import StepCallback
from keras_steps.triggers import Trigger, as_trigger, goes_by_time

Setter = Callable[[float, Variables], Any]


class Scheduled(StepCallback, SetsBeforeUpdates):
    """Sets something to `schedule(step)` before each update. Abstract.

    Args:
        target: What is set; two callbacks of a run may not set the same.
        schedule: A pure function from the step to a number.
        every: The steps at which the value changes.
        optimizer: As in StepCallback.
    """

    least: ClassVar[float] = -math.inf
    """The smallest value that makes sense."""

    def __init__(
        self,
        target: Any,
        schedule: Schedule,
        *,
        every: int | Trigger,
        optimizer: str | Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(optimizer=optimizer)
        name = type(self).__name__
        if not callable(schedule):
            raise TypeError(
                f"{name}(schedule) must be a function from the step to a number; received "
                f"{schedule!r}."
            )
        self.every = as_trigger(every, f"{name}(every)")
        if goes_by_time(self.every):
            raise ValueError(
                f"{name}(every) must be a matter of steps, so that a resumed run gets the same "
                f"values; received {self.every!r}."
            )
        self.target = target
        self.schedule = schedule
        self.value: float | None = None
        self.due_step: int | None = 0
        self._values = ScheduleValues(schedule)

    @abstractmethod
    def setter(self, run: Run) -> Setter:
        """What sets the value in this run, or the error that says why it can't be set."""

    def begin(self, run: Run) -> None:
        self.value = None
        self._set = self.setter(run)
        for other in run.callbacks:
            if other is self or not isinstance(other, Scheduled):
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

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_set": None}

    def _value_at(self, step: int) -> float:
        point = self.every.latest_step(step) or 0
        try:
            value = self._values(point)
        except Exception as error:
            error.add_note(f"Raised by the schedule of {type(self).__name__}, at step {point}.")
            raise
        try:
            number = math.nan if isinstance(value, (bool, str)) else float(value)
        except (OverflowError, TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < self.least:
            raise ValueError(
                f"{type(self).__name__}: schedule({point}) returned {value!r}; expected a finite "
                f"number{' of at least 0' if self.least == 0 else ''}."
            )
        return number

    def assigner(self, variable: Any, run: Run) -> Setter:
        """The setter of a variable."""
        if "float" not in str(getattr(variable, "dtype", "float")):
            raise ValueError(
                f"{type(self).__name__}: its target is a variable of type {variable.dtype}, which "
                "can't hold the schedule's values. An optimizer built with a whole number, as "
                "SGD(1), has such a learning rate; write SGD(1.0)."
            )
        if not run.variables.holds(variable):
            raise ValueError(
                f"{type(self).__name__}: {variable!r} is no variable of the model or of its "
                "optimizer, so JAX's compiled training step takes its value for a constant. Make "
                "it an attribute of the model or the optimizer before the first fit."
            )
        return lambda value, variables: variables.assign(variable, value)


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and not hasattr(one, "assign") and bool(one == other)
