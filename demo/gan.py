"""Train a Wasserstein GAN on handwritten digits: two optimizers, two global steps.

A round is five updates of the critic and one of the generator, so their counters go 5 to 1, and
each callback says which of them it follows. The training runs in `model.fit` or, with --loop, in
a StepLoop, on TensorFlow, JAX and torch. Killed and started again, it goes on where it was. Into
demo_output/gan_BACKEND/ (with --loop gan_BACKEND_loop/) it writes

    backup/      what a run goes on from
    logs/        for TensorBoard: tensorboard --logdir demo_output/gan_jax/logs
    digits.png   images that the generator makes

    KERAS_BACKEND=jax python demo/gan.py [--loop] [--steps 3000] [--output FOLDER]
"""

import argparse
from pathlib import Path

import keras
import numpy as np
from gan_model import BATCH, CRITIC_UPDATES, Gan, compiled
from gan_quality import draw, judge
from sklearn.datasets import load_digits

from keras_steps import (
    LogEveryN,
    StepBackupAndRestore,
    StepLoop,
    StepScheduledLR,
    StepTensorBoard,
    StopAtStep,
    global_step,
)
from keras_steps.schedules import cosine

BACKEND = keras.backend.backend()
if BACKEND == "torch":
    import torch

    torch.set_num_threads(1)  # networks this small are no faster on several cores
ROUNDS = 3000  # until the learning rates are down


class Rounds(keras.utils.PyDataset):
    """The images of each round, 5 × 64 of 64 pixels from 0 to 1, drawn by the round's number."""

    def __init__(self) -> None:
        super().__init__()
        self.images = (load_digits().data / 16).astype("float32")

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> np.ndarray:
        random = np.random.default_rng(index)
        return self.images[random.integers(len(self.images), size=(CRITIC_UPDATES, BATCH))]


def make_gan() -> Gan:
    keras.utils.set_random_seed(0)
    gan = Gan()
    gan.compile(*(keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9) for _ in range(2)))
    return gan


def make_callbacks(steps: int, output: Path) -> list:
    g, d = {"optimizer": "g_optimizer"}, {"optimizer": "d_optimizer"}
    g_line = "generator step {step}: loss {g_loss:.3f}, learning rate {learning_rate:.6f}"
    d_line = "critic step {step}: loss {d_loss:.3f}, learning rate {learning_rate:.6f}"
    return [
        StopAtStep(steps, **g),
        StepScheduledLR(cosine(1e-3, ROUNDS, final=1e-5), **g),
        StepScheduledLR(cosine(1e-3, ROUNDS * CRITIC_UPDATES, final=1e-5), **d),
        LogEveryN(500, start=0, message=g_line, **g),
        LogEveryN(2500, start=0, message=d_line, **d),
        StepTensorBoard(output / "logs/generator", every=20, **g),
        StepTensorBoard(output / "logs/critic", every=100, **d),
        StepBackupAndRestore(output / "backup", every=200, **g),
    ]


def train(gan: Gan, callbacks: list, *, in_loop: bool) -> None:
    if not in_loop:
        gan.fit(Rounds(), shuffle=False, verbose=0, callbacks=callbacks)
        return
    update_all = compiled(gan)
    with StepLoop(callbacks, model=gan, optimizer="g_optimizer") as loop:
        for images in loop.over(Rounds()):
            loop.log(**update_all(images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loop", action="store_true", help="train in a StepLoop, not in fit")
    parser.add_argument("--steps", type=int, default=ROUNDS, help="of the generator, in all")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    output = options.output or Path("demo_output", f"gan_{BACKEND}" + "_loop" * options.loop)
    gan = make_gan()
    train(gan, make_callbacks(options.steps, output), in_loop=options.loop)
    print(f"global steps {global_step(gan.g_optimizer)} and {global_step(gan.d_optimizer)}")
    print(judge(gan.generate(1000)))
    draw(gan.generate(100), output / "digits.png")
    print(f"images: {output / 'digits.png'}")


if __name__ == "__main__":
    main()
