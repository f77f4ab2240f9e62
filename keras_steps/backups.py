"""Backups on the disk: a whole one or none, verified before it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_steps import preflight
from keras_steps.array_files import read_arrays, write_arrays
from keras_steps.atomic import read_json, remove_partials, sha256_of, write_atomically, write_json

_MANIFEST = re.compile(r"backup_(\d{6,})_step_(\d{8,})\.json")
_FORMAT = 2


class Backup(NamedTuple):
    """What was saved.

    Attributes:
        path: Its manifest.
        state: Nested dicts and lists of plain values and arrays.
        arrays: The values of variables, by key.
    """

    path: Path
    state: dict[str, Any]
    arrays: dict[str, np.ndarray]


class BackupDirectory:
    """The backups of one run, numbered; the newest `keep` stay.

    A backup is two files: the arrays, and a manifest that is written last and holds their
    checksum and one of its own. Arrays without a manifest are no backup. Other files are left
    alone.

    Args:
        path: The directory.
        keep: How many stay.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self.keep = keep

    def begin(self) -> None:
        """Make the directory, and remove what a killed process left half-written."""
        self.path.mkdir(parents=True, exist_ok=True)
        remove_partials(self.path)
        known = {manifest.stem for manifest in self._manifests()}
        for file in self.path.glob("backup_*_step_*.npz"):
            is_ours = _MANIFEST.fullmatch(f"{file.stem}.json") and file.is_file()
            if is_ours and file.stem not in known:
                file.unlink()

    def save(self, step: int, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
        """Write a backup, then delete those that are older than the newest `keep`.

        Raises:
            OSError: If the system fails to write, naming the file. The others stay.
        """
        manifests = self._manifests()
        number = 1 + max((_number(manifest) for manifest in manifests), default=0)
        path = self.path / f"backup_{number:06d}_step_{step:08d}.json"
        held = {f"variable/{key}": array for key, array in arrays.items()}
        plain = _detached(state, held, "state")
        kinds = {key: str(array.dtype) for key, array in held.items()}
        with write_atomically(path.with_suffix(".npz")) as partial:
            write_arrays(partial, held)
            size, checksum = partial.stat().st_size, sha256_of(partial)
        manifest = {"format": _FORMAT, "bytes": size, "sha256": checksum}
        write_json(path, {**manifest, "kinds": kinds, "state": plain})
        for old in sorted([*manifests, path], key=_number)[: -self.keep]:
            old.unlink()
            old.with_suffix(".npz").unlink(missing_ok=True)
        return path

    def newest(self) -> Backup | None:
        """The newest that is whole; a warning names those that are not.

        Raises:
            ValueError: If there are backups and none of them is whole.
        """
        manifests = sorted(self._manifests(), key=_number, reverse=True)
        damaged: list[str] = []
        for manifest in manifests:
            try:
                backup = _read(manifest)
            except (OSError, ValueError) as error:
                damaged.append(str(error))
                continue
            if damaged:
                preflight.warn(f"{' '.join(damaged)} Going on from the one before, {backup.path}.")
            return backup
        if damaged:
            raise ValueError(
                f"None of the backups in {self.path} can be used: {' '.join(damaged)} To begin "
                "from step 0, delete them."
            )
        return None

    def read(self, name: str) -> Backup:
        """The backup of this name, for a worker that is told which one to take.

        Raises:
            FileNotFoundError: If this worker doesn't see what the chief has written.
            ValueError: If it is not whole.
        """
        manifest = self.path / name
        if not manifest.is_file():
            raise FileNotFoundError(
                f"{manifest} is not there, and it is what the chief goes on from. Give all workers "
                "the same directory, on a file system that they share."
            )
        return _read(manifest)

    def drop_past(self, step: int) -> None:
        """Delete the backups of later steps, after a rollback."""
        for manifest in self._manifests():
            if int(_MANIFEST.fullmatch(manifest.name)[2]) > step:  # type: ignore[index]
                manifest.unlink()
                manifest.with_suffix(".npz").unlink(missing_ok=True)

    def _manifests(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        found = (path for path in self.path.iterdir() if _MANIFEST.fullmatch(path.name))
        return [path for path in found if path.is_file()]


def _number(manifest: Path) -> int:
    return int(_MANIFEST.fullmatch(manifest.name)[1])  # type: ignore[index]


def _read(manifest: Path) -> Backup:
    content = read_json(manifest)
    if content["format"] != _FORMAT:
        raise ValueError(
            f"{manifest} has format {content['format']}; this version reads {_FORMAT}."
        )
    file = manifest.with_suffix(".npz")
    if not file.is_file():
        raise ValueError(f"{file} is missing.")
    if file.stat().st_size != content["bytes"] or sha256_of(file) != content["sha256"]:
        raise ValueError(f"{file} is damaged: its size or checksum does not fit.")
    held = read_arrays(file, content["kinds"])
    arrays = {
        key.removeprefix("variable/"): array
        for key, array in held.items()
        if key.startswith("variable/")
    }
    return Backup(manifest, _attached(content["state"], held), arrays)


def _detached(value: Any, held: dict[str, np.ndarray], name: str) -> Any:
    """`value` as JSON can hold it, with its arrays in `held` and their names in their place.

    A dict that looks like such a name, as where "array" is all that is logged, is marked as one.
    """
    if isinstance(value, Mapping):
        plain = {key: _detached(each, held, f"{name}/{key}") for key, each in value.items()}
        return {"dict": plain} if _is_mark(plain) else plain
    if isinstance(value, (list, tuple)):
        return [_detached(each, held, f"{name}/{n}") for n, each in enumerate(value)]
    if isinstance(value, np.ndarray):
        while name in held:
            name += "_"
        held[name] = value
        return {"array": name}
    return value.item() if isinstance(value, np.generic) else value


def _attached(value: Any, held: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_attached(each, held) for each in value]
    if not isinstance(value, dict):
        return value
    if "array" in value and _is_mark(value):
        return held[value["array"]]
    parts = value["dict"] if _is_mark(value) else value
    return {key: _attached(each, held) for key, each in parts.items()}


def _is_mark(plain: Mapping[str, Any]) -> bool:
    return len(plain) == 1 and not plain.keys().isdisjoint(("array", "dict"))
