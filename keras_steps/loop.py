"""StepLoop: the same callbacks in a training loop of one's own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from keras_steps import clock as clocks
from keras_steps.loop_run import LoopRun
from keras_steps.loop_training import LoopTraining
from keras_steps.roles import with_companions
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
            `global_step`. A callback that follows another one names it as in fit, or by a
            function from the model to any of these.

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
        each_one = list(with_companions(self._callbacks))
        for callback in each_one:
            self._training.optimizer_of(callback)
        for callback in each_one:
            callback.refuse_loop(self._training)
        self._following: LoopRun | None = None
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
        following, training = self._following, self._training
        assert following is not None
        run = following.run
        count = training.counter.add_one if training.counts_itself else None
        try:
            self._close_iteration(following)
            iterator = following.open_epoch(data)
            if iterator is not None:
                while True:
                    run.executions += 1
                    is_due = run.executions >= run.attention_at
                    if is_due and not following.may_go_on():
                        run.executions -= 1
                        break
                    try:
                        batch = next(iterator)
                    except StopIteration:
                        run.executions -= 1
                        following.position.close_epoch(is_complete=True)
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
                        following.after()
                        if training.is_stopping:
                            break
                        if run.signal is not None:
                            run.attention_at = 0
                if training.is_stopping:
                    following.stop_in_epoch()
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
        _refuse_graph()
        self._following = LoopRun(self, self._training, self._callbacks)
        self._run = self._following.run

    def _close_iteration(self, following: LoopRun) -> None:
        if self._is_in_iteration:
            self._is_in_iteration = False
            following.close_iteration()

    def _end(self) -> None:
        following = self._following
        assert following is not None
        try:
            self._close_iteration(following)
            following.end()
        except BaseException:
            self._break_off()
            raise
        self._let_go()

    def _break_off(self) -> None:
        following = self._following
        self._let_go()
        if following is not None:
            following.break_off()

    def _let_go(self) -> None:
        self._stop_reason = self.stop_reason
        self._following = self._run = None
        self._is_open = self._is_in_iteration = False


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
