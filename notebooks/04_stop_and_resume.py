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
# # Stop and resume
#
# Kill a training anywhere, start the same script again, and it goes on with the batch that comes
# next. In the end the weights are the same, bit for bit, as those of a run that was never killed.
#
# This notebook shows it with a real process and a real SIGKILL, then with the stop button of a
# notebook.

# %%
import csv
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from keras_steps import LogEveryN, OnStep, StepBackupAndRestore, StopAtStep, global_step

os.chdir(tempfile.mkdtemp())  # where everything below is written to

# %% [markdown]
# ## A script
#
# Nothing in it knows whether it was killed. Data are shuffled anew in each epoch of 30 steps, there
# is dropout, and Adam has its moments: all of that has to go on as it was. `StepBackupAndRestore`
# is the line that does it.

# %%
# %%writefile train.py
import sys
from pathlib import Path

import keras
from sklearn.datasets import load_digits

from keras_steps import LogEveryN, StepBackupAndRestore, StepCSVLogger, StopAtStep

folder = Path(sys.argv[1])
keras.utils.set_random_seed(0)
x, y = load_digits(return_X_y=True)
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy")
model.fit(
    x[:1470] / 16,
    y[:1470],
    batch_size=49,
    epochs=10**6,
    verbose=0,
    callbacks=[
        StopAtStep(800),
        LogEveryN(100, start=0, message="step {step}: loss {loss:.4f}"),
        StepCSVLogger(folder / "metrics.csv", every=10),
        StepBackupAndRestore(folder / "backup", every=80),
    ],
)
model.save(folder / "model.keras")

# %% [markdown]
# A process of its own runs it. With `kill_after` it is sent SIGKILL, which no process can catch, as
# soon as it has printed a line that begins so.


# %%
def run(folder, kill_after=None):
    """What it printed, and how it ended."""
    command = [sys.executable, "-u", "train.py", folder]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            lines.append(line.rstrip())
            if kill_after and line.startswith(kill_after):
                process.kill()
                break
    was_killed = process.returncode == -signal.SIGKILL
    lines.append("killed" if was_killed else f"exit {process.returncode}")
    print(*lines, sep="\n")
    return lines


# %% [markdown]
# ## Never killed

# %%
assert run("whole")[-1] == "exit 0"

# %% [markdown]
# ## Killed

# %%
assert run("killed", kill_after="step 200:")[-1] == "killed"

# %% [markdown]
# No model was saved. What there is are the last two backups:

# %%
assert not Path("killed/model.keras").exists()
print(*sorted(path.name for path in Path("killed/backup").iterdir()), sep="\n")

# %% [markdown]
# ## The same command again

# %%
lines = run("killed")
assert lines[-1] == "exit 0"
step = int(lines[0].removeprefix("going on from step ").partition(":")[0])
assert step >= 80  # it did not begin anew

# %% [markdown]
# ## The same weights
#
# Not close: equal. So is Adam's state.


# %%
def state(folder):
    model = keras.saving.load_model(f"{folder}/model.keras")
    return [np.asarray(v) for v in model.weights + model.optimizer.variables]


assert all(np.array_equal(a, b) for a, b in zip(state("whole"), state("killed"), strict=True))

# %% [markdown]
# So are the curves. What the killed process wrote past the backup was dropped and written again:
# each step is there once.


# %%
def losses(folder):
    """The loss by the step, as metrics.csv has it."""
    with open(f"{folder}/metrics.csv") as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}


whole, killed = losses("whole"), losses("killed")
assert list(killed) == list(range(10, 801, 10))
assert killed == whole

plt.plot(whole.keys(), whole.values(), linewidth=6, alpha=0.3, label="never killed")
plt.plot(killed.keys(), killed.values(), linewidth=1, label="killed, and started again")
plt.xlabel("global step")
plt.ylabel("loss")
plt.legend()
plt.show()

# %% [markdown]
# ## The stop button
#
# In a notebook, the button sends SIGINT. Named in `on_signal`, it ends the fit in good order: the
# step in flight is done, the state is saved, no error is raised.


# %%
def train():
    keras.utils.set_random_seed(0)
    x, y = load_digits(return_X_y=True)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(
        x[:1470] / 16,
        y[:1470],
        batch_size=49,
        epochs=10**6,
        verbose=0,
        callbacks=[
            StopAtStep(300),
            LogEveryN(100, start=0, message="step {step}: loss {loss:.4f}"),
            StepBackupAndRestore("button", every=100, on_signal=("SIGINT", "SIGTERM")),
            OnStep(1, press_the_button),
        ],
    )
    return model


def press_the_button(step, logs):
    """At step 137 of the first time."""
    if step == 137 and not Path("pressed").exists():
        Path("pressed").touch()
        signal.raise_signal(signal.SIGINT)


model = train()
assert global_step(model) == 137

# %% [markdown]
# The same cell again. No step is made twice, and none is lost:

# %%
model = train()
assert global_step(model) == 300

# %% [markdown]
# Once more, and there is nothing left to do; with `StopAtStep(500)` it would make the 200 steps
# that are missing.

# %%
model = train()
assert global_step(model) == 300

# %% [markdown]
# ## In short
#
# - `StepBackupAndRestore(directory)` in `callbacks`, a seed at the top, and the script may be
#   killed anywhere. A directory is for one script; delete it to begin anew.
# - SIGKILL loses the steps since the last backup, which are made again, and come out the same. A
#   signal that is named in `on_signal` loses none.
# - [Resuming](../docs/resuming.md) says what is saved and which data come in the same order again;
#   [jobs](../docs/jobs.md), how schedulers are told.
