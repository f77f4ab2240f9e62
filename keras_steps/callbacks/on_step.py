"""OnStep: a function as a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras_steps.step_callback import StepCallback
from keras_steps.triggers import Trigger


class OnStep(StepCallback):
    """Calls a function at the steps that a trigger names.

    Args:
        every: When to fire: an interval in steps, or a trigger.
        function: Called with the step and the logs, as `StepCallback.on_step` is.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `every` is less than 1.
        TypeError: If `function` can't be called, or `every` is no trigger.

    Example:

    >>> losses = {}
    >>> callback = OnStep(10, lambda step, logs: losses.update({step: logs["loss"]}))
    """

    def __init__(
        self,
        every: int | Trigger,
        function: Callable[[int, dict[str, float]], Any],
        *,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        if not callable(function):
            raise TypeError(
                f"OnStep(function) must be a function of (step, logs); received {function!r}."
            )
        self.function = function

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        self.function(step, logs)
