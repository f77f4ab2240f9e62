"""What evaluations gave at a step: one value a name, the first."""

from __future__ import annotations

from collections.abc import Mapping

from keras_steps import preflight


class Evaluations:
    """The results of a run's evaluations at the latest step that had one.

    Attributes:
        prefixes: Those that results of this run can have. `val_` is fit's own validation.
        are_known: Whether no others are possible.
    """

    def __init__(self) -> None:
        self.prefixes: list[str] = []
        self.are_known = True
        self._results: dict[str, float] = {}
        self._executions = -1
        self._has_warned = False

    def after(self, executions: int) -> dict[str, float]:
        """The results at the step after so many executions; grows with `add`."""
        if self._executions != executions:
            self._results, self._executions = {}, executions
        return self._results

    @property
    def latest(self) -> Mapping[str, float]:
        """The results at the latest step that had an evaluation, those last added included."""
        return self._results

    def add(self, executions: int, step: int, results: Mapping[str, float]) -> dict[str, float]:
        """Take in the results of an evaluation; returns those that no other had brought."""
        known = self.after(executions)
        new = {name: value for name, value in results.items() if name not in known}
        if len(new) < len(results) and not self._has_warned:
            self._has_warned = True
            name = next(name for name in results if name in known)
            preflight.warn(
                f"Two evaluations at step {step} have results named {name!r}; the first of them "
                "is kept. Give EvaluateEveryN another prefix, as in prefix='test_'."
            )
        known.update(new)
        return new
