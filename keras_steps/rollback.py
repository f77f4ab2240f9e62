"""GoodStates: the last state that was good, in memory, for a run to go back to."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_steps.keras_internals import (
    assigned,
    build_optimizer,
    copied,
    first_non_finite,
    has_keras_train_step,
    is_of_metrics,
    state_variables,
)
from keras_steps.run import Run
from keras_steps.run_state import State
from keras_steps.step_callback import Order, StepCallback

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class GoodState(NamedTuple):
    """What a run needs to go on from a step.

    Attributes:
        step: The step.
        arrays: Copies of every variable; of the metrics too if their sums count.
        states: What the run's `get_state` gave.
        epoch: The epoch whose sums the metrics hold, if they count.
    """

    step: int
    arrays: dict[str, np.ndarray]
    states: dict[str, State]
    epoch: int | None


class GoodStates(StepCallback):
    """Keeps the last good state of a run, and takes the run back to it.

    The companion of a callback that looks at the same steps, first of all, and calls off what
    is left at a bad one. This one fires last: its state is that after every action of the
    step. The state before the first update counts as good too.

    Args:
        every: The trigger of the other one.
        optimizer: As in StepCallback.
    """

    order = Order.BACKUP
    at_start = True
    _run: Run | None = None
    _good: GoodState | None = None

    def begin(self, run: Run) -> None:
        self._run, self._good = run, None

    def before_first_update(self, run: Run) -> None:
        if has_keras_train_step(run.model) and run.model.optimizer is not None:
            build_optimizer(run.model)
        if run.clock_of(self).step:  # else it fires, after other actions at step 0
            self._keep(run)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        if self._run.stop_reason is None:
            self._keep(self._run)

    def end(self, run: Run) -> None:
        self._run = self._good = None

    def break_off(self, run: Run) -> None:
        self.end(run)

    def refuse_loop(self, training: LoopTraining) -> None:
        if not training.holds_its_state:
            raise ValueError(
                'StopOnNaN(action="rollback") puts back the model and its optimizers, and '
                f"{training.without_its_state}"
            )

    def go_back(self) -> int | None:
        """Take the run back to the last good state.

        Returns:
            Its step. None: there is none, since variables have been made after train begin.
        """
        run, good = self._run, self._good
        assert run is not None
        with run.variables.published():
            variables = self._variables(run)
            if good is None or _without_metrics(variables).keys() - good.arrays.keys():
                return None
            if good.epoch is None:  # leave the metrics as they are
                variables = _without_metrics(variables)
            else:
                run.model.reset_metrics()  # some may not have been there yet
            assigned({key: v for key, v in variables.items() if key in good.arrays}, good.arrays)
            run.rewind(copy.deepcopy(good.states), good.epoch)
        return good.step

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None, "_good": None}

    def _keep(self, run: Run) -> None:
        if not run.model.built:
            return
        epoch = run.summed_epoch
        variables = self._variables(run)
        arrays = copied(variables if epoch is not None else _without_metrics(variables))
        if first_non_finite(_without_metrics(arrays)) is None:
            states = copy.deepcopy(run.get_state())  # which may hold a callback's own lists
            self._good = GoodState(run.clock_of(self).step, arrays, states, epoch)

    def _variables(self, run: Run) -> dict[str, Any]:
        return state_variables(run.model, [clock.optimizer for clock in run.clocks])


def _without_metrics(variables: dict[str, Any]) -> dict[str, Any]:
    """The others. What metrics hold is not trained with, and may well be infinite."""
    return {key: v for key, v in variables.items() if not is_of_metrics(key)}
