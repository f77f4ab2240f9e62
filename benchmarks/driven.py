"""A run without Keras's fit: what calls the callbacks and the step, with nothing computed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import repeat
from typing import Any

from measuring import FLAVOUR, keras


class Driven:
    """A training run whose executions are asked for one lot at a time, with nothing computed.

    It calls what Keras's fit calls. One at a time: a run that begins ends those that this
    thread has left without an end.

    Args:
        model: A compiled model. On JAX its variables move into a state, as in fit.
        callbacks: The callbacks of the run.
        step: Called in the place of the compiled step, with the state on JAX, and returns
            it there. Default: does nothing.
    """

    def __init__(
        self, model: Any, callbacks: list[Any], step: Callable[..., Any] | None = None
    ) -> None:
        self.model = model
        if not getattr(model.optimizer, "built", False):
            model.optimizer.build(model.trainable_variables)
        model.train_function = step or (_empty_step_on_jax if FLAVOUR == "jax" else _empty_step)
        model.stop_training = False
        self._fit = self.fit(callbacks)
        next(self._fit)

    def __call__(self, executions: int) -> None:
        """Call train_function so many times."""
        self._fit.send(executions)

    def end(self) -> None:
        """End the run as fit does."""
        next(self._fit, None)

    def fit(
        self, callbacks: Any, epochs: int = 1, initial_epoch: int = 0
    ) -> Generator[None, int | None]:
        """Keras's fit as the adapter sees it: by this name, with these local variables."""
        model = self.model
        callbacks = keras.callbacks.CallbackList(
            callbacks, model=model, epochs=epochs, steps=10**9, verbose=0
        )
        callbacks.on_train_begin()
        callbacks.on_epoch_begin(initial_epoch)
        state = None
        if FLAVOUR == "jax":
            state = model._get_jax_state(
                **dict.fromkeys(_JAX_GROUPS, True), purge_model_variables=True
            )
            model._jax_state_synced = False
        while executions := (yield):
            if FLAVOUR == "jax":
                for _ in repeat(None, executions):
                    _logs, state = model.train_function(state, None)
            else:
                for _ in repeat(None, executions):
                    model.train_function(None)
        if FLAVOUR == "jax":
            model._jax_state = dict(zip(_JAX_GROUPS, state, strict=True))
            model.jax_state_sync()
        callbacks.on_epoch_end(initial_epoch, {})
        callbacks.on_train_end({})


_JAX_GROUPS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


def _empty_step(iterator: Any) -> dict[str, Any]:
    return {}


def _empty_step_on_jax(state: Any, iterator: Any) -> tuple[dict[str, Any], Any]:
    return {}, state
