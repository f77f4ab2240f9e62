"""stop_reason: why a fit ended."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_REASONS: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def stop_reason(model: Any) -> str | None:
    """Why the last run of a model ended that had callbacks of this library.

    Args:
        model: A Keras model.

    Returns:
        "reached", by the step of a StopAtStep; "time", by the budget of a StopAfter; "signal",
        by one that StepBackupAndRestore waits for; "nan", by a loss that StopOnNaN saw;
        "early", by StepEarlyStopping. None if it was none of these; the epochs were over, or
        something else stopped it.

    Raises:
        TypeError: If `model` is no Keras model.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> stop_reason(model) is None
    True
    """
    if isinstance(model, type) or not hasattr(model, "fit"):
        raise TypeError(f"stop_reason takes a Keras model; received {model!r}.")
    return _REASONS.get(model)


def note_stop_reason(model: Any, reason: str | None) -> None:
    """Keep the reason until the next run of the model."""
    _REASONS[model] = reason
