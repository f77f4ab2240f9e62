"""StepLoop: the same callbacks in a training loop of one's own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from keras_steps import clock as clocks
from keras_steps import loops_under_way, preflight
from keras_steps.fit_flavours import retire_broken_off
from keras_steps.keras_internals import Console
from keras_steps.loop_position import LoopPosition
from keras_steps.loop_training import LoopTraining
from keras_steps.run import Run
from keras_steps.step_callback import StepCallback


class StepLoop:
    """A training loop of one's own, followed by the callbacks that follow `fit`.

    `over(data)` yields the batches, one an iteration, and ends where a callback stops the run;
    an update may be made in any way. What `log` is given is averaged over each callback's
    window. Leaving the `with` fires what is due at the end and closes the writers, also after a
    `break`; an error only closes them. Without `with` each `over` is a run of its own, and a
    `break` is taken for an error.

    Args:
        callbacks: Callbacks of this library.
        model: The Keras model that is trained. Default: none; what needs one says so.
        optimizer: Whose updates are the steps: an optimizer that counts its `iterations`, a
            torch optimizer, the name of the model's attribute, or a function that returns the
            step, such as `lambda: int(state.step)`. It is called when something may be due,
            never in between. Default: the model's. Without a model too, iterations count, in
            `global_step`.

    Raises:
        ValueError: If a callback can do nothing in such a loop; the message says why.
        TypeError: If an argument is of the wrong kind, or a callback is one of Keras's.

    Example:

    >>> from keras_steps import StepLoop, StopAtStep
    >>> from keras_steps.testing import Recorder
    >>> recorder = Recorder(every=2)
    >>> with StepLoop([recorder, StopAtStep(4)]) as loop:
    ...     for batch in loop.over(range(100)):
    ...         loop.log(loss=float(batch))
    >>> recorder.steps, [logs["loss"] for logs in recorder.logs]
    ([2, 4], [0.5, 2.5])
    """

    def __init__(
        self, callbacks: Iterable[StepCallback], *, model: Any = None, optimizer: Any = None
    ) -> None:
        self._training = LoopTraining(model, optimizer)
        self._callbacks = _checked(callbacks)
        for callback in self._callbacks:
            for each in (callback, *getattr(callback, "companions", ())):
                self._training.optimizer_of(each)
                each.refuse_loop(self._training)
        self._run: Run | None = None
        self._is_within = self._is_open = self._is_in_iteration = False
        self._stop_reason: str | None = None

    # ------------------------------------------------------------ what a script calls

    def __enter__(self) -> StepLoop:
        if self._run is not None:
            raise RuntimeError("this StepLoop is under way already; use another one within it.")
        self._begin()
        self._is_within = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_within = False
        if kind is None:
            self._end()
        else:
            self._break_off()

    def over(self, data: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of one epoch, until a callback ends the run.

        Args:
            data: Anything that can be iterated over: a tf.data.Dataset, DataLoader, PyDataset,
                list, generator, or `range(steps)`.

        Raises:
            TypeError: If it can't be iterated over.
            RuntimeError: If another loop or fit is under way on the model, or with a callback
                of this loop; or within a tf.function.
        """
        if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
            raise TypeError(
                "StepLoop.over(data) takes something that can be iterated over, one batch after "
                f"the other; received {data!r}."
            )
        return self._over(data)

    def log(self, **values: Any) -> None:
        """Take in scalars of this iteration, for reports: means over each callback's window.

        They are kept as they are and read when a report is due: no iteration in between waits
        for the device. Every iteration that logs has the same names.

        Args:
            values: Floats, or scalar tensors or arrays of any backend.

        Raises:
            ValueError: If a value is no scalar, or the names are not those of before, or one is
                `epoch` or `steps_per_second`, which reports have by themselves.
            TypeError: If a value is no number.
            RuntimeError: Outside of an iteration.
        """
        if not self._is_in_iteration:
            raise RuntimeError(
                "StepLoop.log was called outside of an iteration. Call it in the body of "
                "`for batch in loop.over(data):`."
            )
        assert self._run is not None
        self._training.logged.add(values, self._run.executions)

    @property
    def global_step(self) -> Any:
        """The variable that counts the steps, to be saved and restored with others.

        That of the optimizer, or the loop's own; None where a function says the step.
        """
        counter = self._training.counter.iterations
        return None if counter is self._training.counter else counter

    @property
    def is_under_way(self) -> bool:
        """Whether its run has begun and not ended."""
        return self._run is not None

    @property
    def epoch(self) -> int | None:
        """The number of the epoch, from 0; None before the first."""
        return None if self._run is None else self._run.epoch

    @property
    def stop_reason(self) -> str | None:
        """Why the run has been ended; see `keras_steps.stop_reason`."""
        return self._stop_reason if self._run is None else self._run.stop_reason

    # ------------------------------------------------------------ the run

    def _over(self, data: Iterable[Any]) -> Iterator[Any]:
        is_own = not self._is_within
        self._refuse_overlap()
        if is_own:
            self._begin()
        self._is_open = True
        run, training, position = self._run, self._training, self._position
        assert run is not None
        count = training.counter.add_one if training.counts_itself else None
        try:
            if self._is_in_iteration:
                self._close_iteration(run)
            iterator = self._open_epoch(run, data)
            if iterator is not None:
                while True:
                    run.executions += 1
                    is_due = run.executions >= run.attention_at
                    if is_due and not self._may_go_on(run):
                        run.executions -= 1
                        break
                    try:
                        batch = next(iterator)
                    except StopIteration:
                        run.executions -= 1
                        position.close_epoch(is_complete=True)
                        break
                    except BaseException:  # a script may bear it, and go on with other data
                        run.executions -= 1
                        raise
                    self._is_in_iteration = True
                    yield batch
                    if self._run is not run:  # kept beyond the end of the run
                        return
                    self._is_in_iteration = False
                    if count is not None:
                        count()
                    if is_due or (run.deadline is not None and clocks.now() >= run.deadline):
                        self._after(run)
                        if training.is_stopping:
                            break
                        if run.signal is not None:
                            run.attention_at = 0
                if training.is_stopping:
                    position.stop()
                    position.close_epoch(is_complete=False)
                run.stopwatch.pause()
        except BaseException:
            if self._run is run:
                self._is_open = False
                if is_own:
                    self._break_off()
            raise
        self._is_open = False
        if is_own:
            self._end()

    def _refuse_overlap(self) -> None:
        """A `break` closes the iterator that it leaves."""
        if self._is_open:
            raise RuntimeError(
                "StepLoop.over was called while the iterator of an earlier over() is not used up. "
                "One loop makes one run: go through one over() after the other, or use another "
                "StepLoop for the inner loop."
            )

    def _begin(self) -> None:
        training, model = self._training, self._training.model
        _refuse_graph()
        loops_under_way.refuse_loop(model, self._callbacks)
        retire_broken_off(self._callbacks)
        loops_under_way.begin(training, self._callbacks)
        try:
            training.begin()
            for callback in self._callbacks:
                callback._fit = None
                callback.set_model(model)
            run = self._run = Run(training, self._callbacks)
            console = Console(model)
            run.owner = self
            run.print_line = lambda line: console.print_line(line) if run.is_chief else None
            self._is_in_iteration = False
            backup = next((c for c in self._callbacks if hasattr(c, "restore")), None)
            self._position = LoopPosition(
                model, self._callbacks, backup, lambda: self._run is not None
            )
            is_over = self._position.begin(run)
        except BaseException:
            self._break_off()
            raise
        if is_over:
            run.tell_that_it_is_over()
            training.stop()
            return
        for message in preflight.warnings_for(run, {}):
            preflight.warn(message)

    def _open_epoch(self, run: Run, data: Iterable[Any]) -> Iterator[Any] | None:
        """Begin an epoch; None if the run is over, or an earlier process has done this one."""
        self._training.forget_stop_of_others()
        if self._training.is_stopping:
            return None
        self._position.close_epoch(is_complete=True)  # a `break` has left it
        run.epoch = 0 if run.epoch is None else run.epoch + 1
        iterator = self._position.open_epoch(run.epoch, data)
        if iterator is None:
            return None
        if run.executions == 0 and not run.is_resumed:  # the script may have set the counter since
            run.start_again()
        run.set_out()
        self._training.keep_stop_of_callbacks()
        run.open_epoch()
        if run.signal is not None:  # it came between two epochs
            run.attention_at = 0
        return iterator

    def _may_go_on(self, run: Run) -> bool:
        if run.signal is not None:
            run.stop("signal")
        elif run.before() == 0:
            run.stop("reached")
        return run.stop_reason is None

    def _close_iteration(self, run: Run) -> None:
        """Take an iteration that a `break` has left for done."""
        self._is_in_iteration = False
        if self._training.counts_itself:
            self._training.counter.add_one()
        self._after(run)

    def _after(self, run: Run) -> None:
        """Fire what has become due with an iteration."""
        self._training.forget_stop_of_others()
        run.after({}, epoch_ends=False)
        self._training.keep_stop_of_callbacks()

    def _end(self) -> None:
        """The run is done: fire what is due at its end, close the writers."""
        run = self._run
        assert run is not None
        try:
            if self._is_in_iteration:
                self._close_iteration(run)
            self._training.forget_stop_of_others()
            self._position.close_epoch(is_complete=not self._training.is_stopping)
            if run.executions:
                run.close_epoch()
            run.end({})
            self._position.end()
        except BaseException:
            self._break_off()
            raise
        self._release()

    def _break_off(self) -> None:
        """An error has ended the run: close what is open."""
        run = self._run
        self._release()
        if run is not None:
            run.break_off()

    def _release(self) -> None:
        if self._run is not None:
            self._stop_reason = self._run.stop_reason
        self._run, self._is_open, self._is_in_iteration = None, False, False
        for callback in self._callbacks:
            callback._fit = None
        loops_under_way.end(self._training)


def _refuse_graph() -> None:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and not tensorflow.executing_eagerly():
        raise RuntimeError(
            "a StepLoop was begun within a tf.function, which would make its iterations one graph. "
            "Decorate the function that makes one step, and call it in the loop."
        )


def _checked(callbacks: Iterable[Any]) -> list[StepCallback]:
    if isinstance(callbacks, StepCallback) or not hasattr(callbacks, "__iter__"):
        raise TypeError(f"StepLoop(callbacks) must be a list of callbacks; received {callbacks!r}.")
    given = list(callbacks)
    for callback in given:
        if isinstance(callback, StepCallback):
            continue
        if hasattr(callback, "on_train_batch_end") and not isinstance(callback, type):
            raise TypeError(
                f"StepLoop(callbacks): {type(callback).__name__} is a callback of Keras's, which "
                "goes by fit's batches and epochs. A loop of one's own has none of these: use a "
                "callback of keras_steps, or call Keras's methods in the loop."
            )
        raise TypeError(
            f"StepLoop(callbacks) takes callbacks of keras_steps; received {callback!r}."
        )
    return list(dict.fromkeys(given))
