"""A model's whole state: which variables it has, and the keys that its copies bear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.optimizers import is_optimizer
from keras_steps.keras_internals.replicas import divided_among, own_values, whole_of

_NUMBER = re.compile(r"_\d+(?=[_/:]|$)")  # what Keras appends to a name that it has given before


def state_variables(model: Any, optimizers: Iterable[Any] = ()) -> dict[str, Any]:
    """Every variable that a resume needs to go on bit for bit, under keys that stay the same.

    Weights, the seed generators that weights files leave out, metrics, and all of every
    optimizer. Where each replica keeps a value of its own (metrics, tf_keras's moving
    averages under a strategy), each is an entry: their sum can't be divided again.

    Keys are `group/index/path`, in the groups `model`, `metrics` and one an optimizer: its
    attribute's name, as `optimizer`. The numbers that Keras gives to names are left out of
    the path, so that a model that is built again in one process has the same keys.

    Args:
        model: A model that is built, as its optimizers are; else what they will create is
            missing.
        optimizers: More optimizers, which are no attributes of the model.
    """
    return by_replica(keyed_variables(model, optimizers))


def by_replica(keyed: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Variables by their keys; where each replica keeps a value of its own, each is an entry."""
    found: dict[str, Any] = {}
    for key, variable in keyed:
        replicas = own_values(variable)
        if replicas is None:
            found[key] = variable
        else:
            found |= {f"{key}/replica_{n}": replica for n, replica in enumerate(replicas)}
    return found


def keyed_variables(model: Any, optimizers: Iterable[Any] = ()) -> Iterator[tuple[str, Any]]:
    """The variables behind `state_variables`, whole under a strategy, each once."""
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    of_metrics = set(map(id, metrics))  # tf_keras has them among the model's as well
    found = (*_variables_of(model), *generators(model))
    others = [variable for variable in found if id(variable) not in of_metrics]
    groups = {"model": others, "metrics": metrics}
    known = dict(optimizers_of(model))
    given = {
        f"optimizer_given_{n}": one
        for n, one in enumerate(optimizers)
        if not any(one is other for other in known.values())
    }
    groups |= {name: list(optimizer_variables(one)) for name, one in (known | given).items()}
    yield from keyed(groups)


def keyed(groups: Mapping[str, Iterable[Any]]) -> Iterator[tuple[str, Any]]:
    """The variables in groups by keys that stay the same, each once."""
    seen: set[int] = set()
    for group, variables in groups.items():
        new = {id(variable): variable for variable in variables if id(variable) not in seen}
        seen |= set(new)
        for index, variable in enumerate(new.values()):
            path = variable.path if isinstance(variable, keras.Variable) else variable.name
            yield f"{group}/{index}/{unnumbered(path)}", variable


def is_of_metrics(key: str) -> bool:
    """Whether this is the key of a metric's variable."""
    return key.startswith("metrics/")


def unnumbered(name: str) -> str:
    """A name or path without the numbers that Keras gives to what it names."""
    return _NUMBER.sub("", name)


def whole_values(model: Any, arrays: Mapping[str, np.ndarray]) -> list[tuple[Any, np.ndarray]]:
    """Each variable with the value that reading it would have given when `arrays` were copied."""
    found = []
    for key, variable in keyed_variables(model):
        parts = _parts(key, arrays)
        found.append((variable, whole_of(variable, parts) if parts else arrays[key]))
    return found


def for_replicas_of(model: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A copied state as it is with as many replicas as `model` has, whatever it was made with.

    Where each replica keeps a value of its own, reading the variable gives the same as then.
    """
    return for_replicas(keyed_variables(model), arrays)


def for_replicas(
    keyed: Iterable[tuple[str, Any]], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The same for variables by their keys."""
    found = dict(arrays)
    for key, variable in keyed:
        replicas, parts = own_values(variable), _parts(key, arrays)
        if len(replicas or ()) == len(parts) or not (parts or key in arrays):
            continue
        whole = whole_of(variable, parts) if parts else arrays[key]
        for held in [key, *(f"{key}/replica_{n}" for n in range(len(parts)))]:
            found.pop(held, None)
        if replicas is None:
            found[key] = whole
        else:
            divided = divided_among(variable, whole, len(replicas))
            found |= {f"{key}/replica_{n}": part for n, part in enumerate(divided)}
    return found


def optimizers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """The optimizers among a model's attributes, by their names."""
    for name, value in vars(model).items():
        if is_optimizer(value):
            yield name, value
        elif isinstance(value, (list, tuple, dict)) and not name.startswith("_self_"):
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{name}_{key}", one) for key, one in entries if is_optimizer(one))


def unkept_generators(model: Any) -> list[str]:
    """The layers of a tf_keras model that draw from operations whose state nobody can save.

    Its random layers do unless `enable_tf_random_generator` was called before they were made.
    """
    layers = model._flatten_layers() if backend_of(model) == "tf_keras" else ()
    kinds = ((each, getattr(each, "_random_generator", None)) for each in layers)
    return [each.name for each, one in kinds if getattr(one, "_rng_type", "") == "legacy_stateful"]


def _parts(key: str, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What each replica had under this key; none if it was one value for all."""
    parts: list[np.ndarray] = []
    while (part := arrays.get(f"{key}/replica_{len(parts)}")) is not None:
        parts.append(part)
    return parts


def optimizer_variables(optimizer: Any) -> Iterator[Any]:
    """Those it lists, and those it only holds.

    tf_keras's LossScaleOptimizer lists neither its scale nor its counter, its optimizers
    not the learning rate, and Nadam not its product of momenta.
    """
    listed = optimizer.variables
    yield from listed() if callable(listed) else listed
    for name, value in sorted(vars(optimizer).items()):
        if _is_variable(value):
            yield value
        elif name == "_hyper":  # tf_keras's legacy optimizers
            yield from (value[key] for key in sorted(value) if _is_variable(value[key]))
        elif name == "_loss_scale" and hasattr(value, "current_loss_scale"):
            yield from (value.current_loss_scale, value.counter)
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        yield from optimizer_variables(inner)


def _is_variable(thing: Any) -> bool:
    return isinstance(thing, keras.Variable) or hasattr(thing, "read_value")


def _variables_of(model: Any) -> list[Any]:
    """The model's own; tf_keras refuses to list those of one with a `build` that is unbuilt."""
    if backend_of(model) == "tf_keras" and not model.built and "build" in vars(type(model)):
        return [variable for layer in model.layers for variable in layer.variables]
    return list(model.variables)


def generators(model: Any) -> Iterator[Any]:
    """The states of tf_keras's random generators, which no layer lists."""
    for layer in model._flatten_layers() if hasattr(model, "_flatten_layers") else ():
        generator = getattr(getattr(layer, "_random_generator", None), "_generator", None)
        if generator is not None:
            yield generator.state
