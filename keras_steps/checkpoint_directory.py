"""The directory that a run writes its checkpoints to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from keras_steps.arguments import integral
from keras_steps.atomic import remove_partials, sha256_of, write_atomically
from keras_steps.checkpoint_index import Entry, Index, Mode, name_of
from keras_steps.checkpoints import Checkpoint
from keras_steps.timelines import local_path


class CheckpointDirectory:
    """The directory of a StepCheckpoint, as the one run that writes to it has it.

    A process that is killed between any two operations leaves complete and listed files,
    and what the next run removes: first the index says which file is on its way, then the
    file is written, then the index lists it without those that retention drops, then these
    are deleted. Files that no run wrote are not touched.

    It is used from one thread at a time; other processes may read meanwhile. After an error
    of the system it can be used on.

    Args:
        directory: It is made where a run begins.
        max_to_keep: The newest that stay, or None for all. The best stays on top.
        keep_every: The first one at or after each multiple of so many steps stays for good.
        monitor: The score that makes one the best.
        mode: Whether its smallest or largest value is best.

    Raises:
        ValueError: If an argument does not fit.
        TypeError: If one is of another type.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None,
        keep_every: int | None,
        monitor: str | None = None,
        mode: Mode = "min",
    ) -> None:
        self.path = local_path(directory, "directory")
        if max_to_keep is not None:
            max_to_keep = integral(max_to_keep, "max_to_keep", least=1)
        if keep_every is not None:
            keep_every = integral(keep_every, "keep_every", least=1)
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max'; received {mode!r}.")
        self.max_to_keep = max_to_keep
        self.keep_every = keep_every
        self.monitor = monitor
        self.mode: Mode = mode
        self._known: Index | None = None

    @property
    def best(self) -> Checkpoint | None:
        """The best so far; nothing of it is verified."""
        ranked = self._index.ranked()
        if not ranked:
            return None
        return Checkpoint(self.path / ranked[0].file, ranked[0].step, dict(ranked[0].scores))

    def holds_any(self) -> bool:
        """Whether there are checkpoints of an earlier run, or of this one."""
        return bool(self._index.entries)

    def has(self, step: int) -> bool:
        """Whether there is a checkpoint of `step`."""
        return any(entry.step == step for entry in self._index.entries)

    def path_of(self, step: int, suffix: str) -> Path:
        """Where `save` puts the file of a step."""
        return self.path / name_of(step, suffix)

    def begin(self, step: int, overwrite: bool) -> None:
        """Begin a run, or go on with one, at `step`; what lies past it is dropped.

        Args:
            step: The global step at train begin.
            overwrite: Whether a fresh run, from step 0, drops what an earlier one wrote.

        Raises:
            FileExistsError: If a fresh run finds checkpoints and isn't to overwrite them, or
                a foreign file has the name of a step to come.
        """
        self._known = None
        if step == 0 and self.holds_any() and not overwrite:
            raise FileExistsError(
                f"{self.path} holds {len(self._index.entries)} checkpoints of an earlier run, and "
                "this one begins at step 0. Give it another directory, or overwrite=True to "
                "delete them; to go on from the last one, restore what is trained before the run."
            )
        foreign = self._index.unlisted(self.path, past=step)
        if foreign:
            raise FileExistsError(
                f"{self.path / foreign[0]} has the name of a checkpoint to come, and is none that "
                "StepCheckpoint wrote. Move it elsewhere, or give another directory."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        remove_partials(self.path)
        self._delete_leftovers()
        self._drop_past(step if step > 0 else -1)

    def drop_past(self, step: int) -> None:
        """Go back to `step` within a run: what lies past it is dropped."""
        self._delete_leftovers()
        self._drop_past(step)

    def save(
        self, step: int, suffix: str, write: Callable[[Path], None], scores: Mapping[str, float]
    ) -> Path:
        """Save a checkpoint and drop those that retention does not keep.

        Args:
            step: The global step; there is no checkpoint of it yet.
            suffix: What comes after the number in the file's name: `.keras`.
            write: Writes the file to the path it is given, which has the same suffix.
            scores: Results of evaluations at the step, by name.

        Returns:
            The file.

        Raises:
            OSError: If the system fails to write, naming the file. All that was there stays.
        """
        if self.has(step):
            raise ValueError(f"There is a checkpoint of step {step} in {self.path} already.")
        self._delete_leftovers()
        path = self.path_of(step, suffix)
        if os.path.lexists(path):
            raise FileExistsError(f"{path} is there, and is none that StepCheckpoint wrote.")
        self._commit(replace(self._index, leftovers=(path.name,)))
        with write_atomically(path) as partial:
            write(partial)
            size, checksum = partial.stat().st_size, sha256_of(partial)
        kept = self._index.is_first_past_a_multiple(step, self.keep_every)
        entry = Entry(step, path.name, size, checksum, _plain(scores), kept)
        self._retain(self._index.with_entry(entry))
        return path

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Add scores to the checkpoint of `step`; of one it has already the first stays."""
        entries = [entry for entry in self._index.entries if entry.step == step]
        if not entries:
            raise ValueError(f"There is no checkpoint of step {step} in {self.path}.")
        scored = replace(entries[0], scores={**_plain(scores), **entries[0].scores})
        self._delete_leftovers()
        self._retain(self._index.with_entry(scored))

    def end(self, reason: str) -> None:
        """Mark the run's end."""
        self._delete_leftovers()
        self._commit(replace(self._index, ended=reason))

    @property
    def _index(self) -> Index:
        if self._known is None:
            index = Index.read(self.path)
            self._known = replace(index, monitor=self.monitor, mode=self.mode)
        return self._known

    def _drop_past(self, step: int) -> None:
        """Also drops those whose file somebody deleted, so that they can be saved again."""
        there = [e.step for e in self._index.entries if e.size_in(self.path) is not None]
        steps = {s for s in there if s <= step}
        self._commit(replace(self._index.with_only(steps), ended=None))
        self._delete_leftovers()

    def _retain(self, index: Index) -> None:
        self._commit(index.retained(self.max_to_keep))
        self._delete_leftovers()

    def _commit(self, index: Index) -> None:
        self._known = None  # after a failure it is unknown which of the two is on the disk
        index.write(self.path)
        self._known = index

    def _delete_leftovers(self) -> None:
        """Delete what the index on the disk calls left over; the next one won't name it."""
        for name in self._index.leftovers:
            (self.path / name).unlink(missing_ok=True)
        self._known = replace(self._index, leftovers=())


def _plain(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items()}
