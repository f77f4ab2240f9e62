"""StopAfter: end the run after a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras_steps.arguments import finite
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.triggers import Trigger


class StopAfter(StepCallback):
    """Ends `fit` when a time budget is used up, so that a job ends before it is killed.

    The run ends with the first execution after the time is up, and `stop_reason` is "time".
    Leave room for that execution and for what comes after it: fit's validation, a last save.
    Each fit has the whole budget, evaluations and saves included, counted from its train
    begin on a clock that never goes back.

    Args:
        seconds: The budget is the sum of the three; each is at least 0.
        minutes: As `seconds`.
        hours: As `seconds`.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If the sum is 0, or one of them is negative or not finite.
        TypeError: If one of them is no number.

    Example:

    >>> callback = StopAfter(hours=11, minutes=30)  # of a job that has twelve
    >>> # model.fit(data, epochs=1000, callbacks=[callback])
    """

    order = Order.STOP
    uses_model = False
    _run: Run | None = None

    def __init__(
        self,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        self.seconds = (
            finite(seconds, "StopAfter(seconds)", least=0)
            + 60 * finite(minutes, "StopAfter(minutes)", least=0)
            + 3600 * finite(hours, "StopAfter(hours)", least=0)
        )
        if self.seconds == 0:
            raise ValueError(
                "StopAfter received no time; give seconds, minutes or hours, as in "
                "StopAfter(hours=11.5)."
            )
        self._time_is_up = _TimeIsUp(self.seconds)
        super().__init__(self._time_is_up, optimizer=optimizer)

    def begin(self, run: Run) -> None:
        self._run = run

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        self._run.stop("time")

    def end(self, run: Run) -> None:
        self._run = self._time_is_up.at = None

    def break_off(self, run: Run) -> None:
        self.end(run)

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None}


class _TimeIsUp(Trigger):
    """Due from so many seconds on after it was first asked, at train begin.

    It keeps that point in time, unlike other triggers: the budget does not begin anew when a
    counter has been restored, nor when a rollback has called off what was due.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at: float | None = None

    def next_step(self, step: int) -> None:
        return None

    def latest_step(self, step: int) -> None:
        return None

    def next_time(self, seconds: float) -> float:
        if self.at is None:
            self.at = seconds + self.seconds
        return self.at
