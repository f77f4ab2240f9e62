"""The sums of the epoch under way, of which windows take their parts; they begin anew with each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from keras_steps.reports import Snapshot, Sum

if TYPE_CHECKING:
    from keras_steps.clock import Clock
    from keras_steps.readings import Readings
    from keras_steps.training import Training
    from keras_steps.watch import Watch


class EpochSums:
    """What the metrics of a run hold, until an evaluation or the next epoch resets them.

    Args:
        training: What is trained.
        readings: Reads the sums.
    """

    def __init__(self, training: Training, readings: Readings) -> None:
        self._training = training
        self._readings = readings
        self._closed: Snapshot | None = None
        self.closed_totals: Mapping[str, Sum] = {}
        """What the metrics held when the windows took it over."""

    @property
    def are_closed(self) -> bool:
        """Whether the windows have taken over what the epoch brought."""
        return self._closed is not None

    def open(self) -> None:
        """Go on after the metrics have been reset."""
        self._closed = None

    def now(self, clocks: Iterable[Clock]) -> Snapshot:
        """What is read of them, and each clock's learning rate."""
        return self._closed or self._read(clocks)

    def close(self, watches: list[Watch], clocks: Iterable[Clock]) -> None:
        """Let the windows keep what they had of the epoch. Those of a loop outlast its epochs."""
        if watches and self._closed is None and self._training.by_epochs:
            now = self._read(clocks)
            _close_windows(watches, now)
            self._close_with(now)

    def begin_anew(
        self, watches: list[Watch], clocks: Iterable[Clock], *, holds_some: bool, ends: bool
    ) -> None:
        """The metrics hold sums of an earlier epoch, or none: what comes is of the present one.

        If that ends here, none of its steps count; Keras then has what they hold for its result.

        Args:
            watches: Whose windows take over what the metrics hold.
            clocks: As in `now`.
            holds_some: Whether they hold sums.
            ends: Whether the present epoch ends here.
        """
        now = self._read(clocks)
        if holds_some:
            _close_windows(watches, now)
        if ends or self._closed is not None:
            self._close_with(now)
        else:
            self._training.reset_sums()

    def _close_with(self, now: Snapshot) -> None:
        self.closed_totals, self._closed = now.totals, now.without_totals()

    def _read(self, clocks: Iterable[Clock]) -> Snapshot:
        return self._readings.snapshot({clock: clock.optimizer for clock in clocks})


def _close_windows(watches: list[Watch], now: Snapshot) -> None:
    for watch in watches:
        watch.window.close_epoch(now)
