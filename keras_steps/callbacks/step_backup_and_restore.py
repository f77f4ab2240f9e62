"""StepBackupAndRestore: killed anywhere, the same script goes on as if nothing had happened."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_steps import preflight
from keras_steps.arguments import integral
from keras_steps.backing_up import BackingUp
from keras_steps.backups import BackupDirectory
from keras_steps.keras_internals import optimizers_of
from keras_steps.roles import BacksUp
from keras_steps.run import Run
from keras_steps.signals import SignalWatch, signals_named
from keras_steps.step_callback import Order, StepCallback
from keras_steps.timelines import local_path
from keras_steps.triggers import Trigger

if TYPE_CHECKING:
    from keras_steps.fit_position import FitPosition
    from keras_steps.loop_position import LoopPosition
    from keras_steps.loop_training import LoopTraining
    from keras_steps.resumption import Progress, Resumption


class StepBackupAndRestore(StepCallback, BacksUp):
    """Backs a run up every so many steps, and lets the same script go on from there.

    Nothing else of the script changes: not the data, not `initial_epoch`. Killed at any
    moment and started again, a run goes on in mid-epoch with the next batch, fires what is
    due at the same steps, and ends with the same weights, bit for bit, provided that the
    data come in an order that depends on the epoch alone and that the backend's operations
    are deterministic.

    A backup holds every variable of the model and its optimizers, the metrics within the epoch,
    the place in the data, random states (Python, NumPy, torch), and what the callbacks of this
    library and Keras's EarlyStopping, ReduceLROnPlateau, ModelCheckpoint and History have to
    know. It is copied in memory and written in the background, whole or not at all; a
    damaged one is passed over for the one before. The last one stays when the run is over:
    the same script, started again, then makes no step, and with a larger target it goes on.

    Args:
        directory: Where the backups are; made if need be. One for each fit of a script.
        every: Steps between two backups, or a trigger. SIGKILL costs at most so many steps.
        keep: How many backups stay, at least 1.
        on_signal: Names of signals at which the run is backed up and ended, with
            `stop_reason(model) == "signal"`, once the execution in flight is done. A second
            signal ends the process at once.
        exit_code: If given, a run that a signal has ended exits the process with it, so
            that the script does not go on to export a half-trained model.
        on_change: "raise" if the model, the optimizer or the number of steps an epoch are
            not those of the backup; "warn" goes on with what fits.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If an argument makes no sense; at train begin, if the backup is of
            another model, or every backup is damaged.
        TypeError: If an argument is of the wrong kind.
        OSError: At train begin, if the directory can't be written to; later, if a
            backup could not be written.
        RuntimeError: At train begin, if signals are waited for outside the main thread.

    Example:

    >>> callbacks = [StepBackupAndRestore("backup", every=1000)]
    >>> # model.fit(data, epochs=10, callbacks=callbacks)
    """

    order = Order.BACKUP
    _run: Run | None = None
    _position: FitPosition | LoopPosition | None = None
    _session: BackingUp | None = None
    _signals: SignalWatch | None = None
    _waits = False
    _resumption: Resumption | None = None

    def __init__(
        self,
        directory: str | os.PathLike[str],
        every: int | Trigger = 1000,
        *,
        keep: int = 2,
        on_signal: tuple[str, ...] = ("SIGTERM",),
        exit_code: int | None = None,
        on_change: str = "raise",
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        self.directory = local_path(directory, "StepBackupAndRestore(directory)")
        self.keep = integral(keep, "StepBackupAndRestore(keep)", least=1)
        self.signals = signals_named(on_signal, "StepBackupAndRestore(on_signal)")
        if exit_code is not None:
            exit_code = integral(exit_code, "StepBackupAndRestore(exit_code)", least=0)
        if on_change not in ("raise", "warn"):
            raise ValueError(
                "StepBackupAndRestore(on_change) must be 'raise' or 'warn'; received "
                f"{on_change!r}."
            )
        self.exit_code = exit_code
        self.on_change = on_change

    def restore(self, position: FitPosition | LoopPosition) -> Resumption | None:
        """Called at train begin, before anything reads the step."""
        directory = BackupDirectory(self.directory, self.keep)
        self._session = BackingUp(position, directory, self.on_change)
        self._position = position
        self._resumption = self._session.restore(position.run.training.optimizer_of(self))
        return self._resumption

    @property
    def data(self) -> Any:
        """The data of the fit or loop."""
        return self._running.contents.data

    @property
    def progress(self) -> Progress:
        """Where the fit is in them."""
        return self._running.contents.progress

    def begin(self, run: Run) -> None:
        if sum(isinstance(other, StepBackupAndRestore) for other in run.callbacks) > 1:
            raise ValueError("A fit has one StepBackupAndRestore at most; keep one.")
        run.is_backed_up = True
        self._run = run
        self._waits = False
        for message in self._running.warnings():
            preflight.warn(message)
        assert self._position is not None
        self._signals = SignalWatch(self.signals, run.interrupt, self._position.is_running)
        self._signals.start("StepBackupAndRestore(on_signal)")

    def before_first_update(self, run: Run) -> None:
        """A run that is killed before its first backup goes on too, from its begin."""
        if not run.is_resumed:
            self._running.save_first(self._step)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        assert self._position is not None
        if self._position.epoch.is_open:
            self._running.save(step)
        else:  # other callbacks are still to be told of the epoch's end
            self._waits = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._running.contents.forget_moment()
        if self._waits:
            self._waits = False
            self._running.save(self._step, begun_by="backup")
        elif self._resumption is not None:
            self._resumption.begun_by("backup")
        self._resumption = None

    def keep_moment(self) -> None:
        """The run has reached its end in mid-epoch: keep what that epoch's end will change."""
        self._running.contents.keep_moment()

    def suspend(self) -> None:
        """The run breaks off in mid-epoch, to go on another time."""
        assert self._run is not None
        self._running.save(self._step, ended=self._run.stop_reason)

    def rewound(self, run: Run) -> None:
        self._running.rewound(self._step)

    def on_train_end(self, logs: Any = None) -> None:
        run = self._run
        super().on_train_end(logs)
        if run is not None:
            self.finish(run)

    def finish(self, run: Run) -> None:
        """Behind the last firing: save the end, and end the process if that was asked for."""
        if self._session is None:
            return
        assert self._position is not None
        try:
            if run.executions and run.stop_reason != "nan" and not self._position.is_suspended:
                self._session.save(self._step, ended=run.stop_reason, is_done=run.is_done)
            self._session.finish(is_done=run.is_done)
        finally:
            self.break_off(run)
        if run.stop_reason == "signal" and self.exit_code is not None:
            raise SystemExit(self.exit_code)

    def refuse_loop(self, training: LoopTraining) -> None:
        if not training.holds_its_state:
            raise ValueError(
                "StepBackupAndRestore saves and restores a model with its optimizers, and "
                f"{training.without_its_state}"
            )
        kept = [id(one) for _, one in optimizers_of(training.model)]
        if any(id(one) not in kept for one in training.sources):
            raise ValueError(
                "StepBackupAndRestore finds optimizers among the attributes of the model, and one "
                "that counts steps is none: model.optimizer = optimizer makes it one."
            )

    def break_off(self, run: Run) -> None:
        """Let go of the fit: the handlers of signals are put back, a backup comes to its end."""
        session, signals = self._session, self._signals
        self._run = self._position = None
        self._session = self._signals = self._resumption = None
        if signals is not None:
            signals.stop()
        if session is not None:
            session.let_write()

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {
            **super().__getstate__(),
            "_run": None,
            "_position": None,
            "_session": None,
            "_signals": None,
            "_resumption": None,
        }

    @property
    def _step(self) -> int:
        assert self._run is not None
        return self._run.clock_of(self).step

    @property
    def _running(self) -> BackingUp:
        assert self._session is not None
        return self._session
