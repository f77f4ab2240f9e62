"""What Keras has no public way for, in one place.

Each function names the reason and the versions it was seen in. The tests in
tests/test_keras_internals.py fail when Keras changes one of them. Seen in: Keras 3.12
and 3.15, tf_keras 2.21.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

_JAX_GROUPS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


def backend_of(model: Any) -> str:
    """The backend of a Keras 3 object, such as "jax"; "tf_keras" for one of tf_keras."""
    for base in type(model).__mro__:
        if base.__module__.partition(".")[0] == "tf_keras":
            return "tf_keras"
    return str(keras.backend.backend())


# ---------------------------------------------------------------- reading and assigning


def read_number(variable: Any) -> float:
    """The value of a scalar variable of any backend, strategy or flavour.

    `int(variable)` raises under MirroredStrategy, in both flavours; one replica's copy
    can be read, except of a variable that holds one partial sum a replica.
    """
    if isinstance(variable, (int, float)):  # what a callable learning rate returns
        return variable
    value = getattr(variable, "value", variable)
    if callable(value):  # tf.Variable.value is a method, keras.Variable.value is not
        value = variable
    replicas = getattr(value, "values", None)
    if isinstance(replicas, tuple) and replicas and "SyncOnRead" not in type(value).__name__:
        value = replicas[0]
    return value.item() if hasattr(value, "item") else value.numpy().item()


class Variables:
    """Reads and assigns variables that live in the model (TensorFlow, torch, tf_keras)."""

    def read(self, variable: Any) -> float:
        return read_number(variable)

    def assign(self, variable: Any, value: float) -> None:
        variable.assign(value)

    def require(self, variable: Any, asked_by: str) -> None:
        """Raise if the training step would not see what is assigned to `variable`."""

    @contextmanager
    def published(self) -> Iterator[None]:
        """Within it, the model holds its current values."""
        yield


class JaxState(Variables):
    """Variables of a JAX fit, which live in the state that goes in and out of train_function.

    Reading them through the model would sync all of it each time. Keras purges its
    variables at an epoch's first batch and fills them again at the epoch's end.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._places: dict[int, tuple[int, int]] = {}
        self.state: Any = None

    def read(self, variable: Any) -> float:
        if self.state is None:
            return read_number(variable)
        group, index = self.place(variable)
        return self.state[group][index].item()

    def assign(self, variable: Any, value: float) -> None:
        if self.state is None:
            variable.assign(value)
            return
        group, index = self.place(variable)
        values = list(self.state[group])
        values[index] = _placed_like(values[index], value)
        self.state = (*self.state[:group], values, *self.state[group + 1 :])

    def require(self, variable: Any, asked_by: str) -> None:
        try:
            self.place(variable)
        except LookupError:
            raise ValueError(
                f"{asked_by}: {variable!r} is no variable of the model or of its optimizer, so "
                "JAX's compiled training step takes its value for a constant. Make it an "
                "attribute of the model or the optimizer before the first fit."
            ) from None

    def place(self, variable: Any) -> tuple[int, int]:
        """Where in the state `variable` is; LookupError if it is no part of it."""
        if id(variable) not in self._places:
            model = self._model
            groups = (
                model.trainable_variables,
                model.non_trainable_variables,
                model.optimizer.variables,
                model.metrics_variables,
            )
            self._places.update(
                {id(v): (g, i) for g, group in enumerate(groups) for i, v in enumerate(group)}
            )
        return self._places[id(variable)]

    @contextmanager
    def published(self) -> Iterator[None]:
        if self.state is None:
            yield
            return
        model = self._model
        model._jax_state = dict(zip(_JAX_GROUPS, self.state, strict=True))
        model._jax_state_synced = False
        model.jax_state_sync()
        yield
        self.state = model._get_jax_state(
            **dict.fromkeys(_JAX_GROUPS, True), purge_model_variables=True
        )
        model._jax_state_synced = False


