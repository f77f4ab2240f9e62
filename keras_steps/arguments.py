"""What arguments have to be, where several modules ask the same of them."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np


def integral(value: Any, name: str, *, least: int) -> int:
    """`value` as an int, or the error that says what `name` takes."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; received {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; received {value!r}.")
    return int(value)


def finite(value: Any, name: str) -> float:
    """`value` as a float, or the error that says what `name` takes."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number; received {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite; received {value!r}.")
    return float(value)


def takes(function: Any, *arguments: str) -> bool:
    """Whether it can be called with arguments such as these, and then does its work at once."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        pass  # some functions written in C have no signature to tell it by
    return not inspect.iscoroutinefunction(function)
