"""What several workers decide together, so that all of them do it at the same step."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from keras_steps.channels import Channel, channel_of
from keras_steps.distribution import Seat, seat_of

T = TypeVar("T")

MOST_EXECUTIONS = 100
"""Between two meetings at most, however quick they are."""

MOST_SECONDS = 5.0
"""Between two meetings at most, as far as one execution is not longer: how late a signal, which
gives a process thirty seconds in most places, is heard of."""


class Workers:
    """The workers that train one model together, as one of them sees them.

    Alone, it asks nobody. Among several, each of its methods is for all of them to call, in
    the same order.

    Args:
        model: The model that is trained.
        is_chief: Whether this worker is the one that writes.
    """

    def __init__(self, model: Any, *, is_chief: bool) -> None:
        self.is_chief = is_chief
        self.seat: Seat = seat_of(model)
        self._model = model
        self._channel: Channel | None = None

    @property
    def are_several(self) -> bool:
        return self.seat.count > 1

    @property
    def collectives(self) -> int:
        """How many there have been."""
        return 0 if self._channel is None else self._channel.uses

    @property
    def channel(self) -> Channel:
        """The way to the others."""
        if self._channel is None:
            self._channel = channel_of(self._model, self.seat)
        return self._channel

    def gathered(self, thing: Any) -> list[Any]:
        """What each worker gives, in their order: plain values and arrays."""
        if not self.are_several:
            return [thing]
        return [pickle.loads(held) for held in self.channel.gathered_bytes(pickle.dumps(thing))]

    def by_chief(self, action: Callable[[], T]) -> T | None:
        """Let the chief alone do something, and all have its result, of plain values.

        Raises:
            RuntimeError: On the others, if it failed on the chief.
            Exception: What it has raised, on the chief.
        """
        if not self.are_several:
            return action() if self.is_chief else None
        said, error = _tried(action) if self.is_chief else (None, None)
        said_by_all = self.gathered((self.is_chief, said, _told(error)))
        self._raise([message for _, _, message in said_by_all], error)
        word: T | None = next(word for is_chief, word, _ in said_by_all if is_chief)
        return word

    def by_all(self, action: Callable[[], T]) -> T:
        """Do something on each worker; if one of them fails, all do.

        Raises:
            RuntimeError: On the others, if it failed on some.
            Exception: What it has raised, where it did.
        """
        if not self.are_several:
            return action()
        result, error = _tried(action)
        self._raise(self.gathered(_told(error)), error)
        return result  # type: ignore[return-value]

    def raise_together(self, error: Exception | None) -> None:
        """All raise what has failed on some of them.

        Args:
            error: What has failed on this one.
        """
        self._raise(self.gathered(_told(error)), error)

    def _raise(self, messages: Sequence[str | None], error: Exception | None) -> None:
        """All raise if one has failed: its own error there, and elsewhere one that tells of it."""
        failed = [(number, message) for number, message in enumerate(messages) if message]
        if error is not None:
            error.add_note(f"That was on worker {self.seat.index} of {self.seat.count}.")
            raise error
        if failed:
            told = "; ".join(f"worker {number}: {message}" for number, message in failed)
            raise RuntimeError(f"the run ends on all of its workers, as one has failed: {told}")


class Meetings:
    """When the workers of a run hear of each other, and what they agree on there.

    A meeting comes after an execution whose number all of them know since the meeting before.
    It is one collective. There they share whether a signal has reached one of them, or one has
    failed in something that it did alone, and the
    chief says what its clock has made due, and when to meet again: as soon as the next thing
    is due by its estimate, and at least every hundred executions, or few seconds. The first
    intervals are short, as nothing is known yet of how long an execution takes.

    Args:
        workers: Those of the run.

    Attributes:
        next_at: The execution after which the next meeting is.
        held: How many there have been.
        signal: The name of a signal that this worker has received.
        failure: What this worker has failed with, to be raised by all at the next meeting.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.next_at = 1
        self.held = 0
        self.signal: str | None = None
        self.failure: Exception | None = None
        self._met_at = (0, 0.0)
        self._seconds_each: float | None = None
        self._most = 1

    def meet(
        self, executions: int, time: float, remaining: Sequence[float | None]
    ) -> tuple[bool, list[bool]]:
        """Hold the meeting after so many executions.

        Args:
            executions: Those of the run so far.
            time: What this worker's clock shows. What the run did beside training counts as
                well: a signal does not wait for it.
            remaining: For each that may wait for a time, the seconds until it is due; None for
                one that doesn't. Of other workers than the chief only their number counts.

        Returns:
            Whether the run is to end, as a signal has reached a worker; and for each of
            `remaining` whether it is due.

        Raises:
            Exception: On the worker that has failed, its own; on the others a RuntimeError.
            RuntimeError: If they have not made as many executions.
        """
        due = [left is not None and left <= 0 for left in remaining]
        until = min((left for left in remaining if left is not None and left > 0), default=math.inf)
        interval = self._next_interval(executions, time, 0.0 if any(due) else until)
        said = (self._workers.is_chief, self.signal is not None, self.failure is not None)
        row = np.array([*said, interval, executions, *due], np.int64)
        rows = self._workers.channel.gathered(row)
        by_chief = rows[rows[:, 0].argmax()]
        self.held += 1
        self._met_at = executions, time
        self.next_at = executions + int(by_chief[3])
        if rows[:, 2].any():
            self._workers.raise_together(self.failure)
        if (rows[:, 4] != executions).any():
            raise RuntimeError(
                "the workers of a run have made different numbers of executions, "
                f"{', '.join(map(str, rows[:, 4]))}: they have other numbers of batches, or one "
                "has left an epoch or a loop early. Give all of them as many."
            )
        return bool(rows[:, 1].any()), [bool(is_due) for is_due in by_chief[5:]]

    def _next_interval(self, executions: int, time: float, until: float) -> int:
        """As many executions as fit into the time; after a firing one, to ask the clock again."""
        before, then = self._met_at
        if executions > before:
            self._seconds_each = (time - then) / (executions - before)
        most, self._most = self._most, min(MOST_EXECUTIONS, 2 * self._most)
        if until <= 0:
            return 1
        if not self._seconds_each:  # a clock that stands still, as in tests
            return most
        return max(1, min(most, math.ceil(min(until, MOST_SECONDS) / self._seconds_each)))


def _tried(action: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return action(), None
    except Exception as error:
        return None, error


def _told(error: Exception | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"
