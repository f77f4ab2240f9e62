"""Arrays of any type in one file, which is read without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an `.npz` file, under their names.

    NumPy's files know neither bfloat16 nor float8: of these they hold the bits, as integers.
    Whoever reads them has to know the types.

    Args:
        path: The file; what is there is written over.
        arrays: By name. A name has a slash, so that it is no argument of `np.savez`.

    Raises:
        TypeError: If one holds Python objects.

    Example:

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "arrays.npz"
    >>> write_arrays(path, {"a/b": np.arange(3, dtype="int8")})
    >>> read_arrays(path, {"a/b": "int8"})
    {'a/b': array([0, 1, 2], dtype=int8)}
    """
    storable: dict[str, Any] = {key: _storable(key, array) for key, array in arrays.items()}
    with path.open("wb") as file:
        np.savez(file, **storable)


def read_arrays(path: Path, kinds: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Read some of the arrays that `write_arrays` wrote.

    Args:
        path: The file.
        kinds: The types of those that are wanted, by name.
    """
    with np.load(path, allow_pickle=False) as stored:
        # By their files' names: `stored["a/b.npy"]` would be the array a/b, if there is one.
        return {key: _restored(stored[f"{key}.npy"], kind) for key, kind in kinds.items()}


def _storable(key: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.hasobject:  # NumPy would pickle it, and no reader here takes it
        raise TypeError(f"{key} must hold numbers; received an array of Python objects.")
    is_known = np.dtype(array.dtype.str) == array.dtype
    return array if is_known else array.view(f"u{array.dtype.itemsize}")


def _restored(array: np.ndarray, kind: str) -> np.ndarray:
    if kind in (str(array.dtype), array.dtype.name):  # the two differ by the order of bytes
        return array
    import ml_dtypes

    return array.view(getattr(ml_dtypes, kind))
