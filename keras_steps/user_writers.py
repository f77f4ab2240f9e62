"""Writers that users give: an object with three methods, or a function in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from keras_steps.arguments import takes


class Writer(Protocol):
    """What reports are handed to.

    One that also has `drop_past(step)` is told by it when a rollback has taken the run back to
    an earlier step: what it was given past that step does not count, and other values follow.
    """

    def write(self, step: int, scalars: dict[str, float]) -> Any:
        """Take a report: at one step several times, each time with other names."""

    def flush(self) -> Any:
        """Bring to its place what was written."""

    def close(self) -> Any:
        """The fit is over."""


class FunctionWriter:
    """A function as a writer."""

    def __init__(self, function: Callable[[int, dict[str, float]], Any]) -> None:
        self.write = function

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def as_writer(given: Any, name: str) -> Writer:
    """The writer that an argument stands for: itself, or that of a function.

    Args:
        given: What was given.
        name: Of the argument, for the message.

    Raises:
        TypeError: If it is neither, or can't be called with a step and scalars.
    """
    names = ("write", "flush", "close")
    missing = [each for each in names if not callable(getattr(given, each, None))]
    is_object = "write" not in missing
    if isinstance(given, type) or (missing and (is_object or not callable(given))):
        lacking = f", which has no {' and no '.join(missing)}" if missing else ""
    elif not takes(given.write if is_object else given, "step", "scalars"):
        lacking = ", which can't be called like that"
    else:
        return given if is_object else FunctionWriter(given)
    raise TypeError(
        f"{name} must be a function of (step, scalars), or an object with write(step, scalars), "
        f"flush() and close(); received {given!r}{lacking}."
    )


def drop_past(writer: Writer | None, step: int) -> None:
    """Tell a writer that what it was given past `step` does not count, if it can be told."""
    drop = getattr(writer, "drop_past", None)
    if drop is not None:
        drop(step)
