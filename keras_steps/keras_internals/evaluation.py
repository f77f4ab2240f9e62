"""Evaluating in the middle of a fit, on data that are prepared once."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from keras_steps.keras_internals.fitting import batches_set_to, steps_per_execution
from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.prepared_data import cache_of, iterator_over

_RAN_OUT = "Your input ran out of data"


class Evaluator:
    """`model.evaluate` on the same data again and again.

    Keras makes its iterator over the data anew for each `evaluate`, which costs more than a
    small evaluation itself, except in fit: it keeps the one over `validation_data` in an
    attribute, and asks evaluate in private to use it. Ours is put there for as long as an
    evaluation takes. Where Keras or the model has no such way, evaluate prepares the data each
    time.

    Args:
        model: The model that is evaluated.
        x: As evaluate takes it; so are `y` and `sample_weight`.
        batch_size: Examples a batch, for arrays only.
        steps: Batches to evaluate on. None: all.
    """

    def __init__(
        self, model: Any, x: Any, y: Any, sample_weight: Any, *, batch_size: int | None, steps: Any
    ) -> None:
        self._model = model
        self._steps = steps
        self._batches = steps_per_execution(model)
        self._data = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        self._iterator = iterator_over(model, self._data, steps)

    @property
    def is_prepared(self) -> bool:
        """Whether the data are kept ready."""
        return self._iterator is not None

    def evaluate(self) -> tuple[dict[str, Any], int | None]:
        """Evaluate from the beginning of the data.

        Returns:
            The results by name, and how many batches they were made of, in whole
            executions; None if that can't be told.
        """
        model = self._model
        options = {"verbose": 0, "return_dict": True}
        with self._whole_executions(), _without_warning(), _counting(model, self._steps) as counted:
            if self._iterator is None:
                results = model.evaluate(**self._data, steps=self._steps, **options)
            else:
                with _attribute_set_to(model, cache_of(model), self._iterator):
                    results = model.evaluate(_use_cached_eval_dataset=True, **options)
            batches = counted.executions * self._batches
            return results, batches if model.test_function is counted else None

    def _whole_executions(self) -> Any:
        """In an epoch's last execution tf_keras may have cut the variable it reads them from."""
        if steps_per_execution(self._model) == self._batches:
            return nullcontext()
        return batches_set_to(self._model, self._batches)


@contextmanager
def _attribute_set_to(model: Any, name: str, value: Any) -> Iterator[None]:
    had, before = name in vars(model), vars(model).get(name)
    setattr(model, name, value)
    try:
        yield
    finally:
        if had:
            setattr(model, name, before)
        else:
            delattr(model, name)


@contextmanager
def _without_warning() -> Iterator[None]:
    """Keras 3 warns at the end of any data of unknown size; tf_keras logs. We have counted."""
    logger = logging.getLogger("tensorflow")
    logger.addFilter(_is_other_news)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_RAN_OUT)
            yield
    finally:
        logger.removeFilter(_is_other_news)


def _is_other_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_RAN_OUT)


@contextmanager
def _counting(model: Any, steps: int | None) -> Iterator[_Counted]:
    """Within it, the model's test_function counts its executions.

    A callback with a hook at the end of each batch would count as well, and switch Keras's
    asynchronous dispatch off on JAX and torch.
    """
    model.make_test_function()
    function = model.test_function
    counted = model.test_function = _Counted(model, function, steps)
    try:
        yield counted
    finally:
        if model.test_function is counted:
            model.test_function = function


class _Counted:
    """A test_function that counts, and makes no batch more than `steps`.

    Keras 3 rounds `steps` up to whole executions.
    """

    def __init__(self, model: Any, function: Any, steps: int | None) -> None:
        self.executions = 0
        self._function = function
        self._batches = 1 if backend_of(model) == "tf_keras" else steps_per_execution(model)
        self._steps = steps

    def __call__(self, *args: Any) -> Any:
        *state, iterator = args
        if self._steps is not None:
            left = self._steps - self.executions * self._batches
            if left < self._batches:
                first = next(iterator)
                iterator = itertools.chain((first,), itertools.islice(iterator, left - 1))
        logs = self._function(*state, iterator)
        self.executions += 1
        return logs
