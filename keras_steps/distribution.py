"""Who takes part in a run, and which of them writes: what all of them answer alike."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from typing import Any

from keras_steps.keras_internals import backend_of


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
    backend = None if model is None else backend_of(model)
    if backend == "jax" or (backend is None and _is_initialized("jax")):
        return int(sys.modules["jax"].process_index()) == 0
    if backend == "torch" or (backend is None and _is_initialized("torch")):
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
    if backend_of(model) == "jax":
        import keras

        strategy = keras.distribution.distribution()
        number = 1 if strategy is None else math.prod(strategy.device_mesh.shape)
    else:
        strategy = getattr(model, "distribute_strategy", None)
        number = 1 if strategy is None else strategy.num_replicas_in_sync
    return "one replica" if number == 1 else f"{type(strategy).__name__} over {number} devices"


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
        model: The model that is trained.
    """
    backend = backend_of(model)
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
