"""What idle callbacks cost under Mirrored and MultiWorkerMirrored, and how many collectives.

It starts two processes on loopback for the latter. The compiled training step's own
collectives are not counted, but what is reduced between two executions.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import Stamped, bar, dense_model, interleaved, keras, noise, ratio, table, versions

STEPS = 100
TIMED_STEPS = 200
REPETITIONS = 15
NEVER = 10**9
IDLE, TIMED = "our 4, nothing due", "the same and a time trigger"


def main() -> bool:
    """Start the processes, print their figures, and say whether the bars are kept."""
    print(versions())
    ports = [free_port() for _ in range(2)]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": n}} for n in range(2)]
    passed = True
    for name, configs in (("Mirrored, 2 devices", [{}]), ("MultiWorkerMirrored, 2", tasks)):
        figures = json.loads(outputs_of(configs)[0].splitlines()[-1])
        times, collectives = figures["times"], figures["collectives"]
        apart = noise(times["bare"], times["bare, again"])
        rows = [
            [kind, f"{min(ms):.2f}", f"{ratio(ms, times['bare']):.2f}"]
            for kind, ms in times.items()
        ]
        table(f"{name}: ms a batch, noise {apart:.2f}", ["in fit", "best", "÷ bare"], rows)
        table("collectives beside the training step", ["", "number"], collectives.items())
        passed &= bar(f"{name}: idle ÷ bare", ratio(times[IDLE], times["bare"]), 1 + apart)
        passed &= bar(f"{name}: collectives an idle batch", collectives["an idle batch"], 0)
    return passed


def outputs_of(configs: list[dict[str, Any]]) -> list[str]:
    """What this script prints as each of the processes of a cluster."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "measure"],
            env={**os.environ, "TF_CONFIG": json.dumps(config)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for config in configs
    ]
    try:
        outputs = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a process has failed: {outputs}")
    return outputs


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ---------------------------------------------------------------- in each process


def measure() -> None:
    """Print the figures of this process as JSON."""
    import tensorflow as tf

    import keras_steps as ks

    if json.loads(os.environ["TF_CONFIG"]):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = dense_model([64, 64], 32, keras.optimizers.Adam(0.001))
    model = ks.distribution.prepare(model)
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    batch = tf.random.stateless_normal((32, 32), [1, 2]), tf.zeros((32, 1))
    data = tf.data.Dataset.from_tensors(batch).repeat().with_options(options)

    def fit(callbacks: list[Any], steps: int = STEPS) -> None:
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=callbacks)

    def idle() -> list[Any]:
        return [ks.OnStep(NEVER, lambda step, logs: None) for _ in range(4)]

    def timed() -> Any:
        return ks.OnStep(ks.EverySecs(3600), lambda step, logs: None)

    fit([])
    stamped = Stamped(model)

    def timing(callbacks: Callable[[], list[Any]]) -> Callable[[], float]:
        def milliseconds() -> float:
            fit(callbacks(), TIMED_STEPS)
            return stamped.milliseconds()

        return milliseconds

    variants = {
        "bare": timing(list),
        "bare, again": timing(list),
        IDLE: timing(idle),
        TIMED: timing(lambda: [*idle(), timed()]),
        "reports every 10": timing(lambda: [ks.StepHistory(10)]),
    }
    times = interleaved(variants, seconds=0, least=REPETITIONS)  # as many in both processes

    def collectives_of(callbacks: list[Any], steps: int = STEPS) -> int:
        with counted() as count:
            fit(callbacks, steps)
        return count[0]

    idle_fit = collectives_of(idle())
    fired = collectives_of([*idle(), ks.OnStep(10, lambda step, logs: None)])
    collectives = {
        "a fit without callbacks": collectives_of([]),
        "an idle fit of one epoch": idle_fit,
        "an idle batch": (collectives_of(idle(), 2 * STEPS) - idle_fit) / STEPS,
        "a firing with its report": (fired - idle_fit) / (STEPS // 10),
        "meetings in a fit": collectives_of([*idle(), timed()]) - idle_fit,
    }
    print(json.dumps({"times": times, "collectives": collectives}))


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts the collectives that are called for between executions, ours and those of reads."""
    from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

    from keras_steps.channels import Channel

    count = [0]

    def counting(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return method(*args, **kwargs)

        return call

    places = ((CollectiveAllReduce, "reduce_implementation"), (Channel, "gathered"))
    before = [getattr(owner, name) for owner, name in places]
    for (owner, name), method in zip(places, before, strict=True):
        setattr(owner, name, counting(method))
    try:
        yield count
    finally:
        for (owner, name), method in zip(places, before, strict=True):
            setattr(owner, name, method)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    if sys.argv[1:] == ["measure"]:
        measure()
    else:
        sys.exit(0 if main() else 1)
