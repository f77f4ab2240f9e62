"""What each of several workers has of its own in a backup, and dividing it among others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_steps.backups import Backup
from keras_steps.distribution import Seat
from keras_steps.keras_internals import is_of_metrics
from keras_steps.random_states import random_states

_OF_A_REPLICA = re.compile(r".*/replica_\d+")

Share = dict[str, Any]
"""Random states, the variables of which each replica has a value of its own, and own results."""


def share_of(
    state: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, sees_own_results: bool = False
) -> Share:
    """What of a state is this worker's own.

    Args:
        state: That of a fit, as a backup holds it.
        arrays: The values of variables, by key.
        sees_own_results: Whether its metrics and what it reports are of its own examples alone,
            as on torch.
    """
    at_end = state["at_end"]
    share: Share = {
        "random": state["random"],
        "random_at_end": None if at_end is None else at_end["random"],
        "arrays": {
            key: array
            for key, array in arrays.items()
            if _OF_A_REPLICA.fullmatch(key) or (sees_own_results and is_of_metrics(key))
        },
    }
    if sees_own_results:
        run = state["run"]
        share["windows"] = {n: of["watch"] for n, of in run.items() if "watch" in of}
        share["sums"] = run.get("sums")
        share["history"] = _histories(state["callbacks"])
        share["history_at_end"] = None if at_end is None else _histories(at_end["callbacks"])
    return share


def for_worker(backup: Backup, seat: Seat, *, sums_are_global: bool) -> Backup:
    """A backup as one worker takes it up.

    Where there are as many workers as made it, each has its own share. Else results are the
    chief's, and the first one gets
    the values of all their replicas, and the others those with nothing in the metrics: what is
    read of them over all workers is what it was. Random states stay with the numbers of the
    workers; a new one goes on with those that it has.

    Args:
        backup: What the chief has had written.
        seat: The worker's place.
        sums_are_global: Whether metrics are arrays that all workers hold together, as on JAX.
    """
    shares = backup.state.get("workers")
    if shares is None:
        if seat.count == 1:
            return backup
        shares = [share_of(backup.state, backup.arrays)]
    own = shares[seat.index] if seat.index < len(shares) else None
    arrays = {k: array for k, array in backup.arrays.items() if not _OF_A_REPLICA.fullmatch(k)}
    state = _with_random(backup.state, own)
    if own is not None and len(shares) == seat.count:
        arrays |= own["arrays"]
        state = _with_results(state, own) if "windows" in own else state
    elif not sums_are_global:
        arrays = {key: _of_first(key, array, seat) for key, array in arrays.items()}
        for key, values in _parts(shares).items():
            named = {f"{key}/replica_{n}": value for n, value in enumerate(values)}
            arrays |= {name: _of_first(name, value, seat) for name, value in named.items()}
    return backup._replace(arrays=arrays, state=state)


def _parts(shares: Sequence[Share]) -> dict[str, list[np.ndarray]]:
    """The values of the replicas of all workers, by the key of their variable."""
    parts: dict[str, list[np.ndarray]] = {}
    for share in shares:
        for key, array in share["arrays"].items():
            if not _OF_A_REPLICA.fullmatch(key):
                continue
            parts.setdefault(key.rpartition("/replica_")[0], []).append(array)
    return parts


def _of_first(key: str, array: np.ndarray, seat: Seat) -> np.ndarray:
    """What metrics have summed up is for the first worker alone."""
    return array if seat.index == 0 or not is_of_metrics(key) else np.zeros_like(array)


def _with_random(state: dict[str, Any], own: Share | None) -> dict[str, Any]:
    here = random_states()
    at_end = state["at_end"]
    if at_end is not None:
        at_end = {**at_end, "random": here if own is None else own["random_at_end"]}
    random = {"pass": here, "step": here} if own is None else own["random"]
    return {**state, "random": random, "at_end": at_end}


def _with_results(state: dict[str, Any], own: Share) -> dict[str, Any]:
    run = {
        name: {**of, "watch": own["windows"][name]} if name in own["windows"] else of
        for name, of in state["run"].items()
    }
    if own["sums"] is not None:
        run["sums"] = own["sums"]
    at_end = state["at_end"]
    if at_end is not None:
        at_end = {**at_end, "callbacks": {**at_end["callbacks"], **own["history_at_end"]}}
    callbacks = {**state["callbacks"], **own["history"]}
    return {**state, "run": run, "callbacks": callbacks, "at_end": at_end}


def _histories(states: Mapping[str, Any]) -> dict[str, Any]:
    """Keras's History: small, where others of its callbacks hold weights."""
    return {name: of for name, of in states.items() if name.partition(" ")[0] == "History"}
