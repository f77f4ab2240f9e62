"""Known losses to write, and the readers of what was written."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import numpy as np
from flavours import BATCH, keras
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator,
)
from tensorboard.util.tensor_util import make_ndarray


def losses(values=range(1, 11)):
    """A model, and the data on which its losses, batch by batch, are these."""
    x = np.repeat(np.array(values, "float32"), BATCH)[:, None]
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    return model, {"x": x, "y": np.zeros_like(x), "batch_size": BATCH, "shuffle": False}


def passing_losses(values):
    """The same, but no loss leaves a trace in the weights, not even a NaN."""
    y = np.repeat(np.array(values, "float32"), BATCH)[:, None]
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", lambda true, predicted: true + 0.0 * predicted)
    return model, {"x": np.ones_like(y), "y": y, "batch_size": BATCH, "shuffle": False}


def curve(directory, tag):
    """The points [(step, value)] of a tag, on which both of TensorBoard's readers agree."""
    older = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    newer = PluginEventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    points = [(event.step, event.value) for event in older.Scalars(tag)]
    tensors = [(e.step, make_ndarray(e.tensor_proto).item()) for e in newer.Tensors(tag)]
    assert [step for step, _ in points] == [step for step, _ in tensors]
    np.testing.assert_equal([v for _, v in points], [v for _, v in tensors])
    return points


def tags(directory):
    """The names of the scalars in a run's directory."""
    return set(EventAccumulator(str(directory)).Reload().Tags()["scalars"])


def steps(directory, tag):
    return [step for step, _ in curve(directory, tag)]


def contents(directory):
    """Every file below a directory with what it holds."""
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    return {path: path.read_bytes() for path in files}


@contextmanager
def warnings_of_nan():
    """The warnings of a NaN within it; others are let go, as Keras's own on torch."""
    messages = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += [str(w.message) for w in caught if "NaN at step" in str(w.message)]
