"""Reporting: what every callback that writes reports has in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from keras_steps import preflight
from keras_steps.extra import checked_extra, refuse_extra, with_extra
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.timelines import RunPlace, Timeline, share_a_timeline
from keras_steps.triggers import Trigger
from keras_steps.user_writers import Writer, drop_past

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining

_FLUSH_SECS = 10.0


class Reporting(StepCallback, ABC):
    """Hands each report, and each evaluation's results, to a writer.

    Evaluation results are written at once, at their step; a report at the same step then
    has what is left. The writer is opened with the first of them, when the run knows from
    which step it goes on, and closed at the end of the fit. After a fit that was broken
    off by an error, it is closed too.

    Args:
        every: As in StepCallback.
        extra: A function from the model to a dict of further scalars.
        optimizer: As in StepCallback.
    """

    order: ClassVar[Order] = Order.REPORT
    at_end = True
    uses_model = False
    on_every_worker: ClassVar[bool] = False
    """Whether workers other than the chief write too."""

    timeline: ClassVar[Timeline | None] = None
    """How places are told apart, if it writes to one."""

    place: Path | None = None
    """The file or directory that was asked for, if it writes to one."""

    _written: set[str]
    _run_place: RunPlace | None

    def __init__(
        self,
        every: int | Trigger,
        *,
        extra: Callable[[Any], Mapping[str, float]] | None = None,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        self.extra = checked_extra(extra, type(self).__name__)
        self.uses_model = extra is not None
        self._run: Run | None = None
        self._writer: Writer | None = None
        self._begin(None)

    @abstractmethod
    def open_writer(self, run: Run, step: int) -> Writer:
        """The writer for a run that goes on from `step`; 0: a fresh one."""

    @property
    def writer_name(self) -> str:
        """Whose error it is when the writer raises."""
        return type(self).__name__

    def place_of(self, run: Run) -> Path:
        """Where this run writes; from here on it is this run's own."""
        assert self.place is not None and self._run_place is not None
        return self._run_place.take(self.place, goes_on=run.goes_on(self), tell=run.print_line)

    def begin(self, run: Run) -> None:
        self._begin(run)
        for other in run.callbacks:
            if other is self or not isinstance(other, Reporting):
                continue
            if self.place and other.place and share_a_timeline(self.place, other.place):
                raise ValueError(
                    f"two callbacks of one fit write to the same place, now or in a later run: "
                    f"{type(self).__name__} to {self.place}, and {type(other).__name__} to "
                    f"{other.place}. Give each a name of its own, and not the other's and a number."
                )

    def before_first_update(self, run: Run) -> None:
        """A backup of the run's begin knows its place."""
        if self.is_writing and self._run_place is not None:
            place, run_place, goes_on = self.place, self._run_place, run.goes_on(self)
            assert place is not None
            run.agreement.attempt(
                lambda: run_place.choose(place, goes_on=goes_on, tell=run.print_line)
            )

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        if self.extra is not None:
            logs = with_extra(logs, self.extra, self.model)
        self._write(step, logs)

    def on_evaluation(self, step: int, logs: dict[str, float]) -> None:
        self._write(step, logs)

    def rewound(self, run: Run) -> None:
        """Take back what was written past the step that the run has gone back to."""
        step = run.clock_of(self).step
        if self._writer is not None:
            doing = f"called back to step {step}"
            self.attempt(lambda writer: drop_past(writer, step), doing)

    def get_state(self) -> dict[str, Any]:
        return {
            "written_at": self._written_at,
            "written": sorted(self._written),
            "placed": self._run_place and self._run_place.chosen,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._written_at, self._written = state["written_at"], set(state["written"])
        if self._run_place is not None:
            self._run_place.chosen = state["placed"]

    def end(self, run: Run) -> None:
        self.close_writer()
        self._run = None

    def break_off(self, run: Run) -> None:
        self.end(run)

    def refuse_loop(self, training: LoopTraining) -> None:
        refuse_extra(self.extra, training, type(self).__name__)

    def writer(self) -> Writer:
        """The writer of this run."""
        if self._writer is None:
            run = self._run
            assert run is not None
            with self._named("opened"):
                self._writer = self.open_writer(run, run.begun_at[run.clock_of(self)])
        return self._writer

    @property
    def is_writing(self) -> bool:
        """Whether this process is one that writes, and has not failed in it."""
        assert self._run is not None
        is_writer = self.on_every_worker or self._run.is_chief
        return is_writer and not self._run.agreement.has_failed

    def close_writer(self) -> None:
        """Close the writer if one is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._named("closed"):
                try:
                    writer.flush()
                finally:
                    writer.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy opens a writer of its own."""
        return {**super().__getstate__(), "_run": None, "_writer": None}

    def _begin(self, run: Run | None) -> None:
        self._run = run
        self._written_at = -1
        self._written = set()
        self._run_place = None if self.timeline is None else RunPlace(self.timeline)
        self._has_warned = False
        self._flushed_at = 0.0 if run is None else run.stopwatch.seconds()

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        assert self._run is not None
        if not self.is_writing:
            return
        written = self._written if step == self._written_at else set()
        new = {name: value for name, value in scalars.items() if name not in written}
        if not new:
            return
        self._warn_of_nan(step, new)
        self.attempt(lambda writer: self._put(writer, step, new), f"called at step {step}")
        self._written_at, self._written = step, written | new.keys()

    def _put(self, writer: Writer, step: int, scalars: dict[str, float]) -> None:
        assert self._run is not None
        writer.write(step, scalars)
        seconds = self._run.stopwatch.seconds()
        if seconds - self._flushed_at >= _FLUSH_SECS:
            self._flushed_at = seconds
            writer.flush()

    def _warn_of_nan(self, step: int, scalars: Mapping[str, float]) -> None:
        names = [name for name, value in scalars.items() if math.isnan(value)]
        if names and not self._has_warned:
            self._has_warned = True
            preflight.warn(
                f"{', '.join(names)}: NaN at step {step}. It is written as NaN; there is no "
                "further warning in this fit."
            )

    def attempt(self, action: Callable[[Any], object], doing: str) -> None:
        """Do something with the writer; where that fails, all workers end if they meet.

        Args:
            action: Takes the writer.
            doing: How an error says what was done.
        """
        assert self._run is not None

        def act() -> None:
            writer = self.writer()
            with self._named(doing):
                action(writer)

        self._run.agreement.attempt(act)

    @contextmanager
    def _named(self, doing: str) -> Iterator[None]:
        """An error within it says whose writer raised."""
        try:
            yield
        except Exception as error:
            error.add_note(f"The writer of {self.writer_name} raised this, {doing}.")
            raise
