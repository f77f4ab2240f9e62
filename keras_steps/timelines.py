"""Where a run writes: one timeline a directory or file, and nothing of an earlier run is lost."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


def place_for(
    path: Path,
    *,
    goes_on: bool,
    is_taken: Callable[[Path], bool],
    take: Callable[[Path], None],
    tell: Callable[[str], None],
) -> Path:
    """The directory or file that a run writes to when it was told `path`.

    A fresh run takes the next sibling after all that hold something: `logs`, then `logs_2`,
    `logs_3`. Of several that begin at the same moment each gets one of its own. A run that goes
    on gets the newest one that holds something.

    Args:
        path: What the user named.
        goes_on: Whether the run goes on from a step above 0.
        is_taken: Whether a place holds what an earlier run wrote.
        take: Makes something at a place that only one process can make, or raises
            FileExistsError.
        tell: Told in a line where the run writes, if that is not `path`.
    """
    newest = max((n for n, place in _siblings(path) if is_taken(place)), default=0)
    number = max(newest, 1) if goes_on else _take_after(newest, path, take)
    place = _sibling(path, number)
    if number > 1 and goes_on:
        tell(f"{path} is not the newest of its runs: this one goes on in {place}")
    elif number > 1:
        tell(f"{path} holds an earlier run: this one writes to {place}")
    return place


class Timeline(NamedTuple):
    """How the place of one run is told from that of another; see `place_for`."""

    is_taken: Callable[[Path], bool]
    take: Callable[[Path], None]


class RunPlace:
    """Where one run writes: chosen at its begin, taken with the first that it writes.

    Nothing is made there before: a kill before the first backup must not leave a place that
    the next start takes for another run's.

    Args:
        timeline: How places are told apart.

    Attributes:
        chosen: What was asked for, and where the run writes. It goes on there after a restart.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._is_to_be_taken = False
        self.chosen: list[str] | None = None

    def choose(
        self,
        path: Path,
        *,
        goes_on: bool,
        tell: Callable[[str], None],
        take: Callable[[Path], None] = lambda place: None,
    ) -> Path:
        """As `place_for` says, unless it has been chosen before."""
        if self.chosen is None or self.chosen[0] != str(path):
            is_taken = self._timeline.is_taken
            place = place_for(path, goes_on=goes_on, is_taken=is_taken, take=take, tell=tell)
            self.chosen = [str(path), str(place)]
            self._is_to_be_taken = not goes_on
        return Path(self.chosen[1])

    def take(self, path: Path, *, goes_on: bool, tell: Callable[[str], None]) -> Path:
        """The same; from here on it is this run's own."""
        place = self.choose(path, goes_on=goes_on, tell=tell)
        if self._is_to_be_taken:
            self._is_to_be_taken = False
            try:
                self._timeline.take(place)
            except FileExistsError:  # another run has been quicker
                self.chosen = None
                place = self.choose(path, goes_on=goes_on, tell=tell, take=self._timeline.take)
        return place


def share_a_timeline(one: Path, other: Path) -> bool:
    """Whether two places are one, or one of them is what a later run of the other writes to."""
    one, other = (Path(os.path.realpath(path)) for path in (one, other))
    return bool(_number(one, other) or _number(other, one))


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """`path` as a path on this machine, or the error that says what `name` takes."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path; received {path!r}.")
    text = os.fspath(path)
    if not text:
        raise ValueError(f"{name} must be a path; received ''.")
    if "://" in str(text):
        raise ValueError(f"{name} must be a path on this machine; received {text!r}.")
    return Path(text).expanduser().absolute()


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


def _take_after(number: int, path: Path, take: Callable[[Path], None]) -> int:
    """Take the first sibling past `number` that nobody else has taken meanwhile."""
    while True:
        number += 1
        try:
            take(_sibling(path, number))
        except FileExistsError:
            continue
        return number


def _siblings(path: Path) -> list[tuple[int, Path]]:
    """The places that exist, with their numbers."""
    places = path.parent.iterdir() if path.parent.is_dir() else ()
    return [(number, place) for place in places if (number := _number(path, place))]


def _number(path: Path, place: Path) -> int | None:
    """Which of the places of `path` it is: `path` is 1, `path_2` is 2; None: no such."""
    if place == path:
        return 1
    numbered = re.escape(path.stem) + r"_([1-9]\d*)" + re.escape(path.suffix)
    match = re.fullmatch(numbered, place.name) if place.parent == path.parent else None
    return int(match[1]) if match and int(match[1]) > 1 else None


def _sibling(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}_{number}{path.suffix}")
