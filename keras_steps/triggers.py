"""Triggers say at which steps, or after how many seconds, something is due."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_steps.arguments import finite, integral

_BEYOND_COUNTERS = 2**63
"""No counter of steps gets there."""


class Trigger(ABC):
    """The base of all triggers: a grid of steps, an interval of seconds, or both.

    A trigger answers from plain numbers and remembers nothing, so that a run which
    is killed and resumed gets the same answers as one that never was. Its grid is
    absolute: it does not move with the step at which a run begins.

    Subclasses override `next_step`, `latest_step` and, for clocks, `next_time`.
    Triggers are joined with `|`: the result is due when either is.

    Example:

    >>> trigger = EverySteps(100) | AtSteps(1, 10)
    >>> [trigger.next_step(step) for step in (0, 1, 10, 100)]
    [1, 10, 100, 200]
    """

    @abstractmethod
    def next_step(self, step: int) -> int | None:
        """The smallest grid point after `step`, or None if there is none."""

    @abstractmethod
    def latest_step(self, step: int) -> int | None:
        """The largest grid point up to and including `step`, or None."""

    def next_time(self, seconds: float) -> float | None:
        """When to fire next after having fired at `seconds`, or None for never."""
        return None

    def crosses(self, before: int, now: int) -> bool:
        """Whether a grid point lies in (before, now]: the one firing rule."""
        due = self.next_step(before)
        return due is not None and due <= now

    def __or__(self, other: Trigger) -> Trigger:
        if not isinstance(other, Trigger):
            return NotImplemented
        return _Either(self, other)


class EverySteps(Trigger):
    """Due at a fixed interval of steps.

    Args:
        n: The interval in steps, at least 1.
        start: With 0 (the default) the grid is n, 2n, 3n, …; with s ≥ 1 it is
            s, s + n, s + 2n, …

    Raises:
        ValueError: If `n` is less than 1 or `start` is negative.
        TypeError: If one of them is no integer.

    Example:

    >>> EverySteps(100).next_step(100), EverySteps(100, start=1).next_step(100)
    (200, 101)
    """

    def __init__(self, n: int, start: int = 0) -> None:
        self.n = integral(n, "EverySteps(n)", least=1)
        self.start = integral(start, "EverySteps(start)", least=0)
        self._first = self.start or self.n

    def next_step(self, step: int) -> int:
        if step < self._first:
            return self._first
        return step + self.n - (step - self._first) % self.n

    def latest_step(self, step: int) -> int | None:
        if step < self._first:
            return None
        return step - (step - self._first) % self.n

    def __repr__(self) -> str:
        start = f", start={self.start}" if self.start else ""
        return f"EverySteps({self.n}{start})"


class AtSteps(Trigger):
    """Due at the given steps and at no others.

    Args:
        *steps: Steps, each at least 1, in any order.

    Raises:
        ValueError: If there is none, or one of them is less than 1.
        TypeError: If one of them is no integer.

    Example:

    >>> AtSteps(1, 10, 100).next_step(10)
    100
    """

    def __init__(self, *steps: int) -> None:
        if not steps:
            raise ValueError("AtSteps() received no step; pass at least one, as in AtSteps(1, 10).")
        only: Any = steps[0]
        if len(steps) == 1 and isinstance(only, Iterable) and not isinstance(only, (str, bytes)):
            raise TypeError(
                f"AtSteps takes its steps as separate arguments; received {only!r}. "
                "Unpack it: AtSteps(*steps)."
            )
        self.steps = tuple(sorted({integral(step, "AtSteps", least=1) for step in steps}))

    def next_step(self, step: int) -> int | None:
        return next((point for point in self.steps if point > step), None)

    def latest_step(self, step: int) -> int | None:
        return next((point for point in reversed(self.steps) if point <= step), None)

    def __repr__(self) -> str:
        return f"AtSteps({', '.join(map(str, self.steps))})"


class GeometricSteps(Trigger):
    """Due at steps that grow by a factor: often at first, then ever more rarely.

    The grid is first, first × factor, first × factor², …, each rounded up and at
    least one more than the one before, as far as a counter can go.

    Args:
        first: The first step, at least 1.
        factor: The growth from one grid point to the next, more than 1.

    Raises:
        ValueError: If `first` is less than 1, or `factor` is not above 1.
        TypeError: If `first` is no integer or `factor` no number.

    Example:

    >>> trigger, step = GeometricSteps(factor=1.5), 0
    >>> [step := trigger.next_step(step) for _ in range(6)]
    [1, 2, 3, 4, 6, 8]
    """

    def __init__(self, first: int = 1, factor: float = 2) -> None:
        self.first = integral(first, "GeometricSteps(first)", least=1)
        self.factor = finite(factor, "GeometricSteps(factor)")
        if self.factor <= 1:
            raise ValueError(f"GeometricSteps(factor) must be above 1; received {factor!r}.")

    def next_step(self, step: int) -> int | None:
        return next((point for point in self._points() if point > step), None)

    def latest_step(self, step: int) -> int | None:
        latest = None
        for point in self._points():
            if point > step:
                break
            latest = point
        return latest

    def _points(self) -> Iterable[int]:
        exact: float = self.first
        point = self.first
        while point < _BEYOND_COUNTERS:
            yield point
            exact = min(exact * self.factor, _BEYOND_COUNTERS)
            point = max(_rounded_up(exact), point + 1)

    def __repr__(self) -> str:
        return f"GeometricSteps({self.first}, {self.factor:g})"


class EverySecs(Trigger):
    """Due when so many seconds have gone by since the callback fired last.

    It fires at the end of the first execution after that. Being a matter of the
    clock on the wall, it fires at other steps in each run. The seconds count from
    when it became due, before the actions ran: let them be several times what its
    action takes, or it is due again at once.

    Args:
        seconds: The interval, above 0.

    Raises:
        ValueError: If `seconds` is not above 0 or not finite.
        TypeError: If it is no number.

    Example:

    >>> EverySecs(600).next_time(30.0)
    630.0
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = finite(seconds, "EverySecs(seconds)")
        if self.seconds <= 0:
            raise ValueError(f"EverySecs(seconds) must be above 0; received {seconds!r}.")

    def next_step(self, step: int) -> None:
        return None

    def latest_step(self, step: int) -> None:
        return None

    def next_time(self, seconds: float) -> float:
        return seconds + self.seconds

    def __repr__(self) -> str:
        return f"EverySecs({self.seconds:g})"


