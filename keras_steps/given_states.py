"""What callbacks give of themselves, as a backup holds it, and as they get it back: the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_steps.keras_internals import copied
from keras_steps.state_trees import put_together, taken_apart


def held(state: Any, callback: str) -> dict[str, Any]:
    """A state as a backup holds it: its structure, with the types of all there is, and copies.

    Args:
        state: What the callback's `get_state` gave.
        callback: Its name.

    Raises:
        TypeError: If something in it can't be given back as it was, naming the callback and the
            place.
    """
    arrays: dict[str, Any] = {}
    try:
        structure = taken_apart(state, f"{callback}.get_state()", arrays, stands_alone=True)
    except TypeError as error:
        error.add_note(
            "StepBackupAndRestore keeps what get_state returns, and gives it back as it was. "
            "Return one of these, and make what it stands for in set_state."
        )
        raise
    return {"structure": structure, "arrays": copied(arrays)}


def held_of_run(states: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's `get_state` gave, with the state of each callback as a backup holds it."""
    return _turned(states, held)


def with_states_given_back(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a fit, as a backup holds it, with each callback's as its `get_state` gave it."""
    at_end = state["at_end"]
    if at_end is not None:
        at_end = {**at_end, "callbacks": _given_back_each(at_end["callbacks"])}
    return {
        **state,
        "run": _turned(state["run"], lambda of, name: _given_back(of)),
        "callbacks": _given_back_each(state["callbacks"]),
        "at_end": at_end,
    }


def _given_back_each(states: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _given_back(state) for name, state in states.items()}


def _given_back(state: Mapping[str, Any]) -> Any:
    return put_together(state["structure"], state["arrays"])


def _turned(states: Mapping[str, Any], turn: Callable[[Any, str], Any]) -> dict[str, Any]:
    return {
        name: {**of, "callback": turn(of["callback"], name)} if name != "sums" else of
        for name, of in states.items()
    }
