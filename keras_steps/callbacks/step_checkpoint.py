"""StepCheckpoint: whole models on the disk, by the global step, the best one among them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from keras_steps import preflight
from keras_steps.background import BackgroundWriter
from keras_steps.checkpoint_directory import CheckpointDirectory
from keras_steps.keras_internals import PreparedSave, can_save, first_non_finite, prepare_save
from keras_steps.monitor import Monitor
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.timelines import local_path, require_writable
from keras_steps.triggers import Trigger, integral


class CheckpointListener(Protocol):
    """What is told of each checkpoint, as TF1's CheckpointSaverListener was."""

    def before_save(self, step: int, path: Path) -> Any:
        """Called in the thread that trains, before the model is copied."""

    def after_save(self, step: int, path: Path) -> Any:
        """Called in the thread that writes, once the file is there, whole."""


class StepCheckpoint(StepCallback):
    """Saves the whole model every so many steps, and whenever an evaluation is the best so far.

    What TF1's CheckpointSaverHook was for. Files are named by the global step
    (`step_00001000.keras`) and can be loaded by `keras.saving.load_model`. A file is there
    whole or not at all, whenever the process is killed. It is written in the background, from a
    copy in memory; while one is being written, the next one waits. `latest_checkpoint`,
    `best_checkpoint` and `list_checkpoints` find them again.

    With `monitor`, each evaluation that improves on the best is a reason to save, wherever it came
    from: EvaluateEveryN, or fit's own validation. A model whose loss or weights are not finite
    is never saved.

    A run that goes on from a step above 0 drops the checkpoints past it. A fresh run refuses a
    directory that holds any. It does not restore: for that there is StepBackupAndRestore. On
    JAX over several hosts, with arrays that no host holds whole, use
    `keras.callbacks.OrbaxCheckpoint`.

    Args:
        directory: Where the checkpoints are; made if need be. One for each StepCheckpoint.
        every: Steps between two checkpoints, or a trigger.
        max_to_keep: How many of the newest stay, at least 1; None: all. The best stays on top.
        monitor: The result of evaluations that says which is best, such as "val_loss".
        mode: "min": smaller is better; "max": larger is. "auto": as the model's metric of
            that name, or the name itself, tells.
        keep_every: Steps; the first checkpoint at or after each multiple of them stays for good.
        save_weights_only: Whether to save `.weights.h5`, without the model's structure.
        at_end: Whether to save at the last step too, if none was due there.
        overwrite: Whether a fresh run deletes the checkpoints that it finds.
        listeners: Objects with `before_save(step, path)` and `after_save(step, path)`.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If an argument makes no sense; at train begin, if no evaluation of the run
            can bring `monitor`, or the model can't be saved; at the first evaluation, if its
            results lack it.
        TypeError: If an argument is of the wrong kind.
        FileExistsError: Before the first update of a fresh run, if the directory holds
            checkpoints.
        OSError: At train begin, if the directory can't be written to; at the next firing, or at
            train end, if a checkpoint could not be.

    Example:

    >>> callback = StepCheckpoint("checkpoints", every=1000, monitor="val_loss")
    """

    order = Order.CHECKPOINT
    _run: Run | None = None
    _session: _Session | None = None
    _is_resumed = False

    def __init__(
        self,
        directory: str | os.PathLike[str],
        every: int | Trigger = 1000,
        *,
        max_to_keep: int | None = 5,
        monitor: str | None = None,
        mode: str = "auto",
        keep_every: int | None = None,
        save_weights_only: bool = False,
        at_end: bool = True,
        overwrite: bool = False,
        listeners: Iterable[CheckpointListener] = (),
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        self.place = local_path(directory, "StepCheckpoint(directory)")
        if max_to_keep is not None:
            max_to_keep = integral(max_to_keep, "StepCheckpoint(max_to_keep)", least=1)
        if keep_every is not None:
            keep_every = integral(keep_every, "StepCheckpoint(keep_every)", least=1)
        self.max_to_keep = max_to_keep
        self.keep_every = keep_every
        self.monitor = Monitor("val_loss" if monitor is None else monitor, mode, "StepCheckpoint")
        self.has_monitor = monitor is not None
        self.save_weights_only = save_weights_only
        self.at_end = at_end
        self.overwrite = overwrite
        self.listeners = [_checked_listener(listener) for listener in listeners]

    def begin(self, run: Run) -> None:
        for other in run.callbacks:
            if other is not self and getattr(other, "place", None) == self.place:
                raise ValueError(
                    f"two callbacks of one fit write to {self.place}: {type(other).__name__} and "
                    "StepCheckpoint. Give each a place of its own."
                )
        if self.has_monitor:
            self.monitor.require_source(run)
        if not self.save_weights_only:
            error = can_save(run.model)
            if error is not None:
                raise ValueError(
                    f"StepCheckpoint: the model {run.model.name!r} can't be saved: {error} Or "
                    "pass save_weights_only=True."
                ) from error
        if run.is_chief and not run.is_over:
            require_writable(self.place, "StepCheckpoint")
        self._run, self._session, self._is_resumed = run, None, False

    def get_state(self) -> dict[str, Any]:
        return self.monitor.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._is_resumed = True
        if state["monitor"] == self.monitor.name:
            self.monitor.set_state(state)

    def before_first_update(self, run: Run) -> None:
        directory = CheckpointDirectory(
            self.place,
            max_to_keep=self.max_to_keep,
            keep_every=self.keep_every,
            monitor=self.monitor.name if self.has_monitor else None,
            mode=self.monitor.direction,
        )
        self._session = _Session(directory, run.is_chief, self.listeners)
        begun_at = run.begun_at[run.clock_of(self)]
        self._session.begin(begun_at, self.overwrite or self._is_resumed)
        if not self._is_resumed:
            self._take_best()

    def on_evaluation(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        session = self._running
        value = self.monitor.value_in(logs) if self.has_monitor else None
        improves = value is not None and self.monitor.improves(value)
        if improves:
            self.monitor.best = value
        session.add_scores(step, logs)
        if improves and session.saved_at != step:
            self._run.request(self)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        session = self._running
        if step == session.saved_at:
            return
        if not math.isfinite(logs.get("loss", 0.0)):
            session.refuse(step, f"the loss is {logs['loss']}")
            session.warn_of_refusal()
            return
        ending = ".weights.h5" if self.save_weights_only else ".keras"
        session.save(
            step, ending, lambda: prepare_save(self.model, weights_only=self.save_weights_only)
        )

    def rewound(self, run: Run) -> None:
        self._running.go_back(run.clock_of(self).step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._run is not None and self.has_monitor:
            self.monitor.never_came(self._run)

    def end(self, run: Run) -> None:
        session, self._session, self._run = self._session, None, None
        if session is not None:
            session.end((run.stop_reason or "epochs") if run.is_done else None)

    def _take_best(self) -> None:
        best = self._running.directory.best if self.has_monitor else None
        self.monitor.best = None if best is None else best.scores[self.monitor.name]

    @property
    def _running(self) -> _Session:
        assert self._session is not None
        return self._session


class _Session:
    """The saves of one fit; what touches the directory runs in the background, in turn."""

    def __init__(
        self, directory: CheckpointDirectory, writes: bool, listeners: list[CheckpointListener]
    ) -> None:
        self.directory = directory
        self.saved_at: int | None = None
        self._writes = writes
        self._listeners = listeners
        self._writer = BackgroundWriter()
        self._scores: dict[str, float] = {}
        self._scored_at: int | None = None
        self._refusal: str | None = None
        self._has_warned = False

    def begin(self, step: int, overwrite: bool) -> None:
        if self._writes:
            self.directory.begin(step, overwrite)
        if self.directory.has(step):
            self.saved_at = step

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Keep the results for the checkpoint of this step, or give them to it."""
        if step == self.saved_at and self._writes:
            given = dict(scores)
            self._writer.submit(lambda: self._add_scores(step, given))
        known = self._scores if step == self._scored_at else {}
        self._scores, self._scored_at = {**known, **scores}, step

    def save(self, step: int, ending: str, prepare: Callable[[], PreparedSave]) -> None:
        """Copy the model now, and have it written."""
        self._writer.wait()
        self.warn_of_refusal()
        path = self.directory.path_of(step, ending)
        if self._writes:
            for listener in self._listeners:
                listener.before_save(step, path)
        prepared = prepare()
        self.saved_at = step
        if self._writes:
            scores = dict(self._scores) if step == self._scored_at else {}
            self._writer.submit(lambda: self._write(step, ending, prepared, scores))

    def go_back(self, step: int) -> None:
        """Drop what lies past a step."""
        self._writer.wait()
        if self._writes:
            self.directory.drop_past(step)
        self.saved_at = step if self.directory.has(step) else None

    def end(self, reason: str | None) -> None:
        """Wait for the last write, and mark the run's end if it has one."""
        self._writer.wait()
        self.warn_of_refusal()
        if reason is not None and self._writes:
            self.directory.end(reason)

    def refuse(self, step: int, reason: str) -> None:
        """What is not finite gets no file; the first time in a fit that is warned of."""
        self._refusal = (
            f"There is no checkpoint of step {step}: {reason}. The next ones are left out without "
            "a warning, as long as it is so."
        )

    def warn_of_refusal(self) -> None:
        """Warn in the thread that trains."""
        if self._refusal is not None and not self._has_warned:
            self._has_warned = True
            preflight.warn(self._refusal)

    def _write(
        self, step: int, ending: str, prepared: PreparedSave, scores: Mapping[str, float]
    ) -> None:
        weights = {k: a for k, a in prepared.arrays.items() if not k.startswith("metrics/")}
        name = first_non_finite(weights)
        if name is not None:
            self.refuse(step, f"{name} is not finite")
            return
        path = self.directory.save(step, ending, prepared.write, scores)
        for listener in self._listeners:
            listener.after_save(step, path)

    def _add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        if self.directory.has(step):  # else it was refused
            self.directory.add_scores(step, scores)


def _checked_listener(listener: Any) -> CheckpointListener:
    missing = [
        name
        for name in ("before_save", "after_save")
        if not callable(getattr(listener, name, None))
    ]
    if missing:
        raise TypeError(
            "StepCheckpoint(listeners) must have before_save(step, path) and after_save(step, "
            f"path); received {listener!r}, which has no {' and no '.join(missing)}."
        )
    return listener
