"""`extra`: a user's function of the model that adds scalars to a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from keras_steps.arguments import takes
from keras_steps.reports import scalars

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


def checked_extra(extra: Any, callback: str) -> Any:
    """The `extra` that a callback was given, or the error that says what it takes."""
    if extra is None or takes(extra, "model"):
        return extra
    raise TypeError(
        f"{callback}(extra) must be a function from the model to a dict; received {extra!r}."
    )


def refuse_extra(extra: Any, training: LoopTraining, callback: str) -> None:
    """Raise if there is no model that `extra` could be a function of."""
    if extra is not None and training.model is None:
        raise ValueError(
            f"{callback}(extra) is a function of the model, and the loop has none. Log the value "
            "in the loop, or pass StepLoop(callbacks, model=model)."
        )


def with_extra(
    logs: Mapping[str, float], extra: Callable[[Any], Mapping[str, float]], model: Any
) -> dict[str, float]:
    """The report with what a user's function adds to it.

    Args:
        logs: The report so far.
        extra: A function from the model to a dict of scalars.
        model: The model, with its current values.

    Raises:
        TypeError: If the function returns no dict of scalars.
        ValueError: If a name of it is in the report already.
    """
    added = extra(model)
    if not isinstance(added, Mapping):
        raise TypeError(f"extra(model) must return a dict of scalars; it returned {added!r}.")
    clashes = sorted(added.keys() & logs.keys())
    if clashes:
        raise ValueError(f"extra(model) returned {clashes[0]!r}, which is in the report already.")
    found = scalars(added)
    for name in added:
        if not isinstance(name, str):
            raise TypeError(f"extra(model) must return names; it returned the key {name!r}.")
        if name not in found:
            raise TypeError(f"extra(model) must return scalars; {name!r} is {added[name]!r}.")
    return {**logs, **found}
