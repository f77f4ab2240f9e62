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
# # Several devices, several workers
#
# A step is an update of the optimizer, and all replicas make it together. So the same callbacks
# fire at the same steps on one device, on several, and in several processes.
#
# This notebook trains one model three times: on one device, on two under `MirroredStrategy`, and in
# two worker processes under `MultiWorkerMirroredStrategy`. It needs TensorFlow as Keras's backend,
# and no GPU: the two devices are halves of the CPU.

# %%
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas
import tensorflow as tf
from sklearn.datasets import load_digits

from keras_steps import EvaluateEveryN, LogEveryN, StepHistory, StopAtStep, global_step

tf.get_logger().setLevel("ERROR")
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
os.chdir(tempfile.mkdtemp())  # where everything below is written to

# %% [markdown]
# ## One device, then two
#
# A batch of 50 images goes to one device, or 25 to each of two. One batch is one update either way.

# %%
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
train_data = tf.data.Dataset.from_tensor_slices((x[:1500], y[:1500])).batch(50)
held_out = tf.data.Dataset.from_tensor_slices((x[1500:], y[1500:])).batch(50)


def train(strategy):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
    history = StepHistory(every=10)
    model.fit(
        train_data,
        epochs=10**6,
        shuffle=False,
        verbose=0,
        callbacks=[
            StopAtStep(200),
            LogEveryN(100, start=0, message="step {step}: loss {loss:.4f}"),
            EvaluateEveryN(held_out, every=50),
            history,
        ],
    )
    return model, history


one, one_history = train(tf.distribute.OneDeviceStrategy("CPU:0"))

# %%
two, two_history = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))

# %% [markdown]
# Both are at step 200, not at 400, and have fired at the same steps. The weights are the same but
# for rounding: a sum of two sums is rounded in another place.

# %%
assert global_step(one) == global_step(two) == 200
assert one_history.steps == two_history.steps


def distance(these, those):
    """The largest difference between two lists of weights."""
    return max(float(np.abs(a - b).max()) for a, b in zip(these, those, strict=True))


assert distance(one.get_weights(), two.get_weights()) < 0.001
print(f"weights differ by {distance(one.get_weights(), two.get_weights()):.0e} at most")

# %% [markdown]
# ## Two workers
#
# Each worker is a process that runs the same script. `TF_CONFIG` tells it who the others are and
# which of them it is.
#
# Keras 3 can't train under `MultiWorkerMirroredStrategy` by itself; `prepare(model)` is the cure,
# and does nothing where there is nothing to cure.

# %%
# %%writefile worker.py
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow

import keras
import numpy as np
from sklearn.datasets import load_digits

from keras_steps import (
    EvaluateEveryN,
    LogEveryN,
    StepHistory,
    StepTensorBoard,
    StopAtStep,
    distribution,
)

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA


def batches(x, y):
    """Of 50 images in all; each worker takes its 25 of them."""
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(50).with_options(options)


keras.utils.set_random_seed(0)
with strategy.scope():
    model = distribution.prepare(
        keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
    )
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
history = StepHistory(every=10)
model.fit(
    batches(x[:1500], y[:1500]),
    epochs=10**6,
    shuffle=False,
    verbose=0,
    callbacks=[
        StopAtStep(200),
        LogEveryN(100, start=0, message="step {step}: loss {loss:.4f}"),
        EvaluateEveryN(batches(x[1500:], y[1500:]), every=50),
        StepTensorBoard("logs", every=10),
        history,
    ],
)
role = "chief" if distribution.is_chief(model) else "other"
history.to_frame().to_csv(f"{role}.csv")
np.savez(f"{role}.npz", *model.get_weights())

# %% [markdown]
# Here both run on this machine, on its CPU; on two machines you would start one on each, with their
# names for `127.0.0.1`.


# %%
def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(index):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
    settings = {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, "worker.py"],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=Path(f"stderr_{index}.txt").open("w"),
        text=True,
    )


ports = free_ports(2)
workers = [start(index) for index in range(2)]
try:
    printed = [worker.communicate(timeout=300)[0] for worker in workers]
finally:
    for worker in workers:
        worker.kill()
for index, worker in enumerate(workers):
    assert worker.returncode == 0, Path(f"stderr_{index}.txt").read_text()
    print(f"worker {index} printed:\n{printed[index]}")

# %% [markdown]
# Both went through the same steps, and both evaluated, since that takes all of them. One of them,
# the **chief**, wrote lines and files: there is one set of curves.

# %%
print(*sorted(path.name for path in Path().iterdir()), sep="\n")

# %%
assert printed[0] and not printed[1]
assert not list(Path().glob("logs_*"))

frames = {role: pandas.read_csv(f"{role}.csv", index_col="step") for role in ("chief", "other")}
assert list(frames["chief"].index) == list(frames["other"].index) == one_history.steps

# %% [markdown]
# The weights of the workers are equal, bit for bit, and those of one device but for rounding:

# %%
chief, other = ([*np.load(f"{role}.npz").values()] for role in ("chief", "other"))
assert distance(chief, other) == 0
assert distance(chief, one.get_weights()) < 0.001
print(f"workers: {distance(chief, other)}; to one device: {distance(chief, one.get_weights()):.0e}")

# %%
runs = {
    "one device": one_history.to_frame(),
    "two devices": two_history.to_frame(),
    "two workers": frames["chief"],
}
figure, panels = plt.subplots(1, 2, sharey=True, figsize=(8, 4), layout="constrained")
for (name, frame), width in zip(runs.items(), (8, 4, 1.5), strict=True):
    for panel, column in zip(panels, ("loss", "val_loss"), strict=True):
        panel.plot(frame[column].dropna(), linewidth=width, label=name)
for panel, title in zip(panels, ("training", "validation"), strict=True):
    panel.set_title(title)
    panel.set_xlabel("global step")
    panel.grid(alpha=0.25)
panels[0].set_ylabel("loss")
panels[0].legend()
plt.show()

# %% [markdown]
# ## In short
#
# - The step counts updates, however many replicas share one; the callbacks stay as they are.
# - With several workers each runs the same script, with the same callbacks; the chief writes.
# - Keras 3 under `MultiWorkerMirroredStrategy`: `distribution.prepare(model)`.
# - [Several devices, several workers](../docs/distribution.md) has the other strategies, and what
#   workers decide together; [jobs](../docs/jobs.md), how they are started on clusters.
