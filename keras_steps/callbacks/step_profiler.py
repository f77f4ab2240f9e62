"""StepProfiler: traces of a few steps each, for TensorBoard's Profile tab."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from keras_steps import preflight
from keras_steps.arguments import integral
from keras_steps.keras_internals import backend_of, is_within
from keras_steps.profiling import (
    BACKENDS,
    ProfilerIsBusyError,
    Trace,
    directory_for,
    place_of_traces,
)
from keras_steps.roles import HasCompanions
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.timelines import local_path, require_writable
from keras_steps.triggers import EverySteps, Trigger, as_trigger, goes_by_time


class StepProfiler(StepCallback, HasCompanions):
    """Traces `duration` steps from each due step on, on TensorFlow and JAX.

    What the ProfilerHook of TF1 was for. A trace begins with the execution after the one
    that reached the due step, so it never holds a fit's first step, which compiles, and ends
    with the one that reaches the due step + `duration`. Under `steps_per_execution` it is
    made of whole executions, at least one. What else Keras does meanwhile is in it as
    well: an epoch's validation, if it lies between two of its steps.

    Traces appear as `log_dir/plugins/profile/step_00001000`, named by the step at which they
    begin, when they are complete: look at them with `pip install tensorboard-plugin-profile`
    and `tensorboard --logdir logs`. The end of the fit ends a trace early; an error or interrupt
    throws it away, at the latest when the next fit with a callback of this library begins. A fresh
    run leaves an earlier one's traces alone and writes to `logs_2`; a run that goes on from a
    step above 0 replaces those past its step. While another profiler is at work, such as that
    of `keras.callbacks.TensorBoard(profile_batch=...)`, due traces are left out, with one
    warning. Only the chief traces.

    Args:
        log_dir: The log directory, for `tensorboard --logdir`. It is made if need be.
        every: Steps between the begins of two traces, or a trigger of steps. A trace that is
            due while one is under way is left out.
        duration: Steps to trace, at least 1. Default: 5.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `every` or `duration` is less than 1, `every` not above `duration`, or
            a trigger goes by the clock on the wall; at train begin on torch, or if the fit
            has another StepProfiler, or an execution is as long as `every`.
        TypeError: If an argument is of the wrong kind.
        OSError: At train begin, if `log_dir` can't be written to.

    Example:

    >>> callback = StepProfiler("logs", every=1000, duration=5)
    """

    order = Order.BACKUP  # a trace begins when all else at its step is done
    uses_model = False
    _run: Run | None = None
    _trace: Trace | None = None

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        every: int | Trigger,
        *,
        duration: int = 5,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(as_trigger(every, "StepProfiler(every)"), optimizer=optimizer)
        self.log_dir = local_path(log_dir, "StepProfiler(log_dir)")
        self.duration = integral(duration, "StepProfiler(duration)", least=1)
        self._refuse_overlaps(self.duration, f"duration={self.duration}")
        assert self.trigger is not None
        if goes_by_time(self.trigger):
            raise ValueError(
                "StepProfiler(every) must be steps, since a trace ends some steps later; received "
                f"{every!r}. Pass an integer, EverySteps, AtSteps or GeometricSteps."
            )

        self.companions: list[StepCallback] = [_TraceEnd(self)]

    def begin(self, run: Run) -> None:
        self._run = run
        self._place: Path | None = None
        self._trace = None
        self._begun_at = self._ends_at = 0
        self._shift = self.steps_to_end(run.batches)
        self._has_warned = False
        self._refuse(run)
        if not run.is_over:
            run.agreement.let_chief(lambda: require_writable(self.log_dir, "StepProfiler"))

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        run, trigger = self._run, self.trigger
        assert run is not None and trigger is not None
        due = trigger.latest_step(step)
        assert due is not None
        if not run.is_chief or self._trace is not None or self._is_at_the_end(run):
            return
        if step >= due + self._shift:
            self._warn(
                f"one execution went from before step {due} to step {step}, past the end of a "
                f"trace of duration={self.duration}: it is left out. Pass a longer duration."
            )
            return
        # `self.model` would take the state out of an execution's hands on JAX.
        trace = Trace(backend_of(run.model), self.log_dir, run.owner)
        try:
            trace.start()
        except ProfilerIsBusyError as error:
            self._warn(
                f"the trace at step {step} is left out, since another profiler is at work "
                f"({error}). Use one at a time: no profile_batch in keras.callbacks.TensorBoard."
            )
        else:
            self._trace, self._begun_at, self._ends_at = trace, step, due + self._shift

    def end_trace(self, step: int) -> None:
        """End the trace that is under way if it ends at `step` or before."""
        if self._trace is not None and step >= self._ends_at:
            assert self._run is not None
            self._stop(self._trace, self._run)

    def on_test_begin(self, logs: Any = None) -> None:
        """End a trace before a validation that comes after its last step."""
        super().on_test_begin(logs)
        run = self._run
        if run is not None and self._fit is not None and is_within(self._fit.call.callbacks):
            self.end_trace(self._ends_at if self._is_at_the_end(run) else run.clock_of(self).step)

    def end(self, run: Run) -> None:
        if self._trace is not None and run.clock_of(self).step > self._begun_at:
            self._stop(self._trace, run)
        elif self._trace is not None:
            self._trace.discard()
        self._trace = self._run = None

    def break_off(self, run: Run) -> None:
        trace, self._trace, self._run = self._trace, None, None
        if trace is not None:
            trace.discard()

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None, "_trace": None}

    def _stop(self, trace: Trace, run: Run) -> None:
        self._trace = None
        if self._place is None:
            begun_at = run.begun_at[run.clock_of(self)]
            self._place = place_of_traces(
                self.log_dir, begun_at, goes_on=run.goes_on(self), tell=run.print_line
            )
        trace.stop(directory_for(self._place, self._begun_at))

    def _is_at_the_end(self, run: Run) -> bool:
        clock = run.clock_of(self)
        last_step = run.last_step(clock)
        return last_step is not None and clock.step >= last_step

    def steps_to_end(self, batches: int) -> int:
        """Steps from a due step to the end of its trace, which holds at least an execution."""
        return max(self.duration, batches)

    def _refuse(self, run: Run) -> None:
        backend = backend_of(run.model)
        if backend not in BACKENDS:
            raise ValueError(
                f"StepProfiler traces on TensorFlow and JAX; the model's backend is {backend}. Use "
                "torch's own there: with torch.profiler.profile(on_trace_ready="
                "torch.profiler.tensorboard_trace_handler('logs')): model.fit(...)"
            )
        if any(isinstance(c, StepProfiler) and c is not self for c in run.callbacks):
            raise ValueError(
                "two StepProfilers in one fit, where one trace can be taken at a time. Join "
                "their triggers in one: StepProfiler(log_dir, AtSteps(10) | EverySteps(1000))."
            )
        self._refuse_overlaps(self._shift, f"steps_per_execution={run.batches}")

    def _refuse_overlaps(self, length: int, because: str) -> None:
        if isinstance(self.trigger, EverySteps) and self.trigger.n <= length:
            raise ValueError(
                f"StepProfiler(every={self.trigger.n}) must be more than {because}, or its traces "
                f"would overlap. Pass every={length + 1} or more."
            )

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            preflight.warn(f"StepProfiler: {message}")


class _TraceEnd(StepCallback):
    """Due where traces end, before anything else at that step, so that nothing else is in them."""

    order: ClassVar[Order] = Order.NAN
    uses_model = False

    def __init__(self, owner: StepProfiler) -> None:
        super().__init__(owner.trigger, optimizer=owner.optimizer)
        self.owner = owner

    def prepare(self, run: Run) -> None:
        owner = self.owner
        assert owner.trigger is not None
        self.optimizer = owner.optimizer
        self.trigger = _Shifted(owner.trigger, owner.steps_to_end(run.batches))

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        self.owner.end_trace(step)


class _Shifted(Trigger):
    """The grid of another trigger, so many steps later."""

    def __init__(self, trigger: Trigger, shift: int) -> None:
        self.trigger = trigger
        self.shift = shift

    def next_step(self, step: int) -> int | None:
        point = self.trigger.next_step(max(0, step - self.shift))
        return None if point is None else point + self.shift

    def latest_step(self, step: int) -> int | None:
        point = self.trigger.latest_step(max(0, step - self.shift))
        return None if point is None else point + self.shift
