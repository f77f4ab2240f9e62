"""StepCSVLogger: reports as rows of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_steps.reporting import Reporting
from keras_steps.run import Run
from keras_steps.table_writer import TableWriter, is_taken, take
from keras_steps.timelines import Timeline, local_path, require_writable
from keras_steps.triggers import Trigger

_OTHER_FORMATS = (".bz2", ".gz", ".json", ".tar", ".tsv", ".xlsx", ".xz", ".zip", ".zst")


class StepCSVLogger(Reporting):
    """Writes reports and evaluations to a CSV file, one row a step.

    The first column is `step`; what a step has no value for is left empty. A name that
    comes later, such as `val_loss`, becomes a further column. The file is complete after
    each row. `pandas.read_csv(path)` reads it, and with the suffix `.jsonl` the rows are JSON
    objects, for `pandas.read_json(path, lines=True)`.

    A run that goes on from a step above 0 appends to the newest of its files and drops the
    rows past that step. A fresh run leaves an earlier one's rows alone: it writes to
    `metrics_2.csv`, and says so in a line. Under a strategy only the chief writes.

    Args:
        path: The file. Its directory is made if need be, and `~` is the home directory.
        every: Steps between two reports, or a trigger. The last step is reported as well.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `every` is less than 1, or `path` ends like a file of another format; at
            train begin, if another callback of the fit writes there too; when it goes on with
            a file that it did not write.
        TypeError: If an argument is of the wrong kind.
        OSError: At train begin, if the directory can't be written to.

    Example:

    >>> callback = StepCSVLogger("logs/metrics.csv", every=100)
    """

    timeline = Timeline(is_taken, take)
    place: Path

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int | Trigger = 100,
        *,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        self.place = local_path(path, "StepCSVLogger(path)")
        if self.place.suffix.lower() in _OTHER_FORMATS:
            raise ValueError(
                f"StepCSVLogger(path) writes CSV, or JSON lines, as plain text; received {path!r}, "
                f"and readers take {self.place.suffix!r} for something else. End it in .csv or "
                ".jsonl."
            )

    def begin(self, run: Run) -> None:
        super().begin(run)
        if self.place.is_dir():
            raise IsADirectoryError(f"StepCSVLogger(path): {self.place} is a directory.")
        if not run.is_over:
            run.agreement.let_chief(lambda: require_writable(self.place.parent, "StepCSVLogger"))

    def open_writer(self, run: Run, step: int) -> TableWriter:
        place = self.place_of(run)
        return TableWriter(place, step)
