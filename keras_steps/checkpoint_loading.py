"""Weights of a checkpoint, loaded into a model that is there."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keras_steps.keras_internals import backend_of

_SKIPS = "Skipping variable loading for optimizer"


def load_weights(model: Any, path: Path) -> None:
    """Load the weights of a `.keras` or `.weights.h5` file, for evaluations.

    The model may have another optimizer than the one that was trained, or none yet, and other
    metrics: what the file holds of these is of no use to an evaluation.

    Args:
        model: A built model.
        path: The file.

    Raises:
        ValueError: If it can't be loaded into this model, naming it.
        FileNotFoundError: If it isn't there.
    """
    if path.suffix == ".npz":
        raise ValueError(
            f"{path} is a checkpoint of objects, StepCheckpoint(objects=...), and holds no model "
            "that could be loaded. restore_checkpoint(path, objects) puts it back; save the model "
            "with a StepCheckpoint of its own."
        )
    try:
        with _without_news_of_the_optimizer(), _metrics_left_out(model):
            model.load_weights(path)
    except Exception as error:
        if isinstance(error, FileNotFoundError) or not path.exists():
            raise FileNotFoundError(f"{path} is gone.") from error
        raise ValueError(
            f"{path} can't be loaded into the model {model.name!r}: {error} Build the model that "
            "was trained."
        ) from error


@contextmanager
def _without_news_of_the_optimizer() -> Iterator[None]:
    """Loading skips one that is not built or differs: Keras 3 warns of that, tf_keras logs it."""
    logger = logging.getLogger("absl")
    logger.addFilter(_is_other_news)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_SKIPS)
            yield
    finally:
        logger.removeFilter(_is_other_news)


def _is_other_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_SKIPS)


@contextmanager
def _metrics_left_out(model: Any) -> Iterator[None]:
    """tf_keras can't load a file that has less metrics than the model."""
    metrics = model.metrics if backend_of(model) == "tf_keras" else []
    for metric in metrics:
        metric.load_own_variables = _load_nothing
    try:
        yield
    finally:
        for metric in metrics:
            del metric.load_own_variables


def _load_nothing(store: Any) -> None:
    pass
