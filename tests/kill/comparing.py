"""Whether a run that was killed again and again came to what one came to that never was."""

from __future__ import annotations

import csv
import io
import json
import logging
import zipfile
from pathlib import Path

import h5py
import numpy as np
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util.tensor_util import make_ndarray

from keras_steps import list_checkpoints

_OF_THE_CLOCK = "per_second"
logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it tells of each point that it drops


def differences(whole: Path, killed: Path) -> list[str]:
    """What is not the same, bit for bit, in the directories of two runs; empty if all is.

    Args:
        whole: Of the run that was never killed.
        killed: Of the other, which has come to its end.
    """
    comparisons = {
        "the files": _files,
        "the final weights and optimizer": _final_state,
        "History": lambda run: _json(run / "history.json"),
        "the end": lambda run: _json(run / "end.json"),
        "metrics.csv": _table,
        "TensorBoard's values": lambda run: _curves(run, plugin_event_accumulator),
        "TensorBoard's values, read by the older accumulator": lambda run: _curves(
            run, event_accumulator
        ),
        "the checkpoints": _checkpoints,
        "the weights in the checkpoints": _saved_weights,
        "the firing steps": lambda run: {key: "" for key in _firings(run)},
    }
    found = []
    for name, seen in comparisons.items():
        found += [f"{name}: {line}" for line in _compared(seen(whole), seen(killed))]
    return found + _false_firings(whole, killed)


def _compared(wanted: dict, got: dict) -> list[str]:
    keys = [key for key in {**wanted, **got} if wanted.get(key) != got.get(key)]
    lines = [f"{key}: {wanted.get(key)!r} became {got.get(key)!r}"[:300] for key in keys[:3]]
    return [*lines, f"and {len(keys) - 3} more"] if len(keys) > 3 else lines


def _false_firings(whole: Path, killed: Path) -> list[str]:
    """What fired with other values, also where a kill followed and it fired once more."""
    wanted = {key: values[-1] for key, values in _firings(whole).items()}
    return [
        f"fired with other values: {key}: {wanted[key]} became {value}"[:400]
        for key, values in _firings(killed).items()
        for value in values
        if key in wanted and value != wanted[key]
    ][:3]


def _firings(run: Path) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for line in (run / "firings.jsonl").read_text().splitlines():
        kind, step, logs = json.loads(line)
        found.setdefault((kind, step), []).append(json.dumps(logs, sort_keys=True))
    return found


def _files(run: Path) -> dict[str, str]:
    """Their names, apart from event files: each session has one of its own."""
    names = {
        "/".join(path.relative_to(run).parts)
        for path in run.rglob("*")
        if path.is_file() and "tfevents" not in path.name and path.parent.name != "backup"
    }
    return dict.fromkeys(sorted(names), "")


def _final_state(run: Path) -> dict[str, bytes]:
    with np.load(run / "final.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


def _json(path: Path) -> dict:
    return json.loads(path.read_text())


def _table(run: Path) -> dict[tuple[str, str], str]:
    rows = list(csv.DictReader(io.StringIO((run / "metrics.csv").read_text())))
    steps = [row["step"] for row in rows]
    values = {
        (row["step"], name): value
        for row in rows
        for name, value in row.items()
        if _OF_THE_CLOCK not in name
    }
    return {("", "steps"): " ".join(steps), **values}


def _curves(run: Path, reader) -> dict[tuple[str, str], list]:
    """The steps and values of each tag, as a reader of TensorBoard's gives them."""
    found = {}
    for directory in sorted((run / "logs").iterdir()):
        events = reader.EventAccumulator(str(directory)).Reload()
        tags = events.Tags()
        for tag in tags.get("scalars", []):
            points = [(event.step, event.value) for event in events.Scalars(tag)]
            found[directory.name, tag] = points
        for tag in tags["tensors"]:  # the newer one makes tensors of what was read
            points = [(e.step, float(make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]
            found[directory.name, tag] = points
    return {key: points for key, points in found.items() if _OF_THE_CLOCK not in key[1]}


def _checkpoints(run: Path) -> dict[int, tuple]:
    return {c.step: (c.path.name, dict(c.scores)) for c in list_checkpoints(run / "checkpoints")}


def _saved_weights(run: Path) -> dict[tuple[int, str], bytes]:
    return {
        (checkpoint.step, name): value
        for checkpoint in list_checkpoints(run / "checkpoints")
        for name, value in _arrays_in(checkpoint.path).items()
    }


def _arrays_in(path: Path) -> dict[str, bytes]:
    """Those of a checkpoint of a model, or of objects."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        if path.suffix == ".npz":
            return {name: archive.read(name) for name in archive.namelist()}
        content = io.BytesIO(archive.read("model.weights.h5"))

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = np.asarray(item).tobytes()

    with h5py.File(content) as file:
        file.visititems(keep)
    return found
