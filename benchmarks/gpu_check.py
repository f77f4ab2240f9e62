"""What can only be seen on a GPU: whether the bars hold there too, and the same bits after a kill.

Run `python benchmarks/gpu_check.py` where there is one, on TensorFlow, JAX or torch: the backend of
KERAS_BACKEND, or the first that is installed. `--anyway` runs the same on the CPU, with smaller
models. benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault(
    "KERAS_BACKEND", next(filter(find_spec, ("tensorflow", "jax", "torch")), "tensorflow")
)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # one is enough; the other benchmarks hide all
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch asks for it to be deterministic
os.environ.setdefault(
    "XLA_FLAGS", "--xla_gpu_deterministic_ops=true" if "--train" in sys.argv else ""
)

import numpy as np
from measuring import (
    FAR,
    FLAVOUR,
    EmptyHooks,
    arrays,
    bar,
    dense_model,
    idle_stack,
    interleaved,
    keras,
    noise,
    ratio,
    table,
    table_of_fits,
    timed_fit,
    versions,
)

from keras_steps import OnStep, StepBackupAndRestore, StopAtStep
from keras_steps import keras_internals as internals

INPUTS = 512
HOST_MILLISECONDS = 10
LAST_STEP, KILLED_AT = 60, 37


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--anyway", action="store_true", help="without a GPU, on the CPU")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--killed-at", type=int, default=FAR, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.killed_at)
        return 0
    device = accelerator()
    if device is None and not options.anyway:
        print(f"{versions()}: no GPU that this backend can see. --anyway runs this on the CPU.")
        return 2
    print(f"{versions()}, on {device or 'the CPU'}")
    width, batches, seconds = (2048, 100, 40.0) if device else (256, 40, 4.0)
    model = dense_model([width] * 3, INPUTS, keras.optimizers.Adam(1e-4))
    passed = [
        idle(model, batches, seconds),
        overlap(model, batches, seconds),
        stall(model),
        same_bits(),
    ]
    return 0 if all(passed) else 1


def accelerator() -> str | None:
    """The name of the device that the backend computes on, if it is not the CPU."""
    if FLAVOUR == "jax":
        import jax

        return None if jax.default_backend() == "cpu" else str(jax.devices()[0].device_kind)
    if FLAVOUR == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(found[0]) if found else {}
    return str(details.get("device_name", "a GPU")) if found else None


# ---------------------------------------------------------------- time


def idle(model: Any, batches: int, seconds: float) -> bool:
    """Whether a fit costs the same with our callbacks while nothing is due."""
    x, y = arrays(256 * batches, INPUTS)
    fits = compared(lambda: {"x": x, "y": y, "batch_size": 256}, model, batches, seconds)
    return judged("fit on arrays", batches, fits, "idle fit ÷ bare fit, within 1 + noise")


def overlap(model: Any, batches: int, seconds: float) -> bool:
    """Whether the device still computes while the host prepares data."""
    x, y = arrays(256 * batches, INPUTS)

    def data() -> Iterator[Any]:
        for start in range(0, len(x), 256):
            time.sleep(HOST_MILLISECONDS / 1e3)
            yield x[start : start + 256], y[start : start + 256]

    fits = compared(lambda: {"x": data(), "steps_per_epoch": batches}, model, batches, seconds)
    title = f"{HOST_MILLISECONDS} ms of host work a batch"
    return judged(title, batches, fits, "overlapping fit ÷ bare fit, within 1 + noise")


def compared(
    data: Callable[[], dict[str, Any]], model: Any, batches: int, seconds: float
) -> dict[str, list[float]]:
    """Whole fits of one epoch in turn, in ms a batch."""

    def fit(callbacks: Callable[[], list[Any]]) -> Callable[[], float]:
        return timed_fit(model, data, batches, callbacks)

    variants = {
        "bare": fit(list),
        "bare, again": fit(list),
        "our 4, nothing due": fit(idle_stack),
        "an empty on_train_batch_end": fit(lambda: [EmptyHooks()]),
    }
    return interleaved(variants, seconds)


def judged(title: str, batches: int, figures: dict[str, list[float]], what: str) -> bool:
    table_of_fits(title, batches, figures)
    bare = figures["bare"]
    apart = max(noise(bare, figures["bare, again"]), 0.02)
    return bar(what, ratio(figures["our 4, nothing due"], bare), 1 + apart)


# ---------------------------------------------------------------- saves


def stall(model: Any) -> bool:
    """How long a save holds the training up, against fetching the arrays one by one."""
    held = internals.state_variables(model)

    def plain() -> None:
        for variable in held.values():
            np.array(keras.ops.convert_to_numpy(variable))

    def ours() -> None:
        internals.prepare_save(model, weights_only=False)

    ways = {"fetch each array": timed(plain), "prepare_save": timed(ours)}
    figures = interleaved(ways, 5)
    size = sum(array.nbytes for array in internals.copied(held).values()) / 1e6
    rows = [[name, f"{min(f):.1f}", f"{median(f):.1f}"] for name, f in figures.items()]
    table(f"a save of {size:.0f} MB of state, ms", ["", "quickest", "median"], rows)
    limit = 1.5 * min(figures["fetch each array"]) + 30
    return bar("stall of a save", min(figures["prepare_save"]), limit, " ms")


def timed(function: Callable[[], None]) -> Callable[[], float]:
    def milliseconds() -> float:
        start = time.perf_counter()
        function()
        return (time.perf_counter() - start) * 1e3

    return milliseconds


# ---------------------------------------------------------------- bits


def same_bits() -> bool:
    """Whether a run that was killed and started again ends with the bits of one that was not."""
    with tempfile.TemporaryDirectory() as name:
        whole, killed = Path(name, "whole"), Path(name, "killed")
        assert run(whole) == 0, "the undisturbed run has failed"
        assert run(killed, "--killed-at", str(KILLED_AT)) == -signal.SIGKILL
        assert run(killed) == 0, "the run that was started again has failed"
        there, here = (np.load(path / "state.npz") for path in (whole, killed))
        differ = [key for key in there.files if there[key].tobytes() != here[key].tobytes()]
        arrays_differ = len(differ) if there.files == here.files else len(there.files)
    table(
        f"killed at step {KILLED_AT} of {LAST_STEP}, and started again",
        ["", "number"],
        [["arrays of the state", len(there.files)], ["that differ in a bit", arrays_differ]],
    )
    return bar("arrays that differ from the undisturbed run's", arrays_differ, 0)


def run(folder: Path, *options: str) -> int:
    return subprocess.run([sys.executable, __file__, "--train", folder, *options]).returncode


def train(folder: Path, killed_at: int) -> None:
    """In a process of its own, with deterministic operations: convolutions, dropout, Adam."""
    if FLAVOUR == "torch":
        import torch

        torch.use_deterministic_algorithms(True)
    elif FLAVOUR == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    random = np.random.default_rng(0)
    x = random.standard_normal((32 * 25, 16, 16, 3)).astype("float32")
    y = random.standard_normal((32 * 25, 1)).astype("float32")

    def kill(step: int, logs: dict[str, float]) -> None:
        if step == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    callbacks = [
        StopAtStep(LAST_STEP),
        OnStep(1, kill),
        StepBackupAndRestore(folder, every=10),
    ]
    model.fit(x, y, batch_size=32, epochs=FAR, shuffle=False, verbose=0, callbacks=callbacks)
    state = internals.copied(internals.state_variables(model))
    weights = {key: array for key, array in state.items() if not key.startswith("metrics/")}
    np.savez(folder / "state.npz", **{key.replace("/", "|"): a for key, a in weights.items()})


if __name__ == "__main__":
    sys.exit(main())
