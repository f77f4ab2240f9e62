"""One callback in a run: what it waits for, and its window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_steps.clock import Clock
from keras_steps.reports import Window

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback
    from keras_steps.triggers import Trigger


class Watch:
    """One callback in a run: what it waits for, and its window."""

    def __init__(self, callback: StepCallback, trigger: Trigger, clock: Clock) -> None:
        self.callback = callback
        self.trigger = trigger
        self.clock = clock

    def start(self, seconds: float, time: float) -> None:
        """Wait for the first firing after the clock's step."""
        self.window = Window(self.clock.step, seconds)
        self.wait(time)

    def wait(self, time: float) -> None:
        """Wait for the next firing after the one at the clock's step."""
        self.fired_at = self.clock.step
        self.due_step = self.trigger.next_step(self.fired_at)
        self.due_time = self.trigger.next_time(time)

    def is_due(self, time: float) -> bool:
        step_is = self.due_step is not None and self.clock.step >= self.due_step
        return step_is or self.is_late(time)

    def is_late(self, time: float) -> bool:
        return self.due_time is not None and time >= self.due_time

