"""StopAtStep: end the run at a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_steps.arguments import integral
from keras_steps.roles import NamesLastStep
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback


class StopAtStep(StepCallback, NamesLastStep):
    """Ends `fit` exactly at a step: in mid-epoch, in mid-execution, on endless data.

    What TF1's StopAtStepHook was for, without its extra step. A last execution of
    `steps_per_execution` batches is cut so that it lands on the step. A run that is
    already there makes no step, no epoch and no validation; it says so in a line, and
    `fit` returns.

    Exactly one of the two arguments is given.

    Args:
        last_step: The global step to stop at, at least 1. The same script, started again,
            does what is left of it.
        num_steps: How many steps to make, at least 1, counted from the step at which this
            `fit` begins, after whatever was restored. A run that was killed and goes on with
            StepBackupAndRestore keeps the target that it had.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If both or none of them are given, or one is less than 1.
        TypeError: If it is no integer.

    Example:

    >>> callbacks = [StopAtStep(10_000)]
    >>> # model.fit(endless_data, callbacks=callbacks)
    """

    order = Order.STOP
    _begun_at: int | None = None
    _restored: int | None = None

    def __init__(
        self,
        last_step: int | None = None,
        *,
        num_steps: int | None = None,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        if (last_step is None) == (num_steps is None):
            raise ValueError(
                "StopAtStep takes exactly one of last_step (a global step) and num_steps (counted "
                f"from train begin); received last_step={last_step!r}, num_steps={num_steps!r}."
            )
        super().__init__(optimizer=optimizer)
        self.last_step = self.num_steps = None
        if last_step is not None:
            self.last_step = integral(last_step, "StopAtStep(last_step)", least=1)
        if num_steps is not None:
            self.num_steps = integral(num_steps, "StopAtStep(num_steps)", least=1)

    def prepare(self, run: Run) -> None:
        self._restored = None

    def last_step_from(self, step: int) -> int | None:
        if self.num_steps is None:
            return self.last_step
        self._begun_at = step if self._restored is None else self._restored
        return self._begun_at + self.num_steps

    def get_state(self) -> dict[str, Any]:
        return {"begun_at": self._begun_at}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._restored = state["begun_at"]
