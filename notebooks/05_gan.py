# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A GAN with two counters
#
# A GAN has two optimizers, and so two global steps. In a
# [Wasserstein GAN](https://arxiv.org/abs/1704.00028) the critic makes five updates for each of the
# generator: after 100 rounds one counter says 500 and the other 100. Which of them is *the* step is
# for each callback to say: `optimizer="g_optimizer"`.
#
# This notebook trains one on handwritten digits with `model.fit`, on TensorFlow as Keras's backend.
# The [demo](../demo/gan.py) does the same on JAX and torch too, and in a loop of its own.

# %%
import logging
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_steps import (
    AtSteps,
    LogEveryN,
    OnStep,
    StepScheduledLR,
    StepTensorBoard,
    StopAtStep,
    global_step,
    schedules,
)

logging.getLogger("tensorboard").setLevel(logging.ERROR)
folder = Path(tempfile.mkdtemp())  # for your own runs, one that stays

# %% [markdown]
# ## The model
#
# A generator that makes 64 pixels of 16 random numbers, a critic that scores images, and a
# `train_step` which is a round: five updates of the critic, one of the generator. The critic's loss
# is its estimate of how far generated images are from real ones, with the sign turned, and a
# penalty that keeps its slope near 1.
#
# `compile` hands the generator's optimizer to Keras. That makes its counter the default one, where
# a callback doesn't say otherwise.

# %%
ROUNDS, CRITIC_UPDATES, BATCH, LATENT = 1500, 5, 64, 16


def network(inputs, first, second, last):
    hidden = [layers.Dense(units, activation="leaky_relu") for units in (first, second)]
    return keras.Sequential([keras.Input((inputs,)), *hidden, last])


class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.generator = network(LATENT, 128, 256, layers.Dense(64, activation="sigmoid"))
        self.critic = network(64, 256, 128, layers.Dense(1))
        self.seeds = keras.random.SeedGenerator(0)
        self.d_loss = keras.metrics.Mean("d_loss")
        self.g_loss = keras.metrics.Mean("g_loss")
        self.built = True

    def compile(self, g_optimizer, d_optimizer):
        super().compile(g_optimizer)
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer
        g_optimizer.build(self.generator.trainable_variables)
        d_optimizer.build(self.critic.trainable_variables)

    def generate(self, count, seed):
        return self.generator(keras.random.normal((count, LATENT), seed=seed))

    def train_step(self, data):
        for real in ops.unstack(data[0], CRITIC_UPDATES):
            self.d_loss.update_state(self.update_critic(real))
        self.g_loss.update_state(self.update_generator())
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}

    def update_critic(self, real):
        fake = self.generate(BATCH, self.seeds)
        share = keras.random.uniform((BATCH, 1), seed=self.seeds)
        between = share * real + (1 - share) * fake
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(between)
                scores = ops.sum(self.critic(between))
            slopes = ops.norm(inner.gradient(scores, between), axis=1)
            distance = ops.mean(self.critic(real)) - ops.mean(self.critic(fake))
            loss = 10 * ops.mean((slopes - 1) ** 2) - distance
        weights = self.critic.trainable_variables
        self.d_optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    def update_generator(self):
        with tf.GradientTape() as tape:
            loss = -ops.mean(self.critic(self.generate(BATCH, self.seeds)))
        weights = self.generator.trainable_variables
        self.g_optimizer.apply(tape.gradient(loss, weights), weights)
        return loss


keras.utils.set_random_seed(0)
gan = Gan()
gan.compile(*(keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9) for _ in range(2)))

# %% [markdown]
# ## The data
#
# scikit-learn's digits, 8 × 8 pixels from 0 to 1. A batch of `fit` holds what a round needs.

# %%
images = (load_digits().data / 16).astype("float32")


class Rounds(keras.utils.PyDataset):
    def __len__(self):
        return 10**6  # StopAtStep ends the fit

    def __getitem__(self, index):
        rows = np.random.default_rng(index).integers(len(images), size=(CRITIC_UPDATES, BATCH))
        return (images[rows],)


# %% [markdown]
# ## Who follows which counter
#
# Each callback comes once for each optimizer, with steps of its own. The generator decides when the
# training is over, and at some of its steps images are kept.

# %%
g, d = {"optimizer": "g_optimizer"}, {"optimizer": "d_optimizer"}
samples = {}


