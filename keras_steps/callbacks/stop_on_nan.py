"""StopOnNaN: what to do when the loss is no longer a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from keras_steps import preflight
from keras_steps.arguments import integral
from keras_steps.global_step import global_step
from keras_steps.roles import HasCompanions
from keras_steps.rollback import GoodStates
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.triggers import AtSteps, Trigger

_ACTIONS = ("stop", "raise", "rollback")


class StopOnNaN(StepCallback, HasCompanions):
    """Ends `fit`, or goes back, when the loss of a batch was NaN or infinite.

    It looks every n steps, and sees what any batch since the look before had: the running sum
    behind Keras's mean loss keeps a NaN. (It is one in float32, and infinite too once it passes
    3·10³⁸.) In between it costs nothing. It comes first at its step: after a NaN no other
    callback of this library fires there, so nothing is reported, evaluated or saved. It looks
    a last time when the run ends.

    - `"stop"` ends the run after this execution, says so in a line, and leaves the model as
      it is; `stop_reason` is then "nan".
    - `"raise"` breaks `fit` off with a FloatingPointError, as NumPy and JAX do.
    - `"rollback"` puts the last good state back, from memory, and goes on from its step with
      the data that come next: model, optimizer, metrics, seed generators, and the callbacks of
      this library. Triggers begin again from that step, schedules set its values, and
      what was reported past it is dropped. Printed lines, Keras's History, the state of other
      callbacks and global random states (on torch, dropout draws from one) stay. A state is
      good if a look found the loss finite and every weight and optimizer variable is; so is
      that before the first update, of a model that is built by then. Keeping it costs a
      copy of all variables at each look. After `max_rollbacks` in a row, without a good look at
      the step where the NaN had been seen or later, it goes back once more and ends the
      run there as "stop" does; so it does at the end of `fit`, where nothing can go on.

    Args:
        every: Steps between two looks, or a trigger.
        action: "stop", "raise" or "rollback".
        max_rollbacks: How many rollbacks in a row are made before it gives up, at least 1.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `every` or `max_rollbacks` is less than 1, or `action` none of the
            three. At the first look, after the first step of a model with its own train_step,
            if its results have no "loss".
        TypeError: If `every` or `max_rollbacks` is of the wrong kind.
        FloatingPointError: In fit, with `action="raise"`.

    Example:

    >>> callback = StopOnNaN(every=100, action="rollback")
    """

    order = Order.NAN
    looks_first = True
    at_end = True
    uses_model = False
    decides_by_results = True
    _run: Run | None = None
    _seen_at: int | None
    _looked_at: int | None

    def __init__(
        self,
        every: int | Trigger = 100,
        *,
        action: str = "stop",
        max_rollbacks: int = 3,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        if action not in _ACTIONS:
            raise ValueError(
                f"StopOnNaN(action) must be 'stop', 'raise' or 'rollback'; received {action!r}."
            )
        assert self.trigger is not None
        self.action = action
        self.max_rollbacks = integral(max_rollbacks, "StopOnNaN(max_rollbacks)", least=1)
        self.companions: list[GoodStates] = []
        if action == "rollback":
            self.companions.append(GoodStates(self.trigger, optimizer=optimizer))
        self._every = self.trigger
        self._start_afresh()

    def prepare(self, run: Run) -> None:
        """A step of one's own may bring no loss: the first one tells."""
        self.trigger = self._every
        if not run.training.names_a_loss and not run.is_resumed:
            self.trigger |= AtSteps(global_step(run.training.optimizer_of(self)) + 1)

    def begin(self, run: Run) -> None:
        self._run = run
        self._start_afresh()

    def before_first_update(self, run: Run) -> None:
        if self._looked_at is None:
            self._looked_at = run.clock_of(self).step

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        loss = self._worst(self._run.agreement.of_all_workers(self._loss_in(logs)))
        if math.isfinite(loss):
            if self._seen_at is not None and step >= self._seen_at:
                self._rollbacks, self._seen_at = 0, None
            self._looked_at = step
            return
        seen = f"the loss was {loss} in steps {(self._looked_at or 0) + 1} to {step}"
        if self.action == "raise":
            self._run.stop("nan")
            raise FloatingPointError(
                f"{seen} (StopOnNaN): in one of them, or in several. A smaller learning rate, "
                "clipnorm, or a look at the data of these steps may help; action='rollback' "
                "goes back and on with other data."
            )
        if self.action == "stop":
            self._stop(f"{seen}: the run stops")
        else:
            self._roll_back(step, seen)

    def end(self, run: Run) -> None:
        self._run = None

    def break_off(self, run: Run) -> None:
        self._run = None

    def get_state(self) -> dict[str, Any]:
        return {
            "rollbacks": self._rollbacks,
            "seen_at": self._seen_at,
            "looked_at": self._looked_at,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._rollbacks, self._seen_at = state["rollbacks"], state["seen_at"]
        self._looked_at = state["looked_at"]

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None}

    def _start_afresh(self) -> None:
        self._rollbacks = 0
        self._seen_at = self._looked_at = None
        self._has_looked = False

    def _stop(self, line: str) -> None:
        assert self._run is not None
        self._run.stop("nan")
        self._run.print_line(line)

    def _roll_back(self, step: int, seen: str) -> None:
        """Go back, and on; the count of rollbacks is not among what goes back."""
        run = self._run
        assert run is not None
        rollbacks = self._rollbacks + 1
        seen_at = max(step, self._seen_at or 0)
        is_over = run.is_ending or run.stop_reason is not None
        goes_on = rollbacks <= self.max_rollbacks and not is_over
        if not goes_on:
            run.stop("nan")
        good = self.companions[0].go_back()
        if good is None:
            self._stop(
                f"{seen}, and there is no good state to go back to: the model or an optimizer was "
                "not built at train begin. The run stops"
            )
        elif goes_on:
            self._rollbacks, self._seen_at = rollbacks, seen_at
            again = f", {rollbacks} of {self.max_rollbacks} in a row" if rollbacks > 1 else ""
            run.print_line(f"{seen}: back to step {good}{again}")
        elif is_over:
            run.print_line(f"{seen}: back to step {good}, where the run ends")
        else:
            run.print_line(
                f"{seen}: back to step {good}, where the run stops (max_rollbacks="
                f"{self.max_rollbacks})"
            )

    def _loss_in(self, logs: Mapping[str, float]) -> float:
        assert self._run is not None
        if "loss" not in logs:
            raise ValueError(f"StopOnNaN looks at 'loss', and {self._run.training.without_a_loss}")
        if not self._has_looked:
            self._has_looked = True
            self._warn_of_gaps(self._run)
        return logs["loss"]

    @staticmethod
    def _worst(losses: list[float]) -> float:
        """The first that is not finite, so that no worker ends a run or goes back alone."""
        return next((loss for loss in losses if not math.isfinite(loss)), losses[0])

    def _warn_of_gaps(self, run: Run) -> None:
        if run.training.names_a_loss:
            return
        loss = run.training.sums().get("loss")
        if loss is None or not loss.weight:
            preflight.warn(
                "StopOnNaN sees the loss of the last batch before each look only: 'loss', which "
                f"the train_step of {type(run.model).__name__} returns, is no running mean. Let it "
                "come from a keras.metrics.Mean named 'loss' among the model's metrics, or look "
                "at every step."
            )
