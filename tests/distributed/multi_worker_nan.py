"""One worker of a MultiWorkerMirroredStrategy, on whose shard alone a batch may be NaN."""

import math

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.callbacks.stop_on_nan import StopOnNaN  # noqa: E402

x, y = arrays(12)
x[6 * BATCH] = math.nan  # one example, which only one of the workers gets
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
results = {}
for action in ("rollback", "stop"):
    with strategy.scope():
        model = ks.distribution.prepare(make_model(keras.optimizers.Adam(0.01)))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).with_options(options)
    history = ks.StepHistory(2)
    model.fit(data, verbose=0, callbacks=[StopOnNaN(4, action=action), history])
    results[action] = {
        "step": ks.global_step(model),
        "reason": ks.stop_reason(model),
        "reported": history.steps,
        "state": [str(value.tolist()) for value in state_of(model)],
    }
report(**results)
