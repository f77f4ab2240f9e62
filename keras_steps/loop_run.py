"""One run of a loop of one's own: how it begins, what an iteration may bring, how it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from keras_steps import loops_under_way, preflight
from keras_steps.fit_flavours import retire_broken_off
from keras_steps.keras_internals import Console
from keras_steps.loop_position import LoopPosition
from keras_steps.run import Run

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining
    from keras_steps.step_callback import StepCallback


class LoopRun:
    """A run, and the position in the data of the loop that makes it.

    Making one begins the run; `end` or `break_off` is its end.

    Args:
        loop: The loop.
        training: What it trains.
        callbacks: Those that follow it.

    Attributes:
        run: The run.
        position: Where the loop is in its data.
    """

    def __init__(self, loop: object, training: LoopTraining, callbacks: list[StepCallback]) -> None:
        self._training, self._callbacks = training, callbacks
        self._is_under_way = True
        loops_under_way.refuse_loop(training.model, callbacks)
        retire_broken_off(callbacks)
        loops_under_way.begin(training, callbacks)
        try:
            training.begin()
            for callback in callbacks:
                callback._fit = None
                callback.set_model(training.model)
            self.run = Run(training, callbacks)
        except BaseException:
            self._release()
            raise
        try:
            self._begin(loop)
        except BaseException:
            self.break_off()
            raise

    def _begin(self, loop: object) -> None:
        run, model = self.run, self._training.model
        console = Console(model)
        run.owner = loop
        run.print_line = lambda line: console.print_line(line) if run.is_chief else None
        self.position = LoopPosition(model, self._callbacks, lambda: self._is_under_way)
        if self.position.begin(run):
            run.tell_that_it_is_over()
            self._training.stop()
            return
        for message in preflight.warnings_for(run, {}):
            preflight.warn(message)

    def open_epoch(self, data: Iterable[Any]) -> Iterator[Any] | None:
        """Begin an epoch; None if the run is over, or an earlier process has done this one."""
        run, training = self.run, self._training
        training.forget_stop_of_others()
        if training.is_stopping:
            return None
        self.position.close_epoch(is_complete=True, is_left=True)  # where it is open still
        run.epoch = 0 if run.epoch is None else run.epoch + 1
        iterator = self.position.open_epoch(run.epoch, data)
        if iterator is None:
            return None
        if run.executions == 0 and not run.is_resumed:  # the script may have set the counter since
            run.start_again()
        run.set_out()
        training.keep_stop_of_callbacks()
        run.open_epoch()
        if run.signal is not None:  # it came between two epochs
            run.attention_at = 0
        return iterator

    def may_go_on(self) -> bool:
        """Before an iteration that needs attention: whether it may be made."""
        run = self.run
        if run.signal is not None:
            run.stop("signal")
        elif run.before() == 0:
            run.stop("reached")
        return run.stop_reason is None

    def after(self) -> None:
        """Fire what has become due with an iteration."""
        self._training.forget_stop_of_others()
        self.run.after({}, epoch_ends=False)
        self._training.keep_stop_of_callbacks()

    def close_iteration(self) -> None:
        """Take an iteration that a `break` has left for done, and its epoch with it."""
        if self._training.counts_itself:
            self._training.counter.add_one()
        self.position.close_epoch(is_complete=True, is_left=True)  # before this step is saved
        self.after()

    def stop_in_epoch(self) -> None:
        """The run was stopped between two batches of an epoch."""
        self.position.stop()
        self.position.close_epoch(is_complete=False)

    def end(self) -> None:
        """The run is done: fire what is due at its end, close the writers."""
        self._training.forget_stop_of_others()
        self.position.close_epoch(is_complete=not self._training.is_stopping, is_left=True)
        if self.run.executions:
            self.run.close_epoch()
        self.run.end({})
        self.position.end()
        self._release()

    def break_off(self) -> None:
        """An error has ended the run: close what is open."""
        self._release()
        self.run.break_off()

    def _release(self) -> None:
        self._is_under_way = False
        for callback in self._callbacks:
            callback._fit = None
        loops_under_way.end(self._training)
