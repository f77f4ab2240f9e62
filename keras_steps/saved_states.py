"""The state of one object, as it is saved and put back: variables, a state_dict, a value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, ClassVar

import numpy as np

from keras_steps.framework_arrays import type_of_numbers
from keras_steps.keras_internals import assigned, by_replica, for_replicas, is_of_metrics
from keras_steps.state_trees import differences, put_together, taken_apart


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
        return not (is_of_metrics(key) or key.startswith("metric/"))

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
            {k: one for k, one in side.items() if k in both or not is_of_metrics(k)}
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


class FunctionState(SavableState):
    """What a function returns: a value that is another one after each step."""

    kind = "a function's value"

    def differences(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        yield from differences(stored, self.state, self.name, may_grow=True)

    def put(self, stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        return put_together(stored, arrays, self.state)


def _kind_of(variable: Any) -> tuple[tuple[int, ...], str]:
    """Shape and type of a variable of any backend, or of an array."""
    name = str(getattr(variable.dtype, "name", variable.dtype)).removeprefix("torch.")
    return tuple(variable.shape), name