def _placed_like(array: Any, value: float) -> Any:
    """`value` as an array of the same type, on the same devices."""
    import jax

    new = keras.ops.convert_to_tensor(value, dtype=array.dtype)
    return new if len(array.sharding.device_set) == 1 else jax.device_put(new, array.sharding)


class CoordinatedVariables(Variables):
    """Variables on parameter servers: executions are scheduled, and done some time later.

    Between two joins the counter lags without a bound behind what was scheduled.
    """

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    def read(self, variable: Any) -> float:
        self._coordinator.join()
        return super().read(variable)


def variables_of(model: Any) -> Variables:
    """The way to the variables of `model` during its fit."""
    coordinator = getattr(model, "_cluster_coordinator", None)
    if coordinator is not None:
        return CoordinatedVariables(coordinator)
    return JaxState(model) if backend_of(model) == "jax" else Variables()


def fetched(logs: Any) -> Any:
    """The logs of an execution, brought here if they lie on a worker of a parameter server."""
    return logs.fetch() if hasattr(logs, "fetch") else logs


def jax_state_in_flight(model: Any) -> JaxState | None:
    """The state of a JAX fit that is under way, seen from another callback, if there is one."""
    held = getattr(model, "_jax_state", None)
    if not held or getattr(model, "_jax_state_synced", True):
        return None
    variables = JaxState(model)
    variables.state = tuple(held.get(group) for group in _JAX_GROUPS)
    return variables


def is_purged(variable: Any) -> bool:
    """Whether a Keras 3 variable on JAX has handed its value to the fit that is under way."""
    return getattr(variable, "_value", variable) is None


# ---------------------------------------------------------------- the optimizer


def is_optimizer(thing: Any) -> bool:
    """Whether it counts as optimizers do; asks without evaluating a property."""
    return hasattr(type(thing), "iterations") or "iterations" in getattr(thing, "__dict__", {})


def core_optimizer(optimizer: Any) -> Any:
    """The optimizer within all wrappers such as LossScaleOptimizer: the one that counts."""
    while getattr(optimizer, "inner_optimizer", None) is not None:
        optimizer = optimizer.inner_optimizer
    return optimizer


def is_loss_scaled(optimizer: Any) -> bool:
    """Whether a batch may bring no update since its gradients overflow.

    tf_keras's LossScaleOptimizer counts such a batch, Keras 3's does not.
    """
    return core_optimizer(optimizer) is not optimizer and backend_of(optimizer) != "tf_keras"


def counter_of(optimizer: Any) -> tuple[Any, int]:
    """The variable that counts, and how many of its counts make an update.

    Under gradient accumulation Keras 3's public `iterations` is a tensor computed from
    the private `_iterations`, which counts batches.
    """
    core = core_optimizer(optimizer)
    batches = int(getattr(core, "gradient_accumulation_steps", None) or 1)
    return (core._iterations if batches > 1 else core.iterations), batches


def learning_rate_source(optimizer: Any) -> Any:
    """What the learning rate comes from: a variable, a schedule or another callable.

    The public `learning_rate` of an optimizer with a schedule evaluates it, eagerly.
    """
    return getattr(core_optimizer(optimizer), "_learning_rate", None)


# ---------------------------------------------------------------- fit


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


def skip_all_epochs(model: Any, epochs: int) -> Any:
    """Let a fit that is at its train begin make no step, epoch or validation.

    `stop_training` set before the first batch lets one execution run. Returns what
    `restore_epochs` needs after the fit, or the next one would be skipped too.
    """
    if backend_of(model) == "tf_keras":
        model._maybe_load_initial_counters_from_ckpt = lambda steps, epoch: (epochs, 0)
        return None
    before = model._initial_epoch
    model._initial_epoch = epochs
    return before


def restore_epochs(model: Any, before: Any) -> None:
    """Undo `skip_all_epochs`."""
    if backend_of(model) == "tf_keras":
        del model._maybe_load_initial_counters_from_ckpt
    else:
        model._initial_epoch = before


def without_results(model: Any) -> None:
    """Let an epoch without a batch end: Keras 3 asks for metrics that no batch has built."""
    if backend_of(model) != "tf_keras":
        model.get_metrics_result = dict


