"""One of several workers of a loop that has no model: on TensorFlow, JAX or torch."""

import json
import os

config = json.loads(os.environ["TF_CONFIG"])
addresses, index = config["cluster"]["worker"], config["task"]["index"]
backend = os.environ["KERAS_BACKEND"]
if backend == "tensorflow":
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif backend == "jax":
    import jax
    from jax.experimental import multihost_utils

    jax.distributed.initialize(addresses[0], len(addresses), index)
else:
    import torch

    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=index, world_size=len(addresses)
    )

from cluster import leave, report  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import FakeClock, Recorder  # noqa: E402


def mean_of_all(number):
    """What one step is here: one collective."""
    if backend == "jax":
        return float(multihost_utils.process_allgather(jax.numpy.float32(number)).mean())
    if backend == "torch":
        total = torch.tensor(float(number))
        torch.distributed.all_reduce(total)
        return float(total) / len(addresses)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(float(number))
    )
    return float(strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None))


def make_loop(callbacks):
    """On TensorFlow in the strategy's scope, which is how it knows of the others."""
    if backend == "tensorflow":
        with strategy.scope():
            return ks.StepLoop(callbacks)
    return ks.StepLoop(callbacks)


def error_of(callbacks):
    try:
        with ks.StepLoop(callbacks):
            return None
    except ValueError as error:
        return str(error)


folder = os.environ["FOLDER"]
with FakeClock() as clock:
    timed = Recorder(ks.EverySecs(10))
    callbacks = [
        timed,
        ks.LogEveryN(10, start=0),
        ks.StepCSVLogger(f"{folder}/metrics.csv", 5),
        ks.StepTensorBoard(f"{folder}/logs", 5),
        ks.StopAfter(seconds=24),
    ]
    with make_loop(callbacks) as loop:
        for number in loop.over(range(100)):
            loop.log(loss=mean_of_all(number + index))
            clock.advance([1, 3][index])
report(
    step=int(loop.global_step.numpy() if backend == "tensorflow" else loop.global_step),
    reason=loop.stop_reason,
    timed=timed.steps,
    losses=[logs["loss"] for logs in timed.logs],
    outside=error_of([ks.StopAfter(seconds=24)]),
    untimed=error_of([ks.StopAtStep(1)]),
)
if backend == "torch":
    leave()
