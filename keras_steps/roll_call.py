"""Before several workers wait for each other: whether all have come, to do the same."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from keras_steps import preflight
from keras_steps.distribution import Seat
from keras_steps.keras_internals import KeyValues, key_values_of
from keras_steps.roles import SetsBeforeUpdates, signals_of
from keras_steps.triggers import Trigger, goes_by_time

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback

WARNED_AFTER = 30.0
"""Seconds of waiting for a worker until something is said of it."""

WAITED_FOR = 600.0
"""Seconds until it is given up, as long as NCCL waits in a collective."""

_AT_ONCE = 1.0
_STAYS = 5.0
_COMPARED = (bool, int, float, str, Trigger)
_MAY_DIFFER = {"seconds", "message", "optimizer"}
_REFUSALS = 3
_CALLS = itertools.count()


def hold(backend: str, seat: Seat, plan: Mapping[str, Any]) -> None:
    """Tell the other workers what this one is about to do, and see that they do the same.

    It is no collective: one that does not come is named, and what differs is said, where a
    collective would wait for ever.

    Args:
        backend: Whose processes they are; see `joining_backend`.
        seat: This worker's place.
        plan: What all of them have to have in common, as JSON can hold it. A value of None, or
            none of that name, fits to every other.

    Raises:
        RuntimeError: If a worker's plan is another one, or it does not come, or has ended.
    """
    store, call = key_values_of(backend), f"keras_steps/roll_call/{next(_CALLS)}"
    try:
        store.put(f"{call}/{seat.index}", json.dumps(plan))
    except ConnectionError as error:
        raise _has_ended(0, seat, error) from error
    others = [index for index in range(seat.count) if index != seat.index]
    plans = {index: json.loads(_awaited(store, call, index, seat)) for index in others}
    plans[seat.index] = json.loads(json.dumps(plan))
    for what in plan:
        known = {i: theirs[what] for i, theirs in plans.items() if theirs.get(what) is not None}
        if not known:
            continue
        one = seat.index if seat.index in known else min(known)
        other = next((i for i in sorted(known) if known[i] != known[one]), None)
        if other is not None:
            _let_all_see(store, call, seat, others)
            raise RuntimeError(
                f"the workers of a run have to do the same, and differ in {what}: worker "
                f"{one} has {_said(known[one])}, worker {other} {_said(known[other])}. They "
                "would wait for each other for ever. Give all of them the same callbacks, in the "
                "same order and with the same arguments, as many batches, and the same step."
            )


def is_needed(
    callbacks: Iterable[StepCallback], *, reading_is_collective: bool, results_are_shared: bool
) -> bool:
    """Whether callbacks such as these wait for those of other workers, or let them wait.

    Args:
        callbacks: Those of a run.
        reading_is_collective: Whether it takes all workers to read what is reported.
        results_are_shared: Whether all workers see the same metrics and evaluations, so that
            none can train by itself; else what goes by them has to be agreed on.
    """
    if reading_is_collective:
        return bool(list(callbacks))
    if results_are_shared:
        return not all(map(_only_reports, callbacks))
    return any(_waits(callback) or callback.decides_by_results for callback in callbacks)


def described(callbacks: Iterable[StepCallback], *, reading_is_collective: bool) -> list[str]:
    """What decides when callbacks act, and so has to be the same on all workers.

    The seconds of StopAfter may differ, being what is left of a job's time, and so may places on
    the disk and what is printed. What a callback of one's own keeps is its own, and so is one
    that only reports, unless to read what it reports takes all workers.
    """
    return [
        _description(callback)
        for callback in callbacks
        if reading_is_collective or not _only_reports(callback)
    ]


def _waits(callback: StepCallback) -> bool:
    """Whether it does what all workers have to take part in, whatever is trained."""
    by_time = callback.trigger is not None and goes_by_time(callback.trigger)
    return by_time or bool(signals_of(callback)) or callback.order.name in ("CHECKPOINT", "BACKUP")


def _only_reports(callback: StepCallback) -> bool:
    sets = isinstance(callback, SetsBeforeUpdates) or callback.decides_by_results
    return callback.order.name == "REPORT" and not sets and not _waits(callback)


def _description(callback: StepCallback) -> str:
    kind = type(callback)
    trigger = callback.trigger
    has_name = type(trigger).__repr__ is not object.__repr__ or not _is_ours(trigger)
    said = [_told(trigger)] if trigger is not None and has_name else []
    if isinstance(callback.optimizer, str):
        said.append(callback.optimizer)
    if _is_ours(callback):
        names = signature(kind).parameters.keys() - _MAY_DIFFER
        own = {n: v for n, v in vars(callback).items() if n in names}
        said += [
            f"{n}={_told(v)}" for n, v in own.items() if isinstance(v, _COMPARED) or _is_ours(v)
        ]
    signals = signals_of(callback)
    if signals:
        said.append(f"on_signal={'+'.join(sorted(each.name for each in signals))}")
    return f"{kind.__name__}({', '.join(said)})"


def _is_ours(thing: Any) -> bool:
    return type(thing).__module__.startswith("keras_steps.")


def _told(thing: Any) -> str:
    """As all processes write it: where something lies in memory is each one's own."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", thing if isinstance(thing, str) else repr(thing))


def _awaited(store: KeyValues, call: str, index: int, seat: Seat) -> str:
    begun_at, has_warned, refusals = time.monotonic(), False, 0
    while True:
        try:
            value = store.get(f"{call}/{index}", _AT_ONCE)
        except ConnectionError as error:
            raise _has_ended(0, seat, error) from error
        waited = time.monotonic() - begun_at
        if value is not None:
            return value
        refusal = store.refuses(index)
        refusals = 0 if refusal is None else refusals + 1
        if refusal is not None and refusals >= _REFUSALS:
            raise _has_ended(index, seat, refusal) from refusal
        if waited >= WAITED_FOR:
            raise RuntimeError(
                f"worker {index} has not begun this run, for which worker {seat.index} has "
                f"waited {waited:.0f} seconds. Is its process alive? Does it call fit, or begin a "
                "StepLoop, with the same callbacks?"
            )
        if waited >= WARNED_AFTER and not has_warned:
            has_warned = True
            preflight.warn(
                f"worker {seat.index} waits for worker {index}, which has not begun this run "
                f"within {waited:.0f} seconds. All workers have to call fit, or begin a StepLoop, "
                "with the same callbacks."
            )


def _has_ended(index: int, seat: Seat, error: Exception) -> RuntimeError:
    """Keras's own traceback filter drops the cause, so the message has a line of it."""
    said = str(error).partition("\n")[0]
    return RuntimeError(
        f"worker {index} has ended, or can't be reached any more, while worker {seat.index} "
        "waited for all workers to begin this run. What ended it is in the output of its process. "
        f"Start all workers again. ({said})"
    )


def _let_all_see(store: KeyValues, call: str, seat: Seat, others: Iterable[int]) -> None:
    """Stay for a moment: with the process that holds the store goes what the others still read."""
    with contextlib.suppress(ConnectionError):  # then it has gone, as one that has seen it
        store.put(f"{call}/{seat.index}/has_seen", "")
        for index in others:
            store.get(f"{call}/{index}/has_seen", _STAYS)


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
