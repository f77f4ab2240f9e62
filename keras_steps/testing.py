"""For tests of training scripts and of one's own callbacks: a fake clock, a recorder."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any
from unittest import mock

from keras_steps import clock
from keras_steps.step_callback import StepCallback
from keras_steps.triggers import Trigger


class FakeClock:
    """A clock that stands still until it is told otherwise, so that tests need not sleep.

    Within `with FakeClock() as time:` every trigger, rate and time limit of keras_steps
    reads it instead of the real one, and what would wait calls `advance` instead.

    Args:
        seconds: What it shows at first.

    Example:

    >>> with FakeClock() as time:
    ...     time.advance(60)
    ...     clock.now()
    60.0
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = float(seconds)

    def advance(self, seconds: float) -> None:
        """Let so many seconds go by."""
        self.seconds += seconds

    def __enter__(self) -> FakeClock:
        self._patch = mock.patch.multiple(clock, now=lambda: self.seconds, wait=self.advance)
        self._patch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._patch.stop()


class Recorder(StepCallback):
    """Keeps what it was called with: `steps`, `logs` and `evaluations`.

    Args:
        every: When to fire: an interval in steps, or a trigger.
        optimizer: As in StepCallback.

    Example:

    >>> recorder = Recorder(every=10)
    >>> recorder.steps
    []
    """

    uses_model = False

    def __init__(
        self,
        every: int | Trigger = 1,
        *,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        self.steps: list[int] = []
        self.logs: list[dict[str, float]] = []
        self.evaluations: list[tuple[int, dict[str, float]]] = []

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        self.steps.append(step)
        self.logs.append(logs)

    def on_evaluation(self, step: int, logs: dict[str, float]) -> None:
        self.evaluations.append((step, logs))
