"""Variables of which each replica of a strategy keeps a value of its own, and what they are as one.

Metrics are such, and tf_keras's moving averages. Seen in TensorFlow 2.21: the variables of the
replicas are `values`, and `aggregation` says what reading them makes of them. Keras 3.12 and 3.15
and tf_keras 2.21 give variables without a strategy an `aggregation` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_steps.keras_internals.flavour import held_by


def own_values(variable: Any) -> tuple[Any, ...] | None:
    """The variables of the replicas, if each has a value of its own."""
    held = held_by(variable)
    own = any("SyncOnRead" in base.__name__ for base in type(held).__mro__)
    return tuple(held.values) if own else None


def whole_of(variable: Any, parts: Sequence[np.ndarray]) -> np.ndarray:
    """What reading `variable` gives where its replicas hold these."""
    kind = _aggregation(variable)
    if "first" in kind:
        return parts[0]
    total = np.add.reduce(parts, dtype=parts[0].dtype)
    return (total / len(parts)).astype(parts[0].dtype) if "mean" in kind else total


def divided_among(variable: Any, whole: np.ndarray, replicas: int) -> list[np.ndarray]:
    """Values of so many replicas that `whole_of` makes `whole` of again."""
    if "sum" in _aggregation(variable):
        return [whole, *(np.zeros_like(whole) for _ in range(replicas - 1))]
    return [whole] * replicas


def _aggregation(variable: Any) -> str:
    return str(getattr(variable, "aggregation", "")).lower()
