"""Train a small convolutional network on handwritten digits, some steps at a time.

Each run goes on where the last one ended: 300 steps today, 300 tomorrow, and the counter says 600.
It keeps under demo_output/ the model (with its optimizer, so with its step), the points of the
curves since step 0, a plot of them, and logs for TensorBoard:

    tensorboard --logdir demo_output/logs

    python demo/digits.py [--strategy default|mirrored] [--steps 300] [--output demo_output]
"""

import argparse
import contextlib
import json
import os
import sys
import zipfile
from pathlib import Path

import keras
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from keras_steps import (
    LogEveryN,
    OnStep,
    StepProgressBar,
    StepScheduledLR,
    StepTensorBoard,
    StopAtStep,
    global_step,
)
from keras_steps.schedules import cosine, warmup

HELD_OUT = 297  # of the 1,797 images
# Two sessions of 300 steps are the whole schedule; further ones go on at the final rate.
SCHEDULE = warmup(60, cosine(2e-3, 540, final=1e-4), initial=1e-4)
CURVES = ("loss", "accuracy", "learning_rate")


def main() -> None:
    options = parse_arguments()
    files = Files(options.output)
    (x, y), held_out = load_images()
    with make_scope(options.strategy):
        model = files.load_model() if files.model.exists() else build_model()
    begin = global_step(model)
    history = files.load_history(begin)
    history["sessions"].append(begin)
    keras.utils.set_random_seed(begin)  # another order of the images in each session

    def record(step, logs):
        history["points"].append({"step": step} | {name: logs[name] for name in CURVES})

    print(f"going on at step {begin}" if begin else "a new model, step 0", flush=True)
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=10**6,  # StopAtStep ends the fit
        verbose=0,
        validation_data=held_out,
        callbacks=[
            StopAtStep(num_steps=options.steps),
            LogEveryN(100),
            StepScheduledLR(SCHEDULE),
            OnStep(10, record),
            StepTensorBoard(files.logs, every=10),
            *([StepProgressBar()] if sys.stderr.isatty() else []),
        ],
    )
    loss, accuracy = model.evaluate(*held_out, verbose=0)
    files.save(model, history)
    print(f"global step {begin} -> {global_step(model)}")
    print(f"{HELD_OUT} held-out images: loss={loss:.4f} accuracy={accuracy:.4f}")
    print(f"model {files.model}, points {files.history}, plot {files.plot}")
    print(f"curves: tensorboard --logdir {files.logs}")


def parse_arguments() -> argparse.Namespace:
    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"expected a positive whole number, got {text!r}")
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--strategy", choices=("default", "mirrored"), default="default")
    parser.add_argument("--steps", type=positive, default=300, help="steps to make in this run")
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    return parser.parse_args()


def load_images():
    """(1500 images, labels), (297 images, labels); an image is (8, 8, 1), from 0 to 1."""
    digits = load_digits()
    images = (digits.images[..., None] / 16).astype("float32")
    x, held_out_x, y, held_out_y = train_test_split(
        images, digits.target, test_size=HELD_OUT, random_state=0
    )
    return (x, y), (held_out_x, held_out_y)


def make_scope(strategy: str) -> contextlib.AbstractContextManager:
    """The scope in which the model is built or loaded."""
    if strategy == "default":
        return contextlib.nullcontext()
    if keras.backend.backend() != "tensorflow":
        sys.exit(
            f"error: MirroredStrategy needs KERAS_BACKEND=tensorflow, not {keras.backend.backend()}"
        )
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()


def build_model() -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ],
        name="digits",
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Files:
    """What the demo keeps. A file is replaced as a whole: a kill leaves the old or the new one."""

    def __init__(self, folder: Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sys.exit(f"error: cannot make the folder {folder}: {error.strerror}")
        self.folder = folder
        self.model = folder / "model.keras"
        self.history = folder / "history.json"
        self.plot = folder / "loss_and_learning_rate.png"
        self.logs = folder / "logs"

    def load_model(self) -> keras.Model:
        if not zipfile.is_zipfile(self.model):
            self._refuse(self.model, "it is no complete .keras archive")
        try:
            model = keras.saving.load_model(self.model)
        except Exception as error:  # a broken archive raises whatever its reader stumbles over
            self._refuse(self.model, f"{type(error).__name__}: {error}".splitlines()[0])
        if model.name != "digits" or getattr(model, "optimizer", None) is None:
            self._refuse(self.model, f"it holds the model {model.name!r}, not the demo's")
        return model

    def load_history(self, step: int) -> dict:
        """What was recorded up to `step`; a killed run may have left points beyond it."""
        if not self.history.exists():
            return {"sessions": [], "points": []}
        try:
            history = json.loads(self.history.read_text())
            points = [
                {name: point[name] for name in ("step", *CURVES)} for point in history["points"]
            ]
            return {
                "sessions": [begin for begin in history["sessions"] if begin < step],
                "points": [point for point in points if point["step"] <= step],
            }
        except (ValueError, KeyError, TypeError) as error:
            self._refuse(self.history, f"{type(error).__name__}: {error}")

    def save(self, model: keras.Model, history: dict) -> None:
        """The points before the model, whose step says how many of them count."""
        self._replace(self.history, lambda path: path.write_text(json.dumps(history, indent=1)))
        self._replace(self.model, model.save)
        self._replace(self.plot, lambda path: draw(history, global_step(model), path))

    def _replace(self, path: Path, write) -> None:
        partial = path.with_name(f"partial_{path.name}")
        write(partial)
        os.replace(partial, path)

    def _refuse(self, path: Path, reason: str):
        sys.exit(
            f"error: {path} is not what this demo wrote ({reason}).\n"
            f"Remove {self.folder}/ to begin again at step 0."
        )


def draw(history: dict, end: int, path: Path) -> None:
    """Loss above learning rate over one axis of steps, with a line where each session began."""
    points, sessions = history["points"], history["sessions"]
    steps = [point["step"] for point in points]
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for panel, name in ((upper, "loss"), (lower, "learning_rate")):
        for begin in sessions:
            panel.axvline(begin, color="0.5", linewidth=0.8, linestyle="--")
        panel.plot(steps, [point[name] for point in points], marker=".", markersize=4)
        panel.grid(alpha=0.25)
    count = "1 session" if len(sessions) == 1 else f"{len(sessions)} sessions"
    upper.set_title(f"handwritten digits: {end} steps in {count}; a dashed line begins each")
    upper.set_ylabel("loss (mean over 10 steps)")
    if points:  # an empty axis cannot be logarithmic
        upper.set_yscale("log")
    lower.set_ylabel("learning rate")
    lower.set_ylim(bottom=0)
    lower.ticklabel_format(axis="y", style="sci", scilimits=(-3, -3))
    lower.set_xlabel("global step")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: this session was not saved, the next one begins where it began")
