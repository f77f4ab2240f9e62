"""One task of an asynchronous ParameterServerStrategy."""

import os

import tensorflow as tf
from serving import resolver_on_the_chief

resolver = resolver_on_the_chief()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    optimizer = keras.optimizers.Adam(0.01)
    model = make_model(optimizer, steps_per_execution=int(os.environ["SPE"]))


def dataset(context):
    return tf.data.Dataset.from_tensor_slices(arrays(8)).repeat().batch(BATCH)


recorder = Recorder(8)
callbacks = [
    recorder,
    ks.StopAtStep(31),
    ks.LogEveryN(10, start=0),
    ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 40), every=8),
]
creator = keras.utils.experimental.DatasetCreator(dataset)
model.fit(creator, epochs=3, steps_per_epoch=20, verbose=0, callbacks=callbacks)
first = ks.global_step(model)
model.fit(creator, epochs=3, steps_per_epoch=20, verbose=0, callbacks=[ks.StopAtStep(31)])
report(
    step=first,
    fired=recorder.steps,
    names=sorted(recorder.logs[0]),
    finite=all(logs["loss"] == logs["loss"] for logs in recorder.logs),
    rates=[logs["learning_rate"] for logs in recorder.logs],
    after=ks.global_step(model),
    is_chief=ks.distribution.is_chief(model),
)
os._exit(0)  # a coordinator that ends by itself waits for its workers
