"""What a callback gets as `logs`: the sums it is made of, and means of them over windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Sum(NamedTuple):
    """A running mean's two parts.

    Attributes:
        total: The weighted sum.
        weight: The weights' sum.
        broken: How many parts were not finite and are left out of the total, where such are.
    """

    total: float = 0.0
    weight: float = 0.0
    broken: float = 0

    def __sub__(self, other: Sum) -> Sum:
        return Sum(*(here - there for here, there in zip(self, other, strict=True)))

    def plus(self, other: Sum) -> Sum:
        return Sum(*(here + there for here, there in zip(self, other, strict=True)))

    @property
    def mean(self) -> float:
        return math.nan if self.broken else self.total / self.weight


NOTHING = Sum()


class Snapshot(NamedTuple):
    """What a look has read, once for all that are due.

    Attributes:
        totals: The running sums.
        seconds: What the stopwatch shows.
        learning_rates: The rate of each clock's optimizer, as its last update used it.
        are_of_keras: Whether the sums are Keras's: in float32, and weighed by examples.
    """

    totals: Mapping[str, Sum]
    seconds: float
    learning_rates: Mapping[Any, float | None]
    are_of_keras: bool = True

    def without_totals(self) -> Snapshot:
        """The same after the windows have taken the totals over."""
        return self._replace(totals={})


class Window:
    """The steps since one callback fired last.

    Keras resets its metrics at each epoch's begin, so a window that reaches back into
    the epoch before keeps what it had of it.
    """

    def __init__(self, step: int, seconds: float) -> None:
        self.restart(step, Snapshot({}, seconds, {}))

    def restart(self, step: int, now: Snapshot) -> None:
        """Begin anew after a firing."""
        self._step = step
        self._seconds = now.seconds
        self._start = now.totals
        self._kept: Mapping[str, Sum] = {}
        self._lost = _not_finite(now.totals)

    def close_epoch(self, now: Snapshot) -> None:
        """Keep what the epoch that ends has brought; the metrics begin anew."""
        self._kept = self._gained(now)
        self._start = {}

    def report(
        self, step: int, logs: Mapping[str, Any], now: Snapshot, clock: Any
    ) -> dict[str, float]:
        """The logs of a firing.

        Args:
            step: The global step.
            logs: Keras's logs, for the names, and for metrics that are no means.
            now: What the model was read to hold.
            clock: Whose learning rate it is.
        """
        gained = self._gained(now)
        updates = max(1, step - self._step)
        means = {
            name: gain.mean
            for name, gain in gained.items()
            if gain.weight
            and (
                not now.are_of_keras
                or self._can_tell(name, gain, now.totals.get(name, gain), updates)
            )
        }
        others = scalars({name: value for name, value in logs.items() if name not in means})
        report = {n: mean for n, mean in means.items() if n in logs or not logs} | others
        rate = now.learning_rates[clock]
        if rate is not None:
            report["learning_rate"] = rate
        passed = now.seconds - self._seconds
        if passed > 0:
            report["steps_per_second"] = (step - self._step) / passed
            examples = gained.get("loss", NOTHING).weight
            if examples and now.are_of_keras:
                report["examples_per_second"] = examples / passed
        return report

    def get_state(self, seconds: float, totals: Mapping[str, Sum] | None = None) -> dict[str, Any]:
        """What it holds, in plain values.

        Args:
            seconds: What the run's stopwatch shows.
            totals: What the metrics hold where the window goes on, if it is closed and they
                do not begin anew.
        """
        start, lost = self._start, self._lost
        if totals is not None:
            start, lost = totals, lost | (_not_finite(totals) - _not_finite(self._kept))
        return {
            "step": self._step,
            "seconds": seconds - self._seconds,
            "start": {name: list(sum_) for name, sum_ in start.items()},
            "kept": {name: list(sum_) for name, sum_ in self._kept.items()},
            "lost": sorted(lost),
        }

    def set_state(self, state: Mapping[str, Any], seconds: float) -> None:
        """Take up what `get_state` gave."""
        self._step = state["step"]
        self._seconds = seconds - state["seconds"]
        self._start = {name: Sum(*sum_) for name, sum_ in state["start"].items()}
        self._kept = {name: Sum(*sum_) for name, sum_ in state["kept"].items()}
        self._lost = set(state["lost"])

    def _gained(self, now: Snapshot) -> dict[str, Sum]:
        gained = dict(self._kept)
        for name, total in now.totals.items():
            since = self._start.get(name, NOTHING)
            if total.weight < since.weight:  # someone has reset the metric within the epoch
                since = NOTHING
            gained[name] = gained.get(name, NOTHING).plus(total - since)
        return gained

    def _can_tell(self, name: str, gain: Sum, total: Sum, updates: int) -> bool:
        """Whether a gain stands out from the rounding of the running sum it is part of.

        Keras sums up in float32, from an epoch's begin: after one loss of 10⁸ the next ones
        leave no trace in the sum, nor anything after one that is not finite. The window that
        had this one can tell: it is not finite either.
        """
        if name in self._lost:
            return False
        if gain.total == total.total or not math.isfinite(gain.total):
            return True
        lost = float(np.spacing(np.float32(abs(total.total)))) / 2 * updates
        return lost < 0.5 * abs(gain.total)


def _not_finite(sums: Mapping[str, Sum]) -> set[str]:
    return {name for name, sum_ in sums.items() if not math.isfinite(sum_.total)}


def scalars(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Keras's own logs as floats; what is no scalar stays out."""
    found = {}
    for name, value in (logs or {}).items():
        if isinstance(value, (int, float)) or getattr(value, "shape", None) == ():
            found[name] = float(value)
    return found
