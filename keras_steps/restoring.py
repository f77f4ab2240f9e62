"""Putting a backup back into a model, if it is one of the same script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from keras_steps.backups import Backup
from keras_steps.distribution import strategy_name
from keras_steps.keras_internals import (
    assigned,
    build_like,
    exported_name,
    for_replicas_of,
    is_of_metrics,
    optimizers_of,
    state_variables,
)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


_RATES_GIVEN: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The learning rates of optimizers before a callback of a fit set others."""


def description_of(
    model: Any, steps_per_epoch: int | None, *, sets_rate: bool = False
) -> dict[str, Any]:
    """What a backup and the fit that goes on from it have to have in common.

    Take it at train begin, when the optimizers still have the arguments that the script gave.

    Args:
        model: A compiled model.
        steps_per_epoch: Batches an epoch of the fit, if known.
        sets_rate: Whether a callback of the fit sets the learning rate. What it is at the begin
            of a later fit in this process then says nothing of the script.
    """
    described = {}
    for name, optimizer in optimizers_of(model):
        config = optimizer.get_config() if hasattr(optimizer, "get_config") else {}
        said = {n: _ADDRESS.sub("", str(value)) for n, value in config.items() if n != "name"}
        if sets_rate and "learning_rate" in said:
            said["learning_rate"] = _RATES_GIVEN.setdefault(optimizer, said["learning_rate"])
        described[name] = {"class": type(optimizer).__name__, **said}
    return {
        "optimizers": described,
        "steps_per_epoch": steps_per_epoch,
        "strategy": strategy_name(model),
    }


def restore(
    model: Any,
    backup: Backup,
    description: Mapping[str, Any],
    complain: Callable[[str], None],
    batch: Any = None,
) -> Callable[[], None]:
    """Give `model` and its optimizers the values of a backup; its metrics get theirs later.

    Args:
        model: A compiled model; it is built if it is not yet.
        backup: What was saved.
        description: That of the fit which is to go on.
        complain: Called with what has changed since the backup. Where it returns, what
            fits is restored, and a learning rate that has been changed stays.
        batch: Shapes and types of a batch, to build an unbuilt model with.

    Returns:
        A function that puts the numbers back again, such as learning rates, which other callbacks
        may have set since.
    """
    then = backup.state["description"]
    if not backup.state["is_built"]:  # before the first update the script builds it again
        return lambda: None
    build_like(model, backup.state["build"], batch)
    variables = _apart_from_metrics(state_variables(model))
    arrays = _apart_from_metrics(for_replicas_of(model, backup.arrays))
    other_model = _difference(backup, variables, arrays)
    if other_model:
        complain(other_model)
    if exported_name(then["strategy"]) != description["strategy"]:
        complain(
            f"{backup.path} was made under {then['strategy']}, and this fit is under "
            f"{description['strategy']}, which does not add up in the same order"
        )
    if then["steps_per_epoch"] != description["steps_per_epoch"]:
        complain(
            f"{backup.path} was made with {then['steps_per_epoch']} batches an epoch, and this "
            f"fit has {description['steps_per_epoch']}"
        )
    fitting = [key for key in arrays if _kind(arrays, key) == _kind(variables, key)]
    all_changed: list[str] = []
    for name, now in description["optimizers"].items():
        changed = _changed(then["optimizers"].get(name, {}), now)
        all_changed += [f"{name}: {each}" for each in changed.values()]
        if "learning_rate" in changed:
            fitting = [k for k in fitting if k.split("/")[0] != name or "learning_rate" not in k]
    held = sorted(arrays.keys() | variables.keys())
    others = [key for key in held if _kind(arrays, key) != _kind(variables, key)]
    if others and not (all_changed or other_model):
        key = others[0]
        all_changed.append(f"{_named(key, arrays)} there, {_named(key, variables)} here")
    if all_changed:
        complain(f"{backup.path} was made with another optimizer: {'; '.join(all_changed)}")
    assigned({k: variables[k] for k in fitting}, {k: arrays[k] for k in fitting})
    numbers = {k: arrays[k] for k in fitting if arrays[k].size == 1}
    return lambda: assigned({k: variables[k] for k in numbers}, numbers)


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    return {
        name: f"{name} was {then.get(name)}, and is {now.get(name)}"
        for name in {**then, **now}
        if then.get(name) != now.get(name)
    }


def _difference(
    backup: Backup, variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> str | None:
    """What is another model about this one, if it is."""
    there, here = (
        [key for key in held if key.startswith("model/")] for held in (arrays, variables)
    )
    for key in {**dict.fromkeys(there), **dict.fromkeys(here)}:
        if _kind(arrays, key) != _kind(variables, key):
            return (
                f"{backup.path} is of another model: {_named(key, arrays)} there, and "
                f"{_named(key, variables)} in this one"
            )
    return None


def _named(key: str, held: Mapping[str, Any]) -> str:
    kind = _kind(held, key)
    return f"no {key}" if kind is None else f"{key} is {kind[1]} of shape {kind[0]}"


def _kind(held: Mapping[str, Any], key: str) -> tuple[tuple[int, ...], str] | None:
    if key not in held:
        return None
    thing = held[key]
    return tuple(thing.shape), str(getattr(thing.dtype, "name", thing.dtype))


def _apart_from_metrics(held: Mapping[str, Any]) -> dict[str, Any]:
    return {key: thing for key, thing in held.items() if not is_of_metrics(key)}
