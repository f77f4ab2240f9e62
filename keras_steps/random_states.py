"""The random states of a process: Python's, NumPy's and, where it is in use, torch's."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def random_states() -> dict[str, Any]:
    """As plain values and arrays, to be put back by `set_random_states`."""
    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    states: dict[str, Any] = {
        "python": [version, np.asarray(numbers, np.uint32), gauss],
        "numpy": [kind, np.array(keys), int(position), int(has_gauss), float(cached)],
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().copy()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = [state.numpy().copy() for state in torch.cuda.get_rng_state_all()]
    return states


def set_random_states(states: Mapping[str, Any]) -> None:
    """Put back what `random_states` gave."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(int(number) for number in numbers), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.asarray(keys), position, has_gauss, cached))
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in states:
        torch.set_rng_state(torch.from_numpy(np.array(states["torch"])))
        if "cuda" in states:
            torch.cuda.set_rng_state_all([torch.from_numpy(np.array(s)) for s in states["cuda"]])
