"""When a run has to look: who waits for which step of which counter, or for a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_steps import clock as clocks
from keras_steps import preflight
from keras_steps.agreement import Agreement
from keras_steps.clock import NEVER, Clock
from keras_steps.keras_internals import counter_of
from keras_steps.readings import Stopwatch
from keras_steps.roles import SetsBeforeUpdates
from keras_steps.watch import Watch

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback
    from keras_steps.training import Training


class Lookout:
    """The clocks of a run, and those who wait for their steps.

    It knows when something may be due, and what is; a Run knows what to do then.

    Args:
        training: What is trained.
        callbacks: In their order at a step.

    Attributes:
        executions: Those of the run so far, counted by its adapter.
        attention_at: The execution from which on the adapter has to ask.
        deadline: The time from which on it has to, whatever the execution.
        limits: The step to stop at, of each clock that has one.
        expected_ends: The step at which the epochs will be over, where that can be told.
        begun_at: The step at which the run began.
    """

    def __init__(self, training: Training, callbacks: list[StepCallback]) -> None:
        self.training = training
        self.model = training.model
        self.callbacks = callbacks
        self.variables = training.variables
        self.batches = training.batches
        self.executions = 0
        self.attention_at = 1
        self.deadline: float | None = None
        self.limits: dict[Clock, int] = {}
        self.expected_ends: dict[Clock, int] = {}
        self.begun_at: dict[Clock, int] = {}
        self.agreement = Agreement(training, callbacks)
        self.workers = self.agreement.workers
        self.is_chief = self.workers.is_chief
        self.signal: str | None = None
        self.stopwatch = Stopwatch()
        self._clocks: dict[int, Clock] = {}
        self._clock_of: dict[int, Clock] = {}
        self._watches: list[Watch] = []
        self._setters: list[SetsBeforeUpdates] = []
        self._look_at = 1
        self._set_at = 1

    # ------------------------------------------------------------ beginning

    def watch(self, callback: StepCallback) -> None:
        """Follow the counter that a callback is due by."""
        clock = self._clock_of[id(callback)] = self._clock_for(callback)
        if callback.trigger is not None:
            self._watches.append(Watch(callback, callback.trigger, clock))
        if isinstance(callback, SetsBeforeUpdates):
            self._setters.append(callback)

    def _clock_for(self, callback: StepCallback) -> Clock:
        optimizer = self.training.optimizer_of(callback)
        key = id(counter_of(optimizer)[0])
        if key not in self._clocks:
            is_predictable = self.training.counts_each_batch(optimizer)
            self._clocks[key] = Clock(optimizer, self.variables, self.batches, is_predictable)
        return self._clocks[key]

    def start(self) -> None:
        """Read the counters, and wait for what comes after them."""
        for clock in self.clocks:
            clock.start()
        self.begun_at = {clock: clock.step for clock in self.clocks}
        self._find_limits()
        seconds, time = self.stopwatch.seconds(), clocks.now()
        for watch in self._watches:
            watch.start(seconds, time)
        for setter in self._setters:
            setter.due_step = self.clock_of(setter).step
        self._wait()

    def start_again(self) -> None:
        """The same, if something has set a counter since."""
        known = [clock.count for clock in self.clocks]
        for clock in self.clocks:
            clock.start()
        if [clock.count for clock in self.clocks] != known:
            self.start()

    def _find_limits(self) -> None:
        self.limits = {}
        for callback in self.callbacks:
            clock = self.clock_of(callback)
            last_step = callback.last_step_from(self.begun_at[clock])
            if last_step is not None:
                self.limits[clock] = min(last_step, self.limits.get(clock, last_step))

    def clock_of(self, callback: StepCallback | SetsBeforeUpdates) -> Clock:
        """The clock that `callback` follows: one clock an optimizer."""
        return self._clock_of[id(callback)]

    @property
    def clocks(self) -> list[Clock]:
        return list(self._clocks.values())

    @property
    def is_over(self) -> bool:
        """Whether a step to stop at has been reached."""
        return any(map(self.is_reached, self.limits))

    def is_reached(self, clock: Clock) -> bool:
        """Whether the step to stop at has been reached on this clock, if it has one."""
        return clock in self.limits and clock.step >= self.limits[clock]

    def last_step(self, clock: Clock) -> int | None:
        """The step at which the run will end, as far as that is known."""
        known = [steps[clock] for steps in (self.limits, self.expected_ends) if clock in steps]
        return min(known, default=None)

    # ------------------------------------------------------------ around an execution

    def before(self) -> int:
        """Set what the next updates use. Returns how many batches may run; 0: stop here."""
        if self.executions >= self._set_at:
            self._set()
        batches = self.batches
        if self.executions >= self._look_at:
            done = self.executions - 1
            for clock, last_step in self.limits.items():
                if clock.batches_until(last_step, done) < batches:
                    clock.exact(done)
                    batches = min(batches, clock.batches_until(last_step, done))
        return max(0, batches)

    def look(self) -> None:
        """Read the counters, where a run breaks off that nobody has waited for."""
        for clock in self.clocks:
            clock.look(self.executions)

    def interrupt(self, signal: str) -> None:
        """Let the run end before its next execution; called by a signal's handler.

        Where several workers take part they are told at their next meeting, and all end.
        """
        if self.agreement.meetings is None:
            self.signal, self.attention_at = signal, 0
        else:
            self.agreement.meetings.signal = signal

    def _set(self) -> None:
        done = self.executions - 1
        for setter in self._setters:
            clock = self.clock_of(setter)
            if setter.due_step is not None and clock.predict(done) >= setter.due_step:
                step = clock.exact(done)
                if step >= setter.due_step:
                    setter.due_step = setter.apply(step, self.variables)
        changes = [self.clock_of(s).begun_from(s.due_step) for s in self._setters]
        self._set_at = max(self.executions + 1, min(changes, default=NEVER))
        self.attention_at = min(self._look_at, self._set_at)

    def _is_late(self) -> bool:
        return self.deadline is not None and clocks.now() >= self.deadline

    def _agreed(self) -> tuple[bool, list[Watch]]:
        """Whether a signal ends the run, and whose time has come: for all workers alike."""
        if self.executions >= self.agreement.next_at:
            return self.agreement.meet(self.executions)
        if self.agreement.meetings is not None:
            return False, []
        time = clocks.now()
        return False, [watch for watch in self._watches if watch.is_late(time)]

    def _due(self, late: list[Watch]) -> list[Watch]:
        """Read the clocks on which something may be due, and tell what is.

        Args:
            late: Those whose time has come.
        """
        for clock, due_step in self._awaited().items():
            measure = self.executions == 1 and not clock.predictable
            if measure or clock.predict(self.executions) >= due_step:
                clock.look(self.executions)
            if clock.rests_after(self.executions):
                preflight.warn(preflight.resting_counter(clock))
        for watch in late:
            watch.clock.look(self.executions)
        return [w for w in self._watches if w.is_due() or w in late or self._looks_last(w)]

    def _looks_last(self, watch: Watch) -> bool:
        """Whether what the step to stop at has is to be looked at, so that it may be undone."""
        return self.is_over and watch.callback.looks_first and watch.clock.step > watch.fired_at

    def _awaited(self) -> dict[Clock, int]:
        """Each clock with the nearest step that someone waits for on it."""
        nearest = dict.fromkeys(self.clocks, NEVER) | self.limits
        for watch in self._watches:
            if watch.due_step is not None:
                nearest[watch.clock] = min(nearest[watch.clock], watch.due_step)
        return nearest

    def _wait(self) -> None:
        looks = [clock.reached_with(step) for clock, step in self._awaited().items()]
        checks = [clock.check_at for clock in self.clocks if clock.check_at > self.executions]
        first = [1] if self.executions == 0 else []
        self._look_at = min([*looks, *checks, *first, self.agreement.next_at])
        changes = [self.clock_of(s).begun_from(s.due_step) for s in self._setters]
        self._set_at = max(self.executions + 1, min(changes, default=NEVER))
        self.attention_at = min(self._look_at, self._set_at)
        times = [watch.due_time for watch in self._watches if watch.due_time is not None]
        self.deadline = min(times, default=None) if self.agreement.meetings is None else None
