"""StepScheduledLR: the learning rate as a function of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_steps.foreign_schedules import Schedule
from keras_steps.keras_internals import core_optimizer, learning_rate_source, name_of
from keras_steps.run import Run
from keras_steps.scheduled import Scheduled, Setter
from keras_steps.triggers import Trigger

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class StepScheduledLR(Scheduled):
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

    least = 0.0

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

    def refuse_loop(self, training: LoopTraining) -> None:
        optimizer = training.optimizer_of(self)
        if learning_rate_source(optimizer) is None:
            raise ValueError(
                "StepScheduledLR sets the learning rate of a Keras optimizer, and what counts the "
                f"steps of this loop is {name_of(optimizer)}. Use StepScheduled with a "
                "function that hands the value to your step: StepScheduled(set_rate, schedule)."
            )

    def setter(self, run: Run) -> Setter:
        optimizer = run.training.optimizer_of(self)
        source = learning_rate_source(optimizer)
        if source is None:
            raise ValueError(
                f"StepScheduledLR: {name_of(optimizer)} has no learning rate to set. In a model "
                "with several optimizers name the one that has: optimizer='g_optimizer'."
            )
        if not hasattr(source, "assign"):
            raise ValueError(
                f"StepScheduledLR: {type(core_optimizer(optimizer)).__name__} was built with "
                f"{source!r} as its learning rate, which can't be set from outside. Build it with "
                "a number, as in Adam(learning_rate=0.001), or leave the rate to the optimizer "
                "and drop StepScheduledLR."
            )
        return self.assigner(source, run)
