"""The variables of any object of Keras or TensorFlow that holds some."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_steps.keras_internals.model_state import (
    generators,
    keyed,
    keyed_variables,
    optimizer_variables,
    optimizers_of,
    unnumbered,
)
from keras_steps.keras_internals.optimizers import is_optimizer


def object_variables(thing: Any) -> list[tuple[str, Any]] | None:
    """Every variable of an object, by a key that stays the same; None if it is of another kind.

    Keras 3 and tf_keras: a model with its metrics and optimizers, a layer, an optimizer, a
    metric, a seed generator, a variable. TensorFlow: a module, with all that it tracks, a
    random generator, a variable. They are whole under a strategy: see `by_replica`. What is
    not built yet lacks those that it will create. Keys of a model's metrics begin with
    `metrics/`, those of a metric with `metric/`.
    """
    if isinstance(thing, type):
        return None
    if _is_variable(thing):
        return [("value", thing)]
    if isinstance(thing, keras.random.SeedGenerator):
        return [("state", thing.state)]
    if _is_of(thing, "Metric", "metrics"):
        return list(keyed({"metric": thing.variables}))
    if _is_of(thing, "Model"):
        return list(_without_scopes(keyed_variables(thing), dict(optimizers_of(thing))))
    if _is_of(thing, "Layer", "layers"):
        return list(keyed({"layer": [*thing.variables, *generators(thing)]}))
    if is_optimizer(thing) and hasattr(thing, "variables"):
        variables = keyed({"optimizer": optimizer_variables(thing)})
        return list(_without_scopes(variables, {"optimizer": thing}))
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(
        thing, (tensorflow.Module, tensorflow.random.Generator)
    ):
        return list(keyed({"module": _tracked(thing)}))
    return None


def _without_scopes(
    keyed: Iterator[tuple[str, Any]], optimizers: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Keys without the names of optimizers as scopes.

    Within a step tf_keras 2.21 makes variables in such a scope, and in none by `build`; Keras 3
    on TensorFlow makes those within a LossScaleOptimizer in two.
    """
    for key, variable in keyed:
        group, number, path = key.split("/", 2)
        optimizer = optimizers.get(group)
        while optimizer is not None:
            name = getattr(optimizer, "name", None) or getattr(optimizer, "_name", None) or ""
            path = path.removeprefix(f"{unnumbered(name)}/")
            optimizer = getattr(optimizer, "inner_optimizer", None)
        yield f"{group}/{number}/{path}", variable


def _is_of(thing: Any, name: str, home: str = "") -> bool:
    """Whether it is an instance of a class of Keras 3, or of tf_keras."""
    homes = [getattr(each, home) if home else each for each in _flavours()]
    return isinstance(thing, tuple(getattr(each, name) for each in homes))


def _flavours() -> list[Any]:
    tf_keras = sys.modules.get("tf_keras")
    return [keras] if tf_keras is None else [keras, tf_keras]


def _is_variable(thing: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    kinds = (keras.Variable,) if tensorflow is None else (keras.Variable, tensorflow.Variable)
    return isinstance(thing, kinds)


def _tracked(module: Any) -> Iterator[Any]:
    """What tf.train.Checkpoint would save, and the seeds of Keras 3's layers.

    tf.Module itself does not look into layers of Keras 3. (3.12 and 3.15, TensorFlow 2.21)
    """
    import tensorflow as tf

    for each in tf.train.TrackableView(module).descendants():
        if _is_variable(each):
            yield each
        elif isinstance(each, keras.Layer):
            yield from each.variables
