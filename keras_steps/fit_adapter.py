"""The way into Keras's fit: what happens before and after each execution."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from keras_steps import clock as clocks
from keras_steps import preflight
from keras_steps.clock import NEVER
from keras_steps.keras_internals import (
    Console,
    JaxState,
    backend_of,
    batches_set_to,
    callback_list,
    is_end_of_data,
    restore_epochs,
    skip_all_epochs,
    steps_per_execution,
    variables_of,
    with_results,
    without_results,
)
from keras_steps.reports import scalars
from keras_steps.run import Run

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback

_fits: WeakKeyDictionary[Any, FitAdapter] = WeakKeyDictionary()


def enroll(callback: StepCallback, model: Any, params: dict[str, Any] | None) -> None:
    """Put a callback on the list for the fit whose parameters these are.

    Keras hands one and the same dict to all callbacks of a fit, before any of them is
    told that training begins.
    """
    fit = _fits.get(model)
    if fit is None or fit.params is not params or fit.has_begun:
        fit = _fits[model] = FitAdapter(model, params or {}, broken_off=fit)
    if callback not in fit.callbacks:
        fit.callbacks.append(callback)


def arrive(callback: StepCallback, model: Any) -> FitAdapter:
    """Tell that Keras has called `on_train_begin`; the run begins with the last to arrive."""
    fit = _fits[model]
    fit.arrived.add(id(callback))
    if len(fit.arrived) == len(fit.callbacks) and not fit.has_begun:
        fit.begin()
    return fit


class FitAdapter:
    """Stands in for `model.train_function` between train begin and train end.

    That is the one place that sees every execution, before and after, in order, on the
    main thread. A hook at the end of each batch would switch Keras's asynchronous
    dispatch off on JAX and torch.
    """

    def __new__(cls, model: Any, *args: Any, **kwargs: Any) -> FitAdapter:
        kinds = {"jax": _JaxFit, "tf_keras": _TfKerasFit}
        return super().__new__(kinds.get(backend_of(model), cls))

    def __init__(
        self, model: Any, params: dict[str, Any], broken_off: FitAdapter | None = None
    ) -> None:
        self.model = model
        self._broken_off = broken_off
        self.params = params
        self.callbacks: list[StepCallback] = []
        self.arrived: set[int] = set()
        self.has_begun = self.is_under_way = False
        self._epoch_is_open = False
        self._epoch_began_at = 0
        self._epoch_has_ended = True
        self._last_logs: dict[str, float] = {}
        self._skipped: Any = None
        self._is_skipped = False
        self._fit_frame: Any = None

    def begin(self) -> None:
        """Begin the run; from here on `model.train_function` is this adapter."""
        self.has_begun = True
        if self._broken_off is not None:
            self._broken_off.retire()
            self._broken_off = None
        batches = steps_per_execution(self.model)
        self.run = Run(self.model, self.callbacks, variables_of(self.model), batches)
        self._console = Console(self.model)
        self.run.print_line = self._print_line
        self.run.begin()
        self.is_under_way = True
        for message in preflight.warnings_for(self.run, self.params):
            preflight.warn(message)
        if self.run.is_over:
            self._skip()
            return
        self._wrap()

    def __call__(self, *args: Any) -> Any:
        run = self.run
        run.executions += 1
        try:
            if run.executions < run.attention_at and (
                run.deadline is None or clocks.now() < run.deadline
            ):
                return self.inner(*args)
            if self._is_left_over(sys._getframe(1)):
                self.retire()
                return self.inner(*args)
            return self._attend(*args)
        except BaseException as error:
            self._interrupted(error)
            raise

    def _attend(self, *args: Any) -> Any:
        (iterator,) = args
        batches = self.run.before()
        if batches == 0:
            self.run.executions -= 1
            self.run.stop("reached")
            if self.run.executions == 0:
                without_results(self.model)
            return {}
        logs = self._execute(iterator, batches)
        self.run.after(logs, epoch_ends=self._is_last_of_epoch())
        return logs

    def _execute(self, iterator: Any, batches: int) -> Any:
        return self.inner(self._cut(iterator, batches))

    def _cut(self, iterator: Any, batches: int) -> Any:
        return iterator if batches == self.run.batches else itertools.islice(iterator, batches)

    def __getattr__(self, name: str) -> Any:
        """What others look for on a train_function, such as its graph."""
        if name in ("inner", "run") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    # ------------------------------------------------------------ epochs and the end

    def open_epoch(self, epoch: int) -> None:
        if self._epoch_is_open or not self.is_under_way:
            return
        if self.model.train_function is not self:  # someone has had it made anew
            self._wrap()
        if self.run.executions == 0:  # other callbacks may have restored the counter
            self.run.start()
            self.run.expected_ends = preflight.expected_ends(self.run, self.params, epoch)
        self._epoch_is_open, self._epoch_has_ended = True, False
        self._epoch_began_at = self.run.executions
        self.run.epoch = epoch
        self.run.open_epoch()

    def close_epoch(self) -> None:
        if self._epoch_is_open:
            self._epoch_is_open = False
            self.run.close_epoch()

    def end_epoch(self, logs: Mapping[str, Any] | None) -> None:
        if self._epoch_has_ended:
            return
        self.close_epoch()
        self._epoch_has_ended = True
        results = scalars(logs)
        validation = {name: value for name, value in results.items() if name.startswith("val_")}
        self._last_logs = {n: value for n, value in results.items() if n not in validation}
        if validation:
            self.run.evaluated(validation)
        self.run.settle(self._last_logs)

    def end(self) -> None:
        """Called by each callback's `on_train_end`; the first ends the run."""
        if self.is_under_way:
            self.is_under_way = False
            self._console.callbacks = None
            try:
                self.run.end(self._last_logs)
            finally:
                self.retire()

    def retire(self) -> None:
        """Give the model its train_function back, and let what comes through pass."""
        if not hasattr(self, "run"):
            return
        self.is_under_way = False
        self._fit_frame = None
        self.run.attention_at, self.run.deadline = NEVER, None
        if self.model.train_function is self:
            self.model.train_function = self.inner
        with_results(self.model)
        if self._is_skipped:
            self._is_skipped = False
            restore_epochs(self.model, self._skipped)
        if _fits.get(self.model) is self:
            del _fits[self.model]

    # ------------------------------------------------------------ details

    def _wrap(self) -> None:
        self.inner = self.model.train_function
        self.model.train_function = self

    def _print_line(self, line: str) -> None:
        if self.run.is_chief:
            self._console.print_line(line)

    def _skip(self) -> None:
        for clock, last_step in self.run.limits.items():
            if clock.step >= last_step:
                self.run.print_line(f"already at step {clock.step}")
                break
        self.run.stop_reason = "reached"
        self.inner = self.model.train_function
        self._skipped = skip_all_epochs(self.model, self.params.get("epochs") or 0)
        self._is_skipped = True

    def _is_left_over(self, caller: Any) -> bool:
        """Whether the fit that this adapter belongs to was broken off outside of it.

        An interrupt between two executions ends fit without a word to its callbacks. What
        calls then is another fit, or `train_on_batch`.
        """
        if self._fit_frame is None:
            self._fit_frame = caller
            self._console.callbacks = callback_list(caller)
        return caller is not self._fit_frame

    def _interrupted(self, error: BaseException) -> None:
        if not is_end_of_data(error):
            self.retire()
            return
        self.run.executions -= 1
        if backend_of(self.model) in ("tensorflow", "tf_keras") and self.run.batches == 1:
            for clock in self.run.clocks:
                clock.take_back(self.run.executions)

    def _is_last_of_epoch(self) -> bool:
        steps = self.params.get("steps")
        if not steps:
            return False
        return self.run.executions - self._epoch_began_at >= -(-steps // self.run.batches)


class _JaxFit(FitAdapter):
    """On JAX the model's variables go through train_function as its state."""

    def _attend(self, *args: Any) -> Any:
        variables = self._state
        variables.state, iterator = args
        try:
            logs = super()._attend(iterator)
            return logs, variables.state
        except BaseException as error:
            if not is_end_of_data(error):
                variables.hand_back()
            raise
        finally:
            variables.state = None

    def _execute(self, iterator: Any, batches: int) -> Any:
        variables = self._state
        logs, variables.state = self.inner(variables.state, self._cut(iterator, batches))
        return logs

    @property
    def _state(self) -> JaxState:
        assert isinstance(self.run.variables, JaxState)
        return self.run.variables


class _TfKerasFit(FitAdapter):
    """tf_keras reads how many batches an execution has from a variable."""

    def _execute(self, iterator: Any, batches: int) -> Any:
        if batches >= steps_per_execution(self.model):  # Keras may have cut it by itself
            return self.inner(iterator)
        with batches_set_to(self.model, batches):
            return self.inner(iterator)
