"""The figure that StepHistory draws. Importing this imports matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

Curve = tuple[Sequence[int], Sequence[float]]
"""Steps, and the value at each."""


def draw(name: str, curves: Mapping[str, Curve], learning_rate: Curve) -> CurveFigure:
    """Curves over the step in one panel, the learning rate in a lower one below it.

    Args:
        name: What the curves' axis is called.
        curves: By the name that the legend gives them.
        learning_rate: The curve of the lower panel.
    """
    figure = CurveFigure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for label, curve in curves.items():
        upper.plot(*curve, marker=".", markersize=4, label=_plain(label))
    if curves:
        upper.legend()
    upper.set_ylabel(_plain(name))
    lower.plot(*learning_rate)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("global step")
    for panel in (upper, lower):
        panel.grid(alpha=0.25)
    return figure


class CurveFigure(Figure):
    """A figure that a notebook shows by itself.

    Matplotlib teaches a notebook to show a plain Figure only when pyplot makes its first one.
    pyplot would keep each figure for ever, and its inline backend would show this one twice.
    """

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()


def _plain(text: str) -> str:
    """Text that matplotlib does not take for a formula."""
    return text.replace("$", r"\$")
