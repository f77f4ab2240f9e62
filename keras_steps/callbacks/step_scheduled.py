"""StepScheduled: a hyperparameter as a function of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_steps.foreign_schedules import Schedule
from keras_steps.keras_internals import core_optimizer, reads_attributes_each_step
from keras_steps.run import Run
from keras_steps.scheduled import Scheduled, Setter
from keras_steps.triggers import Trigger

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class StepScheduled(Scheduled):
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

    def __init__(
        self,
        target: Any,
        schedule: Schedule,
        *,
        every: int | Trigger = 1,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        if not (isinstance(target, str) or hasattr(target, "assign") or callable(target)):
            raise TypeError(
                "StepScheduled(target) must be the name of an attribute of the optimizer, a "
                f"variable, or a function of the value; received {target!r}."
            )
        super().__init__(target, schedule, every=every, optimizer=optimizer)

    @property
    def label(self) -> str | None:
        """The name under which reports show the value, numbered from 2 where it is taken."""
        if isinstance(self.target, str):
            return self.target
        return getattr(self.target, "name", None) or getattr(self.target, "__name__", "scheduled")

    def refuse_loop(self, training: LoopTraining) -> None:
        optimizer = core_optimizer(training.optimizer_of(self))
        if isinstance(self.target, str) and not hasattr(
            getattr(optimizer, self.target, None), "assign"
        ):
            raise ValueError(
                f"StepScheduled({self.target!r}): {type(optimizer).__name__}, which counts the "
                "steps of this loop, has no variable of this name, and what is a Python value may "
                "be a constant for the step. Pass a variable that the step reads, or a function "
                "that hands it the value."
            )

    def setter(self, run: Run) -> Setter:
        if not isinstance(self.target, str):
            if hasattr(self.target, "assign"):
                return self.assigner(self.target, run)
            return lambda value, variables: self.target(value)
        if self.target in ("learning_rate", "lr"):  # tf_keras: a copy of it, with a schedule
            raise ValueError(f"StepScheduled({self.target!r}): use StepScheduledLR for this.")
        optimizer = core_optimizer(run.training.optimizer_of(self))
        if not hasattr(optimizer, self.target):
            raise ValueError(
                f"StepScheduled({self.target!r}): {type(optimizer).__name__} has no attribute of "
                "this name."
            )
        current = getattr(optimizer, self.target)
        if hasattr(current, "assign"):
            return self.assigner(current, run)
        if not reads_attributes_each_step(run.model):
            raise ValueError(
                f"StepScheduled({self.target!r}): {type(optimizer).__name__}.{self.target} is the "
                f"Python value {current!r}, which the compiled training step takes for a constant: "
                "setting it would do nothing. Compile the model with run_eagerly=True, or let the "
                "training step read a variable and pass that variable as the target."
            )
        return lambda value, variables: setattr(optimizer, self.target, value)
