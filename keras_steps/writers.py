"""How reports are written: as lines of text."""

from __future__ import annotations

from collections.abc import Mapping


def format_line(
    step: int,
    shown: Mapping[str, float],
    *,
    last_step: int | None,
    steps_per_second: float | None,
) -> str:
    """The default line of a report.

    Args:
        step: The global step.
        shown: The scalars to show, in this order.
        last_step: Where the run will end, if that is known.
        steps_per_second: The rate, if there is one yet.
    """
    known = "" if last_step is None else f"/{last_step}"
    parts = [f"step {step}{known}:", *(f"{n}={format_value(n, v)}" for n, v in shown.items())]
    if steps_per_second:
        parts.append(f"{steps_per_second:.1f} steps/s")
        if last_step is not None and step < last_step:
            parts.append(f"eta {_clock_face((last_step - step) / steps_per_second)}")
    return " ".join(parts)


def format_value(name: str, value: float) -> str:
    """Four decimals; small values, and rates of learning, by their significant digits."""
    if name == "learning_rate" or 0 < abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{value:.4f}"


def _clock_face(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
