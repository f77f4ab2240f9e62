"""What can be saved of an object beside models: variables, a state_dict, or a function's value."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar

import numpy as np

from keras_steps.arguments import takes
from keras_steps.framework_arrays import type_of_numbers
from keras_steps.keras_internals import assigned, by_replica, for_replicas, object_variables
from keras_steps.state_trees import differences, put_together, taken_apart
from keras_steps.step_sources import set_updates_of, updates_of


class SavableState(ABC):
    """The state of one object as it is now, to be saved or to be put in the place of.

    Args:
        name: What the object is called.
        state: Its state: for `taken_apart`, or variables by their keys.
    """

    kind: ClassVar[str]
    """What it is saved as."""

    may_refuse: bool = False
    """Whether `put` may raise though no `differences` were found."""

    def __init__(self, name: str, state: Any) -> None:
        self.name = name
        self.state = state

    def taken_apart(self, arrays: MutableMapping[str, Any]) -> Any:
        """See `state_trees.taken_apart`."""
        return taken_apart(self.state, self.name, arrays)

    @property
    def is_built(self) -> bool:
        """Whether it has what it will have; else its first step makes it."""
        return True

    def is_checked(self, key: str) -> bool:
        """Whether what it holds under a key must be without NaN."""
        return True

    def may_be_infinite(self, key: str) -> bool:
        """Whether infinity may be meant there, as in a mask or a best value so far."""
        return True

    @abstractmethod
    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        """Why what was saved can't be put in its place."""

    def places(
        self, stored: Any, arrays: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[Any, str, np.ndarray]]:
        """Of each array that is put in place: what that place is, its key, and the array."""
        yield from ()

    @abstractmethod
    def put(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        """Put what was saved in its place; what a function would return is returned."""


class VariablesState(SavableState):
    """That of a Keras or TensorFlow object: variables, which are assigned in place.

    Of a model's metrics those are that are on both sides: most are made with the first batch.
    """

    kind = "variables"

    def __init__(self, name: str, keyed: list[tuple[str, Any]]) -> None:
        super().__init__(name, by_replica(keyed))
        self._keyed = keyed

    @property
    def is_built(self) -> bool:
        return bool(self.state)

    def taken_apart(self, arrays: MutableMapping[str, Any]) -> Any:
        if not self.is_built:
            raise ValueError(
                f"StepCheckpoint(objects): {self.name!r} has no variables yet, so there is nothing "
                "to save of it. Build it before the run, or call it in the first step."
            )
        parts = []
        for key, variable in self.state.items():
            place = f"{self.name}/{key}"
            arrays[place] = variable
            parts.append([key, {"array": place, "dtype": type_of_numbers(variable, place)}])
        return {"dict": parts}

    def is_checked(self, key: str) -> bool:
        return not key.startswith(("metric/", "metrics/"))

    def may_be_infinite(self, key: str) -> bool:
        return not getattr(self.state[key], "trainable", False)

    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        there, here = self._both(stored, arrays)
        only = [*(key for key in there if key not in here), *(k for k in here if k not in there)]
        if only:
            yield (
                f"{self.name}/{only[0]} is only {'in the file' if only[0] in there else 'here'} "
                f"({len(there)} variables there, {len(here)} here: is {self.name!r} built?)"
            )
        for key in here:
            if key in there and _kind_of(there[key]) != _kind_of(here[key]):
                old, new = _kind_of(there[key]), _kind_of(here[key])
                yield (
                    f"{self.name}/{key} is {old[1]} of shape {old[0]} in the file, and {new[1]} "
                    f"of shape {new[0]} here"
                )

    def places(
        self, stored: Any, arrays: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[Any, str, np.ndarray]]:
        there, here = self._both(stored, arrays)
        for key, variable in here.items():
            yield id(variable), f"{self.name}/{key}", there[key]

    def put(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        there, here = self._both(stored, arrays)
        assigned(here, there)

    def _both(
        self, stored: Any, arrays: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What was saved, and the variables; without metrics of a model that only one side has."""
        found = {key: arrays[part["array"]] for key, part in stored["dict"]}
        sides = for_replicas(self._keyed, found), self.state
        both = sides[0].keys() & sides[1].keys()
        there, here = (
            {k: one for k, one in side.items() if k in both or not k.startswith("metrics/")}
            for side in sides
        )
        return there, here


class DictState(SavableState):
    """The `state_dict()` of an object, given back by `load_state_dict`, which checks it."""

    kind = "a state_dict"
    may_refuse = True

    def __init__(self, name: str, thing: Any) -> None:
        super().__init__(name, thing.state_dict())
        self._thing = thing

    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        yield from ()

    def put(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        try:
            self._thing.load_state_dict(put_together(stored, arrays, self.state))
        except Exception as error:
            error.add_note(f"restore_checkpoint called load_state_dict of {self.name!r}.")
            raise


class ModuleState(DictState):
    """That of a torch module. Its buffers may be infinite, as masks are, and what is frozen."""

    kind = "a torch module"
    may_refuse = False

    def __init__(self, name: str, module: Any) -> None:
        super().__init__(name, module)
        parameters = module.named_parameters(remove_duplicate=False)
        self._trained = {key for key, parameter in parameters if parameter.requires_grad}
        self.may_refuse = any(key.endswith("_extra_state") for key in self.state)
        self._lazy = [key for key, part in self.state.items() if _is_lazy(part)]

    @property
    def is_built(self) -> bool:
        return not self._lazy

    def taken_apart(self, arrays: MutableMapping[str, Any]) -> Any:
        if not self.is_built:
            raise ValueError(
                f"StepCheckpoint(objects): {self.name!r} has no {self._lazy[0]} yet, "
                "as it is lazy. Call it before the run, or in the first step."
            )
        return super().taken_apart(arrays)

    def may_be_infinite(self, key: str) -> bool:
        return key not in self._trained

    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        if self.is_built:
            yield from differences(stored, self.state, self.name, may_grow=True)
        else:
            yield f"{self.name} has no {self._lazy[0]} yet: call it once, as it is lazy"

    def places(
        self, stored: Any, arrays: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[Any, str, np.ndarray]]:
        for key, part in stored["dict"]:
            here = self.state[key]
            if isinstance(part, dict) and "array" in part and here.numel():
                place = here.device, here.data_ptr(), here.shape
                yield place, f"{self.name}/{key}", arrays[part["array"]]


class OptimizerState(DictState):
    """That of a torch optimizer: also its class, its parameters' shapes, and how often it updated.

    Torch's own state says none of these; by the first two a wrong optimizer is told, by the
    last a loop goes on counting.
    """

    kind = "a torch optimizer"
    may_refuse = False

    def __init__(self, name: str, optimizer: Any) -> None:
        super().__init__(name, optimizer)
        groups = optimizer.param_groups
        self._shapes = [
            [None if _is_lazy(each) else list(each.shape) for each in group["params"]]
            for group in groups
        ]
        self._class = type(optimizer).__name__

    def taken_apart(self, arrays: MutableMapping[str, Any]) -> Any:
        updates = updates_of(self._thing)
        state = {
            "state_dict": self.state,
            "class": self._class,
            "shapes": self._shapes,
            "updates": updates,
        }
        return taken_apart(state, self.name, arrays)

    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        parts = dict(stored["dict"])
        kind = parts.get("class", self._class)  # which the first files did not say
        if kind != self._class:
            yield f"{self.name} is {kind} in the file, and {self._class} here"
        there = put_together(parts["shapes"], arrays)
        if there != self._shapes:
            yield (
                f"{self.name} updates parameters of the shapes {self._shapes} here, and of {there} "
                "in the file"
            )

    def put(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        parts = dict(stored["dict"])
        super().put(parts["state_dict"], arrays)
        if parts["updates"] is not None:
            set_updates_of(self._thing, parts["updates"])


class FunctionState(SavableState):
    """What a function returns: a value that is another one after each step."""

    kind = "a function's value"

    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        yield from differences(stored, self.state, self.name, may_grow=True)

    def put(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        return put_together(stored, arrays, self.state)


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


def _is_lazy(part: Any) -> bool:
    """Whether it is a parameter or buffer of torch that gets its shape with the first call."""
    torch = sys.modules["torch"]
    return isinstance(part, torch.Tensor) and torch.nn.parameter.is_lazy(part)


def _has_state_dict(thing: Any) -> bool:
    return all(
        callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")
    )


def _is_function(thing: Any) -> bool:
    function: Callable[[], Any] | Any = thing
    return callable(function) and takes(function)


def _kind_of(variable: Any) -> tuple[tuple[int, ...], str]:
    """Shape and type of a variable of any backend, or of an array."""
    name = str(getattr(variable.dtype, "name", variable.dtype)).removeprefix("torch.")
    return tuple(variable.shape), name
