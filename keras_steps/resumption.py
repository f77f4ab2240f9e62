"""Where a fit is in its data, and bringing a new process there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_steps import clock as clocks
from keras_steps.keras_internals import (
    Position,
    TrainingData,
    put_metrics_back,
    set_callback_states,
)
from keras_steps.random_states import random_states, set_random_states

if TYPE_CHECKING:
    from keras_steps.loop_position import LoopData

_SILENT_SECS = 2.0


class Progress:
    """Keeps the position of a fit, and the random states from which its data come.

    Args:
        data: The data of the fit.
    """

    def __init__(self, data: TrainingData | LoopData) -> None:
        self._data = data
        self._epoch: Position | None = None
        self._randoms: dict[str, Any] = {}

    def open_epoch(self, epoch: int, batches_before: int) -> None:
        """Told at an epoch's begin, with the number of batches of the epoch before it."""
        if self._epoch is None:
            self._epoch, self._randoms = Position(epoch), {"pass": random_states()}
        else:
            self._epoch, self._randoms = self._next(epoch, batches_before)

    def take_up(self, position: Position, randoms: Mapping[str, Any]) -> None:
        """Told instead in the epoch in which a restored fit goes on."""
        self._epoch = position._replace(batches=0)
        self._randoms = {"pass": randoms["pass"]}

    def state(self, batches: int, *, is_complete: bool) -> dict[str, Any]:
        """The position after so many batches of the epoch, and the random states.

        Args:
            batches: Batches that are done.
            is_complete: Whether they are all, so that the next epoch comes.
        """
        assert self._epoch is not None
        position, randoms = self._epoch._replace(batches=batches), self._randoms
        if is_complete:
            position, randoms = self._next(position.epoch + 1, batches)
        return {
            "position": list(position),
            "found_size": self._data.found_size,
            "random": {**randoms, "step": random_states()},
        }

    def _next(self, epoch: int, batches_before: int) -> tuple[Position, dict[str, Any]]:
        assert self._epoch is not None
        if self._data.begins_pass:
            position = Position(epoch, 0, self._epoch.passes + 1, 0)
            return position, {"pass": random_states()}
        lead_in = self._epoch.lead_in + batches_before
        return Position(epoch, 0, self._epoch.passes, lead_in), self._randoms


class Resumption:
    """The part of a restored state that waits for its place in the data.

    Args:
        model: The model, which has its variables back.
        state: What the backup holds of the fit.
        metrics: The values of the metrics within the epoch.
        put_back: Gives the model back what other callbacks may have set since it was restored,
            as Keras's LearningRateScheduler does at an epoch's begin.
        is_over: Whether the fit that was saved is done, and this one asks for no more.
    """

    def __init__(
        self,
        model: Any,
        state: Mapping[str, Any],
        metrics: Mapping[str, np.ndarray],
        put_back: Callable[[], None],
        *,
        is_over: bool,
    ) -> None:
        self.position = Position(*state["position"])
        self.run_state: Mapping[str, Any] = state["run"]
        self.log_names: list[str] = state["log_names"]
        self.is_over = is_over
        self._model = model
        self._state = state
        self._metrics = metrics
        self._put_back = put_back

    def begin(self, data: TrainingData | LoopData, print_line: Callable[[str], None]) -> None:
        """At train begin: let fit start with the epoch and the batch of the backup.

        Args:
            data: The data of the fit.
            print_line: Told if it takes long to go through the batches that are done.
        """
        self._waited_since: float | None = None
        self._print_line = print_line
        data.resume(
            self.position,
            at_pass=lambda: set_random_states(self._state["random"]["pass"]),
            at_step=self._arrive,
            on_read=self._read,
            found_size=self._state["found_size"],
        )

    def open_epoch(self, callbacks: Iterable[Any], progress: Progress) -> None:
        """At the begin of the epoch in which the fit goes on.

        Args:
            callbacks: Those of the fit that are not of this library.
            progress: Takes up the position.
        """
        set_callback_states(callbacks, self._state["callbacks"])
        progress.take_up(self.position, self._state["random"])
        if self.position.batches:
            put_metrics_back(self._model, self._metrics)
        else:
            set_random_states(self._state["random"]["step"])
        self.begun_by("any")

    def begun_by(self, whom: str) -> None:
        """The epoch has begun for callbacks up to this one: see `BackingUp.save`."""
        if self._state["begun_by"] == whom:
            self._put_back()

    def _arrive(self, batch: Any) -> None:
        if self.position.batches:
            put_metrics_back(self._model, self._metrics, batch)
            self._put_back()
        set_random_states(self._state["random"]["step"])

    def _read(self, done: int) -> None:
        if self._waited_since is None:
            self._waited_since = clocks.now()
        elif clocks.now() - self._waited_since > _SILENT_SECS:
            self._waited_since = float("inf")
            batches = self.position.batches_of_pass
            self._print_line(f"reading again what has been trained on: {done} of {batches} batches")
