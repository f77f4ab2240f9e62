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
# # TensorBoard, everything over one step
#
# You want one horizontal axis: the loss of training, of each validation, the learning rate, all at
# the step they belong to, whatever the batch size and however many fits it took.
#
# This notebook shows what Keras's own callback writes, what `StepTensorBoard` writes, compares two
# runs by their curves, and says how to open them.

# %%
import logging
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_steps import (
    EvaluateEveryN,
    StepScheduledLR,
    StepTensorBoard,
    StopAtStep,
    schedules,
)

logging.getLogger("tensorboard").setLevel(logging.ERROR)
logs = Path(tempfile.mkdtemp()) / "logs"  # for your own runs: Path("logs")
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
train_x, train_y = x[:1470], y[:1470]
held_out = x[1470:], y[1470:]


def make_model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
    return model


# %% [markdown]
# ## What Keras's callback writes
#
# Two fits, of 3 epochs of 30 batches each, on one model: 180 updates.

# %%
model = make_model()
for _ in range(2):
    model.fit(
        train_x,
        train_y,
        batch_size=49,
        epochs=3,
        verbose=0,
        validation_data=held_out,
        callbacks=[keras.callbacks.TensorBoard(logs / "keras", write_graph=False, update_freq=30)],
    )


def show_tags(run):
    """Every tag with the steps of its points, in the order in which they were written."""
    read = EventAccumulator(str(run)).Reload()
    for tag in read.Tags()["scalars"]:
        print(f"{run.name}: {tag} at {[event.step for event in read.Scalars(tag)]}")
    for tag in read.Tags()["tensors"]:
        print(f"{run.name}: {tag} at {[event.step for event in read.Tensors(tag)]}")


show_tags(logs / "keras" / "train")
show_tags(logs / "keras" / "validation")

# %% [markdown]
# Two kinds of steps: epochs, and batches since the fit began. Validation has epochs alone. The
# second fit begins at 0 again, so that its points lie on those of the first.
#
# ## What StepTensorBoard writes
#
# Two fits again, the first of them broken off at step 100, in mid-epoch. Evaluations come every 20
# steps, and the learning rate falls.


# %%
def train(model, name, last_step, batch_size=49):
    model.fit(
        train_x,
        train_y,
        batch_size=batch_size,
        epochs=10**6,
        verbose=0,
        callbacks=[
            StopAtStep(last_step),
            StepScheduledLR(schedules.cosine(0.005, 180)),
            EvaluateEveryN(held_out, every=20),
            StepTensorBoard(logs / name, every=5, histograms_every=60),
        ],
    )


model = make_model()
train(model, "batches_of_49", 100)
train(model, "batches_of_49", 180)
show_tags(logs / "batches_of_49" / "validation")


# %% [markdown]
# One kind of step, and each is there once. Training and validation share the tag `loss`, which is
# why TensorBoard draws them into one chart.
#
# ## Compare runs
#
# Each run has a folder of its own below the one that TensorBoard opens. A second one, with batches
# of a third of the size: its epochs have 92 steps, not 30, and over the step the curves still lie
# on each other's axis.

# %%
train(make_model(), "batches_of_16", 180, batch_size=16)


def curve(run, tag):
    """Steps, and the values at them."""
    events = EventAccumulator(str(logs / run)).Reload().Scalars(tag)
    return [event.step for event in events], [event.value for event in events]


figure, (upper, lower) = plt.subplots(
    2, 1, sharex=True, height_ratios=(2, 1), figsize=(7, 5), layout="constrained"
)
for name, color in {"batches_of_49": "C0", "batches_of_16": "C1"}.items():
    upper.plot(*curve(f"{name}/train", "loss"), color=color, alpha=0.5, label=f"{name}/train")
    upper.plot(
        *curve(f"{name}/validation", "loss"), color=color, marker="o", label=f"{name}/validation"
    )
upper.set_ylabel("loss")
upper.legend()
lower.plot(*curve("batches_of_49/train", "learning_rate"), color="C0")
lower.set_ylabel("learning rate")
lower.set_xlabel("global step")
for panel in (upper, lower):
    panel.grid(alpha=0.25)
plt.show()

# %% [markdown]
# What was claimed, as a check: the second fit went on where the first had ended, in one set of
# curves, and both kinds of points lie on their grids.

# %%
for name in ("batches_of_49", "batches_of_16"):
    assert curve(f"{name}/train", "loss")[0] == list(range(5, 181, 5))
    assert curve(f"{name}/validation", "loss")[0] == list(range(20, 181, 20))
assert curve("batches_of_49/train", "learning_rate") == curve(
    "batches_of_16/train", "learning_rate"
)

# %% [markdown]
# ## Open it
#
# In a terminal, then open the address that it prints:
#
# ```
# tensorboard --logdir logs
# ```
#
# On another machine's logs: `ssh -L 6006:localhost:6006 machine`, start it there, and open
# `http://localhost:6006` here.
#
# In a notebook:
#
# ```
# %load_ext tensorboard
# %tensorboard --logdir logs
# ```
#
# On the page the horizontal axis is *Step*, to be chosen under *Settings*; type `loss` into the
# filter of tags, and `49` into that of runs. Histograms of the weights have a tab of their own.
# This is a run of the demo, killed and gone on with:
#
# ![TensorBoard's page: train and validation loss in one chart](../docs/images/tensorboard.png)
#
# ## In short
#
# - `StepTensorBoard(logs / name, every=5)` in `callbacks`, a folder a run.
# - Every point lies at the global step; fits that go on make one curve.
# - [TensorBoard, by the step](../docs/tensorboard.md) has the rest: scalars of your own,
#   histograms, what happens to the curves of a killed run.
