"""The states of torch's modules and optimizers, with what a state_dict leaves out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from keras_steps.saved_states import DictState
from keras_steps.state_trees import differences, put_together, taken_apart
from keras_steps.step_sources import set_updates_of, updates_of


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


def _is_lazy(part: Any) -> bool:
    """Whether it is a parameter or buffer of torch that gets its shape with the first call."""
    torch = sys.modules["torch"]
    return isinstance(part, torch.Tensor) and torch.nn.parameter.is_lazy(part)
