"""The ways of training that the proof goes through, and what each child is told of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENTS = {"tensorflow": ".venv"}


class Combination(NamedTuple):
    """One way of training.

    Attributes:
        flavour: Keras 3 on "tensorflow", "jax" or "torch"; or "tf_keras".
        spe: steps_per_execution.
        accumulation: Batches an update.
        data: "arrays", which fit shuffles; "dataset": tf.data, shuffled with a seed; "loader":
            a torch DataLoader that shuffles; "gan": in a StepLoop over the updates of a critic,
            with one of a generator behind every fifth.
        mirrored: Whether under MirroredStrategy, on two virtual CPUs.
        stops_early: Whether StepEarlyStopping ends the run, and ReduceLROnPlateau sets its rate.
    """

    flavour: str
    spe: int = 1
    accumulation: int = 1
    data: str = "arrays"
    mirrored: bool = False
    stops_early: bool = False

    @property
    def name(self) -> str:
        parts = [self.flavour, self.data]
        parts += [f"spe {self.spe}"] if self.spe > 1 else []
        parts += [f"accumulation {self.accumulation}"] if self.accumulation > 1 else []
        parts += ["Mirrored"] if self.mirrored else []
        parts += ["stops early"] if self.stops_early else []
        return ", ".join(parts)

    @property
    def python(self) -> Path:
        """The interpreter of the environment that has its backend."""
        folder = _ENVIRONMENTS.get(self.flavour, f".venv-{self.flavour}")
        return ROOT / folder / "bin" / "python"

    @property
    def environment(self) -> dict[str, str]:
        is_tf_keras = self.flavour == "tf_keras"
        return {
            **{k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"},
            "KERAS_BACKEND": "tensorflow" if is_tf_keras else self.flavour,
            "KERAS_STEPS_TEST_FLAVOUR": "tf_keras" if is_tf_keras else "",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "OMP_NUM_THREADS": "1",
        }


COMBINATIONS = [
    Combination("tensorflow"),
    Combination("jax"),
    Combination("torch"),
    Combination("tf_keras"),
    Combination("tensorflow", spe=4, data="dataset"),
    Combination("jax", spe=4),
    Combination("tf_keras", spe=4, data="dataset"),
    Combination("tensorflow", mirrored=True),
    Combination("tf_keras", mirrored=True),
    Combination("torch", accumulation=2, data="loader"),
    Combination("tensorflow", accumulation=2),
    Combination("jax", accumulation=2, stops_early=True),
    Combination("tensorflow", spe=4, accumulation=2),
    Combination("tf_keras", stops_early=True),
    Combination("torch", stops_early=True),
    Combination("tensorflow", data="gan"),
    Combination("jax", data="gan"),
    Combination("torch", data="gan"),
]


def numbered(argument: str) -> Combination:
    """The combination of a child that was given its number."""
    return COMBINATIONS[int(argument)]


def missing() -> list[str]:
    """What of the environments is not there."""
    return sorted({str(c.python) for c in COMBINATIONS if not c.python.exists()})


if __name__ == "__main__":
    sys.stdout.write("".join(f"{n:2} {c.name}\n" for n, c in enumerate(COMBINATIONS)))
