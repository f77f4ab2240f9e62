"""One callback in a run: what it waits for, and its window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_steps.clock import Clock
from keras_steps.reports import Sum, Window

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

    def is_due(self) -> bool:
        """Whether its step has come."""
        return self.due_step is not None and self.clock.step >= self.due_step

    def is_late(self, time: float) -> bool:
        """Whether its time has come."""
        return self.due_time is not None and time >= self.due_time

    def get_state(self, seconds: float, totals: Mapping[str, Sum] | None) -> dict[str, Any]:
        """When it fired last, and what its window holds; see `Window.get_state`."""
        return {"fired_at": self.fired_at, "window": self.window.get_state(seconds, totals)}

    def set_state(self, state: dict[str, Any], seconds: float) -> None:
        """Take up what `get_state` gave, at the step that the clock shows now."""
        self.fired_at = state["fired_at"]
        self.due_step = self.trigger.next_step(self.clock.step)
        self.window.set_state(state["window"], seconds)
