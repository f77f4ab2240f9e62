"""Event files for TensorBoard, by the tensorboard package and without TensorFlow."""

from __future__ import annotations

import itertools
import os
import socket
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_BUCKETS = 30
_numbers = itertools.count()


def is_taken(directory: Path) -> bool:
    """Whether an earlier run has written its curves to this log directory, or can't ever."""
    if directory.exists() and not directory.is_dir():
        return True
    return any(_event_files(directory / run) for run in ("train", "validation"))


def take(directory: Path) -> None:
    """Make a log directory this run's own.

    Raises:
        FileExistsError: If another run has done so.
    """
    (directory / "train").mkdir(parents=True)


class TensorBoardWriter:
    """Writes reports to runs below one directory: `train`, `validation` and others.

    Each write is flushed to the operating system, so that a killed process loses nothing.

    Args:
        directory: The log directory.
        begin: The step from which this session goes on; TensorBoard drops what lies past it.
        prefixes: Those of evaluation results, such as `val_`. A list that may grow.
    """

    def __init__(self, directory: Path, begin: int, prefixes: Iterable[str]) -> None:
        self._directory = directory
        self._purge_from = begin + 1 if begin else 0
        self._prefixes = prefixes
        self._runs: dict[str, _EventFile] = {}
        self._run("train")
        for prefix in ("val_", *prefixes):  # curves that a killed session took further than `begin`
            if _event_files(directory / run_of(prefix)):
                self._run(run_of(prefix))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        by_run: dict[str, dict[str, float]] = {}
        for name, value in scalars.items():
            fitting = [p for p in self._prefixes if p and name.startswith(p) and name != p]
            prefix = max(fitting, key=len, default=None)
            if prefix is None:
                by_run.setdefault("train", {})[name] = value
            else:
                by_run.setdefault(run_of(prefix), {})[name.removeprefix(prefix)] = value
        for run, values in by_run.items():
            self._run(run).add_scalars(step, values)

    def write_histograms(self, step: int, arrays: Mapping[str, Any]) -> None:
        """Write how the finite values of each array are distributed."""
        self._run("train").add_histograms(step, arrays)

    def flush(self) -> None:
        """See that no one has taken the files away; what they hold was flushed by each write."""
        for run in self._runs.values():
            run.require_existence()

    def close(self) -> None:
        for run in self._runs.values():
            run.close()

    def drop_past(self, step: int) -> None:
        """Begin a session in each run from which readers drop what lies past a step."""
        self.close()
        self._purge_from = step + 1
        for name in list(self._runs):
            self._runs[name] = _EventFile(self._directory / name, self._purge_from)

    def _run(self, name: str) -> _EventFile:
        if name not in self._runs:
            self._runs[name] = _EventFile(self._directory / name, self._purge_from)
        return self._runs[name]


def run_of(prefix: str) -> str:
    """The name of TensorBoard's run for the results of evaluations with this prefix."""
    if prefix == "val_":
        return "validation"
    name = prefix.strip("_-/. ").replace("/", "_") or "evaluation"
    return f"evaluation_{name}" if name in ("train", "validation") else name


class _EventFile:
    """One session of one run.

    Every session writes START, the first too: readers take the first one of a directory
    for its beginning, and drop what lies at or past the step of each later one.
    """

    def __init__(self, directory: Path, purge_from: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / _next_name(directory)
        file = self._path.open("xb")
        self.close = weakref.finalize(self, file.close)  # also after a fit that was broken off
        self._records = RecordWriter(file)
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(file_version="brain.Event:2")
        self._add(step=purge_from, session_log=start)

    def require_existence(self) -> None:
        """Raise if what is written goes to a file that is in no directory any more."""
        if not self._path.exists():
            raise FileNotFoundError(
                f"{self._path} was removed while it was written to: its curves are lost."
            )

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        # As simple values: of tensors, the older EventAccumulator would keep what was dropped.
        values = [self._summary.Value(tag=n, simple_value=v) for n, v in scalars.items()]
        self._add(step=step, summary=self._summary(value=values))

    def add_histograms(self, step: int, arrays: Mapping[str, Any]) -> None:
        from tensorboard.plugins.histogram.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        metadata = create_summary_metadata(display_name=None, description=None)
        values = []
        for name, array in arrays.items():
            tensor = make_tensor_proto(_buckets(array), dtype=np.float64)
            values.append(self._summary.Value(tag=name, metadata=metadata, tensor=tensor))
        self._add(step=step, summary=self._summary(value=values))

    def _add(self, **fields: Any) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
        self._records.flush()


def _buckets(array: Any) -> np.ndarray:
    """Rows of left edge, right edge and count, as TensorBoard's own summaries have them."""
    values = np.asarray(array, dtype="float64").ravel()
    values = values[np.isfinite(values)]
    if values.size == 0:
        return np.zeros((_BUCKETS, 3))
    low, high = values.min(), values.max()
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        return np.array([[low, high, 0.0]] * (_BUCKETS - 1) + [[low, high, values.size]])
    counts, edges = np.histogram(values, bins=_BUCKETS)
    return np.stack([edges[:-1], edges[1:], counts], axis=1)


def _event_files(directory: Path) -> list[str]:
    names = os.listdir(directory) if directory.is_dir() else []
    return [name for name in names if "tfevents" in name]


def _next_name(directory: Path) -> str:
    """A name that sorts behind all others: readers go through the files by name."""
    stamps = (name.partition("tfevents.")[2].partition(".")[0] for name in _event_files(directory))
    newest = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0)
    stamp = max(int(time.time()), newest + 1)
    who = f"{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
    return f"events.out.tfevents.{stamp:010d}.{who}"
