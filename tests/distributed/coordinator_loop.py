"""A loop of one's own with a ClusterCoordinator: steps are scheduled, and done later."""

import os

import tensorflow as tf
from serving import resolver_on_the_chief

resolver = resolver_on_the_chief()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = make_model(keras.optimizers.Adam(0.01))
    model.optimizer.build(model.trainable_variables)


def dataset():
    return tf.data.Dataset.from_tensor_slices(arrays(8)).repeat().batch(BATCH)


@tf.function
def step(iterator):
    def of_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss((model(x, training=True) - y)[:, 0] ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = strategy.run(of_replica, args=next(iterator))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


iterator = iter(coordinator.create_per_worker_dataset(dataset))
recorder = Recorder(10)
callbacks = [
    recorder,
    ks.StopAtStep(31),
    ks.LogEveryN(10, start=0),
    ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 40), every=10),
]
with ks.StepLoop(callbacks, model=model) as loop:
    for _ in loop.over(range(1000)):
        loop.log(loss=coordinator.schedule(step, args=(iterator,)))
coordinator.join()
report(
    step=ks.global_step(model),
    fired=recorder.steps,
    rates=[logs["learning_rate"] for logs in recorder.logs],
    losses=[logs["loss"] for logs in recorder.logs],
)
os._exit(0)  # a coordinator that ends by itself waits for its workers
