"""The file of a checkpoint of objects: their arrays, and what they are, as JSON."""

from __future__ import annotations

import errno
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from keras_steps.array_files import read_arrays, write_arrays
from keras_steps.state_trees import array_names

ENDING = ".npz"
"""Of such files: NumPy reads their arrays, by names such as `generator/model/0/dense/kernel`."""

_CONTENTS = "objects.json"
_FORMAT = 1


def write_objects(
    path: Path, objects: Mapping[str, Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write such a file; what is there is written over.

    Args:
        path: Its path, which ends in `ENDING`.
        objects: The `kind` and the `state` of each object, taken apart, by name.
        arrays: The arrays in these states.
    """
    write_arrays(path, arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_CONTENTS, json.dumps({"format": _FORMAT, "objects": objects}))


def read_objects(path: Path) -> dict[str, dict[str, Any]]:
    """The `kind` and `state` of each object in a file, by name.

    Raises:
        ValueError: If it is damaged, no such file, or of another format.
        OSError: If it can't be read.
    """
    with _damage_told(path), zipfile.ZipFile(path) as archive:
        is_one = _CONTENTS in archive.namelist()
        contents = json.loads(archive.read(_CONTENTS)) if is_one else {}
    if not is_one:
        raise ValueError(f"{path} is no checkpoint that StepCheckpoint(objects=...) wrote.")
    if contents["format"] != _FORMAT:
        raise ValueError(
            f"{path} has the format {contents['format']!r}; this version of keras_steps reads "
            f"{_FORMAT!r}. Use the version that wrote it."
        )
    objects: dict[str, dict[str, Any]] = contents["objects"]
    return objects


def read_arrays_of(path: Path, states: Iterable[Any]) -> dict[str, np.ndarray]:
    """The arrays of some of the states in a file.

    Raises:
        ValueError: If it is damaged.
        OSError: If it can't be read.
    """
    kinds = dict(pair for state in states for pair in array_names(state))
    with _damage_told(path):
        return read_arrays(path, kinds)


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Each part of the file has a checksum, and damage may show in many ways before it does."""
    path.open("rb").close()  # what the system refuses is no damage
    try:
        yield
    except (MemoryError, ImportError):  # nor is what the machine lacks
        raise
    except Exception as error:
        # A damaged offset may lead to before the file's first byte, which is an EINVAL.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ValueError(
            f"{path} is damaged: {error}. latest_checkpoint(directory) gives the newest that is "
            "whole."
        ) from error
