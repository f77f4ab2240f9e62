"""What can be saved of an object beside models: variables, a state_dict, or a function's value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from keras_steps.arguments import takes
from keras_steps.keras_internals import object_variables
from keras_steps.saved_states import DictState, FunctionState, SavableState, VariablesState
from keras_steps.torch_states import ModuleState, OptimizerState


def is_savable(thing: Any) -> bool:
    """Whether it is an object with a state, or a function without arguments that returns one."""
    if isinstance(thing, type):
        return False
    return object_variables(thing) is not None or _has_state_dict(thing) or _is_function(thing)


def state_of(name: str, thing: Any) -> SavableState:
    """The state of a savable object now. A function is called; it may return an object too."""
    variables = object_variables(thing)
    if variables is not None:
        return VariablesState(name, variables)
    if _has_state_dict(thing):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.nn.Module):
            return ModuleState(name, thing)
        if torch is not None and isinstance(thing, torch.optim.Optimizer):
            return OptimizerState(name, thing)
        return DictState(name, thing)
    value = thing()
    is_object = object_variables(value) is not None or _has_state_dict(value)
    return state_of(name, value) if is_object else FunctionState(name, value)


def _has_state_dict(thing: Any) -> bool:
    return all(
        callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")
    )


def _is_function(thing: Any) -> bool:
    function: Callable[[], Any] | Any = thing
    return callable(function) and takes(function)
