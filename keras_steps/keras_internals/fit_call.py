"""Which fit is under way, seen from the frames of the stack: callbacks have no way to it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

_CALLS = ("fit", "evaluate", "predict")


class FitCall:
    """A call of fit, evaluate or predict: Keras's, or a model's own that has a CallbackList.

    Its local variables `callbacks`, `epochs`, `initial_epoch`, `validation_data`, and
    `epoch_iterator` or `data_handler`, are looked at; Keras 3 and tf_keras have them under
    these names.
    """

    def __init__(self, frame: Any) -> None:
        local = frame.f_locals
        self.name: str = frame.f_code.co_name
        self.callbacks: Any = local.get("callbacks")
        self.epochs: int = local.get("epochs") or 0
        self.initial_epoch = int.__int__(local.get("initial_epoch", 0))
        self.validates: bool | None = None
        """Whether fit validates at the ends of epochs; None: it does not tell."""
        if "validation_data" in local:
            self.validates = local["validation_data"] is not None
        sources = (local.get("epoch_iterator"), local.get("data_handler"))
        found = [s for s in sources if hasattr(s, "_enumerate_iterator") or hasattr(s, "steps")]
        self._data_source = weakref.ref(found[0]) if found else None

    @property
    def data_source(self) -> Any:
        """What makes the iterators: Keras 3's EpochIterator or tf_keras's DataHandler; or None.

        This object may outlive the fit, and does not keep its data.
        """
        return self._data_source and self._data_source()

    @property
    def batches_an_epoch(self) -> int | None:
        """What tf_keras has found out in the first epoch of data of unknown size."""
        return getattr(self.data_source, "_inferred_steps", None)

    def is_around(self, frame: Any = None) -> bool:
        """Whether this call is still going on, seen from a frame (default: here)."""
        frame = frame or sys._getframe(1)
        return any(call.callbacks is self.callbacks for call in calls_around(frame))


def calls_around(frame: Any = None) -> Iterator[FitCall]:
    """The calls of fit, evaluate and predict around a frame (default: here), nearest first."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in _CALLS:
            call = FitCall(frame)
            if hasattr(call.callbacks, "on_train_begin") and hasattr(call.callbacks, "callbacks"):
                yield call
        frame = frame.f_back


def is_within(callbacks: Any, frame: Any = None) -> bool:
    """Whether the nearest call is the one with this CallbackList."""
    nearest = next(calls_around(frame or sys._getframe(1)), None)
    return nearest is not None and nearest.callbacks is callbacks
