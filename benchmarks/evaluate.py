"""What an evaluation in mid-fit costs on top of a bare `model.evaluate` on prepared data.

Run `python benchmarks/evaluate.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

from measuring import FLAVOUR, arrays, bar, dense_model, interleaved, keras, table, versions

from keras_steps import OnStep
from keras_steps.callbacks.evaluate_every_n import EvaluateEveryN
from keras_steps.step_callback import Order

BATCH, BATCHES, INPUTS = 32, 100, 64
EVERY, EXAMPLES = 10, 1_000
LIMIT_MS = 5.0


class Timed(EvaluateEveryN):
    """Notes how long each of its evaluations takes."""

    seconds: float = 0.0

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        start = time.perf_counter()
        super().on_step(step, logs)
        self.seconds = time.perf_counter() - start


class Bare(OnStep):
    """What it is compared with, at the same steps."""

    order = Order.EVALUATE


def main() -> int:
    print(versions())
    model = dense_model([256, 256], INPUTS, keras.optimizers.SGD(1e-3))
    x, y = arrays(BATCH * BATCHES, INPUTS)
    data = arrays(EXAMPLES, INPUTS)
    prepared = _prepared(data)

    def fit(callback: Any, seconds: Callable[[], float]) -> Callable[[], float]:
        """The median, over one fit, of the seconds that an evaluation takes."""
        found: list[float] = []
        note = Bare(EVERY, lambda step, logs: found.append(seconds()))

        def milliseconds() -> float:
            found.clear()
            callbacks = [callback, note] if callback else [note]
            model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=callbacks)
            return median(found) * 1e3

        milliseconds()  # compiles
        return milliseconds

    ours = Timed(data, EVERY, at_end=False)
    bare = {"evaluate, data prepared": prepared, "again": prepared, "evaluate, arrays": data}
    figures = interleaved(
        {
            "EvaluateEveryN": fit(ours, lambda: ours.seconds),
            **{
                n: fit(None, _timed(lambda d=d: model.evaluate(*d, verbose=0)))
                for n, d in bare.items()
            },
        },
        40,
    )
    alone = figures["evaluate, data prepared"]
    extra = {
        name: [a - b for a, b in zip(figures[name], alone, strict=True)]
        for name in ("EvaluateEveryN", "again")
    }
    title = f"an evaluation on {EXAMPLES} examples within fit, {len(alone)} fits"
    table(title, ["", "ms", "quartiles"], [_row(name, f) for name, f in figures.items()])
    table("more than bare", ["", "ms", "quartiles"], [_row(name, f) for name, f in extra.items()])
    passed = bar("EvaluateEveryN - bare evaluate", median(extra["EvaluateEveryN"]), LIMIT_MS, " ms")
    return 0 if passed else 1


def _prepared(data: Any) -> tuple[Any, ...]:
    """The same for an evaluate that need not prepare it: on TensorFlow arrays cost most of it."""
    if FLAVOUR not in ("tensorflow", "tf_keras"):
        return tuple(data)
    import tensorflow as tf

    return (tf.data.Dataset.from_tensor_slices(data).batch(BATCH).cache(),)


def _timed(function: Callable[[], Any]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return seconds


def _row(name: str, figures: list[float]) -> list[str]:
    low, middle, high = quantiles(figures, n=4)
    return [name, f"{middle:.2f}", f"{low:.2f} … {high:.2f}"]


if __name__ == "__main__":
    sys.exit(main())
