"""The index of a directory of checkpoints: what counts as one, which is best, which stay."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from keras_steps.atomic import read_json, write_json

Mode = Literal["min", "max"]

_NAME = "checkpoints.json"
_FORMAT = 1
_FILE = re.compile(r"step_(\d{8,})(\.keras|\.weights\.h5|\.npz)")


@dataclass(frozen=True)
class Entry:
    """A checkpoint.

    Args:
        step: The global step.
        file: Its name in the directory.
        bytes: Its size.
        sha256: Its checksum.
        scores: Results of evaluations at its step, by name.
        kept: Whether it stays for good: the first at or after a multiple of `keep_every`.
    """

    step: int
    file: str
    bytes: int
    sha256: str
    scores: Mapping[str, float]
    kept: bool

    def size_in(self, directory: Path) -> int | None:
        """How many bytes its file has, or None if it is gone."""
        try:
            return (directory / self.file).stat().st_size
        except FileNotFoundError:
            return None


@dataclass(frozen=True)
class Index:
    """All that is known of a directory; it is written as a whole.

    Args:
        entries: The checkpoints, oldest first. A file that is not among them does not count.
        leftovers: Names of files that a kill may leave without an entry: about to be written,
            or to be deleted. They are ours to delete.
        monitor: The score that makes one the best, or None.
        mode: Whether the smallest or the largest is best.
        ended: Why the last run ended, or None while it is under way.
    """

    entries: tuple[Entry, ...] = ()
    leftovers: tuple[str, ...] = ()
    monitor: str | None = None
    mode: Mode = "min"
    ended: str | None = None

    @classmethod
    def read(cls, directory: Path) -> Index:
        """The index of `directory`, an empty one where none was begun yet.

        Raises:
            ValueError: If it is damaged, or of another format.
            FileNotFoundError: If it is missing though there are checkpoints.
            NotADirectoryError: If `directory` is a file.
        """
        try:
            value = read_json(directory / _NAME)
        except FileNotFoundError:
            lost = _files_of_steps(directory)
            if (directory / _NAME).exists():  # a run has begun it this moment
                return cls.read(directory)
            if not lost:
                return cls()
            raise FileNotFoundError(
                f"{directory} holds {_some(lost)}, but not {_NAME}, which says what they are. "
                "Put it back, or move them elsewhere; each can still be loaded by its name."
            ) from None
        except ValueError as error:
            raise ValueError(
                f"{error} It says which checkpoints there are. Put back a copy, or move it and "
                "the files beside it elsewhere; each can still be loaded by its name."
            ) from error
        found = value.pop("format", None)
        if found != _FORMAT:
            raise ValueError(
                f"{directory / _NAME} has the format {found!r}; this version of keras_steps "
                f"reads {_FORMAT!r}. Use the version that wrote it."
            )
        entries = tuple(Entry(**entry) for entry in value.pop("entries"))
        return cls(entries=entries, leftovers=tuple(value.pop("leftovers")), **value)

    def write(self, directory: Path) -> None:
        entries = [vars(entry) for entry in self.entries]
        write_json(directory / _NAME, {"format": _FORMAT, **vars(self), "entries": entries})

    def ranked(self) -> list[Entry]:
        """Those with a finite score, the best first; of equal ones the earlier."""
        if self.monitor is None:
            return []
        sign = 1 if self.mode == "min" else -1
        scored = [
            (sign * entry.scores[self.monitor], entry)
            for entry in self.entries
            if math.isfinite(entry.scores.get(self.monitor, math.nan))
        ]
        return [entry for _, entry in sorted(scored, key=lambda pair: pair[0])]

    def with_entry(self, entry: Entry) -> Index:
        """With `entry`, in place of the one of its step if there is one."""
        others = (other for other in self.entries if other.step != entry.step)
        return replace(self, entries=tuple(sorted([*others, entry], key=lambda e: e.step)))

    def with_only(self, steps: Collection[int]) -> Index:
        """Without the entries of other steps, whose files become the leftovers."""
        stay = tuple(entry for entry in self.entries if entry.step in steps)
        go = tuple(entry.file for entry in self.entries if entry.step not in steps)
        return replace(self, entries=stay, leftovers=go)

    def retained(self, max_to_keep: int | None) -> Index:
        """With the newest, the best, and those that are kept for good."""
        newest = self.entries if max_to_keep is None else self.entries[-max_to_keep:]
        kept = [entry for entry in self.entries if entry.kept]
        return self.with_only({entry.step for entry in (*newest, *self.ranked()[:1], *kept)})

    def is_first_past_a_multiple(self, step: int, keep_every: int | None) -> bool:
        """Whether `step` is the first to be saved at or after a multiple of `keep_every`.

        It follows from entries that retention never drops, so that a run which was killed
        and went on comes to the same answer.
        """
        if keep_every is None or step < keep_every:
            return False
        multiple = step - step % keep_every
        return not any(multiple <= entry.step < step for entry in self.entries)

    def unlisted(self, directory: Path, *, past: int) -> list[str]:
        """Files with names of steps after `past` that are neither entries nor leftovers."""
        known = {*(entry.file for entry in self.entries), *self.leftovers}
        files = _files_of_steps(directory)
        return [name for name, step in files.items() if step > past and name not in known]


def name_of(step: int, suffix: str) -> str:
    """The name of the file of a step."""
    return f"step_{step:08d}{suffix}"


def _files_of_steps(directory: Path) -> dict[str, int]:
    """Files that are named as checkpoints are, with the steps in their names."""
    if not directory.exists():
        return {}
    matches = (_FILE.fullmatch(name) for name in sorted(p.name for p in directory.iterdir()))
    return {match[0]: int(match[1]) for match in matches if match}


def _some(names: Collection[str]) -> str:
    first = ", ".join(list(names)[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"
