"""restore_checkpoint: what StepCheckpoint(objects=...) saved, back into the objects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_steps.checkpoint_contents import checked_objects
from keras_steps.keras_internals import copied
from keras_steps.object_files import ENDING, read_arrays_of, read_objects
from keras_steps.savable_objects import state_of
from keras_steps.saved_states import FunctionState, SavableState
from keras_steps.timelines import local_path

_MOST_SAID = 5


def restore_checkpoint(path: str | os.PathLike[str], objects: Mapping[str, Any]) -> dict[str, Any]:
    """Put what StepCheckpoint(objects=...) saved back into the objects.

    Variables are assigned in place, also under another strategy or on another device, and
    `load_state_dict` is called where there is one. A function can't be given a value: what it
    would have returned is in the dict that is returned here, with the structure and the devices
    of what the function returns now; an empty list or dict there takes what had grown in it.
    A loop that is begun afterwards goes on from the
    step of the counter among the objects. With several workers, call it on each.

    Args:
        path: A checkpoint, as `latest_checkpoint` and `best_checkpoint` return it.
        objects: Those that were saved, under their names, and built as they were then. None in
            the place of an object leaves it out.

    Returns:
        The values of functions, by name.

    Raises:
        ValueError: If names, or shapes, types or numbers of variables, are other ones than in
            the file; if it is damaged, or no checkpoint of objects. Nothing has been changed
            then. (If `load_state_dict` of an object refuses what is in the file, its own error
            is raised, and all are given what they had before.)
        TypeError: If an argument is of the wrong kind.
        FileNotFoundError: If there is no such file.

    Example: a script that goes on from where it was.

    >>> import tempfile
    >>> from keras_steps import StepCheckpoint, StepLoop, latest_checkpoint
    >>> params = {"w": np.zeros(3)}
    >>> directory = tempfile.mkdtemp()
    >>> saver = StepCheckpoint(directory, every=2, objects={"params": lambda: params})
    >>> for _ in StepLoop([saver]).over(range(4)):
    ...     params = {"w": params["w"] + 1}
    >>> restore_checkpoint(latest_checkpoint(directory), {"params": lambda: params})
    {'params': {'w': array([4., 4., 4.])}}
    """
    place = _checked_path(path)
    stored = read_objects(place)
    wanted = checked_objects(_without_none(objects), "restore_checkpoint(objects)")
    _require_same_names(place, stored, objects)
    states = {name: state_of(name, thing) for name, thing in wanted.items()}
    arrays = read_arrays_of(place, (stored[name]["state"] for name in states))
    problems = [
        problem
        for name, state in states.items()
        for problem in _problems(state, stored[name], arrays)
    ]
    problems = problems or list(_contradictions(states, stored, arrays))
    if problems:
        more = len(problems) - _MOST_SAID
        raise ValueError(
            f"{place} can't be restored into these objects, and nothing has been changed: "
            f"{'; '.join(problems[:_MOST_SAID])}{f'; and {more} more' if more > 0 else ''}. Build "
            "the same objects as those that were saved."
        )
    ordered = sorted(states.values(), key=lambda state: not state.may_refuse)
    before = {state.name: _copied(state) for state in ordered if state.may_refuse}
    found: dict[str, Any] = {}
    for state in ordered:
        try:
            found[state.name] = state.put(stored[state.name]["state"], arrays)
        except Exception as error:
            for name in [state.name, *reversed(found)]:
                if name in before:
                    _put_back(states[name], *before[name], error)
            raise
    return {n: found[n] for n, state in states.items() if isinstance(state, FunctionState)}


def _copied(state: SavableState) -> tuple[Any, dict[str, np.ndarray]]:
    """What an object holds, as a file would."""
    held: dict[str, Any] = {}
    return state.taken_apart(held), copied(held)


def _put_back(
    state: SavableState, before: Any, arrays: Mapping[str, np.ndarray], error: Exception
) -> None:
    """Give an object what it had; where it refuses that too, the error says so."""
    try:
        state.put(before, arrays)
    except Exception as again:
        error.add_note(
            f"{state.name!r} has refused what it had before as well, and may be half restored: "
            f"{again!r}."
        )


def _without_none(objects: Any) -> Any:
    if not isinstance(objects, Mapping):
        return objects
    return {name: thing for name, thing in objects.items() if thing is not None}


def _problems(
    state: SavableState, stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Iterator[str]:
    if state.kind == stored["kind"]:
        yield from state.differences(stored["state"], arrays)
    else:
        yield f"{state.name} was saved as {stored['kind']}, and is {state.kind} here"


def _contradictions(
    states: Mapping[str, SavableState],
    stored: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, np.ndarray],
) -> Iterator[str]:
    """What is one variable here, and had two values when it was saved: one would be lost."""
    seen: dict[Any, tuple[str, np.ndarray]] = {}
    for name, state in states.items():
        for place, key, array in state.places(stored[name]["state"], arrays):
            other, first = seen.setdefault(place, (key, array))
            if first is not array and first.tobytes() != array.tobytes():
                yield f"{other} and {key} are one variable here, and two values in the file"


def _require_same_names(place: Path, stored: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
    unknown = [name for name in objects if name not in stored]
    missing = [name for name in stored if name not in objects]
    if unknown or missing:
        said = [f"{', '.join(map(repr, unknown))} is not in it"] if unknown else []
        said += [f"{', '.join(map(repr, missing))} is not among the objects"] if missing else []
        raise ValueError(
            f"{place} holds {', '.join(map(repr, stored))}: {', and '.join(said)}. Give all of "
            "them by these names; None leaves one out, {'critic': None}."
        )


def _checked_path(path: Any) -> Path:
    if path is None:
        raise TypeError(
            "restore_checkpoint(path) must be a file; received None, which latest_checkpoint "
            "returns where there is no checkpoint yet."
        )
    place = local_path(path, "restore_checkpoint(path)")
    if place.is_dir():
        raise ValueError(
            f"restore_checkpoint(path) must be a file; received the directory {place}. "
            "latest_checkpoint(directory) and best_checkpoint(directory) say which one."
        )
    instead: dict[str, str] = {
        ".keras": "keras.saving.load_model(path)",
        ".h5": "model.load_weights(path)",
    }
    if place.suffix in instead:
        raise ValueError(
            f"restore_checkpoint(path) must end in {ENDING!r}; received {place}, which holds a "
            f"model: use {instead[place.suffix]}."
        )
    return place
