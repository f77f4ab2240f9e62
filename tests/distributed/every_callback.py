"""One worker of a MultiWorkerMirroredStrategy, with every callback that goes together in a fit.

KILL_AT: the step at which worker 1 kills itself, if there is one. FOLDER: where all write to.
"""

import os
import signal

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

with strategy.scope():
    model = ks.distribution.prepare(make_model(keras.optimizers.Adam(0.01)))
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA


def batches(count, seed=0):
    data = tf.data.Dataset.from_tensor_slices(arrays(count, seed=seed))
    return data.batch(BATCH).with_options(options)


def kill(step, logs):
    if step == int(os.environ.get("KILL_AT", "-1")) and strategy.cluster_resolver.task_id == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def norm(step, logs):
    norms.append([step, float(sum((w**2).sum() for w in model.get_weights()))])


norms = []
folder = os.environ["FOLDER"]
recorder, history = Recorder(4), ks.StepHistory(5)
model.fit(
    batches(20),
    epochs=3,
    verbose=0,
    validation_data=batches(4, seed=1),
    callbacks=[
        ks.OnStep(1, kill),
        recorder,
        history,
        ks.StopAtStep(30),
        ks.LogEveryN(10, start=0),
        ks.StepScheduledLR(ks.schedules.linear(0.01, 0.0, 40)),
        ks.EvaluateEveryN(batches(3, seed=2), 5, prefix="test_"),
        ks.StepEarlyStopping("test_loss", patience=50, restore_best_weights=True),
        ks.StopOnNaN(10, action="rollback"),
        ks.OnStep(15, norm),
        ks.StepCheckpoint(f"{folder}/checkpoints", 10, monitor="test_loss", max_to_keep=2),
        ks.StepTensorBoard(f"{folder}/logs", 5),
        ks.StepCSVLogger(f"{folder}/metrics.csv", 5),
        ks.StepBackupAndRestore(f"{folder}/backup", 4),
    ],
)
report(
    step=ks.global_step(model),
    reason=ks.stop_reason(model),
    fired=recorder.steps,
    losses=[logs["loss"] for logs in recorder.logs],
    rates=[logs["learning_rate"] for logs in recorder.logs],
    evaluations=[[step, logs] for step, logs in recorder.evaluations],
    history=[history.steps, history.scalars["loss"]],
    norms=norms,
    weights=[value.tolist() for value in model.get_weights()],
    state=[value.tolist() for value in state_of(model)],
)
