"""The checkpoints of one fit: copied in the thread that trains, written in another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from keras_steps import preflight
from keras_steps.background import BackgroundWriter
from keras_steps.checkpoint_directory import CheckpointDirectory
from keras_steps.keras_internals import PreparedSave, first_non_finite, is_of_metrics
from keras_steps.workers import Workers


class CheckpointListener(Protocol):
    """What is told of each checkpoint, as TF1's CheckpointSaverListener was."""

    def before_save(self, step: int, path: Path) -> Any:
        """Called in the thread that trains, before the model is copied."""

    def after_save(self, step: int, path: Path) -> Any:
        """Called in the thread that writes, once the file is there, whole."""


def checked_listeners(listeners: Any) -> list[CheckpointListener]:
    """The listeners that StepCheckpoint was given, or the error that says what it takes."""
    name = "StepCheckpoint(listeners)"
    if not isinstance(listeners, Iterable):
        raise TypeError(f"{name} must be a list of objects; received {listeners!r}.")
    checked = list(listeners)
    for each in checked:
        kind = isinstance(each, type)
        missing = [n for n in ("before_save", "after_save") if not callable(getattr(each, n, None))]
        if kind or missing:
            lacking = f"which has no {' and no '.join(missing)}" if missing else "not an object"
            received = f"the class {each.__name__}" if kind else repr(each)
            raise TypeError(
                f"{name} must have before_save(step, path) and after_save(step, path); "
                f"received {received}, {lacking}."
            )
    return checked


class CheckpointSession:
    """The saves of one fit; what touches the directory runs in the background, in turn.

    Args:
        directory: Where the checkpoints are.
        workers: Those of the run: the chief among them writes, and they all know what came of it.
        listeners: Told of each checkpoint, in this order, where it is written.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        *,
        workers: Workers,
        listeners: Iterable[CheckpointListener],
    ) -> None:
        self.directory = directory
        self.saved_at: int | None = None
        self.best_scores: dict[str, float] | None = None
        self._workers = workers
        self._listeners = list(listeners)
        self._writer = BackgroundWriter()
        self._scores: dict[str, float] = {}
        self._scored_at: int | None = None
        self._refusal: str | None = None
        self._has_warned = False

    def begin(self, step: int, overwrite: bool) -> None:
        """Begin at a step; see `CheckpointDirectory.begin`."""

        def begin() -> None:
            self._wait_for_an_earlier_fit()
            self.directory.begin(step, overwrite)

        self._take_up(step, begin)

    def scores_at(self, step: int) -> dict[str, float]:
        """The results of this step's evaluations."""
        return dict(self._scores) if step == self._scored_at else {}

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Keep the results for the checkpoint of this step, or give them to it."""
        self._scores, self._scored_at = {**self.scores_at(step), **scores}, step
        if step == self.saved_at:
            given = dict(scores)
            self._workers.by_chief(
                lambda: self._writer.submit(lambda: self._add_scores(step, given))
            )

    def save(self, step: int, ending: str, prepare: Callable[[], PreparedSave]) -> None:
        """Copy the model now, once the write before is through, and have it written.

        Raises:
            Exception: What the write before has raised.
        """

        def make_way() -> None:
            self._wait()
            path = self.directory.path_of(step, ending)
            for listener in self._listeners:
                with _named(listener, "before_save", step):
                    listener.before_save(step, path)

        self._workers.by_chief(make_way)
        prepared = prepare()
        self.saved_at = step
        if self._workers.is_chief:
            scores = self.scores_at(step)
            self._writer.submit(lambda: self._write(step, ending, prepared, scores))

    def refuse(self, step: int, reason: str) -> None:
        """Leave a step out, since it is not finite; the first time in a fit that is warned of."""
        self._workers.by_chief(self._writer.wait)
        self._refusal = self._refusal or _refusal(step, reason)
        self._warn_of_refusal()

    def go_back(self, step: int) -> None:
        """Drop what lies past a step."""

        def drop() -> None:
            self._wait()
            self.directory.drop_past(step)

        self._take_up(step, drop)
        if self._scored_at != step:
            self._scores, self._scored_at = {}, None

    def end(self, reason: str | None) -> None:
        """Wait for the last write, and mark the run's end if it has one.

        Raises:
            Exception: What the last write has raised.
        """

        def finish() -> None:
            self._wait()
            if reason is not None:
                self.directory.end(reason)

        self._workers.by_chief(finish)

    def let_write(self) -> None:
        """Wait for the last write, by itself: the other workers may not know of the end.

        Raises:
            Exception: What it has raised.
        """
        self._wait()

    def _take_up(self, step: int, action: Callable[[], None]) -> None:
        """Know on all workers what the directory holds after an action of the chief."""

        def look() -> tuple[bool, dict[str, float] | None]:
            action()
            best = self.directory.best
            return self.directory.has(step), None if best is None else dict(best.scores)

        is_there, self.best_scores = self._workers.by_chief(look) or (False, None)
        self.saved_at = step if is_there else None

    def _wait_for_an_earlier_fit(self) -> None:
        """One that was broken off may still be writing to the same place."""
        place = os.path.realpath(self.directory.path)
        earlier = _WRITERS.get(place)
        _WRITERS[place] = self._writer
        if earlier is not None:
            try:
                earlier.wait()
            except Exception as error:
                error.add_note("That was in an earlier fit, which was broken off.")
                raise

    def _wait(self) -> None:
        self._writer.wait()
        self._warn_of_refusal()

    def _warn_of_refusal(self) -> None:
        """In the thread that trains: warnings of another one may go unseen."""
        if self._refusal is not None and not self._has_warned:
            self._has_warned = True
            preflight.warn(self._refusal)

    def _write(
        self, step: int, ending: str, prepared: PreparedSave, scores: Mapping[str, float]
    ) -> None:
        weights = {k: a for k, a in prepared.arrays.items() if not is_of_metrics(k)}
        name = first_non_finite(weights, prepared.may_be_infinite)
        if name is not None:
            self._refusal = _refusal(step, f"{name} is not finite")
            return
        path = self.directory.save(step, ending, prepared.write, scores)
        for listener in self._listeners:
            with _named(listener, "after_save", step):
                listener.after_save(step, path)

    def _add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        if self.directory.has(step):  # else it was refused
            self.directory.add_scores(step, scores)


def _refusal(step: int, reason: str) -> str:
    return (
        f"There is no checkpoint of step {step}: {reason}. Others are left out without a further "
        "warning in this fit, as long as it is so."
    )


_WRITERS: WeakValueDictionary[str, BackgroundWriter] = WeakValueDictionary()
"""Who wrote last to a directory in this process."""


@contextmanager
def _named(listener: CheckpointListener, method: str, step: int) -> Iterator[None]:
    """An error within it says which listener raised."""
    try:
        yield
    except Exception as error:
        error.add_note(
            f"{type(listener).__name__}.{method}, one of StepCheckpoint's listeners, raised this "
            f"at step {step}."
        )
        raise
