"""Models, optimizers and metrics that fit builds with its first batch, built to be given values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.model_state import assigned, state_variables
from keras_steps.keras_internals.optimizers import build_optimizer


def build_state(model: Any) -> dict[str, Any] | None:
    """What `build_like` needs to build the same model without data, if Keras can tell."""
    config = model.get_build_config() if model.built else None
    return dict(config) if config and all(v is not None for v in config.values()) else None


def build_like(model: Any, state: Mapping[str, Any] | None) -> None:
    """Build a model and its optimizer at train begin, as far as fit has not.

    Fit does on JAX, torch and under a strategy. On TensorFlow it leaves that to the first batch.
    """
    with _scope(model):
        if not model.built and state is not None:
            model.build_from_config({key: _shapes(value) for key, value in state.items()})
    build_optimizer(model)


def put_metrics_back(model: Any, arrays: Mapping[str, np.ndarray], batch: Any = None) -> None:
    """Give the metrics their values within an epoch.

    Called in on_epoch_begin, before which Keras 3 resets them, and again with the last batch
    that is passed over: on TensorFlow most metrics are made by the first one.
    """
    if backend_of(model) == "jax" and batch is not None:
        return
    if _metrics(model).keys() != arrays.keys():
        if batch is None:
            return
        if backend_of(model) == "tf_keras":
            model.distribute_strategy.run(model.test_step, args=(batch,))
        else:
            model._symbolic_build(data_batch=batch)
    assigned(_metrics(model), arrays)


def _scope(model: Any) -> Any:
    strategy = getattr(model, "distribute_strategy", None)
    return nullcontext() if strategy is None else strategy.scope()


def _shapes(value: Any) -> Any:
    """Shapes as tuples again, after they have been through JSON."""
    if isinstance(value, Mapping):
        return {key: _shapes(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_shapes(each) for each in value)
    return value


def _metrics(model: Any) -> dict[str, Any]:
    found = state_variables(model)
    return {key: variable for key, variable in found.items() if key.startswith("metrics/")}
