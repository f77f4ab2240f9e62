"""What reports are made of, read when one is due: running sums, seconds, learning rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from keras_steps import clock as clocks
from keras_steps.foreign_schedules import ScheduleValues
from keras_steps.keras_internals import (
    Variables,
    counter_of,
    learning_rate_source,
    read_number,
)
from keras_steps.reports import Snapshot, Sum


class Readings:
    """Reads what reports are made of, at most once a look."""

    def __init__(
        self,
        sums: Callable[[], Mapping[str, Sum]],
        variables: Variables,
        stopwatch: Stopwatch,
        *,
        are_of_keras: bool,
    ) -> None:
        self._sums = sums
        self._are_of_keras = are_of_keras
        self._variables = variables
        self._stopwatch = stopwatch
        self._schedules: dict[int, ScheduleValues] = {}

    def snapshot(self, optimizers: Mapping[Any, Any]) -> Snapshot:
        """The model's sums, the time, and each optimizer's learning rate, as of now."""
        rates = {key: self._rate_of(optimizer) for key, optimizer in optimizers.items()}
        return Snapshot(self._sums(), self._stopwatch.seconds(), rates, self._are_of_keras)

    def _rate_of(self, optimizer: Any) -> float | None:
        """The rate that the last update used; None if the optimizer has none."""
        source = learning_rate_source(optimizer)
        if source is None:
            return None
        if hasattr(source, "assign"):
            return float(self._variables.read(source))
        if not hasattr(source, "get_config"):
            return float(read_number(source()) if callable(source) else source)
        count = int(self._variables.read(counter_of(optimizer)[0]))  # Keras hands it the raw count
        values = self._schedules.setdefault(id(source), ScheduleValues(source))
        return float(values(max(count - 1, 0)))


class Stopwatch:
    """Seconds of training: the clock stops within `paused`."""

    def __init__(self) -> None:
        self._paused_for = 0.0
        self._paused_at: float | None = None

    def seconds(self) -> float:
        now = clocks.now() if self._paused_at is None else self._paused_at
        return now - self._paused_for

    def pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = clocks.now()

    def go_on(self) -> None:
        if self._paused_at is not None:
            self._paused_for += clocks.now() - self._paused_at
            self._paused_at = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        outermost = self._paused_at is None
        self.pause()
        try:
            yield
        finally:
            if outermost:
                self.go_on()
