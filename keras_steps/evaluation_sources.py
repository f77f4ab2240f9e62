"""Where the results of evaluations come from, by their prefix: data, or a function of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_steps.arguments import takes
from keras_steps.evaluation_data import EvaluationData
from keras_steps.reports import scalars

_ENDINGS = ("_", "-", "/", ".")


class EvaluationFunction:
    """A function that makes an evaluation of its own and returns the results.

    Args:
        function: Called without arguments; returns a dict of scalars.
        name: How messages call it.
    """

    def __init__(self, function: Callable[[], Mapping[str, Any]], name: str) -> None:
        self.name = name
        self._function = function

    def __deepcopy__(self, memo: Any) -> EvaluationFunction:
        return self

    def prepare(self, model: Any) -> EvaluationFunction:
        """Nothing is to be made ready."""
        return self

    def evaluate(self) -> dict[str, float]:
        """Call the function.

        Raises:
            TypeError: If it returns something other than a dict of scalars.
        """
        results = self._function()
        if not isinstance(results, Mapping) or not all(isinstance(name, str) for name in results):
            raise TypeError(
                f"{self.name} must return a dict from names to scalars; it returned {results!r}."
            )
        found = scalars(results)
        for name in results:
            if name not in found:
                raise TypeError(f"{self.name} must return scalars; {name!r} is {results[name]!r}.")
        return found


EvaluationSource = EvaluationData | EvaluationFunction


def sources_by_prefix(
    data: Any, asked_by: str, *, prefix: str = "val_", steps: int | None = None
) -> dict[str, EvaluationSource]:
    """What a `data` argument brings results from, by the prefix of their names.

    Args:
        data: Data as `model.evaluate` takes them, a function, or a dict from prefixes to those.
        asked_by: Who takes it, for messages.
        prefix: The prefix if `data` is no dict.
        steps: As in EvaluationData.

    Raises:
        TypeError: If a prefix is no string, or there is nothing to evaluate on or to call.
        ValueError: If a prefix does not end as one does, or the dict is empty.
    """
    if not isinstance(data, Mapping):
        _check_prefix(prefix, f"{asked_by}(prefix)")
        return {prefix: _source(data, steps, f"{asked_by}(data)")}
    if not data:
        raise ValueError(
            f"{asked_by}(data) received an empty dict. It maps prefixes to data, as in "
            '{"val_": (x, y)}; inputs that are a dict themselves go into a tuple, (x, y).'
        )
    for key in data:
        _check_prefix(key, f"{asked_by}(data): a key")
    return {key: _source(each, steps, f"{asked_by}(data[{key!r}])") for key, each in data.items()}


def _source(data: Any, steps: int | None, name: str) -> EvaluationSource:
    if not callable(data) or hasattr(data, "__iter__") or hasattr(data, "__getitem__"):
        return EvaluationData(data, steps, name)
    if isinstance(data, type) or not takes(data):
        raise TypeError(f"{name} must be a function without arguments; received {data!r}.")
    if steps is not None:
        raise ValueError(f"{name} is a function, which has batches of its own: leave out steps.")
    return EvaluationFunction(data, name)


def _check_prefix(prefix: Any, name: str) -> None:
    if not isinstance(prefix, str):
        raise TypeError(f"{name} must be a string such as 'test_'; received {prefix!r}.")
    if not prefix.strip("".join(_ENDINGS)) or not prefix.endswith(_ENDINGS):
        raise ValueError(
            f"{name} stands before the names of results and must end so that both can be told "
            f"apart, as 'test_' or 'test/' does; received {prefix!r}."
        )
