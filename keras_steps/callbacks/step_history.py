"""StepHistory: the curves of a run, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_steps.arguments import integral
from keras_steps.history_points import HistoryPoints
from keras_steps.reporting import Reporting
from keras_steps.run import Run
from keras_steps.triggers import Trigger


class StepHistory(Reporting):
    """Keeps reports and evaluations in memory, over the global step.

    What Keras's History is for epochs: `steps` is a list of steps, `scalars` has for each
    name a list of the same length, with None where a step has no such value. A second fit that
    goes on appends, and drops what lies past its step; a fit from step 0 begins anew.

    Above `max_points` steps it thins out evenly: about half of them stay, the first and the
    last always, and validation's as densely, compared with training's, as they were.

    Args:
        every: Steps between two reports, or a trigger. The last step is kept as well.
        max_points: How many steps it keeps at most.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `every` is less than 1 or `max_points` less than 10.
        TypeError: If an argument is of the wrong kind.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = StepHistory(every=2)
    >>> x = np.zeros((5, 1))
    >>> _ = model.fit(x, x, batch_size=1, verbose=0, callbacks=[history])
    >>> history.steps, history.scalars["loss"]
    ([2, 4, 5], [0.0, 0.0, 0.0])
    """

    on_every_worker = True

    def __init__(
        self,
        every: int | Trigger = 100,
        *,
        max_points: int = 10_000,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        self._points = HistoryPoints(integral(max_points, "StepHistory(max_points)", least=10))

    @property
    def steps(self) -> list[int]:
        """The steps that were reported or evaluated at."""
        return self._points.steps

    @property
    def scalars(self) -> dict[str, list[float | None]]:
        """For each name its values, one a step; None: not at that step."""
        return self._points.scalars

    def to_frame(self) -> Any:
        """A pandas DataFrame with a column for each name, indexed by `step`."""
        import pandas

        index = pandas.Index(self.steps, name="step")
        return pandas.DataFrame(self.scalars, index=index, dtype="float64")

    def plot(self, name: str = "loss") -> Any:
        """A matplotlib figure: training and validation over the step, learning rate below.

        A notebook shows it where it is the last value of a cell; `savefig` keeps it in a file.

        Args:
            name: The metric to draw, with those that end in `_` and this name.

        Raises:
            ValueError: If there are reports, but none has such a name.
        """
        from keras_steps.curve_figure import draw

        names = [n for n in self.scalars if n == name or n.endswith(f"_{name}")]
        if self.scalars and not names:
            raise ValueError(
                f"StepHistory.plot(name): there is no {name!r} in the reports. There is: "
                f"{', '.join(self.scalars)}."
            )
        return draw(name, {n: self._curve(n) for n in names}, self._curve("learning_rate"))

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), **self._points.state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._points.restore(state)

    def open_writer(self, run: Run, step: int) -> HistoryPoints:
        self._points.drop_past(step if step else -1)
        return self._points

    def _curve(self, name: str) -> tuple[list[int], list[float]]:
        values = self.scalars.get(name, [])
        known = [(s, v) for s, v in zip(self.steps, values, strict=False) if v is not None]
        return [step for step, _ in known], [value for _, value in known]
