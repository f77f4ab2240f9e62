"""Who takes part in a run and which of them writes; models that workers can train."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from typing import Any

import keras

from keras_steps.keras_internals import (
    backend_of,
    cure,
    exported_name,
    held_by,
    is_multi_worker,
    strategy_of,
)

__all__ = ["is_chief", "prepare"]


def is_chief(model: Any = None) -> bool:
    """Whether this process is the one that writes lines and files.

    Under TensorFlow's strategies it is the chief, or worker 0 where there is none; on JAX
    process 0; on torch rank 0. A run of one process is its own chief.

    Args:
        model: The model that is trained. Its strategy answers for TensorFlow; without
            a model the environment variable `TF_CONFIG` does.

    Example:

    >>> is_chief()
    True
    """
    backend = joining_backend(model)
    if backend == "jax":
        return int(sys.modules["jax"].process_index()) == 0
    if backend == "torch":
        group = sys.modules["torch"].distributed
        return not (group.is_available() and group.is_initialized()) or group.get_rank() == 0
    return _is_chief_of_cluster(*_tensorflow_task(model))


def strategy_name(model: Any) -> str:
    """What a model is trained under, in words: those with one replica compute alike.

    Args:
        model: A compiled model.

    Example:

    >>> import keras
    >>> strategy_name(keras.Sequential())
    'one replica'
    """
    if backend_of(model) == "torch":
        number = seat_of(model).count
        return "one replica" if number == 1 else f"torch.distributed over {number} processes"
    if backend_of(model) == "jax":
        strategy = keras.distribution.distribution()
        number = 1 if strategy is None else math.prod(strategy.device_mesh.shape)
    else:
        strategy = getattr(model, "distribute_strategy", None)
        number = 1 if strategy is None else strategy.num_replicas_in_sync
    kind = exported_name(type(strategy).__name__)
    return "one replica" if number == 1 else f"{kind} over {number} devices"


@dataclass(frozen=True)
class Seat:
    """The place of this process among those that train one model together.

    Attributes:
        index: Its number, from 0.
        count: How many there are.
    """

    index: int
    count: int


def seat_of(model: Any) -> Seat:
    """Where this process is among the workers that call fit together.

    The coordinator of parameter servers calls fit alone, whatever its cluster.

    Args:
        model: The model that is trained, or what a loop without one has `in_place_of_model`.
    """
    backend = joining_backend(model)
    if backend == "jax":
        jax = sys.modules["jax"]
        return Seat(int(jax.process_index()), int(jax.process_count()))
    if backend == "torch":
        group = sys.modules["torch"].distributed
        if not (group.is_available() and group.is_initialized()):
            return Seat(0, 1)
        return Seat(int(group.get_rank()), int(group.get_world_size()))
    strategy = getattr(model, "distribute_strategy", None)
    kinds = {kind.__name__ for kind in type(strategy).__mro__}
    if not kinds & {"CollectiveAllReduceStrategy", "MultiWorkerMirroredStrategy"}:
        return Seat(0, 1)
    cluster, job, index = _tensorflow_task(model)
    if job is None or not cluster:
        return Seat(0, 1)
    chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
    return Seat(int(index or 0) + (chiefs if job == "worker" else 0), chiefs + workers)


def joining_backend(model: Any) -> str:
    """Whose collectives join the processes: "jax", "torch", or one on TensorFlow.

    Args:
        model: The model that is trained; without one, what has been initialized answers.
    """
    if model is not None:
        return backend_of(model)
    return next((name for name in ("jax", "torch") if _is_initialized(name)), "tensorflow")


@dataclass(frozen=True)
class Placed:
    """What says, as a model does, under which strategy of TensorFlow something is trained."""

    distribute_strategy: Any


def in_place_of_model(counter: Any) -> Placed | None:
    """What to ask for the workers of a loop that has no model; None: nothing says it.

    Args:
        counter: The variable that counts its steps. It was made under the loop's strategy, or
            the loop in the scope of that.
    """
    if joining_backend(None) != "tensorflow" or "tensorflow" not in sys.modules:
        return None
    distribute = sys.modules["tensorflow"].distribute
    here = distribute.get_strategy() if distribute.has_strategy() else None
    strategy = getattr(held_by(counter), "distribute_strategy", here)
    return None if strategy is None else Placed(strategy)


def refuse_unknown_workers(asked: Any) -> None:
    """Raise if there are others to agree with on a time, and no way to them.

    Args:
        asked: The model, or `in_place_of_model`.
    """
    if asked is not None or joining_backend(None) != "tensorflow":
        return
    cluster = _tensorflow_task(None)[0]
    number = sum(len(cluster.get(job, ())) for job in ("chief", "master", "worker"))
    if number > 1 and "ps" not in cluster:
        raise ValueError(
            f"TF_CONFIG names {number} workers, and this loop has neither a model nor a variable "
            "of their strategy, by which they could agree on a time: each would go by its own "
            "clock. Make the StepLoop within `with strategy.scope():`, or pass it the model."
        )


def metrics_are_shared(model: Any) -> bool:
    """Whether Keras's metrics of a model are those of all processes: torch's are each one's own."""
    backend = backend_of(model)
    if backend == "jax":
        return keras.distribution.distribution() is not None
    return backend != "torch"


