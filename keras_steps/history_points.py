"""The points of a run's curves, in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any


class HistoryPoints:
    """Scalars by step: `steps`, and for each name a list with a value, or None, a step.

    Args:
        max_points: Steps that are kept. When there is one more, about half are, at even
            distances: of the steps with evaluations and of those without, each by itself,
            and always the first and the last.
    """

    def __init__(self, max_points: int) -> None:
        self.max_points = max_points
        self.steps: list[int] = []
        self.scalars: dict[str, list[float | None]] = {}

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if not self.steps or step != self.steps[-1]:
            self.steps.append(step)
            for values in self.scalars.values():
                values.append(None)
        for name, value in scalars.items():
            if name not in self.scalars:
                self.scalars[name] = [None] * len(self.steps)
            self.scalars[name][-1] = value
        if len(self.steps) > self.max_points:
            self._thin_out()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def drop_past(self, step: int) -> None:
        """Forget what lies past the step from which a run goes on."""
        self._keep([i for i, s in enumerate(self.steps) if s <= step])

    def state(self) -> dict[str, Any]:
        """A copy of it all."""
        return {"steps": list(self.steps), "scalars": {n: list(v) for n, v in self._items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave, in the same lists as before."""
        self.steps[:] = state["steps"]
        self.scalars.clear()
        self.scalars.update({name: list(values) for name, values in state["scalars"].items()})

    def _items(self) -> list[tuple[str, list[float | None]]]:
        return list(self.scalars.items())

    def _thin_out(self) -> None:
        kinds = [
            frozenset(name for name, values in self._items() if values[i] is not None)
            for i in range(len(self.steps))
        ]
        kept = self._even(kinds)
        if len(kept) > self.max_points * 3 // 4:  # too many kinds: treat all alike
            kept = self._even([frozenset()] * len(self.steps))
        self._keep(kept)

    def _even(self, kinds: list[frozenset[str]]) -> list[int]:
        """Of each kind, the first index of each stretch of steps, and the last of all."""
        first, span = self.steps[0], self.steps[-1] - self.steps[0]
        stretch = {}
        for kind, count in Counter(kinds).items():
            share = max(1, self.max_points // 2 * count // len(kinds))
            # A power of two, so that what is left each time is an even part of what was.
            stretch[kind] = 2 ** math.ceil(math.log2(max(1.0, span / share)))
        seen: set[tuple[frozenset[str], int]] = set()
        kept = []
        for i, kind in enumerate(kinds):
            place = (kind, (self.steps[i] - first) // stretch[kind])
            if place not in seen or i == len(kinds) - 1:
                seen.add(place)
                kept.append(i)
        return kept

    def _keep(self, indices: list[int]) -> None:
        self.steps[:] = [self.steps[i] for i in indices]
        for values in self.scalars.values():
            values[:] = [values[i] for i in indices]
        for name, values in self._items():
            if all(value is None for value in values):
                del self.scalars[name]
