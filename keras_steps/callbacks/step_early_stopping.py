"""StepEarlyStopping: end a run that no longer gets better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_steps.arguments import flag, integral
from keras_steps.monitor import Monitor
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class StepEarlyStopping(StepCallback):
    """Ends `fit` when a result of evaluations has not improved for a number of them.

    Patience counts evaluations, not epochs, whoever made them: EvaluateEveryN, or fit at the
    ends of its epochs. One step counts once. The run ends with the execution after which the
    last of them was made, wherever in the epoch that is; `stop_reason` is then "early".

    The best value and the patience that is left survive a resume, if the monitor has the
    same name. A second fit starts afresh.

    Args:
        monitor: The result to follow, with the prefix of its evaluation: `val_` for fit's
            own validation.
        patience: So many evaluations in a row without an improvement end the run, at least 1.
        min_delta: How much better than the best a value must be to count, at least 0.
        mode: "min": smaller is better; "max": larger is. "auto": as the model's metric of
            that name, or the name itself, tells.
        restore_best_weights: Whether the weights of the best evaluation come back at the end
            of the run, however it ended, except after a NaN. They are kept in memory;
            the optimizer and its step stay as they are.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `patience` is less than 1, `min_delta` negative or not finite, or `mode`
            none of the three. At train begin, if no evaluation of the run can bring
            `monitor`, or its direction can't be told. At the first evaluation, if its
            results lack it.
        TypeError: If an argument is of the wrong kind.

    Example:

    >>> callback = StepEarlyStopping("val_accuracy", patience=5, min_delta=0.001)
    >>> # model.fit(data, validation_data=validation, callbacks=[callback])
    """

    order = Order.EARLY_STOP
    uses_model = False
    decides_by_results = True
    _run: Run | None = None
    _counted_at: int | None
    _best_weights: list[np.ndarray] | None

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int = 10,
        min_delta: float = 0,
        mode: str = "auto",
        restore_best_weights: bool = False,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(optimizer=optimizer)
        self.monitor = Monitor(monitor, mode, type(self).__name__, min_delta=min_delta)
        self.patience = integral(patience, "StepEarlyStopping(patience)", least=1)
        self.restore_best_weights = flag(
            restore_best_weights, "StepEarlyStopping(restore_best_weights)"
        )
        self._start_afresh()

    def begin(self, run: Run) -> None:
        self._run = run
        self._start_afresh()
        self.monitor.require_source(run)

    def on_evaluation(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        value = None if step == self._counted_at else self.monitor.value_in(logs)
        if value is None:
            return
        self._counted_at = step
        if self.monitor.improves(value):
            self.monitor.best, self._waited = value, 0
            if self.restore_best_weights:
                with self._run.variables.published():
                    self._best_weights = self.model.get_weights()
            return
        self._waited += 1
        if self._waited >= self.patience:
            self._run.stop("early")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._run is not None:
            self.monitor.never_came(self._run)

    def end(self, run: Run) -> None:
        if self._best_weights is not None and run.stop_reason != "nan":
            self.model.set_weights(self._best_weights)
        self._run = None

    def break_off(self, run: Run) -> None:
        self._run = self._best_weights = None

    def refuse_loop(self, training: LoopTraining) -> None:
        if self.restore_best_weights and not training.holds_its_state:
            raise ValueError(
                "StepEarlyStopping(restore_best_weights=True) puts weights back into the loop's "
                f"model, and {training.without_its_state}"
            )

    def get_state(self) -> dict[str, Any]:
        return {
            **self.monitor.get_state(),
            "waited": self._waited,
            "counted_at": self._counted_at,
            "best_weights": self._best_weights,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `get_state` gave; not if it is about a monitor of another name."""
        if state["monitor"] != self.monitor.name:
            return
        self.monitor.set_state(state)
        self._waited = state["waited"]
        self._counted_at = state["counted_at"]
        self._best_weights = state["best_weights"]
        if self._waited >= self.patience and self._run is not None:  # the run before had ended
            self._run.stop("early")

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None}

    def _start_afresh(self) -> None:
        self.monitor.best = None
        self._waited = 0
        self._counted_at = self._best_weights = None
