"""What the callbacks cost while nothing is due, and a schedule that acts at each step.

Run `python benchmarks/idle_cost.py`; benchmarks/README.md says what the rows mean.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from driven import Driven
from measuring import (
    FAR,
    FLAVOUR,
    EmptyHooks,
    Stamped,
    arrays,
    bar,
    dense_model,
    idle_stack,
    interleaved,
    keras,
    noise,
    ratio,
    table,
    versions,
)

from keras_steps import (
    EverySecs,
    OnStep,
    StepScheduledLR,
    Trigger,
    global_step,
    schedules,
)

PEAK, HORIZON = 1e-3, 10**5


def main() -> int:
    print(versions())
    path, hooks = idle_path()
    small = fits("small model", [448, 448], 128, batch=256, batches=120, seconds=32)
    fits("trivial model (for information)", [2], 4, batch=8, batches=200, seconds=8)
    print()
    passed = [
        bar("idle path ÷ as many empty hooks", path / hooks, 2.0),
        bar("idle fit ÷ bare fit, within 1 + noise", small["idle"], 1 + small["noise"]),
        bar("schedule each step ÷ in the optimizer, or without", small["schedule"], 1.05),
    ]
    return 0 if all(passed) else 1


# ---------------------------------------------------------------- in fit


def fits(
    title: str, widths: list[int], inputs: int, *, batch: int, batches: int, seconds: float
) -> dict[str, float]:
    """Print a table of fits; returns the figures that the bars are about."""
    x, y = arrays(batch * batches, inputs)
    count = len(idle_stack())
    folder = tempfile.TemporaryDirectory()

    def compiled(rate: Any) -> tuple[Any, Stamped]:
        model = dense_model(widths, inputs, keras.optimizers.Adam(rate))
        model.fit(x[:batch], y[:batch], batch_size=batch, verbose=0)
        return model, Stamped(model)

    plain, scheduled = compiled(PEAK), compiled(built_in_schedule())

    def fit(make: Callable[[], list[Any]], of: tuple[Any, Stamped] = plain) -> Callable[[], float]:
        model, step = of

        def milliseconds() -> float:
            model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=make())
            return step.milliseconds()

        milliseconds()
        return milliseconds

    def own_schedule() -> list[Any]:
        return [StepScheduledLR(schedules.cosine(PEAK, HORIZON))]

    def tensorboard() -> list[Any]:
        return [keras.callbacks.TensorBoard(folder.name, update_freq=10**6, write_graph=False)]

    def checkpoint() -> list[Any]:
        return [keras.callbacks.ModelCheckpoint(f"{folder.name}/model.keras", save_freq=10**6)]

    variants = {
        "bare": fit(list),
        "bare, again": fit(list),
        f"{count} empty Callbacks": fit(lambda: [EmptyHooks() for _ in range(count)]),
        f"our {count}, nothing due": fit(idle_stack),
        "StepScheduledLR, each step": fit(own_schedule),
        "schedule in the optimizer": fit(list, scheduled),
        "Keras ModelCheckpoint(10**6)": fit(checkpoint),
    }
    if find_spec("tensorflow"):  # which Keras's TensorBoard needs on every backend
        variants["Keras TensorBoard(10**6)"] = fit(tensorboard)
    with folder:
        figures = interleaved(variants, seconds)
    bare = figures["bare"]
    rows = [
        [
            name,
            f"{median(f):.3f}",
            f"{min(f):.3f}",
            f"{median(a - b for a, b in zip(f, bare, strict=True)) * 1e3:+.0f}",
            f"{ratio(f, bare):.3f}",
            f"{min(f) / min(bare):.3f}",
        ]
        for name, f in figures.items()
    ]
    head = [
        f"{len(bare)} fits of {batches} batches",
        "ms/batch",
        "min",
        "+ µs",
        "÷ bare",
        "min ÷ min",
    ]
    table(title, head, rows)
    within = noise(bare, figures["bare, again"])
    print(f"  noise (the two bare fits of a repetition, upper quartile): {within:.3f}")
    built_in = figures["schedule in the optimizer"]
    found = {
        "noise": within,
        "idle": ratio(figures[f"our {count}, nothing due"], bare),
        "schedule": ratio(figures["StepScheduledLR, each step"], built_in),
    }
    if FLAVOUR != "jax":  # there fit is ahead of the device by more steps than a turn has
        more, without = schedule_cost(*plain, x, y, batch, seconds / 4)
        print(f"  a schedule at each step adds {more:.0f} µs to {without:.0f} µs a batch")
        found["schedule"] = (without + more) / without
    return found


def schedule_cost(
    model: Any, step: Stamped, x: Any, y: Any, batch: int, seconds: float
) -> tuple[float, float]:
    """What setting the rate adds to a batch, and a batch without it, in µs: medians.

    Two fits that follow one another differ by more than this. So it is set in every other
    ten steps of a fit, and they are compared with the ten before.
    """
    turns = EveryOther(10)
    differences, without = [], []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        first = global_step(model) + 1 + 40  # the update before which `Stamped.times` begins
        callbacks = [StepScheduledLR(schedules.cosine(PEAK, HORIZON), every=turns)]
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=callbacks)
        turn_of: dict[int, list[float]] = {}
        for update, (a, b) in enumerate(pairwise(step.times(skip=40)), first):
            turn_of.setdefault(update // turns.steps, []).append((b - a) * 1e6)
        means = {turn: fmean(times) for turn, times in turn_of.items() if len(times) == 10}
        for turn, mean in means.items():
            if turn % 2 and turn - 1 in means:
                without.append(mean)
                differences.append(means[turn - 1] - mean)
    return median(differences), median(without)


class EveryOther(Trigger):
    """So many steps on, as many off."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def next_step(self, step: int) -> int:
        after = step + 1
        return after if self._is_on(after) else after - after % self.steps + self.steps

    def latest_step(self, step: int) -> int:
        return step if self._is_on(step) else step - step % self.steps - 1

    def _is_on(self, step: int) -> bool:
        return step // self.steps % 2 == 0


