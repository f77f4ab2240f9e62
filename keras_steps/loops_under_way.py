"""Which loops are under way: a model, and a callback, are followed by one run at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from keras_steps.fit_adapter import FitAdapter

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining
    from keras_steps.step_callback import StepCallback

_LOOPS: WeakSet[LoopTraining] = WeakSet()


def begin(training: LoopTraining, callbacks: list[StepCallback]) -> None:
    """A loop begins, which `refuse_loop` has let pass."""
    training.callbacks = callbacks
    _LOOPS.add(training)


def end(training: LoopTraining) -> None:
    """A loop has ended, in whatever way."""
    _LOOPS.discard(training)


def refuse_loop(model: Any, callbacks: Iterable[StepCallback]) -> None:
    """Refuse a loop within another run of the same model, or a loop of the same callbacks.

    Args:
        model: What the loop trains; may be None.
        callbacks: Those that are to follow it.

    Raises:
        RuntimeError: If there is such a run.
    """
    if _loop_on(model) is not None:
        raise RuntimeError(
            f"a StepLoop is under way on the model {model.name!r}, and another was begun within "
            "it. End the first one before, or train another model there."
        )
    _refuse_callbacks_of_loops(callbacks)
    fit = getattr(model, "train_function", None)
    if isinstance(fit, FitAdapter) and fit.call.is_around(sys._getframe(1)):
        raise RuntimeError(
            f"a fit of the model {model.name!r} that keras_steps callbacks follow is under way, "
            "and a StepLoop on it was begun within. Begin it after the fit."
        )


def refuse_fit(model: Any, callbacks: Iterable[StepCallback]) -> None:
    """Refuse a fit within a loop that follows the same model, or by the same callbacks.

    A fit that no callback of this library follows may be what an iteration does.

    Args:
        model: The model of the fit.
        callbacks: Those of this library in it.

    Raises:
        RuntimeError: If there is such a loop.
    """
    if _loop_on(model) is not None:
        raise RuntimeError(
            f"a StepLoop is under way on the model {model.name!r}, and a fit of it that "
            "keras_steps callbacks follow was begun within. Pass the fit none of them: the loop "
            "counts its steps. Or fit after the loop."
        )
    _refuse_callbacks_of_loops(callbacks)


def _loop_on(model: Any) -> LoopTraining | None:
    return next((loop for loop in _LOOPS if model is not None and loop.model is model), None)


def _refuse_callbacks_of_loops(callbacks: Iterable[StepCallback]) -> None:
    taken = {id(callback) for loop in _LOOPS for callback in loop.callbacks}
    for callback in callbacks:
        if id(callback) in taken:
            name = type(callback).__name__
            raise RuntimeError(
                f"this {name} follows a StepLoop that is under way, and was passed to a fit or "
                f"loop within it. Give the inner one a {name} of its own."
            )
