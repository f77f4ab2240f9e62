"""What an evaluation is made on, how many batches that brings, and what comes of none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import keras

from keras_steps.keras_internals import Evaluator, is_coordinated

BATCH_SIZE = 32
"""Examples a batch of arrays, as evaluate itself takes them."""


class EvaluationData:
    """Data as `model.evaluate` takes them, and how many batches of them.

    It never changes, so that copies share it: one of a callback leaves the data where they are.

    Args:
        data: Arrays as a tuple (x, y) or (x, y, sample_weight), or a dataset as x alone.
        steps: Batches to evaluate on. None: all.
        name: How messages call the data.

    Raises:
        TypeError: If `data` is nothing that evaluate takes.
        ValueError: If it is a tuple of another length.
    """

    def __init__(self, data: Any, steps: int | None, name: str) -> None:
        self.name = name
        self.steps = steps
        parts = data if isinstance(data, tuple) else (data,)
        if not 1 <= len(parts) <= 3:
            raise ValueError(
                f"{name} must be (x, y), (x, y, sample_weight) or a dataset; received a tuple of "
                f"{len(parts)}."
            )
        self.x, self.y, self.sample_weight = (*parts, None, None)[:3]
        shapes = [getattr(leaf, "shape", None) for leaf in keras.tree.flatten(self.x)]
        self._shape = next((shape for shape in shapes if shape), None)
        if self._shape is None and not _brings_batches(self.x):
            raise TypeError(
                f"{name} must be what model.evaluate takes: arrays as (x, y) or "
                "(x, y, sample_weight), a tf.data.Dataset, PyDataset, torch DataLoader or "
                f"generator; received {self.x!r}."
            )

    def __deepcopy__(self, memo: Any) -> EvaluationData:
        return self

    @property
    def is_one_shot(self) -> bool:
        """Whether it can be gone through once only, as a generator."""
        return isinstance(self.x, Iterator)

    @property
    def batch_size(self) -> int | None:
        return None if self._shape is None else BATCH_SIZE

    def size(self) -> float | None:
        """How many batches there are, infinity for no end, or None if that can't be known."""
        if self._shape is not None:
            return -(-int(self._shape[0]) // BATCH_SIZE)
        if hasattr(self.x, "cardinality"):
            cardinality = self.x.cardinality
            number = int(cardinality() if callable(cardinality) else cardinality)
            return {-1: math.inf, -2: None}.get(number, number)
        if hasattr(type(self.x), "num_batches"):
            number = self.x.num_batches
            return math.inf if number is None else int(number)
        try:
            return len(self.x)
        except TypeError:  # such as a DataLoader over an IterableDataset
            return None

    def prepare(self, model: Any) -> PreparedData:
        """Make ready what can be used for many evaluations of `model`.

        Raises:
            ValueError: If there is no batch, fewer than `steps`, or no end without `steps`; on
                parameter servers, if there is an end.
        """
        size = self.size()
        if is_coordinated(model) and (self.steps is None or size not in (None, math.inf)):
            raise ValueError(
                f"{self.name} comes to an end, which an evaluation can't on parameter servers: "
                "each worker goes through the data by itself. Pass a tf.data.Dataset that repeats, "
                "and steps=100."
            )
        if size == 0:
            raise ValueError(f"{self.name} is empty; an evaluation needs at least one batch.")
        if size == math.inf and self.steps is None:
            raise ValueError(
                f"{self.name} has no end. Say on how many batches to evaluate each time: steps=100."
            )
        if size is not None and self.steps is not None and size < self.steps:
            of = f" of {BATCH_SIZE} examples" if self.batch_size else ""
            raise ValueError(
                f"{self.name} has {size} batches{of}, fewer than steps={self.steps}. Leave steps "
                "out to evaluate on all of them."
            )
        return PreparedData(self, model)


class PreparedData:
    """Data made ready for the evaluations of one model in one fit."""

    def __init__(self, data: EvaluationData, model: Any) -> None:
        self._data = data
        self._model = model
        self._batches = 1
        self._evaluator = None if data.is_one_shot else self._evaluator_on(data.x)

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the model; returns the results by their names in Keras.

        Raises:
            ValueError: If the data bring no batch, or too few.
        """
        data = self._data
        evaluator = self._evaluator or self._evaluator_on(self._next_batches())
        results, batches = evaluator.evaluate()
        if batches == 0:
            raise self._used_up()
        if batches is not None and data.steps is not None and batches < data.steps:
            raise ValueError(
                f"{data.name} brought {batches} batches, fewer than steps={data.steps}. "
                f"{_HOW_TO_START_AGAIN}"
            )
        return results

    def _evaluator_on(self, x: Any) -> Evaluator:
        data = self._data
        return Evaluator(
            self._model,
            x,
            data.y,
            data.sample_weight,
            batch_size=data.batch_size,
            steps=data.steps,
        )

    def _next_batches(self) -> Iterator[Any]:
        """The next batches of data that go on where the last evaluation has left them.

        Keras would take the first ones of a generator again each time, and read further ahead
        than it evaluates.
        """
        data = self._data
        first = list(islice(data.x, 1))
        if not first:
            raise self._used_up()
        return (batch for batch in chain(first, islice(data.x, (data.steps or _ALL) - 1)))

    def _used_up(self) -> ValueError:
        return ValueError(f"{self._data.name} brought no batch. {_HOW_TO_START_AGAIN}")


_ALL = 2**62
_HOW_TO_START_AGAIN = (
    "A generator, or a dataset made of one, is used up when it has been gone through: pass data "
    "that start again for each evaluation, such as arrays, a tf.data.Dataset or a PyDataset."
)


def _brings_batches(x: Any) -> bool:
    if isinstance(x, (str, bytes, type, set, frozenset)):
        return False
    return hasattr(x, "__iter__") or hasattr(x, "__getitem__")
