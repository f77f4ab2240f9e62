"""Collectives between the workers of a run: each gives numbers, all get those of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from keras_steps.distribution import Seat, joining_backend


class Channel(ABC):
    """The way from each worker to all of them.

    Every worker has to call the same methods in the same order, between two executions: a
    worker that does not come keeps the others waiting until the backend's own time limit.

    Args:
        model: The model that is trained.
        seat: This worker's place among the others.

    Attributes:
        uses: How many collectives there have been.
    """

    def __init__(self, model: Any, seat: Seat) -> None:
        self.seat = seat
        self.uses = 0

    def gathered(self, numbers: np.ndarray) -> np.ndarray:
        """One row a worker, in their order.

        Args:
            numbers: Integers of 64 bits, as many on each worker.
        """
        self.uses += 1
        return self._gathered(np.asarray(numbers, np.int64))

    def gathered_bytes(self, content: bytes) -> list[bytes]:
        """What each worker has given, of any length."""
        sizes = self.gathered(np.array([len(content)]))[:, 0]
        words = -(-int(sizes.max()) // 8)
        padded = np.frombuffer(content.ljust(words * 8, b"\0"), np.int64)
        rows = self.gathered(padded) if words else np.zeros((len(sizes), 0), np.int64)
        return [row.tobytes()[:size] for row, size in zip(rows, sizes, strict=True)]

    @abstractmethod
    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        """The same, of an array of int64."""


class _TensorFlowChannel(Channel):
    """Each worker puts its row among zeros, and the rows are summed over all replicas."""

    def __init__(self, model: Any, seat: Seat) -> None:
        super().__init__(model, seat)
        import tensorflow as tf

        strategy = self._strategy = model.distribute_strategy
        self._replicas = len(strategy.extended.worker_devices)  # of this worker
        self._constant = tf.constant

        @tf.function(reduce_retracing=True)
        def total(values: Any) -> Any:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

        self._total = total

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        rows = np.zeros((self.seat.count, len(numbers)), np.int64)
        nothing = rows.copy()
        rows[self.seat.index] = numbers

        def of_replica(context: Any) -> Any:
            is_first = context.replica_id_in_sync_group % self._replicas == 0
            return self._constant(rows if is_first else nothing)

        values = self._strategy.experimental_distribute_values_from_function(of_replica)
        return np.asarray(self._total(values).numpy())


class _JaxChannel(Channel):
    """Halves of 32 bits, as JAX has no larger integers unless it is told to."""

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        from jax.experimental import multihost_utils

        rows = multihost_utils.process_allgather(numbers.view(np.uint32))
        return np.ascontiguousarray(rows, np.uint32).view(np.int64)


class _TorchChannel(Channel):
    """On the device that the group's backend works with."""

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        import torch

        group = torch.distributed
        device = "cuda" if group.get_backend() == "nccl" else "cpu"
        given = torch.from_numpy(numbers.copy()).to(device)
        rows = [torch.empty_like(given) for _ in range(self.seat.count)]
        group.all_gather(rows, given)
        return np.stack([row.cpu().numpy() for row in rows])


def channel_of(model: Any, seat: Seat) -> Channel:
    """The channel between the workers that train `model`."""
    kind = {"jax": _JaxChannel, "torch": _TorchChannel}.get(
        joining_backend(model), _TensorFlowChannel
    )
    return kind(model, seat)
