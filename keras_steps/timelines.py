"""Where a run writes: one timeline a directory or file, and nothing of an earlier run is lost."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path


def place_for(path: Path, *, goes_on: bool, is_taken: Callable[[Path], bool]) -> Path:
    """The directory or file that a run writes to when it was told `path`.

    A fresh run gets the next sibling after all that hold something: `logs`, then `logs_2`,
    `logs_3`. A run that goes on gets the newest one that holds something.

    Args:
        path: What the user named.
        goes_on: Whether the run goes on from a step above 0.
        is_taken: Whether a place holds what an earlier run wrote.
    """
    newest = max((n for n, place in _siblings(path) if is_taken(place)), default=0)
    return _sibling(path, max(newest, 1) if goes_on else newest + 1)


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """`path` as a path on this machine, or the error that says what `name` takes."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path; received {path!r}.")
    text = os.fspath(path)
    if not text:
        raise ValueError(f"{name} must be a path; received ''.")
    if "://" in str(text):
        raise ValueError(f"{name} must be a path on this machine; received {text!r}.")
    return Path(text).absolute()


def require_writable(directory: Path, asked_by: str) -> None:
    """Make `directory` if need be, and write to it once.

    Raises:
        OSError: If that fails, of the kind that the system raised, naming the directory.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        message = f"{asked_by}: cannot write to the directory {directory}: {error.strerror}"
        raise type(error)(error.errno, message) from error


def _siblings(path: Path) -> list[tuple[int, Path]]:
    """The numbered places that exist: `path` is 1, `path_2` is 2."""
    numbered = re.compile(re.escape(path.stem) + r"_([1-9]\d*)" + re.escape(path.suffix))
    found = [(1, path)] if path.exists() else []
    if path.parent.is_dir():
        for place in path.parent.iterdir():
            match = numbered.fullmatch(place.name)
            if match and int(match[1]) > 1:
                found.append((int(match[1]), place))
    return found


def _sibling(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}_{number}{path.suffix}")
