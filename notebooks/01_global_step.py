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
# # What is a global step?
#
# The global step of a model is **the number of updates that its optimizer has applied**.
# One update: a batch goes in, gradients come out, the weights change.
#
# This notebook shows why that number starts at 0, who counts it, and what it is good for:
# you stop, log and go on by it. It takes less than a minute on a CPU.

# %%
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_steps import (
    LogEveryN,
    StepHistory,
    StepScheduledLR,
    StepTensorBoard,
    StopAtStep,
    global_step,
    schedules,
)

# %% [markdown]
# The data are scikit-learn's handwritten digits: 1,797 images of 8 × 8 pixels. The last 327 are for
# validation. The other 1,470 make 30 batches of 49.

# %%
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
train_x, train_y = x[:1470], y[:1470]
validation = x[1470:], y[1470:]


def make_model(**optimizer_args):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.005, **optimizer_args), "sparse_categorical_crossentropy")
    return model


# %% [markdown]
# ## Why it starts at 0
#
# A new model has had no update, so it is at step 0. Step 0 is a state, not a batch: the untrained
# model.

# %%
model = make_model()
global_step(model)

# %% [markdown]
# After one batch it is at step 1. "At step 100" always means: after 100 updates.

# %%
model.train_on_batch(train_x[:49], train_y[:49])
global_step(model)

# %% [markdown]
# ## Why the optimizer counts, and not the loop
#
# You could count batches in a loop of your own. Often that gives the same number, but not always.
#
# **Not every batch is an update.** Evaluation runs over 7 batches here, and the model stays where
# it is:

# %%
model.evaluate(*validation, batch_size=49, verbose=0)
global_step(model)

# %% [markdown]
# With gradient accumulation, four batches make one update. A loop would count 8 here:

# %%
accumulating = make_model(gradient_accumulation_steps=4)
for start in range(0, 8 * 49, 49):
    accumulating.train_on_batch(train_x[start : start + 49], train_y[start : start + 49])
global_step(accumulating)

# %% [markdown]
# **A loop forgets.** Its variable is gone when the program ends. The optimizer's counter is part of
# its state, and is saved and loaded with it.
#
# **The optimizer needs it anyway**: Adam corrects its averages by the number of updates, and
# learning rate schedules are functions of it. Keras calls the counter `optimizer.iterations`.

# %%
int(model.optimizer.iterations)

# %% [markdown]
# ## Log lines at 1, 101, 201
#
# `LogEveryN(100)` prints at step 1, so that you see at once that the run works, and then every 100
# steps. The loss is the mean over the steps since the line before.
#
# An epoch has 30 steps here, and no line cares. We ask for more epochs than can be needed, and
# `StopAtStep` ends the fit.

# %%
model = make_model()
model.fit(
    train_x,
    train_y,
    batch_size=49,
    epochs=10**6,
    verbose=0,
    callbacks=[
        StopAtStep(201),
        LogEveryN(100, message="np.mean(loss_evl)= {loss:.6f} at step {step}"),
    ],
)
global_step(model)

# %% [markdown]
# ## 100 today + 100 tomorrow = 200
#
# One function for both days. `StopAtStep(num_steps=100)` makes 100 steps from wherever the model
# is.

# %%
folder = Path(tempfile.mkdtemp())  # take one that will still be there tomorrow


def train_100_steps(model):
    model.fit(
        train_x,
        train_y,
        batch_size=49,
        epochs=10**6,
        verbose=0,
        validation_data=validation,
        callbacks=[
            StopAtStep(num_steps=100),
            LogEveryN(50, start=0, message="step {step}: loss {loss:.4f}"),
            StepTensorBoard(folder / "logs", every=10),
        ],
    )


# %% [markdown]
# Today:

# %%
model = make_model()
train_100_steps(model)
model.save(folder / "digits.keras")
del model

# %% [markdown]
# Tomorrow, the saved model knows where it was:

# %%
model = keras.models.load_model(folder / "digits.keras")
global_step(model)

# %%
train_100_steps(model)
global_step(model)

# %% [markdown]
# `StopAtStep(200)` names the step at which training is done, however often it was interrupted. This
# model is there already, so the fit makes no step:

# %%
model.fit(train_x, train_y, verbose=0, callbacks=[StopAtStep(200)])
global_step(model)

# %% [markdown]
# ## TensorBoard
#
# Both days wrote to the same log directory. To look at it, run this in a terminal and open the
# address that it prints:
#
# ```
# tensorboard --logdir logs
# ```
#
# In a notebook, `%load_ext tensorboard` and then `%tensorboard --logdir logs` show the same page.
# It draws training and validation into one chart. This is a run of the demo:
#
# ![TensorBoard's page: train and validation loss in one chart](../docs/images/tensorboard.png)
#
# The files can be read back as well. The second day goes on where the first one ended:

# %%
steps = {}
for run in ("train", "validation"):
    events = EventAccumulator(str(folder / "logs" / run)).Reload().Scalars("loss")
    steps[run] = [event.step for event in events]
    plt.plot(steps[run], [event.value for event in events], marker=".", label=run)
    print(f"{run}: {steps[run]}")
plt.axvline(100, color="0.5", linestyle="--", linewidth=0.8, label="the next day")
plt.xlabel("global step")
plt.ylabel("loss")
plt.legend()
plt.show()

# %% [markdown]
# As a check: no step is missing, none is there twice, and accumulation has not confused the count.

# %%
assert global_step(model) == 200
assert steps["train"] == list(range(10, 201, 10))
assert global_step(accumulating) == 2

# %% [markdown]
# ## A plot without any files
#
# `StepHistory` keeps the curves in memory. Here the learning rate follows the step as well: it
# rises for 60 steps, then falls to 0 at step 600.

# %%
model = make_model()
history = StepHistory(every=10)
model.fit(
    train_x,
    train_y,
    batch_size=49,
    epochs=10**6,
    verbose=0,
    validation_data=validation,
    callbacks=[
        StopAtStep(600),
        StepScheduledLR(schedules.warmup(60, schedules.cosine(0.01, 540))),
        history,
    ],
)
history.plot()

# %% [markdown]
# The same as a table. Validation ran every 30 steps, at the end of each epoch:

# %%
columns = ["loss", "val_loss", "learning_rate"]
history.to_frame()[columns].tail(4).round(4)

# %% [markdown]
# ## In short
#
# - The step is the number of updates; 0 is the untrained model.
# - The optimizer counts, so accumulation, evaluation and restarts can't confuse the number.
# - `global_step(model)` reads it. `StopAtStep`, `LogEveryN`, `StepTensorBoard`, `StepHistory` and
#   `StepScheduledLR` go by it.
