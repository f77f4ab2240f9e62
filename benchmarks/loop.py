"""What StepLoop costs an iteration on which nothing is due, and whether JAX dispatches ahead.

Run `python benchmarks/loop.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from itertools import repeat
from statistics import median
from typing import Any

from measuring import FAR, FLAVOUR, bar, idle_stack, interleaved, noise, ratio, table, versions

from keras_steps import EverySecs, OnStep, StepLoop

ITERATIONS = 20_000
SECONDS = 20
MICROSECOND = 1000.0


def main() -> int:
    print(versions())
    passed = [overhead()]
    if FLAVOUR == "jax":
        passed += [dispatch(milliseconds) for milliseconds in (0, 10)]
    return 0 if all(passed) else 1


def on_device() -> Any:
    """A scalar of the backend, as a loss is one."""
    if FLAVOUR == "jax":
        import jax.numpy as jnp

        return jnp.float32(0.5)
    if FLAVOUR == "torch":
        import torch

        return torch.tensor(0.5, requires_grad=True) * 1.0
    import tensorflow as tf

    return tf.constant(0.5)


def overhead() -> bool:
    """Print the table of ns an iteration; returns whether the bar was kept."""
    loss = on_device()

    def timed(run: Callable[[Any], object]) -> Callable[[], float]:
        def nanoseconds() -> float:
            begun = time.perf_counter_ns()
            run(repeat(None, ITERATIONS))
            return (time.perf_counter_ns() - begun) / ITERATIONS

        return nanoseconds

    def bare(data: Any) -> None:
        for _ in data:
            pass

    def a_call(data: Any) -> None:
        for _ in data:
            _takes_a_keyword(loss=loss)

    def over(make: Callable[[], StepLoop], values: dict[str, Any] | None) -> Callable[[], float]:
        def nanoseconds() -> float:
            with make() as loop:
                for _ in loop.over(repeat(None, 20)):  # past the first look at the counter
                    if values is not None:
                        loop.log(**values)
                begun = time.perf_counter_ns()
                if values is None:
                    for _ in loop.over(repeat(None, ITERATIONS)):
                        pass
                else:
                    for _ in loop.over(repeat(None, ITERATIONS)):
                        loop.log(loss=values["loss"])
                took = time.perf_counter_ns() - begun
            return took / ITERATIONS

        return nanoseconds

    def followed(*more: Any) -> StepLoop:
        return StepLoop(idle_stack(*more), optimizer=itertools.count().__next__)

    figures = interleaved(
        {
            "bare for": timed(bare),
            "bare for, with an empty Python call": timed(a_call),
            "over": over(followed, None),
            "over, and a time trigger": over(
                lambda: followed(OnStep(EverySecs(FAR), lambda step, logs: None)), None
            ),
            "over, log a float": over(followed, {"loss": 0.5}),
            "over, log a tensor": over(followed, {"loss": loss}),
            "over, of a loop that counts itself": over(lambda: StepLoop(idle_stack()), None),
        },
        SECONDS,
    )
    least = {name: min(f) for name, f in figures.items()}
    head = [f"{len(figures['over'])} times {ITERATIONS} iterations", "ns", "min", "min − bare for"]
    rows = [
        [name, f"{median(f):.0f}", f"{least[name]:.0f}", f"{least[name] - least['bare for']:.0f}"]
        for name, f in figures.items()
    ]
    table("An iteration on which nothing is due", head, rows)
    limit = MICROSECOND + least["bare for, with an empty Python call"] - least["bare for"]
    passed = [
        bar(
            f"{name}, less bare for: 1 µs and a Python call",
            least[name] - least["bare for"],
            limit,
            " ns",
        )
        for name in ("over", "over, log a float", "over, log a tensor")
    ]
    return all(passed)


def _takes_a_keyword(**values: Any) -> None:
    pass


def dispatch(host: int) -> bool:
    """JAX: a step that takes a while and so many ms of host work, bare and in a loop."""
    import jax
    import jax.numpy as jnp

    weights = jnp.eye(512)

    @jax.jit
    def step(state: Any) -> tuple[Any, Any]:
        for _ in range(6):
            state = jnp.tanh(state @ weights)
        return state, jnp.mean(state)

    def bare(log: Callable[..., object], data: Any) -> float:
        state = jnp.ones((512, 512))
        begun = time.perf_counter()
        for _ in data:
            time.sleep(host / 1e3)
            state, loss = step(state)
            log(loss=loss)
        jax.block_until_ready(state)
        return (time.perf_counter() - begun) / 40 * 1e3

    def in_a_loop() -> float:
        with StepLoop(idle_stack(), optimizer=itertools.count().__next__) as loop:
            return bare(loop.log, loop.over(range(40)))

    def waits() -> float:
        return bare(lambda loss: float(loss), range(40))

    bare(_takes_a_keyword, range(40))
    figures = interleaved(
        {
            "bare for": lambda: bare(_takes_a_keyword, range(40)),
            "bare for, again": lambda: bare(_takes_a_keyword, range(40)),
            "StepLoop, logs the loss": in_a_loop,
            "bare for, float(loss) each iteration": waits,
        },
        SECONDS,
    )
    base = figures["bare for"]
    rows = [[n, f"{median(f):.2f}", f"{ratio(f, base):.3f}"] for n, f in figures.items()]
    table(f"{host} ms of host work an iteration", ["40 iterations", "ms", "÷ bare for"], rows)
    within = noise(base, figures["bare for, again"])
    cost = ratio(figures["StepLoop, logs the loss"], base)
    return bar("StepLoop ÷ bare for, within 1 + noise", cost, 1 + within)


if __name__ == "__main__":
    sys.exit(main())
