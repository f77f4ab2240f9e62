"""Lines beside Keras's progress bar."""

from __future__ import annotations

import sys
import time
from typing import Any

from keras_steps.keras_internals.flavour import backend_of


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
