"""What a backup holds of a fit or a loop: its variables, and what it must know to go on."""

from __future__ import annotations

import copy
import platform
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_steps.given_states import held, held_of_run
from keras_steps.keras_internals import (
    build_state,
    callback_states,
    copied,
    is_of_metrics,
    state_variables,
)
from keras_steps.random_states import random_states
from keras_steps.resumption import Progress

if TYPE_CHECKING:
    from keras_steps.fit_position import FitPosition
    from keras_steps.loop_position import LoopPosition


class BackupContents:
    """Collects it, as it is at the moment.

    Args:
        fit: Where a fit or loop is in its data.
        number: How many fits of the model were done before, with backups in one directory.

    Attributes:
        description: What tells whether a script that is started again is still the same.
        progress: The position in the data.
    """

    def __init__(self, fit: FitPosition | LoopPosition, number: int) -> None:
        self._fit = fit
        self._model = fit.model
        self._number = number
        self._moment: dict[str, Any] = {}
        self.description: dict[str, Any] = {}
        self.data = fit.training_data
        self.progress = Progress(self.data)

    def keep_moment(self) -> None:
        """Keep what the end of a broken-off epoch changes, as it is now."""
        if not self._moment:
            arrays = self._copies()
            self._moment = {
                "metrics": {key: array for key, array in arrays.items() if is_of_metrics(key)},
                **copy.deepcopy(self._progress_state()),
            }

    def forget_moment(self) -> None:
        """The epoch has come to its end."""
        self._moment = {}

    def collected(
        self, step: int, *, ended: str | None, is_done: bool, begun_by: str | None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The state in plain values, and copies of the variables; see `BackingUp.save`."""
        arrays = self._copies()
        state = {
            "step": step,
            "fit": self._number,
            "ended": ended,
            "is_done": is_done,
            "epochs": self._fit.call.epochs,
            "description": self.description,
            "begun_by": begun_by,
            "is_built": bool(self._model.built or step or self._fit.run.executions),
            "log_names": self._fit.log_names,
            "build": build_state(self._model),
            "versions": _versions(),
            "run": held_of_run(self._fit.run.get_state(in_epoch=bool(self._moment))),
            **self._progress_state(),
        }
        if self._moment:
            arrays |= self._moment["metrics"]
            state |= {name: self._moment[name] for name in self._moment if name != "metrics"}
        at_end = {"callbacks": self._callback_states(), "random": random_states()}
        state["at_end"] = at_end if is_done else None
        return state, arrays

    def _progress_state(self) -> dict[str, Any]:
        is_complete = not self._fit.epoch.is_open and self._fit.epoch_is_complete
        state = self.progress.state(self._fit.batches_done, is_complete=is_complete)
        return {**state, "callbacks": self._callback_states()}

    def _callback_states(self) -> dict[str, Any]:
        states = callback_states(self._fit.other_callbacks)
        return {name: held(state, name) for name, state in states.items()}

    def _copies(self) -> dict[str, np.ndarray]:
        optimizers = [clock.optimizer for clock in self._fit.run.clocks]
        return copied(state_variables(self._model, optimizers))


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "keras": keras.__version__}
