"""What a run must know to go on from a step: the callbacks' states and their windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_steps.reports import Sum
    from keras_steps.step_callback import StepCallback
    from keras_steps.watch import Watch

State = dict[str, Any]
"""Nested dicts and lists of plain values and NumPy arrays."""


def state_of(
    callbacks: Iterable[StepCallback],
    watches: Iterable[Watch],
    seconds: float,
    totals: Mapping[str, Sum] | None,
) -> dict[str, State]:
    """The state of each callback, and of its window, by its name.

    Args:
        callbacks: All of a run.
        watches: Those of them that wait for steps.
        seconds: What the run's stopwatch shows.
        totals: What closed windows go on from; see `Window.get_state`.
    """
    watch_of = {id(watch.callback): watch for watch in watches}
    states: dict[str, State] = {}
    for name, callback in _named(callbacks):
        states[name] = {"callback": callback.get_state()}
        if id(callback) in watch_of:
            states[name]["watch"] = watch_of[id(callback)].get_state(seconds, totals)
    return states


def give_back(
    states: Mapping[str, State],
    callbacks: Iterable[StepCallback],
    watches: Iterable[Watch],
    seconds: float,
) -> None:
    """Let each callback take up the state that bears its name; one without begins anew."""
    watch_of = {id(watch.callback): watch for watch in watches}
    for name, callback in _named(callbacks):
        state = states.get(name)
        if state is None:
            continue
        callback.set_state(state["callback"])
        if id(callback) in watch_of and "watch" in state:
            watch_of[id(callback)].set_state(state["watch"], seconds)


def _named(callbacks: Iterable[StepCallback]) -> Iterator[tuple[str, StepCallback]]:
    """Each with its class's name; the second of a class is called `Name 2`."""
    seen: Counter[str] = Counter()
    for callback in callbacks:
        kind = type(callback).__name__
        seen[kind] += 1
        yield (kind if seen[kind] == 1 else f"{kind} {seen[kind]}"), callback
