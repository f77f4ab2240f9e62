"""Signals that end a run in good order: the first asks, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any


def signals_named(names: Iterable[str], asked_by: str) -> tuple[signal.Signals, ...]:
    """The signals of these names, or the error that says which is none."""
    if isinstance(names, str):
        raise TypeError(
            f"{asked_by} must be a tuple of names; received {names!r}. Write ({names!r},)."
        )
    found = []
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{asked_by} must hold names such as 'SIGTERM'; received {name!r}.")
        if name not in signal.Signals.__members__ or name in ("SIGKILL", "SIGSTOP"):
            raise ValueError(
                f"{asked_by} must hold signals that can be caught, such as 'SIGTERM' or 'SIGUSR1'; "
                f"received {name!r}."
            )
        found.append(signal.Signals[name])
    return tuple(found)


def undo_swallowing(signals: Iterable[signal.Signals]) -> None:
    """Let signals that nobody waits for do what they do by default, until a run waits for them.

    TensorFlow's and JAX's coordination of several processes leave SIGTERM without an effect: one
    that came before a run waits for it would be lost. (Seen in TensorFlow 2.21 and JAX 0.10.)
    """
    if threading.current_thread() is threading.main_thread():
        for each in signals:
            if signal.getsignal(each) == signal.SIG_DFL:  # as Python knows it
                signal.signal(each, signal.SIG_DFL)


class SignalWatch:
    """Calls a function at the first of some signals; puts the handlers back in the end.

    A second one of these signals ends the process as if nobody had waited for it.

    Args:
        signals: Those to wait for.
        notice: Called with the signal's name in the main thread, between two of its
            instructions; it has to be quick.
        is_needed: Asked with the frame that was interrupted. If not, since what waited has
            been broken off, the signal does what it would have done without this.
    """

    def __init__(
        self,
        signals: Iterable[signal.Signals],
        notice: Callable[[str], None],
        is_needed: Callable[[Any], bool],
    ) -> None:
        self._signals = tuple(signals)
        self._notice = notice
        self._is_needed = is_needed
        self._before: dict[signal.Signals, Any] = {}
        self.received: str | None = None

    def start(self, asked_by: str) -> None:
        """Begin to wait.

        Raises:
            RuntimeError: Outside the main thread, where Python hands out no signals.
        """
        if self._signals and threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"{asked_by}: signals can be waited for in the main thread only, and fit was "
                "called in another one. Pass on_signal=() there."
            )
        for each in self._signals:
            self._before[each] = signal.signal(each, self._handle)

    def stop(self) -> None:
        """Put the handlers back that were there before."""
        for each, handler in self._before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, frame: Any) -> None:
        if not self._is_needed(frame):
            self.stop()
            os.kill(os.getpid(), number)
            return
        if self.received is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = signal.Signals(number).name
        self._notice(self.received)
