"""The generator and the critic of `gan.py`, and a round of updates on TensorFlow, JAX and torch.

A Wasserstein GAN with gradient penalty (Gulrajani et al., 2017, arXiv:1704.00028).
"""

import keras
import numpy as np
from keras import layers, ops

BACKEND = keras.backend.backend()
if BACKEND == "tensorflow":
    import tensorflow as tf
elif BACKEND == "jax":
    import jax
else:
    import torch

CRITIC_UPDATES = 5  # to one of the generator
BATCH = 64
LATENT = 16
PENALTY = 10.0  # for a critic whose slope is not 1


class Gan(keras.Model):
    """A generator and a critic of images, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = network(LATENT, 128, 256, layers.Dense(64, activation="sigmoid"))
        self.critic = network(64, 256, 128, layers.Dense(1))
        self.seeds = keras.random.SeedGenerator(0)
        self.d_loss = keras.metrics.Mean("d_loss")
        self.g_loss = keras.metrics.Mean("g_loss")
        self.built = True

    def compile(self, g_optimizer, d_optimizer) -> None:
        g_optimizer.build(self.generator.trainable_variables)
        d_optimizer.build(self.critic.trainable_variables)
        super().compile(g_optimizer)  # the model's own step is the generator's
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer
        if BACKEND == "jax":
            self.optimizer = Both(g_optimizer, d_optimizer)

    def generate(self, count: int) -> np.ndarray:
        """Images from noise, the same for the same count."""
        noise = keras.random.normal((count, LATENT), seed=0)
        return ops.convert_to_numpy(self.generator(noise)).reshape(count, 8, 8)

    def update_all(self, images) -> dict:
        """A round; returns the last losses."""
        for real in ops.unstack(images, CRITIC_UPDATES):
            d_loss = self.update_critic(real)
        return {"d_loss": d_loss, "g_loss": self.update_generator()}

    def update_critic(self, real):
        fake = self.generator(self.noise())
        share = keras.random.uniform((BATCH, 1), seed=self.seeds)
        between = share * real + (1 - share) * fake

        def loss():
            slopes = slopes_of(self.critic, between)
            penalty = ops.mean((ops.norm(slopes, axis=1) - 1) ** 2)
            distance = ops.mean(self.critic(real)) - ops.mean(self.critic(fake))
            return PENALTY * penalty - distance

        return self.update(self.critic, self.d_optimizer, loss)

    def update_generator(self):
        noise = self.noise()

        def loss():
            return -ops.mean(self.critic(self.generator(noise)))

        return self.update(self.generator, self.g_optimizer, loss)

    def noise(self):
        return keras.random.normal((BATCH, LATENT), seed=self.seeds)

    def update(self, trained, optimizer, loss):
        """One update of the network's weights; returns the loss before it."""
        weights = trained.trainable_variables
        if BACKEND == "tensorflow":
            with tf.GradientTape() as tape:
                value = loss()
            optimizer.apply(tape.gradient(value, weights), weights)
        elif BACKEND == "torch":
            value = loss()
            gradients = torch.autograd.grad(value, [weight.value for weight in weights])
            with torch.no_grad():
                optimizer.apply(gradients, weights)
            value = value.detach()
        else:
            constant = [(variable, variable.value) for variable in self.variables]

            def loss_of(values):
                with keras.StatelessScope([*constant, *zip(weights, values, strict=True)]):
                    return loss()

            value, gradients = jax.value_and_grad(loss_of)([weight.value for weight in weights])
            optimizer.apply(gradients, weights)
        return value

    def train_step(self, *args):
        """Called by fit: with the data, and on JAX with the values of all variables before it."""
        *state, data = args
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if BACKEND != "jax":
            return self.update_and_measure(images)
        groups = [
            self.trainable_variables,
            self.non_trainable_variables,
            self.optimizer.variables,
            self.metrics_variables,
        ]
        return stateless(self.update_and_measure, groups, state[0], images)

    def update_and_measure(self, images) -> dict:
        losses = self.update_all(images)
        self.d_loss.update_state(losses["d_loss"])
        self.g_loss.update_state(losses["g_loss"])
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


class Both:
    """What fit takes for the model's optimizer on JAX: it has the variables of both."""

    built = True

    def __init__(self, g_optimizer, d_optimizer) -> None:
        self.iterations = g_optimizer.iterations
        self.variables = [*g_optimizer.variables, *d_optimizer.variables]


def network(inputs: int, first: int, second: int, last) -> keras.Model:
    dense = [layers.Dense(units, activation="leaky_relu") for units in (first, second)]
    return keras.Sequential([keras.Input((inputs,)), *dense, last])


def slopes_of(critic, x):
    """The gradient of the critic at each of the images `x`, which may be differentiated again."""
    if BACKEND == "tensorflow":
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = ops.sum(critic(x))
        return tape.gradient(total, x)
    if BACKEND == "torch":
        x = x.detach().requires_grad_()
        return torch.autograd.grad(ops.sum(critic(x)), x, create_graph=True)[0]
    return jax.grad(lambda x: ops.sum(critic(x)))(x)


def stateless(function, groups, values, images):
    """Call it with other values in the variables; returns its result and the values behind it."""
    pairs = zip(sum(groups, []), sum(map(list, values), []), strict=True)
    with keras.StatelessScope(list(pairs)) as scope:
        result = function(images)
    return result, tuple([scope.get_current_value(v) for v in group] for group in groups)


def compiled(model: Gan):
    """`model.update_all` for a loop: a function of the images, compiled where that is possible."""
    if BACKEND == "tensorflow":
        return tf.function(model.update_all)
    if BACKEND == "torch":
        return lambda images: model.update_all(torch.from_numpy(images))
    groups = [model.variables, model.optimizer.variables]
    function = jax.jit(lambda values, images: stateless(model.update_all, groups, values, images))

    def update_all(images):
        values = [[variable.value for variable in group] for group in groups]
        losses, values = function(values, images)
        for variable, value in zip(sum(groups, []), sum(values, []), strict=True):
            variable.assign(value)
        return losses

    return update_all
