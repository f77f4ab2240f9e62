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
from keras_steps.fit_position import FitPosition
from keras_steps.keras_internals import (
    Console,
    FitCall,
    backend_of,
    fetched,
    is_end_of_data,
    is_within,
    skip_all_epochs,
    start_at_epoch,
    without_results,
)
from keras_steps.reports import scalars
from keras_steps.run import Run
from keras_steps.train_function import StandIn
from keras_steps.training import FitTraining

if TYPE_CHECKING:
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


class FitAdapter(StandIn):
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
        super().__init__(model)
        self.call = call
        self.callbacks = callbacks
        self.thread = threading.get_ident()
        self.has_begun = self.is_under_way = False
        self.position = FitPosition(
            model, call, callbacks, self.print_line, cuts_last=self.cuts_last
        )
        self._last_logs: dict[str, float] = {}
        self._end_to_come: BaseException | None = None

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
        self.run.agreement.call_the_roll(
            {
                "what comes next": "fit",
                "batches an epoch": self.position.params.get("steps"),
                "batches an execution": self.run.batches,
                "epochs": [self.call.initial_epoch, self.call.epochs],
            }
        )
        first_epoch, is_over = self.position.begin(self.run)
        steps = [clock.step for clock in self.run.clocks]
        self.run.agreement.call_the_roll({"what comes next": "its first batch", "the step": steps})
        self.is_under_way = True
        if is_over:
            self.run.tell_that_it_is_over()
            skip_all_epochs(self.model, self.call)
            return
        for message in preflight.warnings_for(self.run, self.position.params, first_epoch):
            preflight.warn(message)
        start_at_epoch(self.model, self.call, first_epoch)
        self.position.go_on()
        self.wrap()

    def __call__(self, *args: Any) -> Any:
        if self._depth:
            self._refuse_in_a_firing()
            return self._beneath(*args)
        run = self.run
        run.executions += 1
        self._depth = 1
        try:
            if run.executions < run.attention_at and (
                run.deadline is None or clocks.now() < run.deadline
            ):
                return self.inner(*args)
            if run.is_firing or not self._is_called_by_its_fit(sys._getframe(1)):
                run.executions -= 1
                self._refuse_in_a_firing()
                return self.inner(*args)
            return self._attend(*args)
        except BaseException as error:
            self._interrupted(error, sys._getframe(1))
            if is_end_of_data(error) and self.position.goes_on_at_the_end():
                self._end_to_come = error
                return self._logs_for_keras(*args)
            raise
        finally:
            self._depth = 0

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
        self.position.epoch.missing += batches - allowed
        self.position.log_names = list(fetched(logs))
        run.after(logs, epoch_ends=self.position.is_last_of_epoch)
        if run.stop_reason is not None:
            self.position.break_off()
        if run.signal:
            run.attention_at = 0
        return logs

    def _execute_nothing(self) -> dict[str, Any]:
        self.run.executions -= 1
        if self.run.executions == 0:
            without_results(self.model)
        self.position.break_off()
        return {}

    def _execute(self, iterator: Any, batches: int) -> Any:
        return self.inner(self._cut(iterator, batches))

    def _cut(self, iterator: Any, batches: int) -> Any:
        if batches == self.run.batches:
            return iterator
        first = next(iterator)  # Keras on TensorFlow can't do with an iterator without a batch
        return itertools.chain((first,), itertools.islice(iterator, batches - 1))

    # ------------------------------------------------------------ epochs and the end

    @_retired_by_errors
    def open_epoch(self, epoch: int) -> None:
        self.begin()
        if self.position.epoch.is_open or not self.is_under_way:
            return
        if self.model.train_function is not self:  # someone has had it made anew
            self.wrap()
        if self.run.executions == 0:  # other callbacks may have restored the counter
            self.run.start_again()
        self.position.open_epoch(epoch)
        if self.run.executions == 0:
            params, resumed_at = self.position.params, self.position.epoch.resumed_at
            self.run.expected_ends = preflight.expected_ends(self.run, params, epoch, resumed_at)
        self.run.epoch = epoch
        self.run.set_out()
        self.run.open_epoch()
        if self.run.signal:  # it came between two epochs
            self.run.attention_at = 0

    @_retired_by_errors
    def close_epoch(self) -> None:
        if self.position.epoch.is_open:
            self.position.close_epoch()
            if not self.position.is_suspended:
                self.run.close_epoch()

    @_retired_by_errors
    def end_epoch(self, logs: Mapping[str, Any] | None) -> None:
        if self.position.epoch.has_ended:
            return
        self.close_epoch()
        self.position.epoch.has_ended = True
        if self.position.is_suspended:
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
        if self._functions:
            self.run.attention_at, self.run.deadline = NEVER, None
            self.unwrap()

    @property
    def is_in_epoch(self) -> bool:
        """Whether executions of this fit are under way."""
        is_open = self.is_under_way and self.position.epoch.is_open
        return is_open and is_within(self.call.callbacks)

    # ------------------------------------------------------------ details

    def _replace_a_broken_off_one(self) -> None:
        other = self.model.train_function
        if not isinstance(other, FitAdapter):
            return
        if other.call.is_around():
            raise RuntimeError(
                f"fit of the model {self.model.name!r} was called within a fit of the same model "
                "that keras_steps callbacks follow. Fit another model there, or this one after "
                "the fit."
            )
        other.retire()

    def _refuse_in_a_firing(self) -> None:
        """Updates that an action makes would be counted as the fit's, in the middle of its step."""
        if self.run.is_firing:
            raise RuntimeError(
                f"an action at a step of the fit of {self.model.name!r} trains the same model, by "
                "train_on_batch or another fit. Train another model there, or this one between "
                "two epochs, in on_epoch_end."
            )

    def print_line(self, line: str) -> None:
        if self.run.is_chief:
            self._console.print_line(line)

    def _is_called_by_its_fit(self, caller: Any) -> bool:
        """Whether it is this adapter's fit that calls; if that has been broken off, retire.

        An interrupt between two executions ends fit without a word to its callbacks. What
        calls then is another fit, or `train_on_batch`. Between two epochs of our fit another
        one of the same model may be called, without callbacks of ours.
        """
        if is_within(self.call.callbacks, caller):
            return True
        if not self.call.is_around(caller):
            self.retire()
        return False

    def _interrupted(self, error: BaseException, caller: Any) -> None:
        if not is_end_of_data(error):
            self.retire()
            return
        if not self.is_under_way or not self._is_called_by_its_fit(caller):
            return
        self.position.epoch.has_seen_the_end = True
        self.run.executions -= 1
        if backend_of(self.model) in ("tensorflow", "tf_keras") and self.run.batches == 1:
            for clock in self.run.clocks:
                clock.take_back(self.run.executions)

    def _logs_for_keras(self, *args: Any) -> Any:
        return self.position.logs_for_keras()
