"""Standing in for a model's train_function, which others may wrap too."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Is called where `model.train_function` was, which is `inner` from then on.

    What others have wrapped around it may lead back to it, where someone has had the model's
    function made anew meanwhile. Each such call goes one further in.

    Args:
        model: The model that is trained.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._functions: list[Any] = []
        self._depth = 0

    def wrap(self) -> None:
        """Take the place of the model's present function."""
        self.inner = self.model.train_function
        self._functions.append(self.inner)
        self.model.train_function = self

    def unwrap(self) -> None:
        """Give the model its function back; what still comes through goes on to that."""
        if self.model.train_function is self:
            self.model.train_function = self.inner
        if len(self._functions) > 1:
            self._functions.pop()
            self.inner = self._functions[-1]

    def _beneath(self, *args: Any) -> Any:
        """Called from a wrapper that others have put around this one: go one further in."""
        self._depth += 1
        try:
            return self._functions[-self._depth](*args)
        finally:
            self._depth -= 1

    def __getattr__(self, name: str) -> Any:
        """What others look for on a train_function, such as its graph."""
        if name == "inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)
