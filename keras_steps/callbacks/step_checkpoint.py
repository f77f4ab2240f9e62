"""StepCheckpoint: whole models, or other objects, on the disk by the global step; the best too."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_steps.arguments import flag, integral
from keras_steps.checkpoint_contents import contents_of
from keras_steps.checkpoint_directory import CheckpointDirectory
from keras_steps.checkpoint_session import CheckpointListener, CheckpointSession, checked_listeners
from keras_steps.monitor import Monitor
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.timelines import local_path, require_writable
from keras_steps.triggers import Trigger, as_trigger

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class StepCheckpoint(StepCallback):
    """Saves the whole model every so many steps, and whenever an evaluation is the best so far.

    Or, in its place, a dict of objects, above all in a StepLoop: `restore_checkpoint` puts what
    it has saved of them (`step_00001000.npz`) back.

    What TF1's CheckpointSaverHook was for. Files are named by the global step
    (`step_00001000.keras`) and can be loaded by `keras.saving.load_model`. A file is there
    whole or not at all, whenever the process is killed. It is written in the background, from a
    copy in memory; while one is being written, the next one waits. `latest_checkpoint`,
    `best_checkpoint` and `list_checkpoints` find them again.

    With `monitor`, each evaluation that improves on the best is a reason to save, wherever it came
    from: EvaluateEveryN, or fit's own validation. A model is never saved if a weight or optimizer
    variable is not finite, or the mean loss since the save before. (Once a batch's loss was
    not, Keras's sum is none until the epoch ends.)

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
        objects: What is saved in the place of the model, by names: objects of Keras or
            TensorFlow that hold variables (models, layers, optimizers, metrics, variables,
            tf.Module), objects with `state_dict()` and `load_state_dict()`, as torch's have, and
            functions without arguments that return a pytree, `lambda: params`, or one of those
            objects. A function is called at train begin and at each save. None is saved while an
            array is NaN, or what is trained infinite: trainable variables and torch's
            parameters. (Elsewhere infinity may be meant; what metrics hold isn't looked at.)
        listeners: Objects with `before_save(step, path)` and `after_save(step, path)`.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If an argument makes no sense; at train begin, if no evaluation of the run
            can bring `monitor`, or the model can't be saved; at the first evaluation, if its
            results lack it; at a save, if one of `objects` is not built.
        TypeError: If an argument is of the wrong kind.
        FileExistsError: Before the first update of a fresh run, if the directory holds
            checkpoints.
        OSError: At train begin, if the directory can't be written to; at the next firing, or at
            train end, if a checkpoint could not be.

    Example:

    >>> callback = StepCheckpoint("checkpoints", every=1000, monitor="val_loss")
    >>> params = {"weight": 0.5}
    >>> callback = StepCheckpoint("checkpoints", objects={"params": lambda: params})
    """

    order = Order.CHECKPOINT
    decides_by_results = True
    _run: Run | None = None
    _session: CheckpointSession | None = None
    _state: Mapping[str, Any] | None = None

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
        objects: Mapping[str, Any] | None = None,
        listeners: Iterable[CheckpointListener] = (),
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(as_trigger(every, "StepCheckpoint(every)"), optimizer=optimizer)
        self.place = local_path(directory, "StepCheckpoint(directory)")
        if max_to_keep is not None:
            max_to_keep = integral(max_to_keep, "StepCheckpoint(max_to_keep)", least=1)
        if keep_every is not None:
            keep_every = integral(keep_every, "StepCheckpoint(keep_every)", least=1)
        self.max_to_keep = max_to_keep
        self.keep_every = keep_every
        self.monitor = Monitor("val_loss" if monitor is None else monitor, mode, "StepCheckpoint")
        self.has_monitor = monitor is not None
        self.save_weights_only = flag(save_weights_only, "StepCheckpoint(save_weights_only)")
        self.at_end = flag(at_end, "StepCheckpoint(at_end)")
        self.overwrite = flag(overwrite, "StepCheckpoint(overwrite)")
        self.listeners = checked_listeners(listeners)
        self._contents = contents_of(objects, weights_only=self.save_weights_only)

    def begin(self, run: Run) -> None:
        for other in run.callbacks:
            if other is not self and _saves_to(other, self.place):
                raise ValueError(
                    f"two callbacks of one fit save to {self.place}: {type(other).__name__} and "
                    "StepCheckpoint. Give each a directory of its own."
                )
        if self.has_monitor:
            self.monitor.require_source(run)
        self._contents.require(run.model)
        if not run.is_over:
            run.workers.by_chief(lambda: require_writable(self.place, "StepCheckpoint"))
        self._run, self._session, self._state = run, None, None

    def get_state(self) -> dict[str, Any]:
        """The step last saved, whose file may still be on its way, and its scores."""
        session = self._session
        step = None if session is None else session.saved_at
        scores = {} if session is None or step is None else session.scores_at(step)
        return {"saved_at": step, "scores": scores}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def before_first_update(self, run: Run) -> None:
        directory = CheckpointDirectory(
            self.place,
            max_to_keep=self.max_to_keep,
            keep_every=self.keep_every,
            monitor=self.monitor.name if self.has_monitor else None,
            mode=self.monitor.direction,
        )
        session = CheckpointSession(directory, workers=run.workers, listeners=self.listeners)
        self._session = session
        step, state = run.begun_at[run.clock_of(self)], self._state
        session.begin(step, self.overwrite or state is not None)
        self._take_best()
        if state is not None and state["saved_at"] == step:
            session.add_scores(step, state["scores"])
            if session.saved_at == step:
                self._note_best(step)
            else:  # a kill came before its file was whole
                self._save(step)

    def on_evaluation(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        value = self.monitor.value_in(logs) if self.has_monitor else None
        self._running.add_scores(step, logs)
        if self._running.saved_at == step:
            self._note_best(step)
        elif value is not None and self.monitor.improves(value):
            self._run.request(self)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        session = self._running
        if step == session.saved_at:
            return
        losses = self._run.agreement.of_all_workers(logs.get("loss", 0.0))
        broken = [loss for loss in losses if not math.isfinite(loss)]
        if broken:
            session.refuse(step, f"the loss is {broken[0]}")
            return
        self._save(step)

    def rewound(self, run: Run) -> None:
        self._running.go_back(run.clock_of(self).step)
        self._take_best()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._run is not None and self.has_monitor:
            self.monitor.never_came(self._run)

    def end(self, run: Run) -> None:
        session, self._session, self._run = self._session, None, None
        if session is not None:
            session.end((run.stop_reason or "epochs") if run.is_done else None)

    def break_off(self, run: Run) -> None:
        session, self._session, self._run = self._session, None, None
        if session is not None:
            session.let_write()

    def refuse_loop(self, training: LoopTraining) -> None:
        if training.model is None and self._contents.needs_model:
            raise ValueError(
                "StepCheckpoint saves a Keras model, and the loop has none. Pass "
                "StepLoop(callbacks, model=model), or say what is to be saved: "
                "StepCheckpoint(directory, objects={'generator': generator})."
            )

    def __getstate__(self) -> dict[str, Any]:
        """A copy has nothing under way."""
        return {**super().__getstate__(), "_run": None, "_session": None}

    def _save(self, step: int) -> None:
        assert self._run is not None
        contents = self._contents
        with self._run.variables.published():  # asked for by an evaluation, it may not be yet
            self._running.save(step, contents.ending, lambda: contents.prepare(self.model))
        self._note_best(step)

    def _note_best(self, step: int) -> None:
        value = self._running.scores_at(step).get(self.monitor.name)
        if value is not None and self.monitor.improves(value):
            self.monitor.best = value

    def _take_best(self) -> None:
        scores = self._running.best_scores if self.has_monitor else None
        self.monitor.best = None if scores is None else scores[self.monitor.name]

    @property
    def _running(self) -> CheckpointSession:
        assert self._session is not None
        return self._session


def _saves_to(callback: StepCallback, place: Path) -> bool:
    """Whether it is another callback that saves, and to the same directory.

    Reports may well be written beside checkpoints: each leaves the other's files alone.
    """
    saves = isinstance(callback, StepCheckpoint)
    return saves and os.path.realpath(callback.place) == os.path.realpath(place)
