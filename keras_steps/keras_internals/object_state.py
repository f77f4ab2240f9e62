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
    metric, a seed generator, a variable. TensorFlow: a module, with all that it tracks and the
    metrics and seed generators of Keras that are its attributes, a random generator, a variable.
    They are whole under a strategy: see `by_replica`. What is not built yet lacks those that it
    will create. Keys of a model's metrics begin with `metrics/`, those of a metric, or of a
    module's metrics, with `metric/`.

    Raises:
        TypeError: If a module tracks a lookup table that may change, which isn't in variables.
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
        return list(keyed({"module": _tracked(thing), "metric": _metrics_of(thing)}))
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
    """The variables that tf.train.Checkpoint would save, and the seeds of Keras 3.

    tf.Module itself does not look into layers of Keras 3, and TensorFlow tracks neither its
    metrics nor its seed generators. (3.12 and 3.15, TensorFlow 2.21)
    """
    import tensorflow as tf

    tables = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)
    for each in tf.train.TrackableView(module).descendants():
        if isinstance(each, tables):
            raise TypeError(
                f"A {type(module).__name__} that is saved must hold its state in variables; "
                f"received one with a {type(each).__name__}. Keep the table out of it, and pass a "
                "function that returns what `table.export()` gives, as numbers or plain lists."
            )
        if _is_variable(each):
            yield each
        elif isinstance(each, keras.Layer):
            yield from each.variables
    for each in _attributes_of(module):
        if isinstance(each, keras.random.SeedGenerator):
            yield each.state


def _metrics_of(module: Any) -> Iterator[Any]:
    for each in _attributes_of(module):
        if _is_of(each, "Metric", "metrics"):
            yield from each.variables


def _attributes_of(module: Any) -> Iterator[Any]:
    """Those of a module, and of all modules that it tracks."""
    import tensorflow as tf

    for each in tf.train.TrackableView(module).descendants():
        if isinstance(each, tf.Module):
            yield from _within(list(vars(each).values()))


def _within(value: Any) -> Iterator[Any]:
    """What is in nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _within(part)
    else:
        yield value
