"""One run: what fires at a step, in which order, with which logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

from keras_steps import clock as clocks
from keras_steps import preflight, run_state
from keras_steps.agenda import Agenda, Firing
from keras_steps.epoch_sums import EpochSums
from keras_steps.evaluations import Evaluations
from keras_steps.keras_internals import fetched
from keras_steps.lookout import Lookout
from keras_steps.readings import Readings
from keras_steps.roles import with_companions
from keras_steps.stop_reason import note_stop_reason
from keras_steps.watch import Watch

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback
    from keras_steps.training import Training


class Run(Lookout):
    """Callbacks that follow the counters of one model's optimizers.

    An adapter (to `fit`, or to a loop of one's own) counts `executions` and calls
    `before` and `after` around each one that has reached `attention_at` or the clock
    `deadline`; around the others it does nothing.

    Args:
        training: What is trained.
        callbacks: In the order in which they were given. One with an action that is due at
            other steps has companions, of which Keras knows nothing.
    """

    def __init__(self, training: Training, callbacks: Iterable[StepCallback]) -> None:
        all_of_it = with_companions(callbacks)
        super().__init__(training, sorted(all_of_it, key=lambda callback: callback.order))
        self.epoch: int | None = None
        self.evaluations = Evaluations()
        self.stop_reason: str | None = None
        self.is_backed_up = self.is_resumed = False
        self.is_firing = self.is_ending = self.has_ended = False
        self.owner: Any = None
        self.print_line: Callable[[str], None] = print
        readings = Readings(
            training.sums, self.variables, self.stopwatch, are_of_keras=training.by_epochs
        )
        self._sums = EpochSums(training, readings)
        self._epoch_ends = False
        self._agenda = Agenda(self.callbacks)
        self._has_set_out = False

    # ------------------------------------------------------------ beginning

    def begin(self) -> None:
        """Find each callback's clock, and let each refuse what it can't do."""
        self._note_stop_reason()
        for callback in self.callbacks:
            callback.prepare(self)
            self.watch(callback)
        self.start()
        self.agreement.begin(self._watches)
        self._wait()
        for callback in self.callbacks:
            callback.begin(self)

    def get_state(self, *, in_epoch: bool = False) -> dict[str, run_state.State]:
        """What the callbacks must know to go on from this step.

        Args:
            in_epoch: Whether they go on in an epoch that was closed before its end, with what
                the metrics held then.
        """
        totals = self._sums.closed_totals if in_epoch and self._sums.are_closed else None
        seconds = self.stopwatch.seconds()
        states = run_state.state_of(self.callbacks, self._watches, seconds, totals)
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
        return None if self._sums.are_closed else self.epoch

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
            ends, holds_some = self._epoch_ends or self.stop_reason is not None, epoch is not None
            self._sums.begin_anew(self._watches, self.clocks, holds_some=holds_some, ends=ends)
        for setter in self._setters:
            setter.value, setter.due_step = None, self.clock_of(setter).step
        for callback in self.callbacks:
            callback.rewound(self)
        self._wait()

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

    def goes_on(self, callback: StepCallback) -> bool:
        """Whether the run continues what an earlier one wrote, on the callback's counter."""
        return self.is_resumed or self.begun_at[self.clock_of(callback)] > 0

    # ------------------------------------------------------------ around an execution

    def after(self, logs: Mapping[str, Any], *, epoch_ends: bool) -> None:
        """Fire what has become due with this execution.

        At the last execution of an epoch the step stays open: an evaluation that follows
        belongs to it, and what is due waits for `settle`.
        """
        if self.executions < self._look_at and not self._is_late():
            return
        self._epoch_ends = epoch_ends
        is_signalled, late = self._agreed()
        self._agenda.add(self._firings(self._due(late), logs, clocks.now()))
        with self.stopwatch.paused():
            self._agenda.fire({}, looks_only=True)
        if self.is_over:
            self.stop("reached")
        if not epoch_ends and not self.stop_reason:
            self._fire()
        if is_signalled:
            self.stop("signal")
        self._wait()

    def heed_signals(self) -> None:
        """At an epoch's end, where a signal may have waited for as long as a validation takes."""
        if self.signal or self.agreement.meet(self.executions)[0]:
            self.stop("signal")

    def stop(self, reason: str) -> None:
        """End the run after this execution; after a NaN, nothing else fires."""
        if self.stop_reason is None or reason == "nan":
            self.stop_reason = reason
            self._note_stop_reason()
        if reason == "nan":
            self._agenda.clear()
        self.training.stop()

    def tell_that_it_is_over(self) -> None:
        """Nothing is left of it to be trained: it has been restored at its end, or beyond."""
        over = [clock for clock in self.clocks if self.is_reached(clock)]
        self.print_line(f"already at step {max(clock.step for clock in over or self.clocks)}")
        if over:
            self.stop("reached")

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

    # ------------------------------------------------------------ firing

    def _firings(self, due: list[Watch], logs: Mapping[str, Any], time: float) -> list[Firing]:
        if not due:
            return []
        logs = fetched(logs)
        snapshot = self._sums.now(self.clocks)
        epoch = {} if self.epoch is None else {"epoch": float(self.epoch)}
        firings = []
        for watch in due:
            step = watch.clock.step
            report = watch.window.report(step, logs, snapshot, watch.clock)
            set_ones = self._set_values({*report, "epoch"} - {"learning_rate"})
            firings.append(Firing(watch.callback, step, report | set_ones | epoch))
            watch.window.restart(step, snapshot)
            watch.wait(time)
        return firings

    def _set_values(self, taken: set[str]) -> dict[str, float]:
        """What callbacks have set, by label; one that is taken has a number, from 2."""
        values = {}
        for setter in self._setters:
            if setter.label is None:
                continue
            label = setter.label
            for number in count(2):
                if label not in taken:
                    break
                label = f"{setter.label}_{number}"
            taken.add(label)
            if setter.value is not None:
                values[label] = setter.value
        return values

    def _fire(self) -> None:
        if self.stop_reason == "nan":
            self._agenda.clear()
        if not self._agenda:
            return
        published = self.variables.published if self._agenda.uses_model else nullcontext
        self.is_firing, self.attention_at = True, 0  # until the run waits again
        try:
            with self.stopwatch.paused(), published():
                self._agenda.fire(self.evaluations.after(self.executions))
        finally:
            self.is_firing = False

    # ------------------------------------------------------------ epochs and the end

    def open_epoch(self) -> None:
        """Go on after the metrics have been reset."""
        self._sums.open()
        for setter in self._setters:  # others may have set the same between epochs
            setter.value, setter.due_step = None, self.clock_of(setter).step
        self.stopwatch.go_on()
        self._wait()

    def close_epoch(self) -> None:
        """Keep what the metrics hold before an evaluation or the next epoch resets them."""
        for clock in self.clocks:
            clock.look(self.executions)
        late = [] if self.agreement.meetings is not None else self._agreed()[1]
        self._agenda.add(self._firings(self._due(late), {}, clocks.now()))
        self.stopwatch.pause()
        self._sums.close(self._watches, self.clocks)

    def evaluated(self, *evaluations: Mapping[str, float]) -> None:
        """Hand the results of evaluations at this step to every callback."""
        evaluations = self.agreement.of_chief(evaluations)
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
        self.agreement.meet(self.executions)  # what has failed since the last one
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
