"""What the benchmarks share: models, callbacks, the interleaved measurement, tables."""

from __future__ import annotations

import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from itertools import pairwise
from random import Random
from statistics import median, quantiles
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

from keras_steps import LogEveryN, OnStep, StepScheduled, StopAtStep

IS_TF_KERAS = os.environ.get("KERAS_STEPS_TEST_FLAVOUR") == "tf_keras"
if IS_TF_KERAS:
    import tf_keras as keras

    FLAVOUR = "tf_keras"
else:
    import keras

    FLAVOUR = keras.backend.backend()

FAR = 10**9
"""A step that no benchmark gets to."""

# The stacks wait for steps that no benchmark reaches, and say so.
warnings.filterwarnings("ignore", message="StopAtStep will not be reached")


def compute_on_one_thread() -> None:
    """Let a batch not depend on whether another core is free; JAX is told by XLA_FLAGS."""
    if FLAVOUR in ("tensorflow", "tf_keras"):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
    elif FLAVOUR == "torch":
        import torch

        torch.set_num_threads(1)


compute_on_one_thread()


def versions() -> str:
    """The flavour and the versions of what takes part, in a line."""
    installed = [f"Python {platform.python_version()}"]
    for package in ("keras", "tf_keras", "tensorflow", "tensorflow-cpu", "jax", "torch"):
        wanted = {"tensorflow-cpu": "tensorflow", "tf_keras": "tf_keras"}.get(package, package)
        on_tensorflow = wanted == "tensorflow" and FLAVOUR == "tf_keras"
        if wanted in ("keras", FLAVOUR) or on_tensorflow:
            try:
                installed.append(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                continue
    return f"{FLAVOUR}: {', '.join(installed)}, {os.cpu_count()} cores"


# ---------------------------------------------------------------- models and data


def dense_model(widths: Iterable[int], inputs: int, optimizer: Any) -> Any:
    """A compiled regression through dense layers of these widths."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(width, activation="relu") for width in widths]
    model = keras.Sequential([keras.layers.Input((inputs,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def arrays(examples: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs and targets."""
    random = np.random.default_rng(0)
    x = random.standard_normal((examples, inputs)).astype("float32")
    return x, random.standard_normal((examples, 1)).astype("float32")


class Stamped:
    """A fit's compiled step that notes when it is called.

    From one call to the next is a whole round of fit: data, hooks, whatever wraps the step.
    Fits that share a model keep it, as they keep the compiled step.
    """

    def __init__(self, model: Any) -> None:
        self._step = model.train_function
        self._times: list[float] = []
        model.train_function = self

    def __call__(self, *args: Any) -> Any:
        self._times.append(time.perf_counter())
        return self._step(*args)

    def milliseconds(self, block: int = 8) -> float:
        """The median, over blocks of batches, of ms per batch since this was asked last."""
        return median(b - a for a, b in pairwise(self.times()[::block])) / block * 1e3

    def times(self, skip: int = 40) -> list[float]:
        """The times of the calls since this was asked last, without the first ones.

        What fit does at its beginning and end lies outside of them. JAX takes some thirty
        batches that it has not computed yet before it lets fit wait.
        """
        times, self._times = self._times[skip:], []
        return times


def quiet_logger() -> logging.Logger:
    """A logger whose lines are formatted and go nowhere."""
    logger = logging.getLogger("keras_steps.benchmarks")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def idle_stack(*more: Any) -> list[Any]:
    """Four callbacks that wait for a step that won't come; LogEveryN reports at the end."""
    return [
        StopAtStep(FAR),
        LogEveryN(FAR, start=0, logger=quiet_logger()),
        OnStep(FAR, lambda step, logs: None),
        StepScheduled(lambda value: None, lambda step: 1.0, every=FAR),
        *more,
    ]


class EmptyHooks(keras.callbacks.Callback):
    """What one writes in Keras to do something now and then, when it is not due."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


# ---------------------------------------------------------------- measuring


def timed_fit(
    model: Any,
    data: Callable[[], Mapping[str, Any]],
    batches: int,
    callbacks: Callable[[], list[Any]],
) -> Callable[[], float]:
    """What measures a whole fit of one epoch, in ms a batch; the first has been made, to compile.

    Args:
        model: A compiled model.
        data: Gives the arguments of a fit that are its data, for each anew.
        batches: How many batches those are.
        callbacks: Gives the callbacks of a fit, for each anew.
    """

    def milliseconds() -> float:
        given = callbacks()
        start = time.perf_counter()
        model.fit(**data(), verbose=0, callbacks=given)
        return (time.perf_counter() - start) / batches * 1e3

    milliseconds()
    return milliseconds


def interleaved(
    variants: Mapping[str, Callable[[], float]], seconds: float, *, least: int = 5
) -> dict[str, list[float]]:
    """Measure all variants in turn, again and again, each time in another order.

    What disturbs the machine for a while then disturbs all of them.

    Args:
        variants: By name, what measures one variant once and returns the figure.
        seconds: How long to go on.
        least: How many repetitions to make in any case.
    """
    names = list(variants)
    figures: dict[str, list[float]] = {name: [] for name in names}
    until = time.perf_counter() + seconds
    order = Random(0)
    while len(figures[names[0]]) < least or time.perf_counter() < until:
        for name in order.sample(names, len(names)):
            figures[name].append(variants[name]())
    return figures


def ratio(figures: list[float], to: list[float]) -> float:
    """The median of the ratios within each repetition."""
    return median(a / b for a, b in zip(figures, to, strict=True))


def noise(one: list[float], other: list[float]) -> float:
    """How far two measurements of the same thing lie apart in three of four repetitions."""
    apart = [max(a, b) / min(a, b) - 1 for a, b in zip(one, other, strict=True)]
    return quantiles(apart, n=4)[2]


# ---------------------------------------------------------------- printing


def table(title: str, head: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table with the first column to the left and the others to the right."""
    cells = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for name, *figures in cells:
        right = (f.rjust(width) for f, width in zip(figures, widths[1:], strict=True))
        print("  " + "  ".join([name.ljust(widths[0]), *right]))


def table_of_fits(title: str, batches: int, figures: Mapping[str, list[float]]) -> None:
    """Print what `timed_fit` measured, and each variant's ratio to the one named "bare"."""
    bare = figures["bare"]
    head = [f"{len(bare)} fits of {batches} batches", "ms/batch", "min", "÷ bare", "min ÷ min"]
    rows = [
        [name, *(f"{x:.3f}" for x in (median(f), min(f), ratio(f, bare), min(f) / min(bare)))]
        for name, f in figures.items()
    ]
    table(title, head, rows)


def bar(name: str, figure: float, limit: float, unit: str = "") -> bool:
    """Print whether a figure keeps within its limit."""
    passed = figure <= limit
    verdict = "PASS" if passed else "FAIL"
    print(f"{verdict}  {name}: {figure:.3f}{unit}, at most {limit:.3f}{unit}")
    return passed
