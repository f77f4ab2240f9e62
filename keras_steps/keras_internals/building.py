"""Models, optimizers and metrics that fit builds with its first batch, built to be given values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from keras_steps.keras_internals.copies import assigned
from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.model_state import (
    for_replicas_of,
    is_of_metrics,
    keyed_variables,
    optimizers_of,
    state_variables,
)
from keras_steps.keras_internals.optimizers import build_optimizer, trained_by


def build_state(model: Any) -> dict[str, Any]:
    """What `build_like` needs to build the same model and optimizers without data."""
    config = model.get_build_config() if model.built else None
    if not config or any(value is None for value in config.values()):
        config = None
    key_of = {id(variable): key for key, variable in keyed_variables(model)}
    trained = {
        name: [key_of.get(id(variable)) for variable in trained_by(optimizer, model)]
        for name, optimizer in optimizers_of(model)
    }
    return {"model": None if config is None else dict(config), "optimizers": trained}


def build_like(model: Any, state: Mapping[str, Any], batch: Any = None) -> None:
    """Build a model and its optimizers at train begin, as far as fit has not.

    Fit does on JAX, torch and under a strategy. On TensorFlow it leaves that to the first batch.
    Optimizers beside `model.optimizer` are left to the first batch everywhere.

    Args:
        model: A compiled model.
        state: What `build_state` gave.
        batch: The shapes and types of a batch, where the data tell: see
            `TrainingData.batch_spec`.
    """
    with _scope(model):
        if not model.built and batch is not None and _has_call(model):
            _build_on(model, batch)
        elif not model.built and state["model"] is not None:
            model.build_from_config({k: _shapes(value) for k, value in state["model"].items()})
    build_optimizer(model)
    variables = dict(keyed_variables(model))
    for name, optimizer in optimizers_of(model):
        keys = state["optimizers"].get(name)
        if keys and all(key in variables for key in keys):
            build_optimizer(model, optimizer, [variables[key] for key in keys])


def _has_call(model: Any) -> bool:
    """Whether the model itself makes predictions; a GAN has only those in it called."""
    owner = next(base for base in type(model).__mro__ if "call" in vars(base))
    return owner.__name__ not in ("Model", "Layer")


def _build_on(model: Any, batch: Any) -> None:
    """Build as with a batch of these shapes, without computing anything."""
    if backend_of(model) != "tf_keras":
        model._symbolic_build(data_batch=batch)
        return
    import tensorflow as tf

    inputs = batch[0] if isinstance(batch, tuple) else batch
    tf.function(lambda x: model(x, training=True)).get_concrete_function(inputs)


def put_metrics_back(model: Any, arrays: Mapping[str, np.ndarray], batch: Any = None) -> None:
    """Give the metrics their values within an epoch.

    Called in on_epoch_begin, before which Keras 3 resets them, and again with the last batch
    that is passed over: on TensorFlow most metrics are made by the first one.
    """
    if backend_of(model) == "jax" and batch is not None:
        return
    if _metrics(model).keys() != for_replicas_of(model, arrays).keys():
        if batch is None:
            return
        if backend_of(model) == "tf_keras":
            import tensorflow as tf

            def test_step(part: Any) -> None:  # of a replica; a loop's may be arrays
                model.test_step(tf.nest.map_structure(tf.convert_to_tensor, part))

            model.distribute_strategy.run(test_step, args=(batch,))
        else:
            model._symbolic_build(data_batch=batch)
    assigned(_metrics(model), for_replicas_of(model, arrays))


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
    return {key: variable for key, variable in found.items() if is_of_metrics(key)}
