"""Reading and assigning variables, wherever they live during a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from keras_steps.keras_internals.flavour import backend_of, held_by

_JAX_GROUPS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


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
    return value.item() if hasattr(type(value), "item") else value.numpy().item()


class Variables:
    """Reads and assigns variables that live in the model (TensorFlow, torch, tf_keras)."""

    def read(self, variable: Any) -> float:
        return read_number(variable)

    def assign(self, variable: Any, value: float) -> None:
        """Set a scalar. TensorFlow's bare operation costs a quarter of Keras 3's `assign`.

        TensorFlow keeps a tensor for good of each Python number that it is given, and none
        of a NumPy one.
        """
        number = np.asarray(value, str(getattr(variable.dtype, "name", variable.dtype)))
        held = held_by(variable)
        if type(held).__name__ == "ResourceVariable":
            import tensorflow as tf

            tf.raw_ops.AssignVariableOp(resource=held.handle, value=tf.constant(number))
        else:
            variable.assign(number)

    def holds(self, variable: Any) -> bool:
        """Whether the training step sees what is assigned to `variable`, and may change it."""
        return True

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

    def holds(self, variable: Any) -> bool:
        try:
            self.place(variable)
        except LookupError:
            return False
        return True

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

    def hand_back(self) -> None:
        """Give the model the values that the state holds, if an execution has not used them up."""
        arrays = [array for group in self.state or () for array in group]
        if arrays and not any(array.is_deleted() for array in arrays):
            self._model._jax_state = dict(zip(_JAX_GROUPS, self.state, strict=True))
            self._model._jax_state_synced = False
            self._model.jax_state_sync()

    @contextmanager
    def published(self) -> Iterator[None]:
        if self.state is None:
            yield
            return
        model = self._model
        self.hand_back()
        self.state = None
        yield
        self.state = model._get_jax_state(
            **dict.fromkeys(_JAX_GROUPS, True), purge_model_variables=True
        )
        model._jax_state_synced = False


def _placed_like(array: Any, value: float) -> Any:
    """`value` as an array of the same type, on the same devices."""
    import jax

    new = jax.numpy.asarray(np.asarray(value, array.dtype))
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


def is_coordinated(model: Any) -> bool:
    """Whether fit of `model` schedules steps for the workers of parameter servers."""
    return getattr(model, "_cluster_coordinator", None) is not None


def variables_of_loop(model: Any) -> Variables:
    """The way to the variables of `model`, or of none, in a loop of one's own.

    On parameter servers a ClusterCoordinator, of which there is one a strategy, may have steps
    under way. Seen in TensorFlow 2.21.
    """
    strategy = getattr(model, "distribute_strategy", None)
    coordinator = getattr(strategy, "_cluster_coordinator", None)
    return Variables() if coordinator is None else CoordinatedVariables(coordinator)


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
    return held_by(variable) is None
