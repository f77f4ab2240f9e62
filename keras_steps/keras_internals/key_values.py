"""Strings that the processes of a cluster share, by key.

A collective waits for a process that does not take part, and nobody can say for which. Here one
can wait for a while, and see who has not come. Each backend has such a store for its own use, and
no public way to the one that its processes are connected by. Seen in TensorFlow 2.21 (the
coordination service of MultiWorkerMirroredStrategy), JAX 0.10 (`jax.distributed`) and torch 2.13
(the process group by default). A key can be set once. TensorFlow can also say at once that a
process does not answer, by what its own health checks ask; JAX itself ends the processes that are
left, and torch has nothing of the kind.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_POLL_SECS = 0.02
_ANSWER_MILLISECS = 1000


class KeyValues(ABC):
    """The store that this process shares with the others; it is held by the first of them."""

    @abstractmethod
    def put(self, key: str, value: str) -> None:
        """Let all of them see a value.

        Raises:
            ConnectionError: If the process that holds the store is gone.
        """

    @abstractmethod
    def get(self, key: str, seconds: float) -> str | None:
        """The value, waiting for it for some seconds at most; None if nobody has put it there.

        Raises:
            ConnectionError: If the process that holds the store is gone.
        """

    def refuses(self, index: int) -> Exception | None:
        """What says that the process of this number does not answer; None: nothing does."""
        return None


class _TensorFlowKeyValues(KeyValues):
    def __init__(self) -> None:
        import tensorflow as tf
        from tensorflow.python.eager import context

        self._context = context.context()
        self._errors = tf.errors
        cluster = self._context._collective_ops_server_def.cluster
        jobs = {job.name: sorted(job.tasks) for job in cluster.job}
        self._tasks = [
            f"/job:{name}/replica:0/task:{task}"
            for name in ("chief", "worker")
            for task in jobs.get(name, ())
        ]

    def put(self, key: str, value: str) -> None:
        try:
            self._context.set_config_key_value(key, value)
        except self._errors.UnavailableError as error:
            raise ConnectionError(str(error)) from error

    def get(self, key: str, seconds: float) -> str | None:
        try:
            value = _apart(
                lambda: self._context.get_config_key_value(key, max(1, int(1000 * seconds)))
            )
        except self._errors.DeadlineExceededError:
            return None
        except self._errors.UnavailableError as error:
            raise ConnectionError(str(error)) from error
        return str(value)

    def refuses(self, index: int) -> Exception | None:
        try:
            self._context.check_collective_ops_peer_health(self._tasks[index], _ANSWER_MILLISECS)
        except self._errors.DeadlineExceededError:  # one that stands still is there
            return None
        except (self._errors.UnavailableError, self._errors.FailedPreconditionError) as error:
            return error
        return None


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
            value = _apart(
                lambda: self._client.blocking_key_value_get(key, max(1, int(1000 * seconds)))
            )
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            return None
        return str(value)


class _TorchKeyValues(KeyValues):
    """Asked again and again, since torch prints two lines for each wait that was in vain."""

    def __init__(self) -> None:
        group = sys.modules["torch"].distributed
        self._store: Any = group.distributed_c10d._get_default_store()
        self._error: type[Exception] = group.DistNetworkError

    def put(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except self._error as error:
            raise ConnectionError(str(error)) from error

    def get(self, key: str, seconds: float) -> str | None:
        ends_at = time.monotonic() + seconds
        try:
            while not self._store.check([key]):
                if time.monotonic() >= ends_at:
                    return None
                time.sleep(_POLL_SECS)
            return bytes(self._store.get(key)).decode()
        except self._error as error:
            raise ConnectionError(str(error)) from error


def key_values_of(backend: str) -> KeyValues:
    """The store of several processes that are joined by "jax", "torch", or else TensorFlow."""
    kinds = {"jax": _JaxKeyValues, "torch": _TorchKeyValues}
    return kinds.get(backend, _TensorFlowKeyValues)()


def _apart(wait: Callable[[], T]) -> T:
    """Wait in another thread: of signals, such as that of Ctrl-C, the main one hears at once.

    TensorFlow makes a RuntimeError of an interrupt that comes while its own exception is made.
    """
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(wait).result()
    finally:
        pool.shutdown(wait=False)
