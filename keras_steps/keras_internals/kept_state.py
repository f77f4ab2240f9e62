"""What an evaluation in the middle of a fit would change, kept as it is."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from keras_steps.keras_internals.flavour import backend_of, held_by
from keras_steps.keras_internals.variables import is_purged, jax_state_in_flight

_ABSENT = object()


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Afterwards the random states of Python, NumPy and torch are as they were.

    torch draws from its own when a DataLoader is gone through, whatever the backend.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with _torch_forked():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def training_kept(model: Any, *, shares_arrays: bool = False) -> Iterator[None]:
    """Afterwards a fit that is under way goes on as if the model had not been evaluated.

    Evaluate resets the training metrics, a layer that samples in inference draws from seed
    generators, torch's modules stay in inference mode, tf_keras's `history` becomes that of
    the evaluation, and on JAX the variables are left without values by one that fails.

    Args:
        model: The model that is evaluated within.
        shares_arrays: Whether others may hold the arrays of its variables too. On JAX evaluate
            gives them away, so it gets copies.
    """
    if shares_arrays:
        for variable, array in _arrays_on_jax(model):
            variable.assign(array.copy())
    values = [(variable, _copies(variable)) for variable in _disturbed(model)]
    arrays = _arrays_on_jax(model)
    modes = {name: module.training for name, module in _torch_modules(model)}
    history = vars(model).get("history", _ABSENT)
    with random_states_kept():
        try:
            yield
        finally:
            _fill_purged(model, arrays)
            if len(_disturbed(model)) > len(values):  # metrics that the evaluation has built
                model.reset_metrics()
            for variable, copies in values:
                for part, copy in zip(_parts(variable), copies, strict=True):
                    part.assign(copy)
            for name, module in _torch_modules(model):  # Keras makes some of them anew
                if module.training != modes.get(name, modes[""]):
                    module.training = not module.training
            if history is not _ABSENT:
                model.history = history


def _torch_forked() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return nullcontext()
    cuda = torch.cuda.is_initialized()
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else [])


def _disturbed(model: Any) -> list[Any]:
    """Variables of the metrics, and of random generators."""
    if backend_of(model) == "tf_keras":
        generators = [getattr(m, "_random_generator", None) for m in model.submodules]
        held = [getattr(generator, "_generator", None) for generator in generators]
        metrics = [variable for metric in model.metrics for variable in metric.variables]
        return metrics + [generator.state for generator in held if generator is not None]
    weights = {id(variable) for variable in model.weights}
    seeds = [variable for variable in model.variables if id(variable) not in weights]
    return [*model.metrics_variables, *seeds]


def _parts(variable: Any) -> tuple[Any, ...]:
    """A variable, or what it has on each replica: partial sums do not survive their sum."""
    held = held_by(variable)
    replicas = getattr(held, "values", None)
    return replicas if isinstance(replicas, tuple) else (variable,)


def _copies(variable: Any) -> list[Any]:
    return [_copy(held_by(part)) for part in _parts(variable)]


def _copy(value: Any) -> Any:
    if hasattr(value, "read_value"):  # TensorFlow's tensors never change
        return value.read_value()
    if hasattr(value, "detach"):
        return value.detach().clone()
    return np.array(value)


def _torch_modules(model: Any) -> list[tuple[str, Any]]:
    """The modules by their names; the model's own is empty."""
    return list(model.named_modules()) if backend_of(model) == "torch" else []


def _arrays_on_jax(model: Any) -> list[tuple[Any, Any]]:
    """Each variable that evaluate hands to its state, with its array; not copied."""
    if backend_of(model) != "jax":
        return []
    variables = [
        *model.trainable_variables,
        *model.non_trainable_variables,
        *model.metrics_variables,
    ]
    return [(variable, variable._value) for variable in variables]


def _fill_purged(model: Any, arrays: list[tuple[Any, Any]]) -> None:
    """After an evaluation that failed on JAX, give the variables their values back.

    Its executions use the arrays up that they were given. Then the state of the last one has
    the values.
    """
    if not any(is_purged(variable) for variable, _ in arrays):
        return
    state = jax_state_in_flight(model)
    for variable, before in arrays:
        if state is not None and before.is_deleted():
            group, index = state.place(variable)
            before = state.state[group][index]
        variable.assign(before)
    model._jax_state, model._jax_state_synced = None, True
