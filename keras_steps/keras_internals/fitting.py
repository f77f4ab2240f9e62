"""How fit goes through its epochs and executions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keras_steps.keras_internals.fit_call import FitCall, is_within
from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.optimizers import core_optimizer, is_loss_scaled
from keras_steps.keras_internals.variables import read_number


def steps_per_execution(model: Any) -> int:
    """Batches a call of train_function (tf_keras keeps a tf.Variable of it, or None)."""
    value = getattr(model, "steps_per_execution", None)
    if value is None:
        value = getattr(model, "_steps_per_execution", None)
    return int(read_number(value)) if hasattr(value, "numpy") else int(value or 1)


@contextmanager
def batches_set_to(model: Any, batches: int) -> Iterator[None]:
    """Within it, an execution of tf_keras has so many batches: it reads them from a variable."""
    usual = steps_per_execution(model)
    model._steps_per_execution.assign(batches)
    try:
        yield
    finally:
        model._steps_per_execution.assign(usual)


def has_keras_train_step(model: Any) -> bool:
    """Whether each batch is one call of the optimizer, as in Keras's own train_step."""
    owner = next(base for base in type(model).__mro__ if "train_step" in vars(base))
    return owner.__module__.partition(".")[0] in ("keras", "tf_keras")


def is_compiled(model: Any) -> bool:
    """Whether `compile` was called, so that the model can be evaluated (tf_keras: private)."""
    return bool(getattr(model, "compiled", getattr(model, "_is_compiled", False)))


def skip_all_epochs(model: Any, call: FitCall) -> None:
    """Let a fit that is at its train begin make no step, epoch or validation.

    `stop_training` set before the first batch lets one execution run.
    """
    start_at_epoch(model, call, call.epochs)


def start_at_epoch(model: Any, call: FitCall, epoch: int) -> None:
    """Let a fit that is at its train begin start with a later epoch than it was asked to.

    What is set here undoes itself when it is read, and speaks for this fit only: another
    callback may break the fit off before.

    Args:
        model: The model that is trained.
        call: The call of its fit.
        epoch: The first epoch to be made, counted from 0; fit's `epochs` and more: none is made.
    """
    if epoch <= call.initial_epoch:
        return
    if backend_of(model) != "tf_keras":
        model._initial_epoch = _InitialEpochOnce(model, call, epoch)
        return
    theirs = model._maybe_load_initial_counters_from_ckpt

    def once(steps: Any, initial_epoch: int) -> tuple[int, int]:
        vars(model).pop("_maybe_load_initial_counters_from_ckpt", None)
        return (epoch, 0) if is_within(call.callbacks) else theirs(steps, initial_epoch)

    model._maybe_load_initial_counters_from_ckpt = once


class _InitialEpochOnce(int):
    """What Keras 3 reads in `self._initial_epoch or initial_epoch`, once."""

    def __new__(cls, model: Any, call: FitCall, epoch: int) -> _InitialEpochOnce:
        self = super().__new__(cls, epoch)
        self.model, self.callbacks, self.before = model, call.callbacks, model._initial_epoch
        return self

    model: Any
    callbacks: Any
    before: Any

    def __bool__(self) -> bool:
        self.model._initial_epoch = self.before
        return is_within(self.callbacks)


def skip_validation(model: Any, call: FitCall) -> None:
    """Let a fit not validate at the end of the epoch under way, where it would.

    This undoes itself when Keras asks whether to validate, and speaks for this fit only.
    """
    theirs = model._should_eval

    def once(epoch: int, validation_freq: Any) -> bool:
        vars(model).pop("_should_eval", None)  # one may be left of a fit that was broken off
        return not is_within(call.callbacks) and theirs(epoch, validation_freq)

    model._should_eval = once


def without_results(model: Any) -> None:
    """Let an epoch without a batch end: Keras 3 asks for metrics that no batch has built."""
    if backend_of(model) == "tf_keras":
        return

    def once() -> dict[str, Any]:
        vars(model).pop("get_metrics_result", None)
        return {}

    model.get_metrics_result = once


def results_without_logs(model: Any) -> None:
    """Let an epoch of torch's end with what the metrics hold, though no batch gave logs.

    That is so where fit was resumed behind the last batch of data of unknown size: torch's
    fit finds the end without train_function. Keras asks for the results once an epoch.
    """
    if backend_of(model) != "torch":
        return
    theirs = model._get_metrics_result_or_logs

    def once(logs: Any) -> Any:
        vars(model).pop("_get_metrics_result_or_logs", None)
        return theirs(logs) if logs else model.get_metrics_result()

    model._get_metrics_result_or_logs = once


def reads_attributes_each_step(model: Any) -> bool:
    """Whether the training step is plain Python, which sees an attribute that was set."""
    uncompiled = backend_of(model) == "torch" and getattr(model, "jit_compile", False) is not True
    return bool(model.run_eagerly) or uncompiled


def is_end_of_data(error: BaseException) -> bool:
    """Whether `error` is how an iterator tells train_function that it is exhausted."""
    return isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"


def cannot_run(model: Any, optimizer: Any) -> str | None:
    """What of this combination fails within Keras 3's own training step, and what does not.

    Seen in 3.12 and 3.15 on TensorFlow, as errors from the tracing of a graph.
    """
    if backend_of(model) != "tensorflow":
        return None
    strategy = model.distribute_strategy
    name = exported_name(type(strategy).__name__.removesuffix("V1"))
    mirrored = name in ("MirroredStrategy", "MultiWorkerMirroredStrategy")
    if mirrored and strategy.num_replicas_in_sync > 1 and steps_per_execution(model) > 1:
        return f"{name} with steps_per_execution > 1. Use steps_per_execution=1, or tf_keras"
    if not mirrored and name != "CentralStorageStrategy":
        return None
    if getattr(core_optimizer(optimizer), "gradient_accumulation_steps", None):
        return f"{name} with gradient accumulation. Use larger batches, or OneDeviceStrategy"
    if not mirrored and is_loss_scaled(optimizer):
        return f"{name} with LossScaleOptimizer. Use MirroredStrategy"
    return None


def exported_name(words: str) -> str:
    """Words with the names of strategies that users know. (TensorFlow 2.21)"""
    return words.replace("CollectiveAllReduceStrategy", "MultiWorkerMirroredStrategy")
