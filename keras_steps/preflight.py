"""What may be meant but looks wrong: warnings at train begin, and one soon after."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras

from keras_steps.keras_internals import cannot_run, name_of
from keras_steps.roles import NamesLastStep, SetsBeforeUpdates
from keras_steps.triggers import EverySteps

if TYPE_CHECKING:
    from keras_steps.clock import Clock
    from keras_steps.run import Run


def warn(message: str) -> None:
    """Warn, pointing at the user's line that called into Keras."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back and _is_library(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def warnings_for(run: Run, params: Mapping[str, Any], epoch: int = 0) -> Iterator[str]:
    """The warnings that a run deserves before its first step.

    Args:
        run: A run that has begun.
        params: What Keras tells its callbacks of the fit: epochs, steps, verbose.
        epoch: The fit's initial epoch.
    """
    yield from _intervals_off_the_executions(run)
    yield from _targets_out_of_reach(run, params, epoch)
    yield from _targets_beyond_a_horizon(run)


def refuse(model: Any, optimizer: Any) -> None:
    """Raise for what Keras itself can't run, before it fails with a stack from its inside."""
    combination = cannot_run(model, optimizer)
    if combination:
        raise ValueError(f"Keras {keras.__version__} itself can't train under {combination}.")


def expected_ends(
    run: Run, params: Mapping[str, Any], epoch: int, batches_done: int = 0
) -> dict[Clock, int]:
    """The step at which the epochs from `epoch` on will be over, where that can be told.

    Args:
        run: A run that has not made a step.
        params: As in `warnings_for`.
        epoch: The first one.
        batches_done: How many batches of it were done before.
    """
    epochs, batches = params.get("epochs"), params.get("steps")
    if not epochs or not batches or batches % run.batches:
        return {}
    return {
        clock: (clock.count + (epochs - epoch) * batches - batches_done) // clock.counts_per_step
        for clock in run.clocks
        if clock.predictable
    }


def resting_counter(clock: Clock) -> str:
    """The warning for a counter that has not moved though batches have gone by."""
    return (
        f"The counter of {name_of(clock.optimizer)!r} has not moved in {clock.check_at} "
        "executions: nothing that waits for its steps will fire or stop. If the model has several "
        "optimizers, name the one that counts: optimizer='g_optimizer'. A loop whose optimizer's "
        "state lies outside of it, as in JAX, says the step by a function: StepLoop(optimizer=f)."
    )


def _intervals_off_the_executions(run: Run) -> Iterator[str]:
    if run.batches == 1:
        return
    for callback in run.callbacks:
        per_step = run.clock_of(callback).counts_per_step
        trigger = callback.trigger
        if isinstance(trigger, EverySteps) and trigger.n * per_step % run.batches:
            yield (
                f"{type(callback).__name__}: its interval of {trigger.n} steps is no multiple of "
                f"steps_per_execution={run.batches}. It fires at the end of the execution in "
                "which a grid point lies, at uneven intervals."
            )
        if isinstance(callback, SetsBeforeUpdates):
            yield (
                f"{type(callback).__name__} sets its value once an execution, "
                f"of {run.batches} batches, by its first update. For a value of its own at each "
                "step hand the schedule to the optimizer: Adam(learning_rate=schedule)."
            )


def _targets_out_of_reach(run: Run, params: Mapping[str, Any], epoch: int) -> Iterator[str]:
    ends = expected_ends(run, params, epoch)
    for clock, last_step in run.limits.items():
        if clock in ends and ends[clock] < last_step:
            yield (
                f"StopAtStep will not be reached: epochs={params['epochs']} of "
                f"{params['steps']} batches end at step {ends[clock]} at the latest, before "
                f"last_step={last_step}. Pass more epochs; the run stops by itself."
            )


def _targets_beyond_a_horizon(run: Run) -> Iterator[str]:
    explicit = [c for c in run.callbacks if isinstance(c, NamesLastStep) and c.last_step]
    for callback in explicit:
        for scheduled in run.callbacks:
            if not isinstance(scheduled, SetsBeforeUpdates):
                continue
            horizon = getattr(scheduled.schedule, "horizon", None)
            same = run.clock_of(scheduled) is run.clock_of(callback)
            if same and horizon is not None and callback.last_step > horizon:
                yield (
                    f"StopAtStep(last_step={callback.last_step}) lies beyond the end of the "
                    f"schedule of {type(scheduled).__name__}, step {horizon}: from there on its "
                    f"value stays as it is."
                )


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in ("keras", "tf_keras", "keras_steps")
