"""What is particular to a flavour of Keras in fit, and which adapter a fit gets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from keras_steps import loops_under_way
from keras_steps.fit_adapter import FitAdapter
from keras_steps.keras_internals import (
    JaxState,
    backend_of,
    batches_set_to,
    calls_around,
    is_end_of_data,
    steps_per_execution,
)

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback


def arrive(callback: StepCallback, kind: type[StepCallback]) -> FitAdapter:
    """Tell that Keras has called a callback's `on_train_begin`.

    All callbacks of one `kind` in a fit share an adapter; their run begins when the last of
    them has arrived, so that others before it may have restored the model.
    """
    call = next(calls_around(), None)
    if call is None or call.name != "fit":
        raise RuntimeError(
            f"{type(callback).__name__} follows Keras's fit, and its on_train_begin was called "
            "outside of one. Pass it to model.fit(callbacks=[...])."
        )
    ours = [c for c in dict.fromkeys(call.callbacks.callbacks) if isinstance(c, kind)]
    loops_under_way.refuse_fit(callback._model, ours)
    known = (c._fit for c in ours if c._fit is not None)
    fit = next((fit for fit in known if fit.call.callbacks is call.callbacks), None)
    if fit is None:
        retire_broken_off(ours)
        fit = _KINDS.get(backend_of(callback._model), FitAdapter)(callback._model, call, ours)
        _ARRIVED.add(fit)
    if callback is ours[-1]:
        fit.begin()
    return fit


def retire_broken_off(callbacks: list[StepCallback]) -> None:
    """End what fits have left behind that were broken off unseen, before another begins.

    Raises:
        RuntimeError: If one of `callbacks` is in a fit that is going on.
    """
    around = [call.callbacks for call in calls_around()]
    for callback in callbacks:
        fit = callback._fit
        if fit is not None and any(fit.call.callbacks is each for each in around):
            name = type(callback).__name__
            raise RuntimeError(
                f"this {name} follows the fit of {fit.model.name!r}, and was passed to a fit or "
                f"loop within it. Give the inner one a {name} of its own."
            )
        if fit is not None:
            fit.retire()
    for fit in list(_ARRIVED):  # those of other threads are not on the stack
        if fit.thread == threading.get_ident() and fit.call.callbacks not in around:
            fit.retire()


_ARRIVED: WeakSet[FitAdapter] = WeakSet()


class JaxFit(FitAdapter):
    """On JAX the model's variables go through train_function as its state."""

    def _attend(self, *args: Any) -> Any:
        variables = self._state
        variables.state, iterator = args
        try:
            logs = super()._attend(iterator)
            return logs, variables.state
        except BaseException as error:
            if not is_end_of_data(error):
                variables.hand_back()
            raise
        finally:
            variables.state = None

    def _logs_for_keras(self, *args: Any) -> Any:
        return super()._logs_for_keras(*args), args[0]

    def _execute(self, iterator: Any, batches: int) -> Any:
        variables = self._state
        logs, variables.state = self.inner(variables.state, self._cut(iterator, batches))
        return logs

    @property
    def _state(self) -> JaxState:
        assert isinstance(self.run.variables, JaxState)
        return self.run.variables


class TfKerasFit(FitAdapter):
    """tf_keras reads how many batches an execution has from a variable."""

    cuts_last = True

    def _execute(self, iterator: Any, batches: int) -> Any:
        if batches >= self.run.batches:
            return self.inner(iterator)
        usual = steps_per_execution(self.model)  # less where Keras has cut it by itself
        with batches_set_to(self.model, min(batches, usual)):
            return self.inner(iterator)


_KINDS: dict[str, type[FitAdapter]] = {"jax": JaxFit, "tf_keras": TfKerasFit}