def keep_samples(step, logs=None):
    """Of the same random numbers each time."""
    samples[step] = ops.convert_to_numpy(gan.generate(12, seed=0))


keep_samples(0)

gan.fit(
    Rounds(),
    shuffle=False,
    verbose=0,
    callbacks=[
        StopAtStep(ROUNDS, **g),
        StepScheduledLR(schedules.cosine(1e-3, ROUNDS), **g),
        StepScheduledLR(schedules.cosine(1e-3, ROUNDS * CRITIC_UPDATES), **d),
        LogEveryN(500, start=0, message="generator step {step}: loss {g_loss:.3f}", **g),
        LogEveryN(2500, start=0, message="critic step {step}: loss {d_loss:.3f}", **d),
        StepTensorBoard(folder / "logs" / "generator", every=20, **g),
        StepTensorBoard(folder / "logs" / "critic", every=100, **d),
        OnStep(AtSteps(20, 50, 200, ROUNDS), keep_samples, **g),
    ],
)
print(f"generator: {global_step(gan.g_optimizer)}, critic: {global_step(gan.d_optimizer)}")

# %% [markdown]
# The counters are five to one, the model's own step is the generator's, and each callback fired on
# the grid of the counter that it follows:

# %%
assert global_step(gan) == global_step(gan.g_optimizer) == ROUNDS
assert global_step(gan.d_optimizer) == CRITIC_UPDATES * ROUNDS
assert list(samples) == [0, 20, 50, 200, ROUNDS]


def curve(network, tag):
    """Steps, and the values at them, from TensorBoard's files."""
    run = folder / "logs" / network / "train"
    events = EventAccumulator(str(run)).Reload().Scalars(tag)
    return [event.step for event in events], [event.value for event in events]


assert curve("generator", "g_loss")[0] == list(range(20, ROUNDS + 1, 20))
assert curve("critic", "d_loss")[0] == list(range(100, CRITIC_UPDATES * ROUNDS + 1, 100))

# %% [markdown]
# ## Each network over its own step

# %%
figure, axes = plt.subplots(2, 2, sharex="col", figsize=(8, 5), layout="constrained")
pairs = [("generator", "g_loss"), ("critic", "d_loss")]
for (upper, lower), (name, loss) in zip(axes.T, pairs, strict=True):
    upper.plot(*curve(name, loss))
    upper.set_title(name)
    upper.set_ylabel(loss)
    lower.plot(*curve(name, "learning_rate"))
    lower.set_ylabel("learning rate")
    lower.set_xlabel(f"global step of the {name}")
for panel in axes.flat:
    panel.grid(alpha=0.25)
plt.show()

# %% [markdown]
# ## What the generator makes
#
# The same random numbers at each of these steps, and real digits below them:

# %%
shown = {**{f"step {step}": made for step, made in samples.items()}, "real": images[:12]}
figure, rows = plt.subplots(len(shown), 1, figsize=(7, 4), layout="constrained")
for row, (label, twelve) in zip(rows, shown.items(), strict=True):
    row.imshow(np.hstack(twelve.reshape(12, 8, 8)), cmap="gray_r", vmin=0, vmax=1)
    row.set_ylabel(label, rotation=0, horizontalalignment="right", verticalalignment="center")
    row.set_xticks([])
    row.set_yticks([])
plt.show()


# %% [markdown]
# They have come close to the real ones. In numbers: how far a generated image is from the nearest
# real one, and a real one from the nearest other.


# %%
def nearest(some, others):
    """For each image the distance to the nearest of the others."""
    return np.sqrt(((some[:, None] - others[None]) ** 2).sum(-1)).min(axis=1)


real = nearest(images[:200], images[200:]).mean()
made = {step: nearest(samples[step], images).mean() for step in (0, ROUNDS)}
print(f"real: {real:.2f}; made at step 0: {made[0]:.2f}, at step {ROUNDS}: {made[ROUNDS]:.2f}")
assert made[ROUNDS] < 0.6 * made[0]

# %% [markdown]
# ## In short
#
# - Two optimizers are two global steps, `global_step(gan.g_optimizer)` and
#   `global_step(gan.d_optimizer)`.
# - `optimizer="d_optimizer"` makes any callback follow that one.
# - With `StepBackupAndRestore` both are saved, and restored with the model; the
#   [demo](../demo/gan.py) does that: `make demo-gan`, killed and started again, goes on.
