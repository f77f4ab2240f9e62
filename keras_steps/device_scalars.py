"""Scalars that may not have been computed yet: summed up where they lie, fetched when asked."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

MOST_KEPT = 64
"""How many values are kept at most before they are summed up."""


class Accumulator(ABC):
    """Sums up scalars of one kind; only `fetch` waits for the device that computes them.

    A chunk of them with one in it that is NaN or infinite counts as broken and is left out of
    the total, which would bear its mark for ever.

    Attributes:
        total: The sum of what has been fetched.
        count: How many values were added.
        broken: How many sums were not finite.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.count = self.broken = 0

    @abstractmethod
    def add(self, value: Any) -> None:
        """Take in a value, without waiting for it."""

    @abstractmethod
    def fetch(self) -> None:
        """Bring `total` and `broken` up to the last value added."""

    def _take(self, sum_: float) -> None:
        if math.isfinite(sum_):
            self.total += sum_
        else:
            self.broken += 1


def accumulator_for(value: Any) -> Accumulator | None:
    """What sums up values of the type of `value`; None if that is no number of any backend."""
    kind = type(value)
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        return _Numbers()
    backend = kind.__module__.partition(".")[0]
    if backend == "numpy" and isinstance(value, np.ndarray):
        return _Numbers()
    if backend == "torch" and hasattr(value, "detach"):
        return _TorchTensors()
    if backend in ("jax", "jaxlib") and kind.__name__ == "ArrayImpl":
        return _Handles(_sum_on_jax)
    if backend == "tensorflow" and hasattr(value, "numpy") and not hasattr(value, "assign"):
        return _Handles(_sum_on_tensorflow)
    if backend == "tensorflow" and hasattr(value, "fetch"):
        return _Remote()
    return None


class _Numbers(Accumulator):
    """Numbers that are here already."""

    def add(self, value: Any) -> None:
        self.count += 1
        self._take(float(value))

    def fetch(self) -> None:
        pass


class _TorchTensors(Accumulator):
    """A tensor may be written to in place once its step is over: added up at once, there."""

    _sum: Any = None

    def add(self, value: Any) -> None:
        self.count += 1
        value = value.detach()
        if self._sum is None or self._sum.device != value.device:
            self.fetch()
            self._sum = _torch_zero(value)
        self._sum.add_(value)

    def fetch(self) -> None:
        if self._sum is not None:
            self._take(self._sum.item())
            self._sum = None


def _torch_zero(value: Any) -> Any:
    import torch

    exact = torch.float32 if value.device.type == "mps" else torch.float64
    return torch.zeros((), dtype=exact, device=value.device)


class _Handles(Accumulator):
    """Values that never change: kept, and summed up by their device a chunk at a time.

    Args:
        add_up: Adds up so many values at most, into one on their device.
    """

    def __init__(self, add_up: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._add_up = add_up
        self._kept: list[Any] = []
        self._sums: list[Any] = []

    def add(self, value: Any) -> None:
        self.count += 1
        kept = self._kept
        kept.append(value)
        if len(kept) == MOST_KEPT:
            self._sums.append(self._add_up(kept))
            self._kept = []
            if len(self._sums) == MOST_KEPT:
                self._sums = [self._add_up(self._sums)]

    def fetch(self) -> None:
        kept, sums = self._kept, self._sums
        self._kept, self._sums = [], []
        for values in filter(None, (kept, sums)):
            one = values[0] if len(values) == 1 else self._add_up(values)
            self._take(float(np.asarray(one)))


def _sum_on_tensorflow(values: list[Any]) -> Any:
    import tensorflow as tf

    if len({value.dtype for value in values}) > 1:
        values = [tf.cast(value, tf.float64) for value in values]
    return tf.reduce_sum(tf.cast(tf.stack(values), tf.float64))


def _sum_on_jax(values: list[Any]) -> Any:
    """Always of the same number of values, or each number would be compiled for itself."""
    return _jax_sum()([*values, *[values[-1]] * (MOST_KEPT - len(values))], len(values))


@functools.cache
def _jax_sum() -> Callable[[list[Any], int], Any]:
    import jax
    import jax.numpy as jnp

    def add_up(values: list[Any], number: Any) -> Any:
        stacked = jnp.stack([jnp.asarray(value, jnp.float32) for value in values])
        return jnp.sum(jnp.where(jnp.arange(MOST_KEPT) < number, stacked, 0.0))

    return jax.jit(add_up)


class _Remote(Accumulator):
    """Values that workers of a parameter server compute: nothing here can add them up.

    Past so many that are kept, the older half is waited for; it was scheduled long before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def add(self, value: Any) -> None:
        self.count += 1
        self._kept.append(value)
        if len(self._kept) == 2 * MOST_KEPT:
            older, self._kept = self._kept[:MOST_KEPT], self._kept[MOST_KEPT:]
            self._take_all(older)

    def fetch(self) -> None:
        kept, self._kept = self._kept, []
        self._take_all(kept)

    def _take_all(self, values: list[Any]) -> None:
        for value in values:
            self._take(float(np.asarray(value.fetch())))
