"""The way into Keras's fit: what happens before and after each execution."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from keras_steps import clock as clocks
from keras_steps import preflight
from keras_steps.clock import NEVER
from keras_steps.epoch import Epoch
from keras_steps.keras_internals import (
    Console,
    FitCall,
    backend_of,
    calls_around,
    fetched,
    is_end_of_data,
    is_within,
    results_without_logs,
    skip_all_epochs,
    skip_validation,
    start_at_epoch,
    training_data_of,
    without_results,
)
from keras_steps.reports import scalars
from keras_steps.run import Run
from keras_steps.training import FitTraining

if TYPE_CHECKING:
    from keras_steps.callbacks.step_backup_and_restore import StepBackupAndRestore
    from keras_steps.keras_internals import TrainingData
    from keras_steps.resumption import Resumption
    from keras_steps.step_callback import StepCallback


def _retired_by_errors(method: Callable[..., None]) -> Callable[..., None]:
    """What raises in a hook of Keras's ends the fit, of which no callback is told."""

    @functools.wraps(method)
    def hook(fit: FitAdapter, *args: Any) -> None:
        try:
            method(fit, *args)
        except BaseException:
            fit.retire()
            raise

    return hook


class FitAdapter:
    """Stands in for `model.train_function` between train begin and train end.

    That is the one place that sees every execution, before and after, in order, on the
    main thread. A hook at the end of each batch would switch Keras's asynchronous
    dispatch off on JAX and torch.

    Args:
        model: The model that is trained.
        call: The call of fit.
        callbacks: Those of this library in it.
    """

    cuts_last: ClassVar[bool] = False
    """Whether Keras itself makes the last execution of an epoch shorter."""

    def __init__(self, model: Any, call: FitCall, callbacks: list[StepCallback]) -> None:
        self.model = model
        self.call = call
        self.callbacks = callbacks
        self.thread = threading.get_ident()
        self.params = getattr(call.callbacks, "params", None) or {}
        self.has_begun = self.is_under_way = False
        self.epoch = Epoch(cuts_last=self.cuts_last)
        self._last_logs: dict[str, float] = {}
        self._functions: list[Any] = []
        self._depth = 0
        self._backup: StepBackupAndRestore | None = next(
            (c for c in callbacks if hasattr(c, "restore")), None
        )
        self._resumption: Resumption | None = None
        self._has_resumed = False
        self.is_suspended = False
        self._end_to_come: BaseException | None = None
        self.log_names: list[str] = []
        """Names in the logs of the last execution that was attended to."""

    @_retired_by_errors
    def begin(self) -> None:
        """Begin the run; from here on `model.train_function` is this adapter."""
        if self.has_begun:
            return
        self._replace_a_broken_off_one()
        self.run = Run(FitTraining(self.model), self.callbacks)
        self.run.owner = self
        self.has_begun = True
        for callback in self.callbacks:
            callback._fit = self
        self._console = Console(self.model)
        self._console.callbacks = self.call.callbacks
        self.run.print_line = self.print_line
        self.run.evaluations.are_known = self.call.validates is not None
        if self.call.validates is not False:
            self.run.evaluations.prefixes.append("val_")
        first_epoch, is_over = self.call.initial_epoch, False
        if self._backup is not None:
            self._resumption = self._backup.restore(self)
            self.run.is_resumed = self._resumption is not None
        self.run.begin()
        if self._resumption is not None:
            self.run.set_state(self._resumption.run_state)
            first_epoch = self._resumption.position.epoch
            if first_epoch >= self.call.epochs:  # no epoch is left, but what fires at the end
                self.run.epoch = first_epoch - 1
            is_over = self._resumption.is_over or self.run.stop_reason is not None
        self.is_under_way = True
        if self.run.is_over or is_over:
            self._skip()
            return
        for message in preflight.warnings_for(self.run, self.params, first_epoch):
            preflight.warn(message)
        start_at_epoch(self.model, self.call, first_epoch)
        if self._backup is not None and self._resumption is not None:
            self._resumption.begin(self._backup.data, self.print_line)
        self._wrap()

    def __call__(self, *args: Any) -> Any:
        if self._depth:
            return self._beneath(*args)
        run = self.run
        run.executions += 1
        self._depth = 1
        try:
            if run.executions < run.attention_at and (
                run.deadline is None or clocks.now() < run.deadline
            ):
                return self.inner(*args)
            if not self._is_called_by_its_fit(sys._getframe(1)):
                run.executions -= 1
                return self.inner(*args)
            return self._attend(*args)
        except BaseException as error:
            self._interrupted(error, sys._getframe(1))
            if is_end_of_data(error) and self._goes_on_at_the_end(error):
                return self._logs_for_keras(*args)
            raise
        finally:
            self._depth = 0

    def _beneath(self, *args: Any) -> Any:
        """Called from a wrapper that others have put around this adapter: go one further in."""
        self._depth += 1
        try:
            return self._functions[-self._depth](*args)
        finally:
            self._depth -= 1

    def _attend(self, *args: Any) -> Any:
        (iterator,) = args
        if self._end_to_come is not None:
            end, self._end_to_come = self._end_to_come, None
            raise end
        run, batches = self.run, self.run.batches
        allowed = 0 if run.signal else min(batches, run.before())
        if allowed == 0:
            run.stop("signal" if run.signal else "reached")
            return self._execute_nothing()
        logs = self._execute(iterator, allowed)
        self.epoch.missing += batches - allowed
        self.log_names = list(fetched(logs))
        run.after(logs, epoch_ends=self._is_last_of_epoch())
        if run.stop_reason is not None:
            self._break_off()
        if run.signal:
            run.attention_at = 0
        return logs

    def _execute_nothing(self) -> dict[str, Any]:
        self.run.executions -= 1
        if self.run.executions == 0:
            without_results(self.model)
        self._break_off()
        return {}

    def _break_off(self) -> None:
        """The run has been stopped between two batches of an epoch."""
        if self._backup is None or self._is_last_of_epoch() or self.run.stop_reason == "nan":
            return
        self.run.look()
        with self.run.variables.published():
            if self.run.is_done:
                self._backup.keep_moment()
                return
            self.is_suspended = True
            self._backup.suspend()
        skip_validation(self.model, self.call)

    def _execute(self, iterator: Any, batches: int) -> Any:
        return self.inner(self._cut(iterator, batches))

    def _cut(self, iterator: Any, batches: int) -> Any:
        if batches == self.run.batches:
            return iterator
        first = next(iterator)  # Keras on TensorFlow can't do with an iterator without a batch
        return itertools.chain((first,), itertools.islice(iterator, batches - 1))

    def __getattr__(self, name: str) -> Any:
        """What others look for on a train_function, such as its graph."""
        if name in ("inner", "run") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    # ------------------------------------------------------------ epochs and the end

    @_retired_by_errors
    def open_epoch(self, epoch: int) -> None:
        self.begin()
        if self.epoch.is_open or not self.is_under_way:
            return
        if self.model.train_function is not self:  # someone has had it made anew
            self._wrap()
        if self.run.executions == 0:  # other callbacks may have restored the counter
            self.run.start_again()
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
        if self.run.executions == 0:
            expected = preflight.expected_ends(self.run, self.params, epoch, resumed_at)
            self.run.expected_ends = expected
        self.run.epoch = epoch
        self.run.set_out()
        self.run.open_epoch()
        if self.run.signal:  # it came between two epochs
            self.run.attention_at = 0

    @_retired_by_errors
    def close_epoch(self) -> None:
        if self.epoch.is_open:
            self.epoch.is_open = False
            if self.is_suspended:
                return
            if self._backup is not None and not self.epoch_is_complete:
                self._backup.keep_moment()
            self.run.close_epoch()

    @_retired_by_errors
    def end_epoch(self, logs: Mapping[str, Any] | None) -> None:
        if self.epoch.has_ended:
            return
        self.close_epoch()
        self.epoch.has_ended = True
        if self.is_suspended:
            return
        results = scalars(logs)
        validation = {name: value for name, value in results.items() if name.startswith("val_")}
        self._last_logs = {n: value for n, value in results.items() if n not in validation}
        if validation:
            self.run.evaluated(validation)
        self.run.settle(self._last_logs)
        self.run.heed_signals()

    @_retired_by_errors
    def end(self) -> None:
        """Called by each callback's `on_train_end`; the first ends the run."""
        if self.is_under_way:
            self.is_under_way = False
            self._console.callbacks = None
            self.run.end(self._last_logs)
            self.retire()

    def retire(self) -> None:
        """Give the model its train_function back, and let what comes through pass."""
        self.is_under_way = False
        if self.has_begun:
            self.run.break_off()
        if not self._functions:
            return
        self.run.attention_at, self.run.deadline = NEVER, None
        if self.model.train_function is self:
            self.model.train_function = self.inner
        if len(self._functions) > 1:
            self._functions.pop()
            self.inner = self._functions[-1]

    @property
    def batches_done(self) -> int:
        """How many batches of the epoch have been trained on, here and before a restart."""
        return self.epoch.batches_done(self.run.executions, self.run.batches)

    @property
    def epoch_is_complete(self) -> bool:
        """Whether all batches of the epoch that was opened last are done, as far as is known."""
        if self.epoch.size:
            return self._is_last_of_epoch()
        return self.epoch.has_seen_the_end or not self.model.stop_training

    @property
    def training_data(self) -> TrainingData:
        """The data of this fit."""
        return training_data_of(self.model, self.call)

    def asks_no_more_than(self, epochs: int) -> bool:
        """Whether so many epochs, which are done, are all."""
        return self.call.epochs <= epochs

    @property
    def other_callbacks(self) -> list[Any]:
        """Those of the fit that are not of this library."""
        return [c for c in self.call.callbacks.callbacks if c not in self.callbacks]

    def is_running(self, frame: Any) -> bool:
        """Whether this fit is still going on, seen from a frame within it."""
        return any(call.callbacks is self.call.callbacks for call in calls_around(frame))

    @property
    def is_in_epoch(self) -> bool:
        """Whether executions of this fit are under way."""
        return self.is_under_way and self.epoch.is_open and is_within(self.call.callbacks)

    # ------------------------------------------------------------ details

    def _wrap(self) -> None:
        self.inner = self.model.train_function
        self._functions.append(self.inner)
        self.model.train_function = self

    def _replace_a_broken_off_one(self) -> None:
        other = self.model.train_function
        if not isinstance(other, FitAdapter):
            return
        if any(call.callbacks is other.call.callbacks for call in calls_around()):
            raise RuntimeError(
                f"fit of the model {self.model.name!r} was called within a fit of the same model "
                "that keras_steps callbacks follow. Fit another model there, or this one after "
                "the fit."
            )
        other.retire()

    def print_line(self, line: str) -> None:
        if self.run.is_chief:
            self._console.print_line(line)

    def _skip(self) -> None:
        limits = self.run.limits
        over = [c for c in self.run.clocks if c in limits and c.step >= limits[c]]
        step = max(clock.step for clock in over or self.run.clocks)
        self.run.print_line(f"already at step {step}")
        if over:
            self.run.stop("reached")
        skip_all_epochs(self.model, self.call)

    def _is_called_by_its_fit(self, caller: Any) -> bool:
        """Whether it is this adapter's fit that calls; if that has been broken off, retire.

        An interrupt between two executions ends fit without a word to its callbacks. What
        calls then is another fit, or `train_on_batch`. Within our fit, another one of the
        same model may be called, without callbacks of ours.
        """
        if is_within(self.call.callbacks, caller):
            return True
        if all(call.callbacks is not self.call.callbacks for call in calls_around(caller)):
            self.retire()
        return False

    def _interrupted(self, error: BaseException, caller: Any) -> None:
        if not is_end_of_data(error):
            self.retire()
            return
        if not self.is_under_way or not self._is_called_by_its_fit(caller):
            return
        self.epoch.has_seen_the_end = True
        self.run.executions -= 1
        if backend_of(self.model) in ("tensorflow", "tf_keras") and self.run.batches == 1:
            for clock in self.run.clocks:
                clock.take_back(self.run.executions)

    def _goes_on_at_the_end(self, error: BaseException) -> bool:
        """Whether the run was restored behind the last batch of an epoch of unknown size.

        Keras needs logs to end an epoch, if only their names, so the first execution gives it
        some, and the end of the data comes with the next one: TensorFlow draws random numbers
        at each end.
        """
        if self._backup is None or self.run.executions or not self.epoch.resumed_at:
            return False
        self.epoch.resumed_at, self._end_to_come = 0, error
        self._backup.data.found_end()
        return True

    def _logs_for_keras(self, *args: Any) -> Any:
        """What train_function returns behind the last batch; Keras reads the metrics."""
        assert self._resumption is not None
        return dict.fromkeys(self._resumption.log_names, 0.0)

    def _is_last_of_epoch(self) -> bool:
        return self.epoch.size is not None and self.batches_done >= self.epoch.size
