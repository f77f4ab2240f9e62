"""StepCallback: the face that every callback of this library shows to Keras."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

import keras

from keras_steps.fit_flavours import arrive
from keras_steps.global_step import find_optimizer
from keras_steps.keras_internals import is_within
from keras_steps.run import Run
from keras_steps.triggers import Trigger, as_trigger

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class Order(IntEnum):
    """Who comes first at a step, whatever the order in `callbacks=[...]`."""

    NAN = 0
    EVALUATE = 1
    REPORT = 2
    EARLY_STOP = 3
    CHECKPOINT = 4
    STOP = 5
    BACKUP = 6


class StepCallback(keras.callbacks.Callback):
    """Does something at the steps that a trigger names. Subclass it, override `on_step`.

    It goes into `callbacks=[...]` of `fit`, of Keras 3 or tf_keras, and follows the
    optimizer's counter: under `steps_per_execution`, gradient accumulation or loss
    scaling it fires when a step of its grid has been reached, once.

    A subclass names what it has as it likes: an `apply`, a `restore` or a `last_step` of its own
    means nothing to a run. Taken are, beside what can be overridden below and what Keras's
    Callback has, `trigger`, `optimizer`, `order`, `looks_first`, `decides_by_results`, `prepare`,
    `begin`, `before_first_update`, `rewound`, `end`, `break_off`, `refuse_loop`,
    `last_step_from`, `optimizer_of` and `_fit`.

    Args:
        every: When to fire: an interval in steps, or a trigger. None is for subclasses without
            an `on_step`: they have only `on_evaluation`.
        optimizer: Whose counter to follow in a model with several optimizers: the name
            of the model's attribute, or a function from the model to the optimizer.
            Default: `model.optimizer`.

    Raises:
        ValueError: If `every` is less than 1.
        TypeError: If `every` is neither an integer nor a trigger, or `optimizer` neither
            a name nor a function.

    Example:

    >>> class WeightNorm(StepCallback):
    ...     def on_step(self, step, logs):
    ...         norm = sum((w**2).sum() for w in self.model.get_weights()) ** 0.5
    ...         print(f"step {step}: {norm:.3f}")
    >>> callback = WeightNorm(every=100)
    """

    order: ClassVar[Order] = Order.REPORT
    at_start: bool = False
    """Whether a fresh run fires at step 0 too, before its first update."""
    at_end: bool = False
    """Whether the last step of a run that is done fires too, if it did not by itself."""
    uses_model: bool = True
    """Whether `on_step` looks at the model, which on JAX has to be given its values first."""

    looks_first: ClassVar[bool] = False
    """Whether it is called at an epoch's last step without waiting for the validation."""

    decides_by_results: ClassVar[bool] = False
    """Whether metrics or evaluations decide what it does to the run."""

    _supports_tf_logs = True  # tf_keras: batch logs may stay tensors
    _fit: Any = None

    def __init__(
        self,
        every: int | Trigger | None = None,
        *,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        never_fires = every is None and type(self).on_step is StepCallback.on_step
        self.trigger = None if never_fires else as_trigger(every, f"{name}(every)")
        self.optimizer = _checked_optimizer(optimizer, self)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        """Called when due, after the update that reached or passed a grid point.

        Args:
            step: The global step.
            logs: A dict of one's own: means over the steps since the last call, the
                learning rate of the last update, values of StepScheduled, steps and
                examples a second, the epoch (from 0), and the evaluations made at this step.
        """

    def on_evaluation(self, step: int, logs: dict[str, float]) -> None:
        """Called with the results of an evaluation, at the step where it was made."""

    def get_state(self) -> dict[str, Any]:
        """What of this callback a run that goes on after a restart must know.

        Dicts, lists and tuples of numbers, strings, None and arrays (of NumPy, JAX, torch or
        TensorFlow), which a backup gives back as they were. It refuses anything else at train
        begin, or as soon as it is there.
        """
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `get_state` gave."""

    def prepare(self, run: Run) -> None:
        """Called before the run's clocks are there; what another run has left is not its own."""

    def begin(self, run: Run) -> None:
        """Called once all callbacks of a run are there, before its first step."""

    def before_first_update(self, run: Run) -> None:
        """Called when it is certain from which step the run goes on, before it does."""

    def rewound(self, run: Run) -> None:
        """Called when a rollback has taken the run back to an earlier step; see `set_state`."""

    def end(self, run: Run) -> None:
        """Called after the last firing of a run that ended without an error."""

    def break_off(self, run: Run) -> None:
        """Called instead after an error or interrupt: close what is open, let go of what is held.

        At once, if that came through a training step or a callback of this library; else before
        the next fit or training step. The model may not be usable.
        """

    def refuse_loop(self, training: LoopTraining) -> None:
        """Raise ValueError if this callback can do nothing in such a loop of one's own."""

    def last_step_from(self, step: int) -> int | None:
        """The step at which this callback ends a run that begins at `step`, if it does."""
        return None

    def optimizer_of(self, model: Any) -> Any:
        """The optimizer whose counter this callback follows."""
        return find_optimizer(model, self.optimizer, type(self).__name__)

    # What Keras calls.

    def on_train_begin(self, logs: Any = None) -> None:
        self._fit = arrive(self, StepCallback)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._fit is None:  # a subclass has overridden on_train_begin
            self._fit = arrive(self, StepCallback)
        self._fit.open_epoch(epoch)

    def on_test_begin(self, logs: Any = None) -> None:
        if self._fit is not None and is_within(self._fit.call.callbacks):
            self._fit.close_epoch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.end_epoch(logs)

    def on_train_end(self, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.end()
            self._fit = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no fit."""
        return {**vars(self), "_fit": None, "_model": None}

    # What tf_keras asks of a callback that is none of its own.

    def _implements_train_batch_hooks(self) -> bool:
        return False

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


def _checked_optimizer(optimizer: Any, callback: StepCallback) -> Any:
    if optimizer is None or isinstance(optimizer, str) or callable(optimizer):
        return optimizer
    raise TypeError(
        f"{type(callback).__name__}(optimizer) must be the name of the model's attribute, or a "
        f"function from the model to its optimizer; received {optimizer!r}."
    )
