"""What the workers of a run decide together, so that all of them do it at the same step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from keras_steps import clock as clocks
from keras_steps import roll_call
from keras_steps.clock import NEVER
from keras_steps.distribution import is_chief, joining_backend, refuse_unknown_workers
from keras_steps.roles import signals_of
from keras_steps.signals import undo_swallowing
from keras_steps.triggers import goes_by_time
from keras_steps.watch import Watch
from keras_steps.workers import Workers

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback
    from keras_steps.training import Training

T = TypeVar("T")

MOST_EXECUTIONS = 100
"""Between two meetings at most, however quick they are."""

MOST_SECONDS = 5.0
"""Between two meetings at most, as far as one execution is not longer: how late a signal, which
gives a process thirty seconds in most places, is heard of."""


class Agreement:
    """What a run and those of the other workers agree on; alone, it decides by itself.

    Args:
        training: What is trained.
        callbacks: All of the run's, in their order at a step.

    Attributes:
        workers: Those of the run.
        decides_together: Whether each of them sees results of its own, and they agree on
            those to go by.
        meetings: Where they hear of each other's signals and times; None if they need not.
    """

    def __init__(self, training: Training, callbacks: list[StepCallback]) -> None:
        asked, is_shared = training.asked_for_workers, training.results_are_shared
        self.workers = Workers(asked, is_chief=is_chief(asked))
        self._backend = joining_backend(asked)
        self._reads_together = is_shared and self._backend not in ("jax", "torch")
        self._has_to_compare = self.workers.are_several and roll_call.is_needed(
            callbacks, reading_is_collective=self._reads_together, results_are_shared=is_shared
        )
        self.decides_together = self._has_to_compare and not is_shared
        self.meetings: Meetings | None = None
        self._training = training
        self._callbacks = callbacks
        self._timed: list[Watch] = []

    def call_the_roll(self, plan: Mapping[str, Any]) -> None:
        """Before several workers wait for each other: see that all of them do the same.

        Args:
            plan: What has to be the same on all of them, beside the callbacks.

        Raises:
            RuntimeError: If it isn't, or a worker doesn't come.
        """
        if not self._has_to_compare:
            return
        if self.meetings is None:  # else the run waits for signals by now
            undo_swallowing(each for c in self._callbacks for each in signals_of(c))
        callbacks = roll_call.described(self._callbacks, reading_is_collective=self._reads_together)
        roll_call.hold(self._backend, self.workers.seat, {"callbacks": callbacks, **plan})

    def of_all_workers(self, thing: T) -> list[T]:
        """What each worker has found, where they may have found different things to decide by."""
        return self.workers.gathered(thing) if self.decides_together else [thing]

    def of_chief(self, thing: T) -> T:
        """What all decide by, where each has found a thing of its own."""
        if not self.decides_together:
            return thing
        given: T = self.workers.by_chief(lambda: thing)  # type: ignore[assignment]
        return given

    def begin(self, watches: list[Watch]) -> None:
        """From now on, decide together what a clock or a signal would tell only one.

        Args:
            watches: All that are waited for.
        """
        self._timed = [watch for watch in watches if goes_by_time(watch.trigger)]
        waits_for_signal = any(map(signals_of, self._callbacks))
        if self._timed and not self.workers.are_several:
            refuse_unknown_workers(self._training.asked_for_workers)
        if self.workers.are_several and (self._timed or waits_for_signal):
            self.meetings = Meetings(self.workers)

    @property
    def next_at(self) -> int:
        """The execution after which the workers meet next."""
        return NEVER if self.meetings is None else self.meetings.next_at

    def meet(self, executions: int) -> tuple[bool, list[Watch]]:
        """Hear of the others' signals and of the chief's clock, where there are meetings.

        Args:
            executions: Those of the run so far.

        Returns:
            Whether a signal ends the run, and whose time has come.

        Raises:
            Exception: If a worker has failed, or has made another number of executions.
        """
        if self.meetings is None:
            return False, []
        now, times = clocks.now(), [watch.due_time for watch in self._timed]
        remaining = [None if time is None else time - now for time in times]
        is_signalled, due = self.meetings.meet(executions, now, remaining)
        late = [watch for watch, is_due in zip(self._timed, due, strict=True) if is_due]
        return is_signalled, late

    def fail(self, error: Exception) -> None:
        """Raise what has failed in something that no other worker takes part in.

        Where workers meet, all of them raise, at the next meeting: one that ended by itself
        would leave the others in a collective, until they found out.
        """
        if self.meetings is None:
            raise error
        self.meetings.failure = self.meetings.failure or error

    def attempt(self, action: Callable[[], object]) -> None:
        """Do something that no other worker takes part in; see `fail`."""
        try:
            action()
        except Exception as error:
            self.fail(error)

    def let_chief(self, action: Callable[[], object]) -> None:
        """Let the chief alone do something, of which the others hear if it fails.

        Args:
            action: On the chief, what a callback does that only reports. It may be on the
                chief alone, where to read what it reports does not take all workers.
        """
        if self._reads_together:
            self.workers.by_chief(action)
        elif self.workers.is_chief:
            self.attempt(action)

    @property
    def has_failed(self) -> bool:
        """Whether this worker goes on only until the others hear of its failure."""
        return self.meetings is not None and self.meetings.failure is not None


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
