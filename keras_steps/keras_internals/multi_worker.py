"""The cure that lets Keras 3 train under TensorFlow's MultiWorkerMirroredStrategy.

Seen in Keras 3.12 to 3.15 (keras#20585): fit fails in two places of its own.

- It builds the model from a batch that it reduces over the replicas, and what comes out of
  this strategy's `reduce` is still a value per replica, which can't be made a tensor.
- It reduces the results of each training and test step over their first axis, and they are
  scalars, which have none.

The cure sets two attributes of one model: it builds from the batch of this worker, of which
only shapes and types matter, and gives the results an axis of length 1. Nothing of it is
saved or copied with the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_steps.keras_internals.fitting import cannot_run

CURED_VERSIONS = ("3.12", "3.13", "3.14", "3.15")
"""The versions of Keras that the cure has been tried with; it reaches into their inside."""


def strategy_of(model: Any) -> Any:
    """The strategy in whose scope a model on TensorFlow was made; None: in no scope."""
    return model._distribute_strategy


def is_multi_worker(strategy: Any) -> bool:
    """Whether it is a MultiWorkerMirroredStrategy of several processes, as Keras asks it."""
    import tensorflow as tf

    mirrored = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return mirrored and bool(strategy.extended._in_multi_worker_mode())


def cure(model: Any) -> None:
    """Let fit, evaluate and the methods for one batch work; done once, however often called.

    Args:
        model: A Keras 3 model that was made in the scope of a strategy that
            `is_multi_worker`.

    Raises:
        RuntimeError: If this version of Keras is not one of `CURED_VERSIONS`.
        ValueError: If the model is compiled with something that fails all the same.
    """
    version = ".".join(keras.__version__.split(".")[:2])
    if version not in CURED_VERSIONS:
        raise RuntimeError(
            "prepare changes how Keras builds a model and makes its training step, and was "
            f"tried with Keras {CURED_VERSIONS[0]} to {CURED_VERSIONS[-1]}, not with "
            f"{keras.__version__}. Fit without it, in case Keras no longer needs it; else use "
            "one of those versions, or tf_keras."
        )
    _refuse(model)
    if isinstance(vars(model).get("_make_function"), _ResultsWithAnAxis):
        return
    model._maybe_symbolic_build = _BuildFromOwnBatch(model)
    model._make_function = _ResultsWithAnAxis(model._make_function)
    model.train_function = model.test_function = None


class _BuildFromOwnBatch:
    """Takes the place of `_maybe_symbolic_build`, with which fit and evaluate begin."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, iterator: Any = None, data_batch: Any = None) -> None:
        model = self._model
        _refuse(model)  # it may have been compiled since
        strategy = model.distribute_strategy
        if iterator is not None:
            _, _, batches = next(iter(iterator))
            data_batch = keras.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
        with strategy.scope():
            model._symbolic_build(data_batch=data_batch)


class _ResultsWithAnAxis:
    """Takes the place of `_make_function`, which makes train_function and test_function."""

    def __init__(self, make_function: Callable[[Any], Any]) -> None:
        self._make_function = make_function

    def __call__(self, step: Callable[[Any], Any]) -> Any:
        return self._make_function(lambda data: keras.tree.map_structure(_as_vector, step(data)))


def _as_vector(value: Any) -> Any:
    return keras.ops.reshape(value, (1,)) if len(keras.ops.shape(value)) == 0 else value


def _refuse(model: Any) -> None:
    optimizer = getattr(model, "optimizer", None)
    reason = None if optimizer is None else cannot_run(model, optimizer)
    if reason:
        raise ValueError(f"Keras {keras.__version__} itself can't train under {reason}.")