def with_results(model: Any) -> None:
    """Undo `without_results`."""
    vars(model).pop("get_metrics_result", None)


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
    name = type(strategy).__name__.removesuffix("V1")
    mirrored = name == "MirroredStrategy"
    if mirrored and strategy.num_replicas_in_sync > 1 and steps_per_execution(model) > 1:
        return f"{name} with steps_per_execution > 1. Use steps_per_execution=1, or tf_keras"
    if not mirrored and name != "CentralStorageStrategy":
        return None
    if getattr(core_optimizer(optimizer), "gradient_accumulation_steps", None):
        return f"{name} with gradient accumulation. Use larger batches, or OneDeviceStrategy"
    if not mirrored and is_loss_scaled(optimizer):
        return f"{name} with LossScaleOptimizer. Use MirroredStrategy"
    return None


# ---------------------------------------------------------------- metrics and messages


def mean_metrics(model: Any) -> dict[str, Any]:
    """The model's metrics that are true means, under the names that fit's logs have.

    A metric is one if its `result` is Mean's own: RootMeanSquaredError has the same
    variables and takes a root. Keras 3 names compiled metrics only when it computes them.
    """
    found: dict[str, Any] = {}
    for metric in model.metrics:
        if hasattr(metric, "_flat_metrics"):
            found.update(_compiled_metrics(metric))
        else:
            found[metric.name] = metric
    return {name: metric for name, metric in found.items() if _is_mean(metric)}


def _compiled_metrics(compiled: Any) -> dict[str, Any]:
    """Keras 3's CompileMetrics: an output's name before, a number behind a second one."""
    found: dict[str, Any] = {}
    times: dict[str, int] = {}
    for weighted, groups in enumerate((compiled._flat_metrics, compiled._flat_weighted_metrics)):
        for group in filter(None, groups):
            prefix = f"{group.output_name}_" if group.output_name else ""
            for metric in group.metrics:
                name = prefix + metric.name
                if weighted and name in times:
                    name = f"{prefix}weighted_{metric.name}"
                before = times[name] = times.get(name, -1) + 1
                found[f"{name}_{before}" if before else name] = metric
    return found


def _is_mean(metric: Any) -> bool:
    if backend_of(metric) == "tf_keras":
        from tf_keras.metrics import Mean
    else:
        from keras.metrics import Mean
    return isinstance(metric, Mean) and type(metric).result is Mean.result


def callback_list(fit_frame: Any) -> Any:
    """The CallbackList of the fit whose frame this is; its callbacks have no way to it."""
    return fit_frame.f_locals.get("callbacks")


def progress_bar(callbacks: Any) -> Any:
    """The ProgbarLogger in a CallbackList, if there is one."""
    return getattr(callbacks, "_progbar", None)


class Console:
    """Prints lines where Keras's own messages go, never through its progress bar.

    The bar is redrawn in place and has no line break behind it while an epoch lasts. On a
    terminal a line takes the bar's place, and the bar is drawn again below; elsewhere it
    begins a line of its own.

    Args:
        model: Its flavour says whose messages.
    """

    def __init__(self, model: Any) -> None:
        self._is_tf_keras = backend_of(model) == "tf_keras"
        self._printed_at = 0.0
        self.callbacks: Any = None
        """The CallbackList of the fit that is under way."""

    def print_line(self, line: str) -> None:
        if hasattr(self.callbacks, "_flush_futures"):  # on JAX and torch threads draw the bar
            self.callbacks._flush_futures()
        if self._is_tf_keras:
            from tf_keras.src.utils import io_utils
        else:
            from keras.src.utils import io_utils
        if self._bar_is_up() and io_utils.is_interactive_logging_enabled():
            line = ("\r\x1b[K" if sys.stdout.isatty() else "\n") + line
        io_utils.print_msg(line)
        self._printed_at = time.time()

    def _bar_is_up(self) -> bool:
        bar = getattr(progress_bar(self.callbacks), "progbar", None)
        return bar is not None and bar.verbose == 1 and bar._last_update > self._printed_at
