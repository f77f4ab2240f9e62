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
# # Schedules by the step
#
# A schedule is a function of the step: **update number s, counted from 0, uses `schedule(s)`**. It
# knows nothing of epochs, nor of how often the training was interrupted.
#
# This notebook draws some schedules, trains with one, goes on with it in a second fit, and then
# anneals another hyperparameter: the weight of the KL term of a variational autoencoder.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops
from sklearn.datasets import load_digits

from keras_steps import (
    LogEveryN,
    StepHistory,
    StepScheduled,
    StepScheduledLR,
    StopAtStep,
    schedules,
)

# %% [markdown]
# ## What they look like
#
# They are plain functions: ask them anything. Small pieces are put together, `warmup` before
# whatever is to follow.

# %%
shapes = {
    "warmup, cosine": schedules.warmup(60, schedules.cosine(0.01, 540)),
    "one_cycle": schedules.one_cycle(0.01, 600),
    "warmup_stable_decay": schedules.warmup_stable_decay(
        0.01, 600, warmup_steps=60, decay_steps=150
    ),
    "inverse_sqrt": schedules.inverse_sqrt(0.01, 60),
}
steps = range(0, 701, 5)
plt.figure(figsize=(6, 4))
for name, schedule in shapes.items():
    plt.plot(steps, [schedule(step) for step in steps], label=name)
plt.xlabel("global step")
plt.ylabel("learning rate")
plt.grid(alpha=0.25)
plt.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()

# %% [markdown]
# ## Train with one
#
# The data are scikit-learn's handwritten digits, the last 327 of them for validation. The optimizer
# is built with a number; `StepScheduledLR` sets it before each update.

# %%
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
train_x, train_y = x[:1470], y[:1470]
validation = x[1470:], y[1470:]
schedule = shapes["warmup, cosine"]


def make_classifier():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(32, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    return model


def train(model, last_step, *histories):
    model.fit(
        train_x,
        train_y,
        batch_size=49,
        epochs=10**6,
        verbose=0,
        validation_data=validation,
        callbacks=[StopAtStep(last_step), StepScheduledLR(schedule), *histories],
    )


whole, smoothed = StepHistory(every=1), StepHistory(every=10)
train(make_classifier(), 600, whole, smoothed)
smoothed.plot()

# %% [markdown]
# A report at step 100 has the rate of update number 99, the one that made the model of step 100. So
# it is at every single step:

# %%
wanted = np.float32([schedule(step - 1) for step in whole.steps])
assert whole.steps == list(range(1, 601))
assert np.array_equal(np.float32(whole.scalars["learning_rate"]), wanted)

# %% [markdown]
# ## Today and tomorrow
#
# The rate is a function of the step alone, so a fit that goes on has the rate that it would have
# had. There is no `initial_epoch` to get right. Two fits, one broken off in mid-epoch:

# %%
model = make_classifier()
parts = StepHistory(every=1)
train(model, 257, parts)
train(model, 600, parts)
assert parts.steps == whole.steps
assert parts.scalars["learning_rate"] == whole.scalars["learning_rate"]
print(f"step 258 used {parts.scalars['learning_rate'][257]:.6f}")

# %% [markdown]
# ## Another hyperparameter
#
# A variational autoencoder weighs two terms: how well an image is rebuilt, and how far its code is
# from the prior (the KL divergence). If the second counts fully from the first update, the codes
# may learn to carry nothing. A common cure is to let its weight β rise from 0.
#
# β is a variable of the model, since the compiled step takes a Python number for a constant.
# `StepScheduled` refuses such a number, and says so. Any function of the step is a schedule.


# %%
class Autoencoder(keras.Model):
    """Images of 64 pixels as codes of 8 numbers; `beta` is the weight of the KL term."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(16)])
        self.decoder = keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(64)])
        self.noise = keras.random.SeedGenerator(0)
        self.beta = self.add_weight(shape=(), initializer="ones", trainable=False, name="beta")
        self.kl = keras.metrics.Mean(name="kl")

    def call(self, images):
        mean, log_variance = ops.split(self.encoder(images), 2, axis=-1)
        spread = ops.exp(0.5 * log_variance)
        code = mean + spread * keras.random.normal(ops.shape(mean), seed=self.noise)
        divergence = 0.5 * (mean**2 + spread**2 - log_variance - 1)
        kl = ops.mean(ops.sum(divergence, axis=-1))
        self.kl.update_state(kl)
        self.add_loss(self.beta * kl)
        return self.decoder(code)


def rebuilding_loss(images, logits):
    """Nats an image, a pixel being between black and white."""
    return ops.sum(keras.losses.binary_crossentropy(images[..., None], logits[..., None], True), -1)


def train_autoencoder(beta):
    keras.utils.set_random_seed(0)
    model = Autoencoder()
    model.compile(keras.optimizers.Adam(0.003), rebuilding_loss)
    history = StepHistory(every=20)
    model.fit(
        train_x,
        train_x,
        batch_size=49,
        epochs=10**6,
        verbose=0,
        callbacks=[
            StopAtStep(900),
            StepScheduled(model.beta, beta),
            LogEveryN(300, start=0, message="step {step}: β {beta:.3f}, KL {kl:.2f} nats"),
            history,
        ],
    )
    return history


annealed = train_autoencoder(lambda step: min(1.0, step / 600))

# %% [markdown]
# The same with β = 1 from the first update:

# %%
constant = train_autoencoder(lambda step: 1.0)

# %%
figure, (upper, lower) = plt.subplots(2, 1, sharex=True, layout="constrained")
for name, history in {"β rises": annealed, "β = 1": constant}.items():
    upper.plot(history.steps, history.scalars["kl"], label=name)
    lower.plot(history.steps, history.scalars["beta"], label=name)
upper.set_ylabel("KL divergence (nats)")
upper.legend()
lower.set_ylabel("β")
lower.set_xlabel("global step")
for panel in (upper, lower):
    panel.grid(alpha=0.25)
plt.show()

# %% [markdown]
# While β is small the codes carry as much as they like, and are pressed together by and by. With
# β = 1 from the start they begin with next to nothing and learn to carry more. On images as small
# as these both come out well; which is better for yours is two runs away.

# %%
wanted = np.float32([min(1.0, (step - 1) / 600) for step in annealed.steps])
assert np.array_equal(np.float32(annealed.scalars["beta"]), wanted)
assert annealed.scalars["kl"][4] > 5 * constant.scalars["kl"][4]  # at step 100
print(f"at the end: {annealed.scalars['kl'][-1]:.1f} and {constant.scalars['kl'][-1]:.1f} nats")

# %% [markdown]
# ## In short
#
# - A schedule is a function of the step: `schedules` has the common ones, any function will do.
# - `StepScheduledLR(schedule)` sets the learning rate, `StepScheduled(variable, schedule)` any
#   other hyperparameter; both before the update that is to use it, and both are in every report.
# - A fit that goes on has the values that it would have had.
# - [Scheduling](../docs/scheduling.md) has the table of schedules, those of Keras and optax, and
#   when to hand one to the optimizer itself.
