"""Reports as the rows of a file: CSV, or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from itertools import pairwise
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
        self._format: _Format = _JsonLines() if path.suffix.lower() == ".jsonl" else _Csv()
        self._columns = ["step"]
        self._last: Row = {"step": -1}
        self._last_at = 0
        if begin and is_taken(path):
            self.drop_past(begin)
        else:
            self._replace([])

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if "step" in scalars:
            raise ValueError(f"{self._path}: 'step' is the first column; rename that scalar.")
        joins = step == self._last["step"]
        row = {**self._last, **scalars} if joins else {"step": step, **scalars}
        new = [name for name in scalars if name not in self._columns]
        if new and self._format.has_header:
            rows = self._read()
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

    def drop_past(self, step: int) -> None:
        """Drop the rows that lie past the step from which a run goes on."""
        rows = self._read()
        self._replace([row for row in rows if row["step"] <= step])

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _read(self) -> list[Row]:
        """The rows that are whole: a kill may have cut the last one short."""
        lines, end, cut = self._path.read_bytes().rpartition(b"\n")
        try:
            text = (lines + end).decode()
            self._columns, rows = self._format.parse(text, cut.decode(errors="replace"))
            for before, after in pairwise(row["step"] for row in rows):
                if after <= before:
                    raise ValueError(f"it has step {after} after step {before}")
        except ValueError as error:
            raise ValueError(
                f"{self._path} is not what StepCSVLogger writes: {error}. Give another path."
            ) from None
        return rows

    def _replace(self, rows: Iterable[Row]) -> None:
        partial = self._path.with_name(f"{self._path.name}.partial")
        self._last, self._last_at = {"step": -1}, 0
        try:
            with partial.open("wb") as file:
                file.write(self._format.header(self._columns).encode())
                for row in rows:
                    self._last, self._last_at = row, file.tell()
                    file.write(self._format.line(row, self._columns).encode())
            os.replace(partial, self._path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


class _Format(Protocol):
    has_header: bool

    def header(self, columns: list[str]) -> str: ...

    def line(self, row: Row, columns: list[str]) -> str: ...

    def parse(self, text: str, cut: str) -> tuple[list[str], list[Row]]:
        """The columns and the rows of a file.

        Args:
            text: Its whole lines.
            cut: What is there of a last line that has no end.

        Raises:
            ValueError: If it is another kind of file, with the reason.
        """


class _Csv:
    has_header = True

    def header(self, columns: list[str]) -> str:
        return self._joined(columns)

    def line(self, row: Row, columns: list[str]) -> str:
        return self._joined(repr(row[name]) if name in row else "" for name in columns)

    def parse(self, text: str, cut: str) -> tuple[list[str], list[Row]]:
        columns, *lines = csv.reader(io.StringIO(text or cut, newline=""))
        if columns[:1] != ["step"] or len(set(columns)) < len(columns):
            raise ValueError(f"its columns are {', '.join(columns)[:80]!r}")
        return columns, [self._row(columns, line) for line in lines]

    def _row(self, columns: list[str], line: list[str]) -> Row:
        try:
            pairs = zip(columns[1:], line[1:], strict=True)
            return {"step": int(line[0]), **{n: float(v) for n, v in pairs if v}}
        except (IndexError, ValueError):
            raise ValueError(f"it has the row {','.join(line)[:80]!r}") from None

    def _joined(self, values: Iterable[str]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerow(values)  # so that it quotes both
        return text.getvalue().removesuffix("\r\n") + "\n"


class _JsonLines:
    has_header = False

    def header(self, columns: list[str]) -> str:
        return ""

    def line(self, row: Row, columns: list[str]) -> str:
        return json.dumps(row, ensure_ascii=False) + "\n"

    def parse(self, text: str, cut: str) -> tuple[list[str], list[Row]]:
        start = '{"step": '
        if not cut.startswith(start[: len(cut)]):
            raise ValueError(f"it has the line {cut[:80]!r}")
        return ["step"], [self._row(line) for line in text.split("\n")[:-1]]

    def _row(self, line: str) -> Row:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        is_row = isinstance(row, dict) and next(iter(row), None) == "step"
        if not is_row or not all(isinstance(value, (int, float)) for value in row.values()):
            raise ValueError(f"it has the line {line[:80]!r}")
        return row
