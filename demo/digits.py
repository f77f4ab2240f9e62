"""Train a small convolutional network on handwritten digits, some steps at a time.

Each run goes on where the last one ended: 300 steps today, 300 tomorrow, and the counter says 600.
After Ctrl-C, or a kill, it goes on with what was left of the 300. The folder demo_output/ holds

    backup/        what a run goes on from
    checkpoints/   models that keras.saving.load_model loads, named by the step, the best among them
    logs/          for TensorBoard: tensorboard --logdir demo_output/logs
    loss_and_learning_rate.png

    python demo/digits.py [--strategy default|mirrored|workers] [--steps 300] [--output demo_output]
"""

import argparse
import contextlib
import sys
from pathlib import Path

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from keras_steps import (
    EvaluateEveryN,
    LogEveryN,
    StepBackupAndRestore,
    StepCheckpoint,
    StepHistory,
    StepProgressBar,
    StepScheduledLR,
    StepTensorBoard,
    StopAtStep,
    best_checkpoint,
    global_step,
    list_checkpoints,
    stop_reason,
)
from keras_steps.distribution import is_chief, prepare
from keras_steps.schedules import cosine, warmup

STRATEGIES = ("default", "mirrored", "workers")
HELD_OUT = 297  # of the 1,797 images
# Two sessions of 300 steps are the whole schedule; further ones go on at the final rate.
SCHEDULE = warmup(60, cosine(2e-3, 540, final=1e-4), initial=1e-4)


def main() -> None:
    options = parse_arguments()
    output = options.output
    if options.strategy != "default":  # a backup is for the strategy that it was made under
        output /= options.strategy
    done = max((c.step for c in list_checkpoints(output / "checkpoints")), default=0)
    last_step = (done // options.steps + 1) * options.steps  # the next multiple
    (x, y), held_out = load_images()
    scope = make_scope(options.strategy)
    keras.utils.set_random_seed(0)
    with scope:
        model = prepare(build_model())
    history = StepHistory(10)
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=10**6,  # StopAtStep ends the fit
        verbose=0,
        callbacks=[
            StopAtStep(last_step),
            StepBackupAndRestore(output / "backup", every=100, on_signal=("SIGINT", "SIGTERM")),
            StepCheckpoint(output / "checkpoints", every=100, max_to_keep=3, monitor="val_loss"),
            EvaluateEveryN(held_out, every=50),
            StepScheduledLR(SCHEDULE),
            StepTensorBoard(output / "logs", every=10),
            LogEveryN(100, start=0),
            history,
            *([StepProgressBar()] if sys.stderr.isatty() else []),
        ],
    )
    if stop_reason(model) == "signal":
        sys.exit(f"stopped at step {global_step(model)}: the same command goes on from there")
    if not is_chief(model):
        return
    plot = output / "loss_and_learning_rate.png"
    draw(history, plot)
    print(f"global step {global_step(model)}")
    print(f"best on {HELD_OUT} held-out images: {describe_best(output / 'checkpoints')}")
    print(f"plot: {plot}")
    print(f"curves: tensorboard --logdir {output / 'logs'}")


def parse_arguments() -> argparse.Namespace:
    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"expected a positive whole number, got {text!r}")
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--strategy", choices=STRATEGIES, default="default")
    parser.add_argument("--steps", type=positive, default=300, help="go on to the next multiple")
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
    """The scope in which the model is built."""
    if strategy == "default":
        return contextlib.nullcontext()
    if keras.backend.backend() != "tensorflow":
        sys.exit(
            f"error: --strategy {strategy} needs KERAS_BACKEND=tensorflow, "
            f"not {keras.backend.backend()}"
        )
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    if strategy == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy().scope()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()


def build_model() -> keras.Model:
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


def draw(history: StepHistory, path: Path) -> None:
    """Loss above learning rate, over all steps of all sessions."""
    figure = history.plot("loss")
    figure.axes[0].set_yscale("log")
    figure.suptitle(f"handwritten digits: {history.steps[-1]} steps")
    figure.savefig(path, dpi=120)


def describe_best(directory: Path) -> str:
    """The best checkpoint with its scores."""
    path = best_checkpoint(directory)
    scores = next(c.scores for c in list_checkpoints(directory) if c.path == path)
    values = " ".join(f"{name.removeprefix('val_')}={v:.4f}" for name, v in scores.items())
    return f"{values} {directory / path.name}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; the next session goes on from the last backup")
