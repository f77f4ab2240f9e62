"""Logged: what a loop logs in its iterations, summed up without waiting for a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_steps.device_scalars import MOST_KEPT, Accumulator, accumulator_for
from keras_steps.reports import NOTHING, Sum

_OF_REPORTS = ("epoch", "steps_per_second")
"""What would be written over."""


class Logged:
    """The running sums of the values that a loop has logged.

    The names are those of the first iteration that logs; each one that logs has the same.
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._names = self._series.keys()
        self._first = self._before = self._latest = 0
        self._taken = 0

    def add(self, values: Mapping[str, Any], iteration: int) -> None:
        """Take in what an iteration logs. Nothing is read from a device.

        Args:
            values: By their names. A name that comes twice in an iteration counts twice.
            iteration: The iteration's number, from 1.

        Raises:
            ValueError: If a value is no scalar, a name is one that reports have by themselves, or
                the names are not those of before.
            TypeError: If a value is no number, tensor or array.
        """
        if iteration != self._latest:
            self._before, self._latest = self._latest, iteration
            self._first = self._first or iteration
        if values.keys() != self._names:
            self._note_part(values)
        series = self._series
        for name, value in values.items():
            each = series[name]
            each.logged_in = iteration
            if type(value) is not each.kind:
                each.take_up(value)
            if each.may_have_a_shape and len(value.shape):
                raise self._no_scalar(name, value)
            each.take(value)
        self._taken += 1
        if self._taken >= MOST_KEPT:
            self._taken = 0
            for each in series.values():
                each.shrink()

    def sums(self) -> dict[str, Sum]:
        """The sums up to now; waits for what has been logged."""
        self._taken = 0
        for name, series in self._series.items():
            if series.logged_in < self._latest:
                raise self._lacks(name, self._latest)
        return {name: series.sum() for name, series in self._series.items()}

    def get_state(self) -> dict[str, list[float]]:
        """The sums, as plain values."""
        return {name: list(sum_) for name, sum_ in self.sums().items()}

    def set_state(self, state: Mapping[str, list[float]]) -> None:
        """Begin with the sums that `get_state` gave."""
        self._series.clear()
        self._series.update({name: _Series(name, Sum(*sums)) for name, sums in state.items()})
        self._first = self._before = self._latest = self._taken = 0

    @property
    def names(self) -> list[str]:
        return list(self._series)

    def _note_part(self, values: Mapping[str, Any]) -> None:
        """Some of the names only: that the iteration before had all is seen here."""
        for name in values:
            if name not in self._series:
                if name in _OF_REPORTS:
                    raise ValueError(
                        f"log({name}=...): each report has {name!r} by itself, of the loop's own. "
                        "Log it under another name, or leave it out."
                    )
                if self._latest != self._first:
                    known = ", ".join(self._series) or "nothing"
                    raise ValueError(
                        f"log({name}=...) is new in iteration {self._latest}; those before logged "
                        f"{known}. Log the same names in each iteration, as the values are "
                        "averaged over them."
                    )
                self._series[name] = _Series(name)
                self._series[name].logged_in = self._before
            elif self._series[name].logged_in < self._before:
                raise self._lacks(name, self._before)

    def _no_scalar(self, name: str, value: Any) -> ValueError:
        return ValueError(
            f"log({name}=...) takes a scalar; received a value of shape {tuple(value.shape)}. "
            "Reduce it first, as with a mean over the batch."
        )

    def _lacks(self, name: str, iteration: int) -> ValueError:
        return ValueError(
            f"iteration {iteration} logged other names, and no {name!r}. Log the same names in "
            "each iteration that logs, as the values are averaged over them."
        )


class _Series:
    """The values of one name.

    Attributes:
        logged_in: The latest iteration that had one.
        kind: Their type; another one is to be taken up.
        take: Takes in a value of this type, without waiting for it.
    """

    take: Callable[[Any], object]

    def __init__(self, name: str, begun_with: Sum = NOTHING) -> None:
        self.logged_in = 0
        self.kind: type | None = None
        self.may_have_a_shape = False
        self._name = name
        self._begun_with = begun_with
        self._accumulator: Accumulator | None = None

    def take_up(self, value: Any) -> None:
        """Go on with values of another type."""
        accumulator = accumulator_for(value)
        if accumulator is None:
            raise TypeError(f"log({self._name}=...) takes a number; received {_described(value)}")
        self._begun_with, self._accumulator = self.sum(), accumulator
        self.kind, self.take = type(value), accumulator.take
        self.may_have_a_shape = hasattr(value, "shape")

    def shrink(self) -> None:
        if self._accumulator is not None:
            self._accumulator.shrink()

    def sum(self) -> Sum:
        """Waits for the values."""
        if self._accumulator is None:
            return self._begun_with
        try:
            self._accumulator.fetch()
        except Exception as error:
            error.add_note(f"Raised where the values logged as {self._name!r} were read.")
            raise
        done = self._accumulator
        return self._begun_with.plus(Sum(done.total, done.count, done.broken))


def _described(value: Any) -> str:
    names = {base.__name__ for base in type(value).__mro__}
    if "DistributedValues" in names:
        return (
            f"{type(value).__name__}, a value for each replica. Reduce it first: "
            "strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None)."
        )
    if "Tracer" in names or "SymbolicTensor" in names or "KerasTensor" in names:
        return (
            f"{value!r}, a tensor within a compiled function. Return it from there, and log it "
            "in the loop."
        )
    return f"{value!r}. Log a float, or a scalar tensor or array of the backend."
