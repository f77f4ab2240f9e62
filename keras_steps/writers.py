"""How reports are written: as lines of text."""

from __future__ import annotations

from collections.abc import Mapping


def format_line(
    step: int, logs: Mapping[str, float], last_step: int | None, names: list[str]
) -> str:
    """The default line of a report.

    Args:
        step: The global step.
        logs: The report.
        last_step: Where the run will end, if that is known.
        names: Which scalars of the report to show.
    """
    known = "" if last_step is None else f"/{last_step}"
    parts = [f"step {step}{known}:", *(f"{n}={format_value(n, logs[n])}" for n in names)]
    rate = logs.get("steps_per_second")
    if rate:
        parts.append(f"{rate:.1f} steps/s")
        if last_step is not None and step < last_step:
            parts.append(f"eta {_clock_face((last_step - step) / rate)}")
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
