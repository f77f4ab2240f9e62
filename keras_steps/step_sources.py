"""What counts the steps of a loop whose updates no Keras optimizer makes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np

from keras_steps.arguments import takes
from keras_steps.keras_internals import is_optimizer, learning_rate_source, name_of, read_number


class StepFunction:
    """A function that returns the step, in the place of an optimizer that counts.

    Args:
        function: Called without arguments when something may be due.
        name: How messages call it.
    """

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self.name = name
        self.iterations = self
        self._function = function
        self._latest: int | None = None

    def begin(self) -> None:
        """A new run may begin at any step."""
        self._latest = None

    def item(self) -> int:
        """The step now, checked.

        Raises:
            TypeError: If it is no whole number.
            ValueError: If it is negative, or less than it was.
        """
        value = self._function()
        value = value.item() if hasattr(value, "item") else value
        if hasattr(value, "numpy"):
            value = value.numpy().item()
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(
                f"StepLoop: {self.name} must return the step, a whole number; it returned "
                f"{value!r}."
            )
        least = self._latest or 0
        if value < least:
            raise ValueError(
                f"StepLoop: {self.name} returned {value}, and before that {least}. A step never "
                "goes back: return how many updates have been made in all."
            )
        self._latest = int(value)
        return self._latest


class OwnSteps:
    """Counts a loop's iterations, in a variable of the backend.

    What TF1's `get_or_create_global_step` was for. It can be saved and restored with other
    variables, such as by tf.train.Checkpoint.
    """

    name = "the loop"

    def __init__(self) -> None:
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            self.iterations = tf.Variable(0, trainable=False, dtype="int64", name="global_step")
            if tf.distribute.has_strategy():  # made in its scope: one for each replica
                self.add_one = lambda: self.iterations.assign_add(1)
                return
            one = tf.constant(1, "int64")
            handle = self.iterations.handle
            self.add_one = lambda: tf.raw_ops.AssignAddVariableOp(resource=handle, value=one)
            return
        self.iterations = keras.Variable(0, trainable=False, dtype="int32", name="global_step")
        if keras.backend.backend() == "torch":
            self.add_one = lambda: self.iterations.value.add_(1)
        else:
            self.add_one = lambda: self.iterations.assign(self.iterations.value + 1)


class TorchSteps:
    """Counts the updates of a torch optimizer: torch's own have no count in common.

    An update that a GradScaler leaves out is none. The count stays with the optimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        self.name = type(optimizer).__name__
        self.iterations = keras.Variable(0, trainable=False, dtype="int64", name="global_step")
        optimizer.register_step_post_hook(self._count)

    def _count(self, *args: Any) -> None:
        self.iterations.value.add_(1)


_OF_TORCH: WeakKeyDictionary[Any, TorchSteps] = WeakKeyDictionary()


def step_source(given: Any, name: str = "StepLoop(optimizer)") -> Any:
    """What a loop or a callback in it counts by.

    Args:
        given: What was given as `optimizer`, or what that names.
        name: How messages call it.

    Raises:
        TypeError: If it neither counts nor is a function.
    """
    if isinstance(given, type):
        raise TypeError(f"{name} must be an optimizer; received the class {given!r}.")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.optim.Optimizer):
        if given not in _OF_TORCH:
            _OF_TORCH[given] = TorchSteps(given)
        return _OF_TORCH[given]
    if is_optimizer(given):
        if learning_rate_source(given) is not None or hasattr(given.iterations, "assign"):
            return given
        return StepFunction(lambda: given.iterations, f"{name_of(given)}.iterations")
    if callable(given) and not _is_model(given):
        if not takes(given):
            raise TypeError(
                f"{name} must be a function without arguments that returns the step; received "
                f"{given!r}. That of a callback is another: from the model to the optimizer."
            )
        return StepFunction(given, f"the function {name_of(given)}")
    raise TypeError(
        f"{name} must be an optimizer that counts its `iterations`, a torch optimizer, or a "
        f"function that returns the step; received {given!r}. Optimizers of optax keep their count "
        "in their state: pass a function that returns it from there."
    )


def updates_of(optimizer: Any) -> int | None:
    """How many updates a torch optimizer has made; None if no loop counts them."""
    steps = _OF_TORCH.get(optimizer)
    return None if steps is None else int(read_number(steps.iterations))


def set_updates_of(optimizer: Any, updates: int) -> None:
    """Let loops count on from there."""
    step_source(optimizer).iterations.assign(updates)


def _is_model(given: Any) -> bool:
    """Of Keras or torch: such can be called too."""
    return hasattr(given, "fit") or hasattr(given, "forward")
