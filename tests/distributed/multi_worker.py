"""One worker of a MultiWorkerMirroredStrategy."""

import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

spe = int(os.environ["SPE"])
with strategy.scope():
    model = ks.distribution.prepare(make_model(keras.optimizers.SGD(0.1), steps_per_execution=spe))
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices(arrays(20)).batch(BATCH).with_options(options)

recorder = Recorder(4)
model.fit(
    data,
    epochs=3,
    verbose=0,
    validation_data=data,
    callbacks=[
        recorder,
        ks.StopAtStep(30),
        ks.LogEveryN(10, start=0),
        ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 40)),
    ],
)
report(
    step=ks.global_step(model),
    fired=recorder.steps,
    losses=[logs["loss"] for logs in recorder.logs],
    rates=[logs["learning_rate"] for logs in recorder.logs],
    validated=[step for step, _ in recorder.evaluations],
    state=[value.tolist() for value in state_of(model)],
    is_chief=ks.distribution.is_chief(),
    is_chief_by_model=ks.distribution.is_chief(model),
)
