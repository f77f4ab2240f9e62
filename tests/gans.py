"""A GAN of whichever Keras the tests run on, trained in fit or in a loop of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from flavours import IS_TF_KERAS, keras, keras_to_numpy

import keras_steps as ks

CRITIC_UPDATES = 5
BATCH = 64  # as the demo's

if IS_TF_KERAS:
    import tensorflow as tf

    class Gan(keras.Model):
        """As the demo's, but smaller, and with clipped weights in the place of a penalty."""

        def __init__(self):
            super().__init__()
            self.generator = keras.Sequential(
                [keras.layers.Input((16,)), keras.layers.Dense(64, activation="sigmoid")]
            )
            self.critic = keras.Sequential(
                [keras.layers.Input((64,)), keras.layers.Dense(1, kernel_constraint=_clipped)]
            )
            self.d_loss = keras.metrics.Mean("d_loss")
            self.g_loss = keras.metrics.Mean("g_loss")
            self.built = True  # as its networks are

        def compile(self, g_optimizer, d_optimizer):
            g_optimizer.build(self.generator.trainable_variables)
            d_optimizer.build(self.critic.trainable_variables)
            super().compile(g_optimizer)
            self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer

        @property
        def metrics(self):
            return [self.d_loss, self.g_loss]

        def update_all(self, images):
            for number in range(CRITIC_UPDATES):
                with tf.GradientTape() as tape:
                    fake = self.critic(self._generated())
                    d_loss = tf.reduce_mean(fake) - tf.reduce_mean(self.critic(images[number]))
                _apply(self.d_optimizer, tape, d_loss, self.critic)
            with tf.GradientTape() as tape:
                g_loss = -tf.reduce_mean(self.critic(self._generated()))
            _apply(self.g_optimizer, tape, g_loss, self.generator)
            return {"d_loss": d_loss, "g_loss": g_loss}

        def train_step(self, data):
            images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
            losses = self.update_all(images)
            for metric in self.metrics:
                metric.update_state(losses[metric.name])
            return {metric.name: metric.result() for metric in self.metrics}

        def _generated(self):
            """Noise is a function of the critic's step, and so the same after a resume."""
            seed = tf.stack([0, tf.cast(self.d_optimizer.iterations, tf.int32)])
            return self.generator(tf.random.stateless_normal((BATCH, 16), seed))

    def _clipped(weights):
        return tf.clip_by_value(weights, -0.5, 0.5)

    def _apply(optimizer, tape, loss, trained):
        weights = trained.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    def compiled(gan):
        return tf.function(gan.update_all)

else:
    sys.path.append(str(Path(__file__).parents[1] / "demo"))
    from gan_model import Gan, compiled


def make_gan():
    keras.utils.set_random_seed(0)
    gan = Gan()
    gan.compile(keras.optimizers.Adam(0.001), keras.optimizers.Adam(0.001))
    return gan


def train(form, gan, callbacks, rounds=12):
    """Train on random images, "in fit" or "in a loop"; a round makes 5 updates and 1."""
    shape = (rounds * CRITIC_UPDATES, BATCH, 64)
    images = np.random.default_rng(0).uniform(size=shape).astype("float32")
    if form == "in fit":
        gan.fit(
            images, batch_size=CRITIC_UPDATES, shuffle=False, verbose=0, callbacks=list(callbacks)
        )
        return
    update_all = compiled(gan)
    with ks.StepLoop(callbacks, model=gan, optimizer="g_optimizer") as the_loop:
        for batch in the_loop.over(np.split(images, rounds)):
            the_loop.log(**update_all(batch))


def counters(gan):
    """The global steps of the generator and of the critic."""
    return ks.global_step(gan.g_optimizer), ks.global_step(gan.d_optimizer)


def state(gan):
    """All that is trained, seeds and optimizers included."""
    variables = list(gan.variables)
    for optimizer in (gan.g_optimizer, gan.d_optimizer):
        found = optimizer.variables
        variables += found() if callable(found) else found
    return [np.array(keras_to_numpy(variable)) for variable in variables]
