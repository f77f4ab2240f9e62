"""What is due at a step, fired in its order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback


class Firing(NamedTuple):
    """A callback that is due, with its logs as of the step at which it was."""

    callback: StepCallback
    step: int
    logs: dict[str, float]


class Agenda:
    """The firings of a step that are still to come.

    An action may add to them while they are under way: an evaluation that turns out to be the
    best one makes a checkpoint due, at its place in the order.

    Args:
        callbacks: All of a run, in the order in which they fire at a step.
    """

    def __init__(self, callbacks: Iterable[StepCallback]) -> None:
        self._places = {id(callback): place for place, callback in enumerate(callbacks)}
        self._firings: list[Firing] = []

    def __bool__(self) -> bool:
        return bool(self._firings)

    def __contains__(self, callback: StepCallback) -> bool:
        return any(firing.callback is callback for firing in self._firings)

    @property
    def uses_model(self) -> bool:
        """Whether one of them looks at the model."""
        return any(firing.callback.uses_model for firing in self._firings)

    def add(self, firings: Iterable[Firing]) -> None:
        self._firings += firings

    def clear(self) -> None:
        """Nothing of what is left fires."""
        self._firings.clear()

    def complete(self, logs: Mapping[str, float]) -> None:
        """Add what the firings' logs lack of `logs`."""
        self._firings = [f._replace(logs=f.logs | _missing(logs, f.logs)) for f in self._firings]

    def fire(self, evaluations: Mapping[str, float], *, looks_only: bool = False) -> None:
        """Call each in its turn.

        Args:
            evaluations: Results at this step, which grow while evaluations are made.
            looks_only: Only those that come before all others, and wait for no evaluation.
        """
        while self._firings:
            self._firings.sort(key=lambda firing: self._places[id(firing.callback)])
            if looks_only and not self._firings[0].callback.looks_first:
                return
            callback, step, logs = self._firings.pop(0)
            callback.on_step(step, {**logs, **evaluations})


def _missing(logs: Mapping[str, float], report: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in logs.items() if name not in report}
