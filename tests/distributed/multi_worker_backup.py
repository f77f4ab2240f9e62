"""One worker of a run that is backed up, and that a signal may end.

SIGNAL and AT: what this worker sends itself, at which step, if it is number WHO.
APART: the number of a worker that does not see the directory of the others.
"""

import os
import signal
from pathlib import Path

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

index = strategy.cluster_resolver.task_id
with strategy.scope():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(3, activation="tanh"),
            keras.layers.BatchNormalization(synchronized="SYNCHRONIZED" in os.environ),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices(arrays(12)).batch(BATCH).with_options(options)


def strike(step, logs):
    if os.environ.get("WHO") == str(index) and step == int(os.environ["AT"]):
        Path(folder, "struck").touch()
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))


folder = os.environ["FOLDER"]
recorder = Recorder(4)
apart = "/apart" if os.environ.get("APART") == str(index) else ""
backup = ks.StepBackupAndRestore(
    f"{folder}{apart}/backup", every=5, on_change=os.environ.get("ON_CHANGE", "raise")
)
history = model.fit(
    data,
    epochs=3,
    verbose=0,
    callbacks=[
        ks.OnStep(1, strike),
        ks.StepScheduledLR(ks.schedules.linear(0.01, 0.0, 40)),
        ks.StopAtStep(int(os.environ.get("LAST", "30"))),
        ks.StepCSVLogger(f"{folder}/metrics.csv", 4),
        backup,
        recorder,
    ],
)
report(
    step=ks.global_step(model),
    reason=ks.stop_reason(model),
    fired=recorder.steps,
    losses=[logs["loss"] for logs in recorder.logs],
    rates=[logs["learning_rate"] for logs in recorder.logs],
    state=[value.tolist() for value in state_of(model)],
    history=history.history,
)
