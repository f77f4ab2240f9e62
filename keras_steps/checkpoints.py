"""What other programs read of the checkpoints in a directory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from keras_steps.atomic import sha256_of
from keras_steps.checkpoint_index import Entry, Index
from keras_steps.timelines import local_path


class Checkpoint(NamedTuple):
    """A checkpoint that StepCheckpoint wrote.

    Args:
        path: Its file.
        step: The global step.
        scores: Results of evaluations at its step, by name.

    Example:

    >>> checkpoint = Checkpoint(Path("run/step_00000100.keras"), 100, {"val_loss": 0.25})
    >>> checkpoint.path.name, checkpoint.scores["val_loss"]
    ('step_00000100.keras', 0.25)
    """

    path: Path
    step: int
    scores: dict[str, float]


def list_checkpoints(directory: str | os.PathLike[str]) -> list[Checkpoint]:
    """The checkpoints in a directory, oldest first.

    For programs that look at all of them, also while the training runs. Those whose file is
    gone or cut short are left out; checksums are not verified, which would read every byte.

    Args:
        directory: What StepCheckpoint was given. If it isn't there yet, there are none.

    Raises:
        ValueError: If the index in it, `checkpoints.json`, is damaged.
        FileNotFoundError: If the index is missing though there are checkpoints.
        NotADirectoryError: If `directory` is a file.

    Example:

    >>> import tempfile
    >>> [(c.step, c.scores["val_loss"]) for c in list_checkpoints(tempfile.mkdtemp())]
    []
    """
    place = local_path(directory, "directory")
    entries = Index.read(place).entries
    return [
        Checkpoint(place / entry.file, entry.step, dict(entry.scores))
        for entry in entries
        if entry.size_in(place) == entry.bytes
    ]


def latest_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint in a directory, or None if there are none yet.

    Its file is for `keras.saving.load_model`, `model.load_weights` or `restore_checkpoint`,
    whichever StepCheckpoint saved. Its checksum is verified. If it is damaged or gone, the
    newest that is whole is taken, with a warning that names both.

    Args:
        directory: What StepCheckpoint was given. If it isn't there yet, there are none.

    Raises:
        ValueError: If there are checkpoints and none is whole, or if the index in the
            directory, `checkpoints.json`, is damaged.
        FileNotFoundError: If the index is missing though there are checkpoints.
        NotADirectoryError: If `directory` is a file.

    Example: a script that goes on from where it was.

    >>> import tempfile
    >>> path = latest_checkpoint(tempfile.mkdtemp())
    >>> if path is not None:
    ...     model = keras.saving.load_model(path)
    """
    return _first_whole(directory, lambda index: list(index.entries)[::-1])


def best_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """The best checkpoint in a directory, or None if there are none yet.

    The best by the `monitor` and `mode` that StepCheckpoint was given; a score that is not
    finite never counts, and of equal ones the earliest is the best. Its checksum is verified. If
    it is damaged or gone, the next best that is whole is taken, with a warning that names both.

    Args:
        directory: What StepCheckpoint was given. If it isn't there yet, there are none.

    Raises:
        ValueError: If there are checkpoints, but they were saved without a monitor, none has
            a score yet, or none of those is whole; or if the index in the directory,
            `checkpoints.json`, is damaged.
        FileNotFoundError: If the index is missing though there are checkpoints.
        NotADirectoryError: If `directory` is a file.

    Example:

    >>> import tempfile
    >>> path = best_checkpoint(tempfile.mkdtemp())
    >>> if path is not None:
    ...     model = keras.saving.load_model(path)
    """
    place = local_path(directory, "directory")

    def ranked(index: Index) -> list[Entry]:
        if index.monitor is None:
            raise ValueError(
                f"The checkpoints in {place} were saved without a monitor, so none is the best. "
                "Pass StepCheckpoint(monitor='val_loss'), or choose by the scores that "
                "list_checkpoints gives."
            )
        scored = index.ranked()
        if not scored:
            raise ValueError(
                f"None of the {len(index.entries)} checkpoints in {place} has a finite score "
                f"{index.monitor!r} (yet). latest_checkpoint gives the newest."
            )
        return scored

    return _first_whole(place, ranked)


def end_of_run(directory: str | os.PathLike[str]) -> str | None:
    """Why the last run in a directory ended; None while it is under way, or before any.

    A run that was killed had no time to say so, and is under way until it goes on and ends.
    """
    return Index.read(local_path(directory, "directory")).ended


def _first_whole(
    directory: str | os.PathLike[str], ranked: Callable[[Index], list[Entry]]
) -> Path | None:
    """The first file that is as it was written, with a warning if that isn't the first of all."""
    place = local_path(directory, "directory")
    while True:
        index, faults = Index.read(place), []
        if not index.entries:
            return None
        for entry in ranked(index):
            fault = _fault(place, entry)
            if fault is None:
                break
            faults.append(f"{place / entry.file} {fault}")
        if not faults or Index.read(place) == index:  # else the run dropped it meanwhile
            break
    if fault is not None:
        raise ValueError(f"No checkpoint in {place} is whole: {'; '.join(faults)}.")
    if faults:
        message = f"{'; '.join(faults)}. {entry.file} is taken instead."
        warnings.warn(message, UserWarning, stacklevel=3)
    return place / entry.file


def _fault(directory: Path, entry: Entry) -> str | None:
    """What is wrong with the file of an entry, if anything is."""
    try:
        size = entry.size_in(directory)
        if size == entry.bytes:
            same = sha256_of(directory / entry.file) == entry.sha256
            return None if same else "is damaged: its checksum is not the one it was saved with"
    except FileNotFoundError:  # deleted since its size was asked for
        size = None
    return "is gone" if size is None else f"is damaged: it has {size} bytes of {entry.bytes}"
