"""The script that the proof kills and starts again: `trains.py NUMBER DIRECTORY [KILL_AT]`.

It trains as the combination of that number says, and writes what is to be compared into the
directory. On its standard output it says `begins` before fit, `goes on from STEP`, `training
STEP` at its first firing, and `saved POINTS` in the end: how often it came to a point within a
save. At the point KILL_AT it kills itself.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

from combinations import numbered

combination = numbered(sys.argv[1])
directory = Path(sys.argv[2])
kill_at = int(sys.argv[3]) if len(sys.argv) > 3 else 0

import numpy as np  # noqa: E402
from flavours import BATCH, IS_TF_KERAS, arrays, keras, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402

BATCHES = 10
EPOCHS = 6
LAST_BATCH = 56
STEP_SECS = 0.012
IS_GAN = combination.data == "gan"
points = itertools.count(1)


def say(*words):
    print(*words, flush=True)


class Firings(ks.StepCallback):
    """Notes each firing in a line that is whole, and makes the steps last a while."""

    def __init__(self, path):
        super().__init__(every=2)
        self.path = path
        self.to_say = ["training", "goes on from"]

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.begins(ks.global_step(self.model))

    def begins(self, step):
        if len(self.to_say) == 2:
            say(self.to_say.pop(), step)

    def on_step(self, step, logs):
        self.note("step", step, logs)
        if self.to_say:
            say(self.to_say.pop(), step)
        time.sleep(2 * STEP_SECS)

    def on_evaluation(self, step, logs):
        self.note(min(logs), step, logs)

    def note(self, kind, step, logs):
        kept = {name: value for name, value in logs.items() if not name.endswith("per_second")}
        with self.path.open("a") as file:
            file.write(json.dumps([kind, step, kept]) + "\n")


def kill_in_saves():
    """Count what happens on the way to the disk, and die before or after one of them."""

    def point():
        if next(points) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(function):
        def wrapper(*args, **kwargs):
            point()
            result = function(*args, **kwargs)
            point()
            return result

        return wrapper

    for name in ("replace", "fsync", "unlink"):
        setattr(os, name, wrapped(getattr(os, name)))


def scope():
    if not combination.mirrored:
        import contextlib

        return contextlib.nullcontext()
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()


def make_model():
    keras.utils.set_random_seed(1)
    if IS_TF_KERAS:
        keras.backend.experimental.enable_tf_random_generator()
    of_optimizer, of_compile = {}, {}
    if combination.accumulation > 1:
        of_optimizer["gradient_accumulation_steps"] = combination.accumulation
    if combination.spe > 1:
        of_compile["steps_per_execution"] = combination.spe
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01, **of_optimizer)
    model.compile(optimizer, "mse", metrics=["mae"], **of_compile)
    return model


def data():
    x, y = arrays(BATCHES)
    if combination.data == "dataset":
        import tensorflow as tf

        examples = tf.data.Dataset.from_tensor_slices((x, y))
        return {"x": examples.shuffle(len(x), seed=3).batch(BATCH)}
    if combination.data == "loader":
        import torch

        examples = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return {"x": torch.utils.data.DataLoader(examples, batch_size=BATCH, shuffle=True)}
    return {"x": x, "y": y, "batch_size": BATCH, "shuffle": True}


def callbacks():
    last_step = LAST_BATCH // combination.accumulation
    mode, patience = ("max", 4) if combination.stops_early else ("min", 1000)
    found = [
        ks.EvaluateEveryN(arrays(2, seed=7), every=5, prefix="test_"),
        ks.StepCheckpoint(
            directory / "checkpoints", every=6, max_to_keep=2, keep_every=15, monitor="val_loss"
        ),
        ks.StepEarlyStopping("test_loss", patience=patience, mode=mode),
        ks.LogEveryN(10),
        ks.StepTensorBoard(directory / "logs", every=3),
        ks.StepCSVLogger(directory / "metrics.csv", every=4),
        keras.callbacks.EarlyStopping("val_loss", patience=50),
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=1.0),
        ks.StopAtStep(last_step),
        Firings(directory / "firings.jsonl"),
        ks.StepBackupAndRestore(directory / "backup", every=4),
    ]
    if not combination.stops_early:
        schedule = ks.schedules.warmup(8, ks.schedules.cosine(0.01, last_step - 8))
        found.append(ks.StepScheduledLR(schedule))
    return found


def train_gan():
    """A loop whose step is an update of the critic: every fifth is followed by a generator's.

    Backups come due between these five too. Both optimizers' counters are a part of the end.
    """
    from gans import CRITIC_UPDATES, counters, make_gan, state

    gan = make_gan()
    optimizers = {"g_optimizer": gan.g_optimizer, "d_optimizer": gan.d_optimizer}
    firings = Firings(directory / "firings.jsonl")
    loop_callbacks = [
        ks.StepCheckpoint(
            directory / "checkpoints",
            every=6,
            max_to_keep=2,
            keep_every=15,
            objects={"gan": gan, **optimizers},
        ),
        ks.LogEveryN(10),
        ks.StepTensorBoard(directory / "logs", every=3),
        ks.StepCSVLogger(directory / "metrics.csv", every=4),
        ks.StopAtStep(LAST_BATCH),
        firings,
        ks.StepBackupAndRestore(directory / "backup", every=4),
    ]
    images = np.random.default_rng(0).uniform(size=(BATCHES, 64, 64)).astype("float32")
    say("begins")
    with ks.StepLoop(loop_callbacks, model=gan, optimizer="d_optimizer") as loop:
        for _ in range(EPOCHS):
            for real in loop.over(images):
                firings.begins(ks.global_step(gan.d_optimizer))
                loop.log(d_loss=gan.update_critic(keras.ops.convert_to_tensor(real)))
                if ks.global_step(gan.d_optimizer) % CRITIC_UPDATES == 0:
                    gan.update_generator()
    finish(gan, {}, counters(gan), state(gan))


def main():
    kill_in_saves()
    if IS_GAN:
        train_gan()
        return
    with scope():
        model = make_model()
    say("begins")
    history = model.fit(
        **data(),
        epochs=EPOCHS,
        verbose=0,
        validation_data=arrays(2, seed=5),
        callbacks=callbacks(),
    )
    finish(
        model, {"epoch": history.epoch, **history.history}, [ks.global_step(model)], state_of(model)
    )


def finish(model, results, steps, final):
    """Write what the run has come to."""
    say("saved", next(points) - 1)
    np.savez(directory / "final.npz", *final)
    plain = {name: [float(value) for value in values] for name, values in results.items()}
    (directory / "history.json").write_text(json.dumps(plain))
    end = {"steps": steps, "stop_reason": ks.stop_reason(model)}
    (directory / "end.json").write_text(json.dumps(end))


if __name__ == "__main__":
    main()