def prepare(model: Any) -> Any:
    """Let a model of Keras 3 be trained under TensorFlow's MultiWorkerMirroredStrategy.

    There Keras 3 fails by itself, before any callback is called. Call this on the model
    within the strategy's scope or after it, before or after `compile`; then fit, evaluate,
    `validation_data` and the methods for one batch work, for Sequential, functional and
    subclassed models, with mixed precision too. The same script in one process is left as it
    is: without a strategy, under one that Keras 3 can use, on other backends and for tf_keras
    this does nothing. It does nothing a second time either, and is not saved with the model:
    a model that is loaded, cloned or copied is prepared anew.

    Args:
        model: The model, made in the strategy's scope.

    Returns:
        The same model.

    Raises:
        TypeError: If it is no model.
        RuntimeError: If it is needed and was not tried with this version of Keras.
        ValueError: If the model was made outside of the scope, if Keras 3 can't train under
            its strategy at all (ParameterServerStrategy), or for what fails even so:
            `steps_per_execution` above 1 and gradient accumulation. What is compiled
            afterwards is refused as fit begins.

    Example:

    >>> import keras
    >>> model = prepare(keras.Sequential([keras.layers.Dense(1)]))
    >>> model.compile("sgd", "mse")
    """
    if isinstance(model, type) or not hasattr(model, "fit"):
        raise TypeError(
            f"prepare takes a Keras model, and returns it; received {model!r}. compile returns "
            "None: model.compile(...) first, or afterwards, on a line of its own."
        )
    if backend_of(model) != "tensorflow":
        return model
    import tensorflow as tf

    strategy, scope = strategy_of(model), tf.distribute.get_strategy()
    if strategy is None and is_multi_worker(scope):
        raise ValueError(
            f"The model {model.name!r} was made outside of the scope of "
            "MultiWorkerMirroredStrategy. Make and compile it within `with strategy.scope():`."
        )
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ValueError(
            f"Keras {keras.__version__} itself can't train under ParameterServerStrategy. Use "
            "tf_keras, or MultiWorkerMirroredStrategy."
        )
    if is_multi_worker(strategy):
        cure(model)
    return model


def _is_initialized(backend: str) -> bool:
    if backend not in sys.modules:
        return False
    if backend == "jax":
        return bool(sys.modules["jax"].distributed.is_initialized())
    return bool(sys.modules["torch"].distributed.is_initialized())


def _tensorflow_task(model: Any) -> tuple[dict[str, Any], str | None, int | None]:
    """The cluster and this process's place in it: jobs, job name and index."""
    resolver = getattr(getattr(model, "distribute_strategy", None), "cluster_resolver", None)
    if resolver is not None and resolver.task_type:
        return resolver.cluster_spec().as_dict(), resolver.task_type, resolver.task_id
    if model is not None:
        return {}, None, None
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    task = config.get("task", {})
    return config.get("cluster", {}), task.get("type"), task.get("index")


def _is_chief_of_cluster(cluster: dict[str, Any], job: str | None, index: int | None) -> bool:
    if job is None or not cluster:
        return True
    if job == "worker" and not cluster.get("chief"):
        return int(index or 0) == 0
    return job in ("chief", "master")
