"""What an optimizer counts, and where its learning rate comes from."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from keras_steps.keras_internals.flavour import backend_of


def is_optimizer(thing: Any) -> bool:
    """Whether it counts as optimizers do; asks without evaluating a property."""
    return hasattr(type(thing), "iterations") or "iterations" in getattr(thing, "__dict__", {})


def name_of(optimizer: Any) -> str:
    """How messages call it, or a function in its place.

    Its name, if it has one: an object of one's own may have `iterations` alone, as may
    tf_keras's legacy optimizers, whose name is private.
    """
    given = getattr(optimizer, "name", None) or getattr(optimizer, "__name__", None)
    return str(given or type(optimizer).__name__)


def core_optimizer(optimizer: Any) -> Any:
    """The optimizer within all wrappers such as LossScaleOptimizer: the one that counts."""
    while getattr(optimizer, "inner_optimizer", None) is not None:
        optimizer = optimizer.inner_optimizer
    return optimizer


def is_loss_scaled(optimizer: Any) -> bool:
    """Whether a batch may bring no update since its gradients overflow.

    tf_keras's LossScaleOptimizer counts such a batch, Keras 3's does not.
    """
    return core_optimizer(optimizer) is not optimizer and backend_of(optimizer) != "tf_keras"


def counter_of(optimizer: Any) -> tuple[Any, int]:
    """The variable that counts, and how many of its counts make an update.

    Under gradient accumulation Keras 3's public `iterations` is a tensor computed from
    the private `_iterations`, which counts batches.
    """
    core = core_optimizer(optimizer)
    batches = int(getattr(core, "gradient_accumulation_steps", None) or 1)
    return (core._iterations if batches > 1 else core.iterations), batches


def learning_rate_source(optimizer: Any) -> Any:
    """What the learning rate comes from: a variable, a schedule or another callable.

    The public `learning_rate` of an optimizer with a schedule evaluates it, eagerly.
    """
    return getattr(core_optimizer(optimizer), "_learning_rate", None)


def build_optimizer(model: Any, optimizer: Any = None, variables: Any = None) -> None:
    """Create the variables of an optimizer that fit would create with its first batch.

    Keras 3 does so before train begin on JAX and torch, but on TensorFlow without a strategy
    only as it traces the first batch, and so does tf_keras. A model that is not built yet
    leaves it as it is.

    Args:
        model: A compiled model.
        optimizer: One of its optimizers. Default: `model.optimizer`.
        variables: Those that it trains. Default: all of the model's, if that is built.
    """
    optimizer = optimizer or model.optimizer
    if variables is None and model.built:
        variables = model.trainable_variables
    if not variables or trained_by(optimizer, model) or getattr(optimizer, "built", False):
        return
    strategy = getattr(model, "distribute_strategy", None)
    with nullcontext() if strategy is None else strategy.scope():
        if backend_of(model) == "tf_keras":
            _build_in_tf_keras(optimizer, variables)
        else:
            optimizer.build(variables)


def trained_by(optimizer: Any, model: Any) -> list[Any]:
    """The variables for which an optimizer of the model has been built, in its order.

    Seen in Keras 3.12 and 3.15; tf_keras 2.21 keeps their keys, and its legacy optimizers
    none. Nor does an object that stands for several optimizers, as fit needs it on JAX.
    """
    core = core_optimizer(optimizer)
    if backend_of(model) != "tf_keras":
        return list(getattr(core, "_trainable_variables", ()))
    order = getattr(core, "_index_dict", None) or {}
    known = {core._var_key(variable): variable for variable in model.variables} if order else {}
    return [known[key] for key in sorted(order, key=order.__getitem__) if key in known]


def _build_in_tf_keras(optimizer: Any, variables: Any) -> None:
    """Under the name scope in which its variables would be made within the first batch."""
    import tensorflow as tf

    core = core_optimizer(optimizer)
    for each in (optimizer, core):
        build = getattr(each, "build", None) or getattr(each, "_create_all_weights", None)
        if build is not None:  # tf_keras's legacy optimizers have the latter only
            with tf.name_scope(getattr(core, "name", None) or core._name):
                build(variables)
            return
