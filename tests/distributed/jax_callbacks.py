"""Every callback on JAX under keras.distribution, in one process or in one of several.

DISTRIBUTION: DataParallel or ModelParallel. BATCH_AXIS: over how many devices a batch is divided
in the latter. FOLDER: where all write to. STRIKE_AT: the step at
which the last process fails, if there is one: it kills itself, or with RAISES raises an error.
"""

import json
import math
import os
import signal

import keras

cluster = json.loads(os.environ["TF_CONFIG"])
addresses, index = cluster["cluster"]["worker"], cluster["task"]["index"]
import jax  # noqa: E402

if len(addresses) > 1:
    if "STRIKE_AT" in os.environ:  # in the place of Keras's, to say how long a failure may take
        jax.distributed.initialize(
            addresses[0],
            len(addresses),
            index,
            heartbeat_timeout_seconds=15,
            shutdown_timeout_seconds=5,
        )
    else:
        keras.distribution.initialize(addresses[0], len(addresses), index)

from cluster import report  # noqa: E402
from flavours import BATCH, arrays  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

if os.environ["DISTRIBUTION"] == "ModelParallel":
    batch_axis = int(os.environ.get("BATCH_AXIS", "2"))
    mesh = keras.distribution.DeviceMesh(
        (batch_axis, jax.device_count() // batch_axis), ("batch", "model")
    )
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*dense.*/kernel"] = (None, "model")
    distribution = keras.distribution.ModelParallel(
        layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
    )
else:
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
keras.distribution.set_distribution(distribution)

PARTS = len(addresses) if os.environ.get("BATCH_AXIS") != "1" else 1
LOCAL = BATCH // PARTS
HERE = slice(index % PARTS * LOCAL, (index % PARTS + 1) * LOCAL)


def own_part(count, seed=0):
    """This process's part of each batch."""
    return [
        array.reshape(count, BATCH, -1)[:, HERE].reshape(count * LOCAL, -1)
        for array in arrays(count, seed=seed)
    ]


def sequential():
    keras.utils.set_random_seed(1)
    width = 2 * jax.device_count()
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(width, activation="tanh"),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(width),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def placed(model):
    """How each variable lies on the devices."""
    held = [*model.variables, *model.optimizer.variables]
    return [[str(v.value.sharding.spec), len(v.value.sharding.device_set)] for v in held]


def state_of(model):
    held = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(v).tolist() for v in held]


def norm(model):
    return float(sum((w**2).sum() for w in model.get_weights()))


def strike(step, logs):
    if step != int(os.environ.get("STRIKE_AT", "-1")) or index != len(addresses) - 1:
        return
    if "RAISES" in os.environ:
        raise OSError("no space left")
    os.kill(os.getpid(), signal.SIGKILL)


def everything():
    """A fit with all that goes together; what a run must report alike, killed or not."""
    folder = os.environ["FOLDER"]
    recorder, history = Recorder(4), ks.StepHistory(5)
    model = sequential()
    norms = []
    before = placed(model)
    x, y = own_part(20)
    model.fit(
        x,
        y,
        epochs=3,
        validation_data=own_part(4, seed=1),
        callbacks=[
            ks.OnStep(1, strike),
            recorder,
            history,
            ks.StopAtStep(30),
            ks.LogEveryN(10, start=0),
            ks.StepScheduledLR(ks.schedules.linear(0.01, 0.0, 40)),
            ks.EvaluateEveryN(tuple(own_part(3, seed=2)), 5, prefix="test_"),
            ks.OnStep(15, lambda step, logs: norms.append([step, norm(model)])),
            ks.StepCheckpoint(f"{folder}/checkpoints", 10, monitor="test_loss", max_to_keep=2),
            ks.StepTensorBoard(f"{folder}/logs", 5, histograms_every=15),
            ks.StepCSVLogger(f"{folder}/metrics.csv", 5),
            ks.StepBackupAndRestore(f"{folder}/backup", 4),
        ],
        **QUIET,
    )
    return {
        "step": ks.global_step(model),
        "reason": ks.stop_reason(model),
        "fired": recorder.steps,
        "losses": [logs["loss"] for logs in recorder.logs],
        "rates": [logs["learning_rate"] for logs in recorder.logs],
        "evaluations": recorder.evaluations,
        "history": [history.steps, history.scalars["loss"]],
        "norms": norms,
        "state": state_of(model),
        "weights": [keras.ops.convert_to_numpy(w).tolist() for w in model.weights],
        "placed": placed(model)[: len(before)] == before,
        "slots": [spec for spec, _ in placed(model)[len(before) :]],
        "spread": sorted({count for _, count in placed(model)}),
    }


def rolled_back():
    """One example is NaN, of one process alone where there are several."""
    x, y = own_part(12)
    if index == len(addresses) - 1:
        x[6 * LOCAL] = math.nan
    model, history = sequential(), ks.StepHistory(2)
    before = placed(model)
    model.fit(x, y, callbacks=[ks.StopOnNaN(4, action="rollback"), history], **QUIET)
    return {
        "step": ks.global_step(model),
        "reported": history.steps,
        "state": state_of(model),
        "placed": placed(model)[: len(before)] == before,
    }


def best_restored():
    """The loss falls, and the largest is asked for: that of the first evaluation."""
    model, states = sequential(), {}
    before = placed(model)
    test = ks.EvaluateEveryN(tuple(own_part(3, seed=2)), 2)
    stopping = ks.StepEarlyStopping("val_loss", patience=3, mode="max", restore_best_weights=True)
    keep = ks.OnStep(2, lambda step, logs: states.update({step: model.get_weights()}))
    x, y = own_part(20)
    model.fit(x, y, callbacks=[test, stopping, keep], **QUIET)
    pairs = zip(model.get_weights(), states[2], strict=True)
    return {
        "step": ks.global_step(model),
        "reason": ks.stop_reason(model),
        "is_first": all((now == then).all() for now, then in pairs),
        "placed": placed(model)[: len(before)] == before,
    }


QUIET = {"batch_size": LOCAL, "shuffle": False, "verbose": 0}
report(
    devices=jax.device_count(),
    processes=jax.process_count(),
    is_chief=ks.distribution.is_chief(),
    everything=everything(),
    rolled_back=rolled_back(),
    best_restored=best_restored(),
)
