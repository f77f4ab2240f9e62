"""Monitor: one name among the results of evaluations, and which value of it is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from keras_steps.arguments import finite
from keras_steps.evaluations import Evaluations
from keras_steps.keras_internals import direction_of
from keras_steps.run import Run
from keras_steps.step_callback import Order

_MODES = ("auto", "min", "max")


class Monitor:
    """Follows one result of evaluations, for callbacks that look for the best.

    The callback calls `require_source` in its `begin`, `value_in` with each evaluation,
    and `never_came` at the ends of epochs; it sets `best` itself, as what it does with an
    improvement is its own affair.

    Args:
        name: Of the result, with its prefix, such as "val_loss".
        mode: "min": smaller is better; "max": larger is. "auto": as the model's metric, or
            the name, tells.
        asked_by: Class of the callback, for errors.
        min_delta: How much better than the best a value must be to count, at least 0.

    Raises:
        ValueError: If `mode` is none of the three, or `min_delta` negative or not finite.
        TypeError: If `name` is no string, or `min_delta` no number.

    Example:

    >>> monitor = Monitor("val_loss", "min", "StepEarlyStopping")
    >>> monitor.best = 0.5
    >>> monitor.improves(0.4), monitor.improves(0.5)
    (True, False)
    """

    def __init__(self, name: str, mode: str, asked_by: str, *, min_delta: float = 0.0) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"{asked_by}(monitor) must be the name of an evaluation's result, such as "
                f"'val_loss'; received {name!r}."
            )
        if mode not in _MODES:
            raise ValueError(f"{asked_by}(mode) must be one of {_MODES}; received {mode!r}.")
        self.name = name
        self.mode = mode
        self.asked_by = asked_by
        self.min_delta = finite(min_delta, f"{asked_by}(min_delta)", least=0)
        self.best: float | None = None
        self._direction = None if mode == "auto" else mode
        self._evaluations = Evaluations()
        self._prefixes: list[str] = []
        self._has_come = False

    @property
    def direction(self) -> Literal["min", "max"]:
        """Which values are better, as far as that is known: "min" or "max"."""
        return "max" if self._direction == "max" else "min"

    def require_source(self, run: Run) -> None:
        """Find what can be known at train begin.

        Raises:
            ValueError: If no evaluation of this run can bring the name, or mode is "auto" and
                neither the model's metrics nor the name tell the direction.
        """
        self._evaluations = run.evaluations
        self._prefixes = run.evaluations.prefixes
        self._has_come = False
        if run.evaluations.are_known and self._prefix_of(self.name) is None:
            raise ValueError(f"{self}: {self._no_source()}")
        if self.mode == "auto":
            bare = self.name.removeprefix(self._prefix_of(self.name) or "")
            self._direction = direction_of(run.model, bare)
        if self._direction is None:
            raise ValueError(
                f"{self}: neither the name nor a metric of the model tells whether smaller or "
                "larger is better. Give mode='min' or mode='max', or correct the name."
            )

    def never_came(self, run: Run) -> None:
        """At an epoch's end: see that an evaluation has brought the name, or is known to come.

        Only for runs of which it can't be known at train begin which evaluations they make.

        Raises:
            ValueError: If none has, and no callback is there that makes evaluations whose
                results have the name's prefix.
        """
        if self._has_come or run.evaluations.are_known or run.stop_reason is not None:
            return
        evaluators = [each for each in run.callbacks if each.order == Order.EVALUATE]
        if not evaluators or self._prefix_of(self.name) is None:
            raise ValueError(
                f"{self}: no evaluation has brought it by the end of the epoch, and none is known "
                "to come. Give fit validation_data, or add an EvaluateEveryN with the prefix of "
                "that name."
            )

    def value_in(self, results: Mapping[str, float]) -> float | None:
        """The value among the results of an evaluation; None if they are of other data.

        It is None too if another evaluation at the same step has brought the name: what is
        handed on is new, and the first value is kept.

        Raises:
            ValueError: If they are of the data whose prefix the name has, and lack it.
        """
        if self.name in results:
            self._has_come = True
            return float(results[self.name])
        if self.name in self._evaluations.latest:
            return None
        prefix = self._prefix_of(self.name)
        same = [name for name in results if self._prefix_of(name) == prefix]
        if prefix is not None and same:
            raise ValueError(
                f"{self}: the evaluation has no result of that name. It has {', '.join(same)}."
            )
        return None

    def improves(self, value: float) -> bool:
        """Whether `value` is better than the best so far by more than `min_delta`.

        NaN never is, nor is an infinite value of the wrong sign, not even as the first.
        """
        if self._direction == "max":
            return value > (-math.inf if self.best is None else self.best) + self.min_delta
        return value < (math.inf if self.best is None else self.best) - self.min_delta

    def get_state(self) -> dict[str, Any]:
        """The best so far, as plain values."""
        return {"monitor": self.name, "best": self.best}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `get_state` gave."""
        self.best = state["best"]

    def __str__(self) -> str:
        return f"{self.asked_by}(monitor={self.name!r})"

    def __repr__(self) -> str:
        delta = f", min_delta={self.min_delta:g}" if self.min_delta else ""
        return f"Monitor({self.name!r}, {self.mode!r}{delta})"

    def _prefix_of(self, name: str) -> str | None:
        fitting = [prefix for prefix in self._prefixes if name.startswith(prefix)]
        return max(fitting, key=len, default=None)

    def _no_source(self) -> str:
        prefixes = list(dict.fromkeys(self._prefixes))
        if not prefixes:
            return (
                "this run makes no evaluation that could bring it. Give fit validation_data, or "
                "add an EvaluateEveryN."
            )
        return (
            "no evaluation of this run can bring it; the names of their results begin with "
            f"{' or '.join(map(repr, prefixes))}. A metric of training is no result of an "
            f"evaluation: monitor {prefixes[0] + self.name!r}, or add an EvaluateEveryN with the "
            "prefix you mean."
        )
