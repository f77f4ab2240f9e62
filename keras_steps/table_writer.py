"""Reports as the rows of a file: CSV, or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

Row = dict[str, float]
"""A row by column; `step` is an int, and what is missing is left out."""


def is_taken(path: Path) -> bool:
    """Whether there is something in the file already."""
    return path.is_file() and path.stat().st_size > 0


def take(path: Path) -> None:
    """Make an empty file that is this run's own.

    Raises:
        FileExistsError: If there is one already.
    """
    path.open("x").close()


class TableWriter:
    """One row a step, in a file that is complete after each write.

    What is written for the step of the last row joins that row. A name that was not there
    before becomes a further column: the file is written anew, and replaced as a whole.

    Args:
        path: The file; with the suffix `.jsonl` its lines are JSON objects, else it is CSV.
        begin: The step from which a run goes on: rows past it are dropped. 0: a fresh run.

    Raises:
        ValueError: If the file is there and was not written by a TableWriter.
    """

    def __init__(self, path: Path, begin: int) -> None:
        self._path = path
        self._format: _Format = _JsonLines() if path.suffix == ".jsonl" else _Csv()
        self._columns = ["step"]
        self._last: Row = {"step": -1}
        self._last_at = 0
        if begin and is_taken(path):
            self._go_on(begin)
        else:
            self._replace([])

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if "step" in scalars:
            raise ValueError(f"{self._path}: 'step' is the first column; rename that scalar.")
        joins = step == self._last["step"]
        row = {**self._last, **scalars} if joins else {"step": step, **scalars}
        new = [name for name in scalars if name not in self._columns]
        if new and self._format.has_header:
            rows = list(self._read())
            self._columns += new
            self._replace([*(rows[:-1] if joins else rows), row])
            return
        text = self._format.line(row, self._columns).encode()
        with self._path.open("r+b") as file:
            at = self._last_at if joins else file.seek(0, os.SEEK_END)
            file.seek(at)
            file.write(text)
            file.truncate()
        self._last, self._last_at = row, at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def drop_past(self, step: int) -> None:
        """Drop the rows past a step that the run has gone back to."""
        self._last, self._last_at = {"step": -1}, 0
        self._replace(row for row in self._read() if row["step"] <= step)

    def _go_on(self, begin: int) -> None:
        text = self._path.read_bytes().decode(errors="replace")
        header = self._format.columns(text)
        if header is not None and header[:1] != ["step"]:
            raise ValueError(
                f"{self._path} is not what StepCSVLogger writes: its first column is "
                f"{header[0]!r}, not 'step'. Give another path."
            )
        self._columns = header or ["step"]
        self.drop_past(begin)

    def _read(self) -> Iterator[Row]:
        with self._path.open(encoding="utf-8", errors="replace", newline="") as file:
            yield from self._format.rows(file)

    def _replace(self, rows: Iterable[Row]) -> None:
        partial = self._path.with_name(f"{self._path.name}.partial")
        with partial.open("wb") as file:
            file.write(self._format.header(self._columns).encode())
            for row in rows:
                self._last, self._last_at = row, file.tell()
                file.write(self._format.line(row, self._columns).encode())
        os.replace(partial, self._path)


class _Format(Protocol):
    has_header: bool

    def columns(self, text: str) -> list[str] | None:
        """The columns that the file names at its head, if it does."""

    def header(self, columns: list[str]) -> str: ...

    def line(self, row: Row, columns: list[str]) -> str: ...

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        """The rows that are whole: a kill may have cut the last one short."""


class _Csv:
    has_header = True

    def columns(self, text: str) -> list[str] | None:
        return next(csv.reader(io.StringIO(text, newline="")), None)

    def header(self, columns: list[str]) -> str:
        return self._joined(columns)

    def line(self, row: Row, columns: list[str]) -> str:
        return self._joined(repr(row[name]) if name in row else "" for name in columns)

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        reader = csv.reader(lines)
        columns = next(reader, [])
        for values in reader:
            if len(values) == len(columns) and values[0].isdecimal():
                pairs = zip(columns[1:], values[1:], strict=True)
                yield {"step": int(values[0]), **{n: float(v) for n, v in pairs if v}}

    def _joined(self, values: Iterable[str]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue()


class _JsonLines:
    has_header = False

    def columns(self, text: str) -> list[str] | None:
        first = text.partition("\n")[0]
        try:
            row = json.loads(first)
        except ValueError:
            return [first[:40]] if "\n" in text else None
        return list(row) if isinstance(row, dict) else [first[:40]]

    def header(self, columns: list[str]) -> str:
        return ""

    def line(self, row: Row, columns: list[str]) -> str:
        return json.dumps(row, ensure_ascii=False) + "\n"

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
