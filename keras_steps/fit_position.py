"""Where a fit is in its data, and what backups ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_steps.epoch import Epoch
from keras_steps.keras_internals import (
    FitCall,
    results_without_logs,
    skip_validation,
    training_data_of,
)
from keras_steps.roles import backup_among

if TYPE_CHECKING:
    from keras_steps.keras_internals import TrainingData
    from keras_steps.resumption import Resumption
    from keras_steps.run import Run
    from keras_steps.step_callback import StepCallback


class FitPosition:
    """A fit that may be backed up, as BackingUp sees it; of a loop it sees a LoopPosition.

    Args:
        model: The model that is trained.
        call: The call of fit.
        callbacks: Those of this library in it.
        print_line: Prints a line beside the progress bar.
        cuts_last: Whether Keras itself makes the last execution of an epoch shorter.
    """

    def __init__(
        self,
        model: Any,
        call: FitCall,
        callbacks: list[StepCallback],
        print_line: Callable[[str], None],
        *,
        cuts_last: bool,
    ) -> None:
        self.model = model
        self.call = call
        self.callbacks = callbacks
        self.print_line = print_line
        self.params = getattr(call.callbacks, "params", None) or {}
        self.epoch = Epoch(cuts_last=cuts_last)
        self.is_suspended = False
        self.log_names: list[str] = []
        """Names in the logs of the last execution that was attended to."""
        self._backup = backup_among(callbacks)
        self._resumption: Resumption | None = None
        self._has_resumed = False
        self.run: Run

    def begin(self, run: Run) -> tuple[int, bool]:
        """Restore what there is, and begin the run.

        Returns:
            The epoch that fit is to begin with, and whether it is known that the run is over.
        """
        self.run = run
        if self._backup is not None:
            self._resumption = self._backup.restore(self)
            run.is_resumed = self._resumption is not None
        run.begin()
        if self._resumption is None:
            return self.call.initial_epoch, run.is_over
        run.set_state(self._resumption.run_state)
        first_epoch = self._resumption.position.epoch
        if first_epoch >= self.call.epochs:  # no epoch is left, but what fires at the end
            run.epoch = first_epoch - 1
        is_over = run.is_over or self._resumption.is_over or run.stop_reason is not None
        return first_epoch, is_over

    def go_on(self) -> None:
        """Let the fit, where it goes on, begin at the batch of the backup."""
        if self._backup is not None and self._resumption is not None:
            self._resumption.begin(self._backup.data, self.print_line)

    def open_epoch(self, epoch: int) -> None:
        """An epoch begins: the first one of a fit that goes on is part done."""
        batches_before, resumed_at = self.batches_done, 0
        if self._backup is not None:
            if self._resumption is not None and not self._has_resumed:
                self._has_resumed = True
                self._resumption.open_epoch(self.other_callbacks, self._backup.progress)
                resumed_at = self._resumption.position.batches
                if resumed_at:
                    results_without_logs(self.model)
            else:
                self._backup.progress.open_epoch(epoch, batches_before)
        size = self.params.get("steps") or self.call.batches_an_epoch
        self.epoch.open(self.run.executions, size, resumed_at)

    def close_epoch(self) -> None:
        """Behind its last execution."""
        self.epoch.is_open = False
        if self._backup is not None and not self.is_suspended and not self.epoch_is_complete:
            self._backup.keep_moment()

    def break_off(self) -> None:
        """The run has been stopped between two batches of an epoch."""
        if self._backup is None or self.is_last_of_epoch or self.run.stop_reason == "nan":
            return
        self.run.look()
        with self.run.variables.published():
            if self.run.is_done:
                self._backup.keep_moment()
                return
            self.is_suspended = True
            self._backup.suspend()
        skip_validation(self.model, self.call)

    def goes_on_at_the_end(self) -> bool:
        """Whether the run was restored behind the last batch of an epoch of unknown size.

        Keras needs logs to end an epoch, if only their names, so the first execution gives it
        some, and the end of the data comes with the next one: TensorFlow draws random numbers
        at each end.
        """
        if self._backup is None or self.run.executions or not self.epoch.resumed_at:
            return False
        self.epoch.resumed_at = 0
        self._backup.data.found_end()
        return True

    def logs_for_keras(self) -> dict[str, float]:
        """What train_function returns behind the last batch; Keras reads the metrics."""
        assert self._resumption is not None
        return dict.fromkeys(self._resumption.log_names, 0.0)

    @property
    def batches_done(self) -> int:
        """How many batches of the epoch have been trained on, here and before a restart."""
        return self.epoch.batches_done(self.run.executions, self.run.batches)

    @property
    def is_last_of_epoch(self) -> bool:
        """Whether all batches of the epoch are done, where their number is known."""
        return self.epoch.size is not None and self.batches_done >= self.epoch.size

    @property
    def epoch_is_complete(self) -> bool:
        """Whether all batches of the epoch that was opened last are done, as far as is known."""
        if self.epoch.size:
            return self.is_last_of_epoch
        return self.epoch.has_seen_the_end or not self.model.stop_training

    @property
    def training_data(self) -> TrainingData:
        """The data of this fit."""
        return training_data_of(self.model, self.call)

    @property
    def other_callbacks(self) -> list[Any]:
        """Those of the fit that are not of this library."""
        return [c for c in self.call.callbacks.callbacks if c not in self.callbacks]

    def asks_no_more_than(self, epochs: int) -> bool:
        """Whether so many epochs, which are done, are all."""
        return self.call.epochs <= epochs

    def is_running(self, frame: Any) -> bool:
        """Whether this fit is still going on, seen from a frame within it."""
        return self.call.is_around(frame)
