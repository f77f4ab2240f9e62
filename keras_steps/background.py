"""Writing in the background: one thing at a time, and no failure goes unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any
from weakref import WeakSet

_UNDER_WAY: WeakSet[Future[Any]] = WeakSet()


def let_all_finish() -> None:
    """Wait for the writes of every BackgroundWriter, those of a broken-off fit too."""
    wait(list(_UNDER_WAY))


def writes_under_way() -> list[Future[Any]]:
    """Those of every BackgroundWriter that have been handed in and have not come to their end."""
    return [write for write in list(_UNDER_WAY) if not write.done()]


def all_succeed(writes: Iterable[Future[Any]]) -> bool:
    """Wait for some writes; whether none of them has failed, which its own writer tells."""
    return all(write.exception() is None for write in writes)


class BackgroundWriter:
    """Runs one write at a time in a thread of its own.

    A write that has failed raises its error where the next one is handed in, or in `wait`.
    At the end of the process the one under way is finished first.

    Example:

    >>> writer, written = BackgroundWriter(), []
    >>> writer.submit(lambda: written.append("step 100"))
    >>> writer.wait()
    >>> written
    ['step 100']
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="keras_steps")
        self._last: Future[Any] | None = None

    def submit(self, write: Callable[[], Any]) -> None:
        """Hand a write in, once the one before is through.

        Raises:
            Exception: What the one before has raised; `write` is not run then.
        """
        self.wait()
        self._last = self._pool.submit(write)
        _UNDER_WAY.add(self._last)

    def wait(self) -> None:
        """Let what is under way come to its end.

        Raises:
            Exception: What it has raised, once.
        """
        last, self._last = self._last, None
        if last is not None:
            last.result()