def built_in_schedule() -> Any:
    """The same curve inside the optimizer; tf_keras takes only its own schedules."""
    if FLAVOUR == "tf_keras":
        return keras.optimizers.schedules.CosineDecay(PEAK, HORIZON)
    return schedules.cosine(PEAK, HORIZON)


# ---------------------------------------------------------------- without fit


def idle_path(calls: int = 20_000, seconds: float = 5) -> tuple[float, float]:
    """Print what an idle batch costs in ns; returns ours, and that of as many empty hooks."""
    count = len(idle_stack())
    model = dense_model([2], 4, keras.optimizers.SGD(0.01))
    time_trigger = EverySecs(FAR)
    empty = keras.callbacks.CallbackList([EmptyHooks() for _ in range(count)])
    nobody = keras.callbacks.CallbackList([])
    inherited = keras.callbacks.CallbackList(idle_stack())
    for hooks in (nobody, inherited):
        hooks._async_train = False  # on JAX and torch: without the thread pool

    def driven(make: Callable[[], list[Any]], calls: int = calls) -> Callable[[], float]:
        def nanoseconds() -> float:  # one run at a time: the next takes another for broken off
            run = Driven(model, make())
            run(20)  # its first looks
            start = time.perf_counter_ns()
            run(calls)
            passed = time.perf_counter_ns() - start
            if make is idle_stack:
                assert model.train_function.run.executions == 20 + calls, "not followed"
                assert model.train_function.run.attention_at > FAR / 2, "not idle"
            run.end()
            return passed / calls

        return nanoseconds

    def called(hooks: Any) -> Callable[[], float]:
        def nanoseconds() -> float:
            logs: dict[str, float] = {}
            start = time.perf_counter_ns()
            for batch in range(calls):
                hooks.on_train_batch_begin(batch)
                hooks.on_train_batch_end(batch, logs)
            return (time.perf_counter_ns() - start) / calls

        return nanoseconds

    def looped() -> float:
        start = time.perf_counter_ns()
        for _ in range(calls):
            pass
        return (time.perf_counter_ns() - start) / calls

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the counter rests
        figures = interleaved(
            {
                "bare": driven(list),
                "ours": driven(idle_stack),
                "timed": driven(lambda: idle_stack(OnStep(time_trigger, lambda step, logs: None))),
                "schedule": driven(
                    lambda: [StepScheduledLR(schedules.cosine(PEAK, HORIZON))], calls // 20
                ),
                "loop": looped,
                "empty": called(empty),
                "nobody": called(nobody),
                "inherited": called(inherited),
            },
            seconds,
        )

    def more(name: str, than: str) -> float:
        return median(a - b for a, b in zip(figures[name], figures[than], strict=True))

    path, hooks = more("ours", "bare"), more("empty", "loop")
    rows = {
        f"our {count}, nothing due": path,
        "the same and a time trigger": more("timed", "bare"),
        f"{count} empty Callbacks in Keras's CallbackList": hooks,
        "CallbackList without callbacks": more("nobody", "loop"),
        f"our {count} in CallbackList, hooks they inherit": more("inherited", "loop"),
        "StepScheduledLR, each step": more("schedule", "bare"),
    }
    head = ["without fit", "ns/batch", "÷ empty hooks"]
    table("idle path alone", head, [[n, f"{f:.0f}", f"{f / hooks:.3f}"] for n, f in rows.items()])
    return path, hooks


if __name__ == "__main__":
    sys.exit(main())
