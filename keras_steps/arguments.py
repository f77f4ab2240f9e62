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


def number(value: Any, name: str) -> float:
    """The same for a float, which may be infinite or NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number; received {value!r}.")
    return float(value)


def finite(value: Any, name: str, *, least: float = -math.inf) -> float:
    """The same for a float that is neither."""
    found = number(value, name)
    if not math.isfinite(found) or found < least:
        bound = "" if least == -math.inf else f" and at least {least:g}"
        raise ValueError(f"{name} must be finite{bound}; received {value!r}.")
    return found


def flag(value: Any, name: str) -> bool:
    """The same for True and False, which 1 and 0 are not."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; received {value!r}.")
    return value


def takes(function: Any, *arguments: str) -> bool:
    """Whether it can be called with arguments such as these, and then does its work at once."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        pass  # some functions written in C have no signature to tell it by
    return not inspect.iscoroutinefunction(function)
