"""The global step: how many updates an optimizer has applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_steps.arguments import integral
from keras_steps.keras_internals import (
    Variables,
    counter_of,
    is_optimizer,
    is_purged,
    jax_state_in_flight,
    name_of,
)


def global_step(model_or_optimizer: Any) -> int:
    """The number of updates that the optimizer has applied, from the beginning of the run.

    It starts at 0, survives saving and loading, and counts updates rather than batches:
    under gradient accumulation, and with a batch that loss scaling left out, these differ.
    It can be read at any time, in the middle of `fit` too, under any distribution
    strategy.

    Args:
        model_or_optimizer: A compiled model, or an optimizer.

    Raises:
        ValueError: If the model has no optimizer.
        TypeError: If it is neither a model nor an optimizer.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> global_step(model)
    0
    """
    optimizer = find_optimizer(model_or_optimizer, None, "global_step")
    variable, counts = counter_of(optimizer)
    in_flight = jax_state_in_flight(model_or_optimizer)
    if in_flight is None and is_purged(variable):
        raise ValueError(
            "global_step: on JAX an optimizer's counter can't be read in the middle of fit, "
            "since its value is on its way through the training step. Pass the model instead."
        )
    return int((in_flight or Variables()).read(variable)) // counts


def set_global_step(model_or_optimizer: Any, step: int) -> None:
    """Set the number of updates that the optimizer believes it has applied.

    For fine-tuning that starts again at 0, or a counter carried over from elsewhere.
    Optimizers such as Adam correct their moments by it. Set it outside of `fit`.

    Args:
        model_or_optimizer: A compiled model, or an optimizer.
        step: The step, at least 0. Under gradient accumulation over k batches, the
            optimizer's own count becomes step × k.

    Raises:
        ValueError: If the model has no optimizer, or `step` is negative.
        TypeError: If `step` is no integer, or the first argument of another kind.

    Example:

    >>> import keras
    >>> optimizer = keras.optimizers.Adam()
    >>> set_global_step(optimizer, 1000)
    >>> global_step(optimizer)
    1000
    """
    step = integral(step, "set_global_step(step)", least=0)
    optimizer = find_optimizer(model_or_optimizer, None, "set_global_step")
    variable, counts = counter_of(optimizer)
    train_function = getattr(model_or_optimizer, "train_function", None)
    in_epoch = getattr(train_function, "is_in_epoch", False)
    if in_epoch or is_purged(variable) or jax_state_in_flight(model_or_optimizer):
        raise ValueError("set_global_step: the counter can't be set in the middle of fit.")
    most = int(np.iinfo(str(getattr(variable.dtype, "name", variable.dtype))).max) // counts
    if step > most:
        raise ValueError(f"set_global_step(step) must be at most {most}; received {step}.")
    Variables().assign(variable, step * counts)


def find_optimizer(thing: Any, which: str | Callable[[Any], Any] | None, asked_by: str) -> Any:
    """The optimizer that `which` names in `thing`, or the error that says what is wrong.

    Args:
        thing: A model, or, where `which` is None, an optimizer.
        which: An attribute's name, a function of the model, or None for the default.
        asked_by: Who needs it, for the message.
    """
    if which is None and is_optimizer(thing):
        return thing
    if which is None and (isinstance(thing, type) or not hasattr(thing, "fit")):
        raise TypeError(
            f"{asked_by} takes a compiled Keras model or an optimizer; received {thing!r}."
        )
    found, name = named_in(thing, which, asked_by)
    if not is_optimizer(found):
        raise TypeError(
            f"{name} must be an optimizer that counts its `iterations`; it is {found!r}."
        )
    return found


def named_in(
    model: Any, which: str | Callable[[Any], Any] | None, asked_by: str
) -> tuple[Any, str]:
    """What `which` names, whatever that is, and how messages call it.

    Args:
        model: The model; None if `which` is a function that asks for none.
        which: As in `find_optimizer`.
        asked_by: As in `find_optimizer`.
    """
    if callable(which):
        return which(model), f"{asked_by}: what {name_of(which)}(model) returns"
    attribute = which or "optimizer"
    if not hasattr(model, attribute):
        raise ValueError(
            f"{asked_by}: the model {model.name!r} has no attribute {attribute!r}. Compile it, or "
            "name the attribute that holds the optimizer."
        )
    found = getattr(model, attribute)
    if found is None:
        raise ValueError(
            f"{asked_by}: model.{attribute} of {model.name!r} is None. A model gets its optimizer "
            "from compile(optimizer=...)."
        )
    return found, f"{asked_by}: model.{attribute}"
