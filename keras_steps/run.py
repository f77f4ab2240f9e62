"""One run: who is due at which step, in which order, with which logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from keras_steps import clock as clocks
from keras_steps import preflight, run_state
from keras_steps.agenda import Agenda, Firing
from keras_steps.agreement import Meetings, Workers
from keras_steps.clock import NEVER, Clock
from keras_steps.distribution import is_chief
from keras_steps.evaluations import Evaluations
from keras_steps.keras_internals import counter_of, fetched
from keras_steps.reports import Readings, Snapshot, Stopwatch
from keras_steps.stop_reason import note_stop_reason
from keras_steps.watch import Watch

if TYPE_CHECKING:
    from keras_steps.scheduled import Scheduled
    from keras_steps.step_callback import StepCallback
    from keras_steps.training import Training


class Run:
    """Callbacks that follow the counters of one model's optimizers.

    An adapter (to `fit`, or to a loop of one's own) counts `executions` and calls
    `before` and `after` around each one that has reached `attention_at` or the clock
    `deadline`; around the others it does nothing.

    Args:
        training: What is trained.
        callbacks: In the order in which they were given. One with an action that is due at
            other steps has `companions`, of which Keras knows nothing.
    """

    def __init__(self, training: Training, callbacks: Iterable[StepCallback]) -> None:
        self.training = training
        self.model = model = training.model
        given = [each for c in callbacks for each in (c, *getattr(c, "companions", ()))]
        self.callbacks = sorted(given, key=lambda callback: callback.order)
        self.variables = training.variables
        self.batches = training.batches
        self.executions = 0
        self.attention_at = 1
        self.deadline: float | None = None
        self.limits: dict[Clock, int] = {}
        self.expected_ends: dict[Clock, int] = {}
        self.begun_at: dict[Clock, int] = {}
        self.epoch: int | None = None
        self.evaluations = Evaluations()
        self.stop_reason: str | None = None
        self.is_backed_up = self.is_resumed = False
        self.is_ending = self.has_ended = False
        self.is_chief = is_chief(model)
        self.workers = Workers(model, is_chief=self.is_chief)
        self.meetings: Meetings | None = None
        self.signal: str | None = None
        self.owner: Any = None
        self.print_line: Callable[[str], None] = print
        self.stopwatch = Stopwatch()
        self._clocks: dict[int, Clock] = {}
        self._clock_of: dict[int, Clock] = {}
        self._watches: list[Watch] = []
        self._readings = Readings(
            training.sums, self.variables, self.stopwatch, are_of_keras=training.by_epochs
        )
        self._closed: Snapshot | None = None
        self._epoch_ends = False
        self._agenda = Agenda(self.callbacks)
        self._has_set_out = False
        self._look_at = 1
        self._set_at = 1

    # ------------------------------------------------------------ beginning

    def begin(self) -> None:
        """Find each callback's clock, and let each refuse what it can't do."""
        self._note_stop_reason()
        for callback in self.callbacks:
            callback.prepare(self)
            clock = self._clock_of[id(callback)] = self._clock_for(callback)
            if callback.trigger is not None:
                self._watches.append(Watch(callback, callback.trigger, clock))
        self._setters: list[Scheduled] = [c for c in self.callbacks if hasattr(c, "apply")]
        self.start()
        if self.workers.are_several and self._has_what_one_could_decide():
            self.meetings = Meetings(self.workers)
            self._wait()
        for callback in self.callbacks:
            callback.begin(self)

    def _has_what_one_could_decide(self) -> bool:
        """Whether a clock on the wall, or a signal, may end the run or be a reason to fire."""
        waits_for_time = any(watch.due_time is not None for watch in self._watches)
        return waits_for_time or any(callback.signals for callback in self.callbacks)

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

    def get_state(self) -> dict[str, run_state.State]:
        """What the callbacks must know to go on from this step."""
        seconds = self.stopwatch.seconds()
        states = run_state.state_of(self.callbacks, self._watches, seconds)
        sums = self.training.get_state()
        return states | {"sums": sums} if sums else states

    def set_state(self, states: Mapping[str, run_state.State]) -> None:
        """Take up what `get_state` gave, at the same step."""
        seconds = self.stopwatch.seconds()
        run_state.give_back(states, self.callbacks, self._watches, seconds)
        if "sums" in states:
            self.training.set_state(states["sums"])
        self._find_limits()
        self._wait()

    @property
    def summed_epoch(self) -> int | None:
        """The epoch whose sums the metrics hold; None if what they hold doesn't count.

        A loop's sums do not end with its epochs: they are of one that lasts.
        """
        if not self.training.by_epochs:
            return 0
        return None if self._closed is not None else self.epoch

    def rewind(self, states: Mapping[str, run_state.State], epoch: int | None) -> None:
        """Go on from an earlier step, whose values the model has been given back.

        Args:
            states: What `get_state` gave at that step.
            epoch: What `summed_epoch` was then. If that is another epoch than now, the windows
                take over what the metrics hold, and the metrics begin anew.
        """
        self._agenda.clear()
        for clock in self.clocks:
            before = clock.predict(self.executions)
            clock.read(self.executions)
            if clock in self.expected_ends:
                self.expected_ends[clock] += clock.step - before
        self.set_state(states)
        if epoch is None or epoch != self.summed_epoch:
            self._begin_sums_anew(holds_some=epoch is not None)
        for setter in self._setters:
            setter.value, setter.due_step = None, self.clock_of(setter).step
        for callback in self.callbacks:
            callback.rewound(self)
        self._wait()

    def _begin_sums_anew(self, *, holds_some: bool) -> None:
        """The metrics hold sums of an earlier epoch, or none: what comes is of the present one.

        If that ends here, none of its steps count; Keras then has what they hold for its result.
        """
        now = self._snapshot()
        if holds_some:
            self._close_windows(now)
        if self._closed is None and not self._epoch_ends and self.stop_reason is None:
            self.training.reset_sums()
        else:
            self._closed = now.without_totals()

    def _close_windows(self, now: Snapshot) -> None:
        for watch in self._watches:
            watch.window.close_epoch(now)

    def _find_limits(self) -> None:
        self.limits = {}
        for callback in self.callbacks:
            clock = self.clock_of(callback)
            last_step = callback.last_step_from(self.begun_at[clock])
            if last_step is not None:
                self.limits[clock] = min(last_step, self.limits.get(clock, last_step))

    def set_out(self) -> None:
        """Once it is certain from which step the run goes on, before its first update."""
        if self._has_set_out:
            return
        self._has_set_out = True
        for callback in self.callbacks:
            callback.before_first_update(self)
        first = [w for w in self._watches if w.callback.at_start and w.clock.step == 0]
        self._agenda.add(Firing(watch.callback, 0, {}) for watch in first)
        self._fire()

    def clock_of(self, callback: StepCallback) -> Clock:
        """The clock that `callback` follows: one clock an optimizer."""
        return self._clock_of[id(callback)]

    def goes_on(self, callback: StepCallback) -> bool:
        """Whether the run continues what an earlier one wrote, on the callback's counter."""
        return self.is_resumed or self.begun_at[self.clock_of(callback)] > 0

    @property
    def clocks(self) -> list[Clock]:
        return list(self._clocks.values())

    @property
    def is_over(self) -> bool:
        """Whether a step to stop at has been reached."""
        return any(clock.step >= last_step for clock, last_step in self.limits.items())

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

    def after(self, logs: Mapping[str, Any], *, epoch_ends: bool) -> None:
        """Fire what has become due with this execution.

        At the last execution of an epoch the step stays open: an evaluation that follows
        belongs to it, and what is due waits for `settle`.
        """
        if self.executions < self._look_at and not self._is_late():
            return
        self._epoch_ends = epoch_ends
        is_signalled, late = self._agreed()
        self._agenda.add(self._collect(logs, late))
        with self.stopwatch.paused():
            self._agenda.fire({}, looks_only=True)
        if self.is_over:
            self.stop("reached")
        if not epoch_ends and not self.stop_reason:
            self._fire()
        if is_signalled:
            self.stop("signal")
        self._wait()

    def interrupt(self, signal: str) -> None:
        """Let the run end before its next execution; called by a signal's handler.

        Where several workers take part they are told at their next meeting, and all end.
        """
        if self.meetings is None:
            self.signal, self.attention_at = signal, 0
        else:
            self.meetings.signal = signal

    def heed_signals(self) -> None:
        """At an epoch's end, where a signal may have waited for as long as a validation takes."""
        if self.signal or (self.meetings is not None and self._meet()[0]):
            self.stop("signal")

    def stop(self, reason: str) -> None:
        """End the run after this execution; after a NaN, nothing else fires."""
        if self.stop_reason is None or reason == "nan":
            self.stop_reason = reason
            self._note_stop_reason()
        if reason == "nan":
            self._agenda.clear()
        self.training.stop()

    def _note_stop_reason(self) -> None:
        if self.model is not None:
            note_stop_reason(self.model, self.stop_reason)

    @property
    def is_done(self) -> bool:
        """Whether the run ends, or goes on only when it is started anew with a larger target."""
        if self.stop_reason in ("time", "signal"):
            return not self.is_backed_up
        return self.stop_reason != "nan"

    def request(self, callback: StepCallback) -> None:
        """Let a callback fire at this step, though its trigger does not say so."""
        for watch in self._watches:
            if watch.callback is callback and callback not in self._agenda:
                watch.clock.look(self.executions)
                self._agenda.add(self._firings([watch], {}, clocks.now()))

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
        if self.meetings is not None:
            return self._meet() if self.executions >= self.meetings.next_at else (False, [])
        time = clocks.now()
        return False, [watch for watch in self._watches if watch.is_late(time)]

    def _meet(self) -> tuple[bool, list[Watch]]:
        """Several workers hear of each other's signals, and of the chief's clock."""
        assert self.meetings is not None
        now, times = clocks.now(), [watch.due_time for watch in self._watches]
        remaining = [None if time is None else time - now for time in times]
        is_signalled, due = self.meetings.meet(self.executions, now, remaining)
        late = [watch for watch, is_due in zip(self._watches, due, strict=True) if is_due]
        return is_signalled, late

    def _collect(self, logs: Mapping[str, Any], late: list[Watch]) -> list[Firing]:
        """Read the clocks on which something may be due, and build the logs of what is.

        Args:
            logs: Keras's logs of the execution.
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
        due = [w for w in self._watches if w.is_due() or w in late or self._looks_last(w)]
        return self._firings(due, logs, clocks.now())

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
        meetings = [] if self.meetings is None else [self.meetings.next_at]
        self._look_at = min([*looks, *checks, *first, *meetings], default=NEVER)
        changes = [self.clock_of(s).begun_from(s.due_step) for s in self._setters]
        self._set_at = max(self.executions + 1, min(changes, default=NEVER))
        self.attention_at = min(self._look_at, self._set_at)
        times = [watch.due_time for watch in self._watches if watch.due_time is not None]
        self.deadline = min(times, default=None) if self.meetings is None else None

    # ------------------------------------------------------------ firing

    def _firings(self, due: list[Watch], logs: Mapping[str, Any], time: float) -> list[Firing]:
        if not due:
            return []
        logs = fetched(logs)
        snapshot = self._closed or self._snapshot()
        set_ones = {s.label: s.value for s in self._setters if s.label and s.value is not None}
        epoch = {} if self.epoch is None else {"epoch": float(self.epoch)}
        firings = []
        for watch in due:
            step = watch.clock.step
            report = watch.window.report(step, logs, snapshot, watch.clock)
            firings.append(Firing(watch.callback, step, report | set_ones | epoch))
            watch.window.restart(step, snapshot)
            watch.wait(time)
        return firings

    def _snapshot(self) -> Snapshot:
        return self._readings.snapshot({clock: clock.optimizer for clock in self.clocks})

    def _fire(self) -> None:
        if self.stop_reason == "nan":
            self._agenda.clear()
        if not self._agenda:
            return
        uses_model = self._agenda.uses_model
        with self.stopwatch.paused(), self.variables.published() if uses_model else nullcontext():
            self._agenda.fire(self.evaluations.after(self.executions))

    # ------------------------------------------------------------ epochs and the end

    def open_epoch(self) -> None:
        """Go on after the metrics have been reset."""
        self._closed = None
        for setter in self._setters:  # others may have set the same between epochs
            setter.value, setter.due_step = None, self.clock_of(setter).step
        self.stopwatch.go_on()
        self._wait()

    def close_epoch(self) -> None:
        """Keep what the metrics hold before an evaluation or the next epoch resets them."""
        for clock in self.clocks:
            clock.look(self.executions)
        late = [] if self.meetings is not None else self._agreed()[1]
        self._agenda.add(self._collect({}, late))
        self.stopwatch.pause()
        if self._watches and self._closed is None:
            now = self._snapshot()
            self._close_windows(now)
            self._closed = now.without_totals()

    def evaluated(self, *evaluations: Mapping[str, float]) -> None:
        """Hand the results of evaluations at this step to every callback."""
        step = max(clock.step for clock in self.clocks)
        new: dict[str, float] = {}
        for results in evaluations:
            new |= self.evaluations.add(self.executions, step, results)
        for callback in self.callbacks:
            if new and self.stop_reason != "nan":
                callback.on_evaluation(self.clock_of(callback).step, dict(new))

    def settle(self, logs: Mapping[str, float]) -> None:
        """Fire what waited for the step's evaluation, in one order with what fires at the end.

        If nothing waited, or it can't be known that this is the end, `end` fires the latter.

        Args:
            logs: Keras's logs of the epoch, for metrics that are no means.
        """
        self._agenda.complete(logs)
        self.is_ending = bool(self._agenda) and self._is_at_the_end()
        if self.is_ending:
            self._add_what_fires_last(logs)
        self._fire()

    def end(self, logs: Mapping[str, float]) -> None:
        """Fire for the last step what fires at the end, and let the callbacks finish."""
        self.is_ending = True
        self._agenda.complete(logs)
        self._add_what_fires_last(logs)
        if self._agenda:
            self.set_out()  # not yet where all epochs were done, but for what fires last
        self._fire()
        for callback in self.callbacks:
            callback.end(self)
        self.has_ended = True

    def break_off(self) -> None:
        """Unless it has ended, let the callbacks close what they have open; nothing fires."""
        if self.has_ended:
            return
        self.has_ended = True
        for callback in self.callbacks:
            try:
                callback.break_off(self)
            except Exception as error:  # another one is on its way, or the next run
                preflight.warn(f"{type(callback).__name__}, broken off: {error!r}")

    def _is_at_the_end(self) -> bool:
        """Whether this is known to be the last step, and that no clock says otherwise by now."""
        if self.stop_reason is not None:
            return True
        ends = ((clock, self.last_step(clock)) for clock in self.clocks)
        reached = any(end is not None and clock.step >= end for clock, end in ends)
        return (reached or self.training.is_stopping) and not self._is_late()

    def _add_what_fires_last(self, logs: Mapping[str, float]) -> None:
        if self.is_done:
            last = [w for w in self._watches if w.callback.at_end and w.clock.step > w.fired_at]
            self._agenda.add(self._firings(last, logs, clocks.now()))
