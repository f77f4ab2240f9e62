"""Where a loop is in its data, and what backups ask of it as they ask it of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from keras_steps.epoch import Epoch
from keras_steps.keras_internals import Position, Skipping, is_compiled, replay_pass
from keras_steps.roles import backup_among

if TYPE_CHECKING:
    from keras_steps.resumption import Resumption
    from keras_steps.run import Run


class LoopData:
    """The data of a loop: each epoch is one iterator over them.

    A script that is started again asks for each epoch again. Those that are done are empty then;
    what they did to the order of the data is done again. Data that are their own iterator, as a
    generator, are read as far as they had been.
    """

    begins_pass = True
    batch_spec = None

    def __init__(self, model: Any) -> None:
        self._model = model
        self.found_size: dict[str, int] = {}
        """The batches read in epochs whose data were their own iterator, or that were left."""
        self._epoch = 0

    def resume(
        self,
        position: Position,
        *,
        at_pass: Callable[[], object],
        at_step: Callable[[Any], object],
        on_read: Callable[[int], object],
        found_size: dict[str, int],
    ) -> None:
        """Go on in an epoch behind so many batches; see `TrainingData.resume`."""
        self._epoch, self.found_size = position.epoch, dict(found_size)
        self._at_pass = at_pass
        self._skipping = Skipping(
            position.batches, lambda batch: at_step(self._fitting(batch)), on_read
        )

    def passes_over(self, epoch: int, data: Any) -> bool:
        """Whether an epoch is done; its data are then as they were behind it."""
        if epoch >= self._epoch:
            return False
        if isinstance(data, Iterator):
            size = self.found_size.get(str(epoch), 0)
            available = sum(1 for _ in islice(data, size))
            if available < size:
                raise ValueError(
                    f"The data of epoch {epoch} have only {available} batches, and had {size} when "
                    "the backup was made: they have changed. Give the loop the data of then, or "
                    "begin anew in another directory."
                )
        else:
            replay_pass(data, self.found_size.get(str(epoch)))
        return True

    def opened(self, epoch: int, data: Any, *, resumed: bool) -> Iterator[Any]:
        """The batches of an epoch that are left."""
        if not resumed:
            return _iterator_of(data)
        self._at_pass()
        iterator = _iterator_of(data)
        self._skipping.over(iterator, 0)
        return iterator

    def closed(self, epoch: int, data: Any, batches: int, *, is_left: bool) -> None:
        """Told behind an epoch how many batches of it were read, and whether a `break` left it."""
        if isinstance(data, Iterator) or is_left:
            self.found_size[str(epoch)] = batches

    def _fitting(self, batch: Any) -> Any:
        """A batch that metrics can be built with, if it is one."""
        return batch if is_compiled(self._model) and isinstance(batch, tuple) else None


class LoopPosition:
    """A loop that is backed up, as BackingUp sees it.

    Args:
        model: The model that is trained.
        callbacks: Those of the loop.
        is_under_way: Whether the loop's run has not ended.
    """

    def __init__(
        self,
        model: Any,
        callbacks: list[Any],
        is_under_way: Callable[[], bool],
    ) -> None:
        self.model = model
        self.callbacks = callbacks
        self.params: dict[str, Any] = {}
        self.call = SimpleNamespace(initial_epoch=0, epochs=0)
        self.other_callbacks: list[Any] = []
        self.log_names: list[str] = []
        self.epoch = Epoch(cuts_last=False)
        self.is_suspended = False
        self.training_data = LoopData(model)
        self._is_under_way = is_under_way
        self._backup = backup_among(callbacks)
        self._resumption: Resumption | None = None
        self.run: Run

    def begin(self, run: Run) -> bool:
        """Restore what there is, and begin the run; whether it is known that it is over."""
        self.run = run
        run.agreement.call_the_roll({"what comes next": "a StepLoop"})
        is_over = self._restore(run)
        steps = [clock.step for clock in run.clocks]
        run.agreement.call_the_roll({"what comes next": "its first batch", "the step": steps})
        return is_over

    def _restore(self, run: Run) -> bool:
        if self._backup is None:
            run.begin()
            return run.is_over
        resumption = self._resumption = self._backup.restore(self)
        run.is_resumed = resumption is not None
        run.begin()
        if resumption is None:
            return run.is_over
        run.set_state(resumption.run_state)
        resumption.begin(self._backup.data, self.print_line)
        return run.is_over or resumption.is_over or run.stop_reason is not None

    def open_epoch(self, epoch: int, data: Iterable[Any]) -> Iterator[Any] | None:
        """The batches of an epoch; None if an earlier process has done it."""
        if self._backup is None:
            return _iterator_of(data)
        if self.training_data.passes_over(epoch, data):
            return None
        resumption, self._resumption = self._resumption, None
        progress, before, resumed_at = self._backup.progress, self.batches_done, 0
        if resumption is None:
            progress.open_epoch(epoch, before)
        else:
            resumption.open_epoch([], progress)
            resumed_at = resumption.position.batches
        self.epoch.open(self.run.executions, None, resumed_at)
        self._data = data
        return self.training_data.opened(epoch, data, resumed=resumption is not None)

    def close_epoch(self, *, is_complete: bool, is_left: bool = False) -> None:
        """Behind an epoch: whether it is done, and whether a `break` has left it for that."""
        if self._backup is not None and self.epoch.is_open:
            self.epoch.is_open, self.epoch.has_seen_the_end = False, is_complete
            assert self.run.epoch is not None
            self.training_data.closed(
                self.run.epoch, self._data, self.batches_done, is_left=is_left
            )

    def stop(self) -> None:
        """The run was stopped; one that is to go on another time is saved at once."""
        run, backup = self.run, self._backup
        if backup is not None and not run.is_done and run.stop_reason != "nan":
            run.look()
            self.is_suspended = True
            backup.suspend()

    def end(self) -> None:
        """Behind the last firing."""
        if self._backup is not None:
            self._backup.finish(self.run)

    @property
    def batches_done(self) -> int:
        return self.epoch.batches_done(self.run.executions, 1)

    @property
    def epoch_is_complete(self) -> bool:
        return self.epoch.has_seen_the_end

    def asks_no_more_than(self, epochs: int) -> bool:
        """Never known: the epochs that are done are empty, and the script may have more."""
        return False

    def is_running(self, frame: Any) -> bool:
        return self._is_under_way()

    def print_line(self, line: str) -> None:
        self.run.print_line(line)


def _iterator_of(data: Any) -> Iterator[Any]:
    """One batch after the other; a Keras PyDataset has a length and items, and no iterator."""
    if hasattr(data, "__iter__") or not hasattr(data, "__len__"):
        return iter(data)
    return (data[index] for index in range(len(data)))
