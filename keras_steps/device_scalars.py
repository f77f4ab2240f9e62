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

    A sum of several that is NaN or infinite counts as broken and is left out of the total, which
    would bear its mark for ever.

    Attributes:
        take: Takes in a value, without waiting for it.
        total: The sum of what has been fetched.
        count: How many values were fetched.
        broken: How many of their sums were not finite.
    """

    take: Callable[[Any], object]

    def __init__(self) -> None:
        self.total = 0.0
        self.count = self.broken = 0

    @abstractmethod
    def shrink(self) -> None:
        """To be called after MOST_KEPT values at the latest: keep less of them."""

    @abstractmethod
    def fetch(self) -> None:
        """Bring `total`, `count` and `broken` up to the last value taken."""

    def _add(self, sum_: float, count: int) -> None:
        self.count += count
        if math.isfinite(sum_):
            self.total += sum_
        else:
            self.broken += 1


def accumulator_for(value: Any) -> Accumulator | None:
    """What sums up values of the type of `value`; None if that is no number of any backend."""
    kind = type(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _Kept(sum)
    if isinstance(value, (np.integer, np.floating)):
        return _Kept(_sum_here)
    backend = kind.__module__.partition(".")[0]
    if backend == "torch" and hasattr(value, "detach"):
        return None if value.is_complex() else _TorchTensors()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            return None
        return _Arrays(_sum_here)
    if backend in ("jax", "jaxlib") and kind.__name__ == "ArrayImpl":
        return None if value.dtype.kind == "c" else _Kept(_sum_on_jax)
    if backend == "tensorflow" and hasattr(value, "numpy") and not hasattr(value, "assign"):
        is_number = value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
        return _Kept(_sum_on_tensorflow) if is_number else None
    if backend == "tensorflow" and hasattr(value, "fetch"):
        return _Remote()
    return None


class _Kept(Accumulator):
    """Values that never change: kept, and summed up where they lie a chunk at a time.

    Args:
        add_up: Adds up so many values at most, into one on their device.
    """

    def __init__(self, add_up: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._add_up = add_up
        self._kept: list[Any] = []
        self._sums: list[Any] = []
        self._counted = 0
        self.take = self._kept.append  # the same list for good: nothing is quicker

    def shrink(self) -> None:
        if not self._kept:
            return
        self._counted += len(self._kept)
        self._sums.append(self._add_up(self._kept))
        self._kept.clear()
        if len(self._sums) == MOST_KEPT:
            self._sums = [self._add_up(self._sums)]

    def fetch(self) -> None:
        if len(self._kept) == 1 and not self._sums:
            self._add(float(np.asarray(self._kept.pop())), 1)
            return
        self.shrink()
        if self._sums:
            one = self._sums[0] if len(self._sums) == 1 else self._add_up(self._sums)
            self._add(float(np.asarray(one)), self._counted)
            self._sums, self._counted = [], 0


class _Arrays(_Kept):
    """NumPy's arrays, which may be written to later."""

    def __init__(self, add_up: Callable[[list[Any]], Any]) -> None:
        super().__init__(add_up)
        keep = self.take
        self.take = lambda value: keep(float(value))


class _TorchTensors(Accumulator):
    """A tensor may be written to in place once its step is over: added up at once, where it is."""

    def __init__(self) -> None:
        super().__init__()
        self._sum: Any = None
        self._counted = 0
        self._here: list[float] = []

    def take(self, value: Any) -> None:
        if value.is_cpu:  # computed as it was made, and read in a tenth of the time of an addition
            self._here.append(value.item())
            return
        value = value.detach()
        if self._sum is None or self._sum.device != value.device:
            self._fetch_sum()
            self._sum = _torch_zero(value)
        self._sum.add_(value)
        self._counted += 1

    def shrink(self) -> None:
        if self._here:
            self._add(sum(self._here), len(self._here))
            self._here.clear()

    def fetch(self) -> None:
        self.shrink()
        self._fetch_sum()

    def _fetch_sum(self) -> None:
        if self._sum is not None:
            self._add(self._sum.item(), self._counted)
            self._sum, self._counted = None, 0


def _torch_zero(value: Any) -> Any:
    import torch

    exact = torch.float32 if value.device.type == "mps" else torch.float64
    with torch.inference_mode(False):  # or it could not be added to outside of that mode
        return torch.zeros((), dtype=exact, device=value.device)


def _sum_here(values: list[Any]) -> float:
    return sum(map(float, values))


def _sum_on_tensorflow(values: list[Any]) -> Any:
    import tensorflow as tf

    if isinstance(values[0], float):
        return sum(values)
    if "CPU" in values[0].device:  # computed as they are made
        try:
            return float(sum([memoryview(value)[()] for value in values]))  # 2/3 of numpy()'s time
        except (NotImplementedError, ValueError):  # float16, bfloat16
            return _sum_here([value.numpy() for value in values])
    if len({value.dtype for value in values}) > 1:
        values = [tf.cast(value, tf.float64) for value in values]
    return tf.reduce_sum(tf.cast(tf.stack(values), tf.float64))


def _sum_on_jax(values: list[Any]) -> Any:
    """Of MOST_KEPT values at most, as one call that is compiled for that many."""
    number = len(values)
    try:
        return _jax_sum()([*values, *[values[-1]] * (MOST_KEPT - number)], number)
    except ValueError as error:
        if "incompatible devices" not in str(error):
            raise
        return _sum_here(values)


@functools.cache
def _jax_sum() -> Callable[[list[Any], int], Any]:
    import jax
    import jax.numpy as jnp

    def add_up(values: list[Any], number: Any) -> Any:
        stacked = jnp.stack([jnp.asarray(value, float) for value in values])  # float64 with x64
        return jnp.sum(jnp.where(jnp.arange(len(values)) < number, stacked, 0.0))

    return jax.jit(add_up)


class _Remote(Accumulator):
    """Values that workers of a parameter server compute: nothing here can add them up.

    Of those that are kept the older half is waited for; it was scheduled long before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []
        self.take = self._kept.append

    def shrink(self) -> None:
        self._fetch(len(self._kept) // 2)

    def fetch(self) -> None:
        self._fetch(len(self._kept))

    def _fetch(self, number: int) -> None:
        older = self._kept[:number]
        del self._kept[:number]
        for value in older:
            self._add(float(np.asarray(value.fetch())), 1)