class _Either(Trigger):
    def __init__(self, *parts: Trigger) -> None:
        self.parts = parts

    def next_step(self, step: int) -> int | None:
        return min(_known(part.next_step(step) for part in self.parts), default=None)

    def latest_step(self, step: int) -> int | None:
        return max(_known(part.latest_step(step) for part in self.parts), default=None)

    def next_time(self, seconds: float) -> float | None:
        return min(_known(part.next_time(seconds) for part in self.parts), default=None)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts))


def as_trigger(every: int | Trigger | None, name: str, start: int = 0) -> Trigger:
    """The trigger that an argument `every` stands for: itself, or EverySteps of an int."""
    if isinstance(every, Trigger):
        return every
    if isinstance(every, bool) or not isinstance(every, (int, float, np.integer, np.floating)):
        raise TypeError(
            f"{name} must be a number of steps or a trigger such as EverySteps(100); "
            f"received {every!r}."
        )
    return EverySteps(integral(every, name, least=1), start)


def goes_by_time(trigger: Trigger) -> bool:
    """Whether a clock may make it due, so that it is due at other steps on each worker."""
    if isinstance(trigger, _Either):
        return any(goes_by_time(part) for part in trigger.parts)
    return type(trigger).next_time is not Trigger.next_time


def _rounded_up(value: float) -> int:
    """The next integer; 100 * 1.1, which is 110.00000000000001 in floats, means 110."""
    nearest = round(value)
    return nearest if math.isclose(value, nearest, rel_tol=1e-12) else math.ceil(value)


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]
