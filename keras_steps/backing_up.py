"""The backups of one fit: what is restored at its begin, and what is saved from then on."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from keras_steps import preflight
from keras_steps.background import (
    BackgroundWriter,
    all_succeed,
    let_all_finish,
    writes_under_way,
)
from keras_steps.backup_contents import BackupContents
from keras_steps.backups import Backup, BackupDirectory
from keras_steps.given_states import with_states_given_back
from keras_steps.global_step import global_step, set_global_step
from keras_steps.keras_internals import (
    backend_of,
    build_optimizer,
    first_non_finite,
    is_of_metrics,
    keras_backups,
    set_callback_states,
    sets_learning_rate,
    unkept_generators,
    without_known_state,
)
from keras_steps.random_states import set_random_states
from keras_steps.restoring import description_of, restore
from keras_steps.resumption import Resumption
from keras_steps.roles import SetsBeforeUpdates
from keras_steps.timelines import require_writable
from keras_steps.worker_shares import for_worker, share_of

if TYPE_CHECKING:
    from keras_steps.fit_position import FitPosition
    from keras_steps.loop_position import LoopPosition

_FITS_DONE: WeakKeyDictionary[Any, Counter[Path]] = WeakKeyDictionary()
"""How many fits of a model were done in this process, by the directory of their backups."""


class BackingUp:
    """One fit that is backed up.

    Args:
        fit: Where it is in its data, at its train begin; or where a loop is.
        directory: Where the backups are.
        on_change: Whether a changed script is refused ("raise") or warned of ("warn").
    """

    def __init__(
        self, fit: FitPosition | LoopPosition, directory: BackupDirectory, on_change: str
    ) -> None:
        self._fit = fit
        self._model = fit.model
        self._directory = directory
        self._on_change = on_change
        self._writer = BackgroundWriter()
        self._number = _FITS_DONE.setdefault(self._model, Counter())[directory.path]
        self._at_end: dict[str, Any] | None = None
        self.contents = BackupContents(fit, self._number)

    def restore(self, optimizer: Any) -> Resumption | None:
        """Give the model what the newest backup holds; None if there is none to go on from.

        A script may call fit several times with one directory: each goes on from backups of
        its own number.

        Args:
            optimizer: The one that counts the steps. Where a changed script has another, whose
                counter does not fit, it is set to the step.
        """
        steps = self._fit.params.get("steps")
        for name in keras_backups(self._fit.other_callbacks):
            raise ValueError(
                f"{name} and StepBackupAndRestore would both restore the model. Take {name} out of "
                "callbacks=[...]: it repeats the epoch that was broken off."
            )
        sets_rate = sets_learning_rate(self._fit.other_callbacks) or any(
            isinstance(callback, SetsBeforeUpdates) for callback in self._fit.callbacks
        )
        self.contents.description = description_of(self._model, steps, sets_rate=sets_rate)
        let_all_finish()
        backup = self._newest()
        if backup is None or backup.state["fit"] < self._number:
            return None
        whole = backup
        return self._fit.run.workers.by_all(lambda: self._take_up(whole, optimizer))

    def _take_up(self, backup: Backup, optimizer: Any) -> Resumption:
        """Give the model what the backup holds, or refuse it."""
        is_later = backup.state["fit"] > self._number  # whose model and optimizer are to come
        epoch, first_epoch = backup.state["position"][0], self._fit.call.initial_epoch
        if epoch < first_epoch and not is_later:
            raise ValueError(
                f"{backup.path} goes on in epoch {epoch}, and fit was called with "
                f"initial_epoch={first_epoch}, which would leave epochs out. Leave initial_epoch "
                "as it was when the run began: a backup knows its epoch."
            )
        complain = (lambda what: None) if is_later else self._complain
        backup = for_worker(
            backup,
            self._fit.run.workers.seat,
            sums_are_global=backend_of(self._model) == "jax",
        )
        backup = backup._replace(state=with_states_given_back(backup.state))
        batch_spec = self.contents.data.batch_spec
        put_back = restore(self._model, backup, self.contents.description, complain, batch_spec)
        metrics = {key: array for key, array in backup.arrays.items() if is_of_metrics(key)}
        if backup.state["fit"] == self._number:
            self._at_end = backup.state["at_end"]
        step, path = backup.state["step"], backup.path
        if not is_later and global_step(optimizer) != step:
            set_global_step(optimizer, step)
        self._fit.print_line(f"going on from step {step}: {path}")
        is_over = is_later or (
            backup.state["is_done"]
            and backup.state["ended"] is None
            and self._fit.asks_no_more_than(backup.state["epochs"])
        )
        return Resumption(self._model, backup.state, metrics, put_back, is_over=is_over)

    def warnings(self) -> list[str]:
        """What the user should know at train begin."""
        messages = []
        names = without_known_state(self._fit.other_callbacks)
        if names:
            messages.append(
                f"StepBackupAndRestore does not know the state of {', '.join(sorted(set(names)))}: "
                "a run that goes on begins it anew. A callback with get_state() and "
                "set_state(state) is asked for it."
            )
        layers = unkept_generators(self._model)
        if layers:
            messages.append(
                f"Nobody can save the random state of {', '.join(layers)}: a run that goes on "
                "draws other numbers there. Call "
                "tf_keras.backend.experimental.enable_tf_random_generator() before the model is "
                "built."
            )
        return messages

    def save_first(self, step: int) -> None:
        """Save the begin of a run, before anything else is written."""
        build_optimizer(self._model)
        self.save(step, begun_by="any")
        self._wait()

    def save(
        self,
        step: int,
        *,
        ended: str | None = None,
        is_done: bool = False,
        begun_by: str | None = None,
    ) -> None:
        """Copy the state, and have it written in the background.

        What other callbacks have handed in to be written comes first: the state says that it
        is there.

        Args:
            step: The global step.
            ended: Why the run has ended, if it has.
            is_done: Whether it is done, or goes on when the script is started again.
            begun_by: Whether, without a batch of it, an epoch has begun: for callbacks before
                "any" of this library, or before the one that makes "backup"s.

        Raises:
            OSError: If the write before this one has failed.
        """
        self._wait()
        state, arrays = self.contents.collected(
            step, ended=ended, is_done=is_done, begun_by=begun_by
        )
        workers = self._fit.run.workers
        sees_own_results = not self._fit.run.training.results_are_shared
        share = share_of(state, arrays, sees_own_results=workers.are_several and sees_own_results)
        shares = workers.gathered({**share, "broken": _broken_in(arrays)})
        broken = [name for share in shares if (name := share.pop("broken"))]
        if broken:
            preflight.warn(
                f"There is no backup of step {step}: {broken[0]} is not finite. The one before "
                "stays."
            )
        if broken or not workers.is_chief:
            return
        if workers.are_several:
            state["workers"] = shares
        state, writes = copy.deepcopy(state), writes_under_way()

        def write() -> None:
            if all_succeed(writes):  # else the one who handed it in raises
                self._directory.save(step, state, arrays)

        self._writer.submit(write)

    def rewound(self, step: int) -> None:
        """After a rollback, later backups belong to what did not happen."""
        self._wait()
        self._fit.run.workers.by_chief(lambda: self._directory.drop_past(step))

    def let_write(self) -> None:
        """Wait for what is being written.

        Raises:
            OSError: If that has failed.
        """
        self._writer.wait()

    def finish(self, *, is_done: bool) -> None:
        """Wait for the last write; a done fit makes way for the next one of the script.

        One that was done before and made no step has the History and random states of then.
        """
        self._wait()
        if self._at_end is not None and not self._fit.run.executions:
            set_callback_states(self._fit.other_callbacks, self._at_end["callbacks"])
            set_random_states(self._at_end["random"])
        if is_done:
            _FITS_DONE[self._model][self._directory.path] += 1

    def _newest(self) -> Backup | None:
        """The newest that is whole. The chief finds it; each worker loads that same one."""
        workers, found = self._fit.run.workers, None

        def find() -> str | None:
            nonlocal found
            require_writable(self._directory.path, "StepBackupAndRestore")
            self._directory.begin()
            found = self._directory.newest()
            return None if found is None else found.path.name

        name = workers.by_chief(find)
        return None if name is None else workers.by_all(lambda: found or self._directory.read(name))

    def _wait(self) -> None:
        """Let the last write come to its end; one that has failed ends all workers."""
        self._fit.run.workers.by_chief(self._writer.wait)

    def _complain(self, what: str) -> None:
        if self._on_change == "raise":
            raise ValueError(
                f"{what}. Give a changed script another directory, or on_change='warn' to go on."
            )
        preflight.warn(f"{what}. The run goes on with what fits.")


def _broken_in(arrays: Mapping[str, np.ndarray]) -> str | None:
    """The name of an array that is not finite; what metrics hold is not trained with."""
    return first_non_finite({key: a for key, a in arrays.items() if not is_of_metrics(key)})
