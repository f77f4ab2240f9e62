"""Strings that the processes of a cluster share, by key.

A collective waits for a process that does not take part, and nobody can say for which. Here one
can wait for a while, and see who has not come. Each backend has such a store for its own use, and
no public way to the one that its processes are connected by. Seen in TensorFlow 2.21 (the
coordination service of MultiWorkerMirroredStrategy), JAX 0.10 (`jax.distributed`) and torch 2.13
(the process group by default). A key can be set once.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from typing import Any

_POLL_SECS = 0.02


class KeyValues(ABC):
    """The store that this process shares with the others."""

    @abstractmethod
    def put(self, key: str, value: str) -> None:
        """Let all of them see a value."""

    @abstractmethod
    def get(self, key: str, seconds: float) -> str | None:
        """The value, waiting for it for some seconds at most; None if nobody has put it there."""


class _TensorFlowKeyValues(KeyValues):
    def __init__(self) -> None:
        from tensorflow.python.eager import context

        self._context = context.context()

    def put(self, key: str, value: str) -> None:
        self._context.set_config_key_value(key, value)

    def get(self, key: str, seconds: float) -> str | None:
        import tensorflow as tf

        try:
            value = self._context.get_config_key_value(key, max(1, int(1000 * seconds)))
        except tf.errors.DeadlineExceededError:
            return None
        return str(value)


class _JaxKeyValues(KeyValues):
    def __init__(self) -> None:
        from jax._src import distributed

        self._client: Any = distributed.global_state.client
        if self._client is None:  # a pod's processes know each other without it
            raise RuntimeError(
                "the processes of JAX have no way to tell each other what they are about to do. "
                "Call keras.distribution.initialize() or jax.distributed.initialize() first."
            )

    def put(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value)

    def get(self, key: str, seconds: float) -> str | None:
        try:
            value = self._client.blocking_key_value_get(key, max(1, int(1000 * seconds)))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            return None
        return str(value)


class _TorchKeyValues(KeyValues):
    """Asked again and again, since torch prints two lines for each wait that was in vain."""

    def __init__(self) -> None:
        self._store: Any = sys.modules["torch"].distributed.distributed_c10d._get_default_store()

    def put(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str, seconds: float) -> str | None:
        ends_at = time.monotonic() + seconds
        while not self._store.check([key]):
            if time.monotonic() >= ends_at:
                return None
            time.sleep(_POLL_SECS)
        return bytes(self._store.get(key)).decode()


def key_values_of(backend: str) -> KeyValues:
    """The store of several processes that are joined by "jax", "torch", or else TensorFlow."""
    kinds = {"jax": _JaxKeyValues, "torch": _TorchKeyValues}
    return kinds.get(backend, _TensorFlowKeyValues)()
