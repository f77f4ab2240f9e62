"""The distributed loop of the tutorials: how it fails as people find it, and put right."""

import numpy as np
import pytest
from flavours import IS_TF_KERAS, ON_TENSORFLOW, keras, mirrored_strategy

import keras_steps as ks

pytestmark = pytest.mark.skipif(not ON_TENSORFLOW, reason="tf.distribute is TensorFlow's")

EXAMPLES, BATCH, EPOCHS = 64, 16, 3


def the_data(strategy):
    import tensorflow as tf

    random = np.random.RandomState(0)
    x = random.rand(EXAMPLES, 8).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, (3 * x[:, 0]).astype("int64"))).batch(BATCH)
    return strategy.experimental_distribute_dataset(data)


def distributed(strategy, model, optimizer, loss_of):
    """The step of the tutorials; and, without the sum over replicas, what it makes the sum of."""
    import tensorflow as tf

    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def per_replica_step(inputs):
        return strategy.run(replica_step, args=(inputs,))

    @tf.function
    def train_step(inputs):
        losses = strategy.run(replica_step, args=(inputs,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return train_step, per_replica_step


def layers():
    return [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)]


def test_as_people_find_it_it_fails():
    """Keras 3: the optimizer makes its variables within the step. tf_keras: the loss's mean."""
    strategy = mirrored_strategy()
    with strategy.scope():
        model = keras.Sequential(layers())
        optimizer = keras.optimizers.Adam()
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train_step, _ = distributed(strategy, model, optimizer, loss_object)
    error, text = Exception, "You must feed a value for placeholder"
    if IS_TF_KERAS:
        error, text = ValueError, "for loss reduction when losses are used with"
    with pytest.raises(error, match=text):
        for batch in the_data(strategy):
            train_step(batch)


def test_put_right_it_prints_each_epochs_average_and_fires_by_steps(capsys):
    import tensorflow as tf

    strategy = mirrored_strategy()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), *layers()])
        optimizer = keras.optimizers.Adam(0.02)
        optimizer.build(model.trainable_variables)
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def loss_of(y, predicted):
        return tf.nn.compute_average_loss(loss_object(y, predicted), global_batch_size=BATCH)

    train_step, per_replica_step = distributed(strategy, model, optimizer, loss_of)
    history = ks.StepHistory(every=4)
    callbacks = [ks.StopAtStep(10), ks.LogEveryN(5, start=0), history]
    averages = []
    with ks.StepLoop(callbacks, model=model, optimizer=optimizer) as loop:
        for _ in range(EPOCHS):
            total, batches = 0.0, 0
            for batch in loop.over(the_data(strategy)):
                loss = train_step(batch)
                loop.log(loss=loss)
                total, batches = total + loss, batches + 1
            averages.append(float(total / batches))
    assert ks.global_step(optimizer) == 10
    assert history.steps == [4, 8, 10]
    assert history.scalars["loss"] == pytest.approx(averages, rel=1e-6)
    assert averages[2] < averages[1] < averages[0] < 1.4
    lines = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["step 5/10", "step 10/10"]

    with (
        pytest.raises(TypeError, match="a value for each replica. Reduce it first"),
        ks.StepLoop([], model=model, optimizer=optimizer) as loop,
    ):
        for batch in loop.over(the_data(strategy)):
            loop.log(loss=per_replica_step(batch))
