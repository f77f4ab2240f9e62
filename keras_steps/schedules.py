"""Learning rates as functions of the step: update number s, from 0, uses `schedule(s)`.

What these functions return

- is plain float arithmetic when called with an int, as `StepScheduledLR(schedule)` does;
- computes with `keras.ops`, traceably, when called with a tensor, a Variable or an array of
  steps. It is a `keras.optimizers.schedules.LearningRateSchedule`: a Keras 3 optimizer takes
  it as `learning_rate`, and a saved model brings it back once `keras_steps` is imported;
- has a `horizon`: the step from which on its value stays the same, or None if it never does,
  or if no one can tell because a foreign schedule comes last.

A tf_keras optimizer would take it for a function without arguments: give the optimizer a float
there, and `fit` a `StepScheduledLR(schedule)`.

Everywhere, steps are counted in updates, and rates are finite and not negative. What doesn't
fit raises ValueError, or TypeError if its type is wrong; an int step below 0 does too.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from keras_steps.schedule_curves import InverseSqrt, Join, Ramp, Schedule, as_rate, as_steps

__all__ = ["cosine", "inverse_sqrt", "join", "linear", "one_cycle", "warmup", "warmup_stable_decay"]

Piece = Callable[[Any], Any] | float
"""A schedule of this module, of Keras or of optax, a function of the step, or a number."""


def linear(initial: float, final: float, steps: int) -> Schedule:
    """A straight line from one rate to another, then constant.

    Formula: `initial + (final - initial) * min(step / steps, 1)`, as `optax.linear_schedule` and
    Keras's `PolynomialDecay` with `power=1`.

    Args:
        initial: The rate at step 0.
        final: The rate at step `steps` and after it, above or below `initial`.
        steps: The length of the line in updates.

    Example:

    >>> rate = linear(0.0, 1.0, 10)
    >>> rate(0), rate(5), rate(10), rate(11)
    (0.0, 0.5, 1.0, 1.0)
    """
    return Ramp(
        as_rate("initial", initial), as_rate("final", final), as_steps("steps", steps), "linear"
    )


def cosine(initial: float, steps: int, *, final: float = 0.0) -> Schedule:
    """Half a cosine from one rate to another, then constant: flat at its ends, steep between.

    Formula: `final + (initial - final) * (1 + cos(pi * min(step / steps, 1))) / 2`, equation 5
    of Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts. Keras's `CosineDecay` and
    `optax.cosine_decay_schedule` say `alpha` for `final / initial`.

    Args:
        initial: The rate at step 0.
        steps: The length of the half cosine in updates.
        final: The rate at step `steps` and after it.

    Example:

    >>> rate = cosine(1.0, 10, final=0.5)
    >>> rate(0), rate(5), rate(10), rate(11)
    (1.0, 0.75, 0.5, 0.5)
    """
    return Ramp(
        as_rate("initial", initial), as_rate("final", final), as_steps("steps", steps), "cosine"
    )


def inverse_sqrt(peak: float, warmup_steps: int) -> Schedule:
    """A line from 0 to the peak, then a decay without end, for runs whose length is open.

    Formula: `peak * min(step / warmup_steps, sqrt(warmup_steps / step))`, section 5.3 of Vaswani
    et al. 2017, arXiv:1706.03762, where `peak` is `(d_model * warmup_steps) ** -0.5`.

    Args:
        peak: The highest rate, at step `warmup_steps`.
        warmup_steps: The length of the line in updates; a longer one makes the decay slower.

    Example:

    >>> rate = inverse_sqrt(1.0, 100)
    >>> rate(50), rate(100), rate(400), rate(10_000)
    (0.5, 1.0, 0.5, 0.1)
    """
    steps = as_steps("warmup_steps", warmup_steps)
    return warmup(steps, InverseSqrt(as_rate("peak", peak), steps))


def warmup(steps: int, after: Piece, *, initial: float = 0.0) -> Schedule:
    """A line up to where another schedule begins, then that schedule from its own step 0.

    Step `steps` gives `after(0)`, and step `steps + s` gives `after(s)`. Before that the formula
    is `initial + (after(0) - initial) * step / steps`, section 2.2 of Goyal et al. 2017,
    arXiv:1706.02677. With `after=cosine(peak, n, final=final)` it is Keras's
    `CosineDecay(initial, n, final / peak, warmup_target=peak, warmup_steps=steps)` and, where the
    warmup is counted in, optax's
    `warmup_cosine_decay_schedule(initial, peak, steps, steps + n, final)`.

    Args:
        steps: The length of the line in updates.
        after: A schedule of this module, of Keras or of optax, a function of the step, or a
            number. In an optimizer, a foreign one has to compute with the backend's tensors; in
            a saved model, it has to be one that Keras can serialize.
        initial: The rate at step 0.

    Example:

    >>> rate = warmup(10, cosine(1.0, 100))
    >>> rate(0), rate(5), rate(10), rate(60), rate(110)
    (0.0, 0.5, 1.0, 0.5, 0.0)
    """
    after = _piece("after", after)
    line = linear(initial, as_rate("after(0)", float(after(0))), steps)
    return join([line, after], [steps])


def one_cycle(
    peak: float,
    steps: int,
    *,
    warmup_fraction: float = 0.3,
    initial_divisor: float = 25,
    final_divisor: float = 1e4,
) -> Schedule:
    """Up to a high rate and down to nearly nothing, each along half a cosine, then constant.

    The policy of Smith and Topin 2017, arXiv:1708.07120, as `optax.cosine_onecycle_schedule`.

    Args:
        peak: The highest rate, at step `int(warmup_fraction * steps)`.
        steps: The length of the cycle in updates.
        warmup_fraction: The part of `steps` that goes up, between 0 and 1.
        initial_divisor: The rate at step 0 is `peak / initial_divisor`; at least 1.
        final_divisor: The rate at step `steps` and after it is the one at step 0 divided by
            this; at least 1.

    Raises:
        ValueError: Also where `warmup_fraction * steps` is less than one update.

    Example:

    >>> rate = one_cycle(1.0, 100, initial_divisor=10, final_divisor=10)
    >>> [round(rate(step), 3) for step in (0, 15, 30, 65, 100, 101)]
    [0.1, 0.55, 1.0, 0.505, 0.01, 0.01]
    """
    steps = as_steps("steps", steps)
    if not 0 < as_rate("warmup_fraction", warmup_fraction) < 1:
        raise ValueError(f"warmup_fraction must lie between 0 and 1; received {warmup_fraction!r}.")
    up = int(warmup_fraction * steps)
    if up == 0:
        raise ValueError(
            "warmup_fraction * steps must be at least 1 update; received "
            f"warmup_fraction={warmup_fraction!r}, steps={steps}. Raise one of them."
        )
    low = as_rate("peak", peak) / as_rate("initial_divisor", initial_divisor, least=1)
    end = low / as_rate("final_divisor", final_divisor, least=1)
    return join([cosine(low, up, final=peak), cosine(peak, steps - up, final=end)], [up])


def warmup_stable_decay(
    peak: float, steps: int, *, warmup_steps: int, decay_steps: int, final: float = 0.0
) -> Schedule:
    """A line up, a plateau that a later run can prolong, a line down, then constant.

    WSD, section 4 of Hu et al. 2024 (MiniCPM), arXiv:2404.06395, with a linear decay.

    Args:
        peak: The rate from step `warmup_steps` to step `steps - decay_steps`.
        steps: The length of all three parts in updates.
        warmup_steps: The length of the line up from 0 in updates.
        decay_steps: The length of the line down in updates.
        final: The rate at step `steps` and after it.

    Raises:
        ValueError: Also where `warmup_steps + decay_steps` is more than `steps`.

    Example:

    >>> rate = warmup_stable_decay(1.0, 100, warmup_steps=10, decay_steps=20)
    >>> rate(5), rate(10), rate(80), rate(90), rate(100)
    (0.5, 1.0, 1.0, 0.5, 0.0)
    """
    up, down = as_steps("warmup_steps", warmup_steps), as_steps("decay_steps", decay_steps)
    stable = as_steps("steps", steps) - up - down
    if stable < 0:
        raise ValueError(
            f"warmup_steps + decay_steps must be at most steps; received {up} + {down} and "
            f"{steps}. Shorten one of them or raise steps."
        )
    decay = linear(as_rate("peak", peak), final, down)
    return warmup(up, join([peak, decay], [stable]) if stable else decay)


def join(pieces: Sequence[Piece], boundaries: Sequence[int]) -> Schedule:
    """Schedules one after the other, each from its own step 0, as `optax.join_schedules`.

    Args:
        pieces: At least one; each is what `warmup` takes as `after`.
        boundaries: The steps in updates, rising, at which the second and each later piece
            begins. From there on it is called with `step - boundary`.

    Example:

    >>> rate = join([linear(0.0, 1.0, 10), 1.0, 0.25], [10, 30])
    >>> rate(5), rate(10), rate(29), rate(30)
    (0.5, 1.0, 1.0, 0.25)
    """
    parts = tuple(_piece(f"pieces[{i}]", piece) for i, piece in _items("pieces", pieces))
    steps = tuple(as_steps(f"boundaries[{i}]", b) for i, b in _items("boundaries", boundaries))
    if len(steps) != len(parts) - 1:
        raise ValueError(
            "join needs at least one piece, and one boundary between each two; received "
            f"{len(parts)} pieces and {len(steps)} boundaries."
        )
    if any(after <= before for before, after in pairwise(steps)):
        raise ValueError(f"boundaries must rise; received {list(steps)}. Sort pieces with them.")
    return Join(parts, steps)


def _items(name: str, value: Any) -> enumerate[Any]:
    if not isinstance(value, Sequence):
        advice = "Use list(...)." if isinstance(value, Iterable) else "Put it in brackets."
        raise TypeError(f"{name} must be a list; received {value!r}. {advice}")
    return enumerate(value)


def _piece(name: str, value: Any) -> Callable[[Any], Any]:
    if callable(value):
        return value
    if not isinstance(value, numbers.Real):
        raise TypeError(
            f"{name} must be a schedule, a function of the step, or a number; received {value!r}."
        )
    return linear(as_rate(name, value), as_rate(name, value), 1)
