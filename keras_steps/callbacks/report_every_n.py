"""ReportEveryN: reports for a writer of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_steps.reporting import Reporting
from keras_steps.run import Run
from keras_steps.triggers import Trigger
from keras_steps.user_writers import Writer, as_writer


class ReportEveryN(Reporting):
    """Hands the report of every n-th step, and each evaluation's results, to a writer.

    For experiment trackers: `ReportEveryN(lambda step, scalars: wandb.log(scalars, step))`.
    Values are means over the steps since the report before. Under a strategy only the
    chief writes.

    Args:
        writer: A function of (step, scalars), or an object with `write(step, scalars)`,
            `flush()` and `close()`. `scalars` is a dict from names to floats of its own. An
            evaluation's results come at once, so that a step may bring two calls, never a
            name twice. `flush` is called every 10 seconds of training and at the end of each
            fit, `close` after that: a writer for several fits opens itself again. If it has a
            `drop_past(step)`, that is called when a rollback has taken the run back to a step.
        every: Steps between two reports, or a trigger. The last step is reported as well.
        extra: A function from the model to a dict of further scalars, called when a report
            is due.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `every` is less than 1; in fit, if `extra` gives a name that the
            report has already.
        TypeError: If an argument is of the wrong kind. What the writer raises comes out of
            fit, with a note that names the writer.

    Example:

    >>> losses = {}
    >>> def keep(step, scalars):
    ...     losses[step] = scalars["loss"]
    >>> callback = ReportEveryN(keep, every=10)
    """

    def __init__(
        self,
        writer: Writer | Callable[[int, dict[str, float]], Any],
        every: int | Trigger = 100,
        *,
        extra: Callable[[Any], Mapping[str, float]] | None = None,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, extra=extra, optimizer=optimizer)
        self.given = writer
        self._adapted = as_writer(writer, "ReportEveryN(writer)")

    def open_writer(self, run: Run, step: int) -> Writer:
        return self._adapted

    @property
    def writer_name(self) -> str:
        name = getattr(self.given, "__qualname__", type(self.given).__name__)
        return f"ReportEveryN, {name},"
