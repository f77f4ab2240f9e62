"""How far an epoch of fit has come."""

from __future__ import annotations


class Epoch:
    """The epoch that was opened last, in batches.

    Args:
        cuts_last: Whether Keras makes the last execution shorter where the size is known.

    Attributes:
        size: Its batches, if known.
        resumed_at: How many of them a killed process had done.
        missing: By how many batches executions were cut short.
        is_open: Whether its executions are under way.
        has_ended: Whether its end has been told.
        has_seen_the_end: Whether the data have said that there are no more.
    """

    def __init__(self, *, cuts_last: bool) -> None:
        self.size: int | None = None
        self.resumed_at = self.missing = self._began_at = 0
        self.is_open = self.has_seen_the_end = False
        self.has_ended = True
        self._cuts_last = cuts_last

    def open(self, executions: int, size: int | None, resumed_at: int) -> None:
        """Begin after so many executions of the fit."""
        self.size, self.resumed_at, self.missing = size, resumed_at, 0
        self._began_at = executions
        self.is_open, self.has_ended, self.has_seen_the_end = True, False, False

    def batches_done(self, executions: int, per_execution: int) -> int:
        """How many of its batches have been trained on, here and before a restart.

        Args:
            executions: Those of the fit so far.
            per_execution: Batches of one that is not cut short.
        """
        here = (executions - self._began_at) * per_execution - self.missing
        done = self.resumed_at + here
        return min(done, self.size or done) if self._cuts_last else done
