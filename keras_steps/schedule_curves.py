"""What schedules are made of: curves with one formula for ints and for tensors."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import keras
from keras import ops


class Schedule(keras.optimizers.schedules.LearningRateSchedule, ABC):
    """What ints and tensors share: one formula, in which `namespace` is `math` or `keras.ops`.

    Tensors come out as float32, in which a step is exact up to 2**24 and to 6e-8 of it beyond.
    """

    @property
    @abstractmethod
    def horizon(self) -> int | None: ...

    @abstractmethod
    def _value(self, step: Any, namespace: Any) -> Any: ...

    def __call__(self, step: Any) -> Any:
        if isinstance(step, numbers.Number):
            return float(self._value(as_steps("step", step, least=0), math))
        return self._value(ops.convert_to_tensor(step), ops)

    def get_config(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@keras.saving.register_keras_serializable("keras_steps", "Ramp")
@dataclass(frozen=True, eq=False)
class Ramp(Schedule):
    """From one rate to another along a line or half a cosine, then constant."""

    initial: float
    final: float
    steps: int
    curve: Literal["linear", "cosine"]

    @property
    def horizon(self) -> int:
        return 0 if self.initial == self.final else self.steps

    def _value(self, step: Any, namespace: Any) -> Any:
        if namespace is math:
            done = min(step, self.horizon) / self.steps
        else:
            done = ops.minimum(ops.cast(step, "float32"), self.horizon) / self.steps
        left = 1 - done if self.curve == "linear" else (1 + namespace.cos(math.pi * done)) / 2
        return self.initial * left + self.final * (1 - left)  # exact where left is 1 or 0


@keras.saving.register_keras_serializable("keras_steps", "InverseSqrt")
@dataclass(frozen=True, eq=False)
class InverseSqrt(Schedule):
    """The decay of `inverse_sqrt`, counted from the end of its warmup."""

    peak: float
    warmup_steps: int

    @property
    def horizon(self) -> None:
        return None

    def _value(self, step: Any, namespace: Any) -> Any:
        whole = self.warmup_steps + (step if namespace is math else ops.cast(step, "float32"))
        return self.peak * namespace.sqrt(self.warmup_steps / whole)


@keras.saving.register_keras_serializable("keras_steps", "Join")
@dataclass(frozen=True, eq=False)
class Join(Schedule):
    """Schedules one after the other, each from its own step 0."""

    pieces: tuple[Callable[[Any], Any], ...]
    boundaries: tuple[int, ...]

    @property
    def horizon(self) -> int | None:
        last = getattr(self.pieces[-1], "horizon", None)
        return None if last is None else last + sum(self.boundaries[-1:])

    def _value(self, step: Any, namespace: Any) -> Any:
        if namespace is math:
            index = bisect_right(self.boundaries, step)
            return self.pieces[index](step - (0, *self.boundaries)[index])
        value = ops.cast(self.pieces[0](step), "float32")
        for boundary, piece in zip(self.boundaries, self.pieces[1:], strict=True):
            after = ops.cast(piece(ops.maximum(step, boundary) - boundary), "float32")
            value = ops.where(step < boundary, value, after)
        return value

    def get_config(self) -> dict[str, Any]:
        pieces = [keras.saving.serialize_keras_object(piece) for piece in self.pieces]
        return {"pieces": pieces, "boundaries": list(self.boundaries)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Join:
        pieces = map(keras.saving.deserialize_keras_object, config["pieces"])
        return cls(tuple(pieces), tuple(config["boundaries"]))


def as_steps(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int, or the error that says what `name` takes."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an int, in updates; received {value!r}. Use int(...).")
    if int(value) < least:
        raise ValueError(f"{name} must be at least {least}, in updates; received {value!r}.")
    return int(value)


def as_rate(name: str, value: Any, least: int = 0) -> float:
    """`value` as a float, or the error that says what `name` takes."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number; received {value!r}. Use float(...).")
    if not least <= float(value) < math.inf:
        raise ValueError(f"{name} must be finite and at least {least}; received {value!r}.")
    return float(value)
