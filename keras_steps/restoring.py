"""Putting a backup back into a model, if it is one of the same script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_steps.backups import Backup
from keras_steps.keras_internals import assigned, build_like, state_variables

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def description_of(model: Any, steps_per_epoch: int | None) -> dict[str, Any]:
    """What a backup and the fit that goes on from it have to have in common.

    Take it at train begin, when the optimizer still has the arguments that the script gave.

    Args:
        model: A compiled model.
        steps_per_epoch: Batches an epoch of the fit, if known.
    """
    config = model.optimizer.get_config() if hasattr(model.optimizer, "get_config") else {}
    arguments = {n: _ADDRESS.sub("", str(value)) for n, value in config.items() if n != "name"}
    return {
        "optimizer": {"class": type(model.optimizer).__name__, **arguments},
        "steps_per_epoch": steps_per_epoch,
    }


def restore(
    model: Any,
    backup: Backup,
    description: Mapping[str, Any],
    complain: Callable[[str], None],
) -> None:
    """Give `model` and its optimizers the values of a backup; its metrics get theirs later.

    Args:
        model: A compiled model; it is built if it is not yet.
        backup: What was saved.
        description: That of the fit which is to go on.
        complain: Called with what has changed since the backup. Where it returns, what
            fits is restored, and a learning rate that has been changed stays.

    Raises:
        ValueError: If the model's variables are not those of the backup.
    """
    then = backup.state["description"]
    if not backup.state["is_built"]:  # before the first update the script builds it again
        return
    build_like(model, backup.state["build"])
    variables = _apart_from_metrics(state_variables(model))
    arrays = _apart_from_metrics(backup.arrays)
    _require_the_same_model(backup, variables, arrays)
    if then["steps_per_epoch"] != description["steps_per_epoch"]:
        complain(
            f"{backup.path} was made with {then['steps_per_epoch']} batches an epoch, and this "
            f"fit has {description['steps_per_epoch']}"
        )
    changed = _changed(then["optimizer"], description["optimizer"])
    fitting = {key for key in arrays if _kind(arrays, key) == _kind(variables, key)}
    others = sorted(fitting ^ (arrays.keys() | variables.keys()))
    if others and not changed:
        changed = {"": f"{_named(others[0], arrays)} there, {_named(others[0], variables)} here"}
    if changed:
        complain(f"{backup.path} was made with another optimizer: {'; '.join(changed.values())}")
    if "learning_rate" in changed:
        fitting = {key for key in fitting if "learning_rate" not in key}
    assigned({k: variables[k] for k in fitting}, {k: arrays[k] for k in fitting})


def is_of_metrics(key: str) -> bool:
    """Whether this is the key of a metric's variable."""
    return key.startswith("metrics/")


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    return {
        name: f"{name} was {then.get(name)}, and is {now.get(name)}"
        for name in {**then, **now}
        if then.get(name) != now.get(name)
    }


def _require_the_same_model(
    backup: Backup, variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    there, here = (
        [key for key in held if key.startswith("model/")] for held in (arrays, variables)
    )
    for key in {**dict.fromkeys(there), **dict.fromkeys(here)}:
        if _kind(arrays, key) != _kind(variables, key):
            raise ValueError(
                f"{backup.path} is of another model: {_named(key, arrays)} there, and "
                f"{_named(key, variables)} in this one. Give a changed model another directory."
            )


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
