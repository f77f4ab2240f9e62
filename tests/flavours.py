"""Small models and data for whichever Keras the tests run on."""

from __future__ import annotations

import contextlib
import functools
import os

import numpy as np

IS_TF_KERAS = os.environ.get("KERAS_STEPS_TEST_FLAVOUR") == "tf_keras"
if IS_TF_KERAS:
    import tf_keras as keras

    FLAVOUR = "tf_keras"
else:
    import keras

    FLAVOUR = keras.backend.backend()

ON_TENSORFLOW = FLAVOUR in ("tensorflow", "tf_keras")
BATCH = 8


def arrays(batches, features=4, seed=0):
    """Inputs and targets that make so many batches."""
    random = np.random.RandomState(seed)
    x = random.randn(batches * BATCH, features).astype("float32")
    return x, random.randn(batches * BATCH, 1).astype("float32")


def make_model(optimizer=None, *, seed=1, metrics=("mae",), **compile_args):
    """A compiled model of one hidden layer, the same for the same seed."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(3, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = optimizer or keras.optimizers.SGD(0.01)
    model.compile(optimizer, "mse", metrics=list(metrics), **compile_args)
    return model


class Subclassed(keras.Model):
    """One layer in a model of a class of its own, which is built with its first batch."""

    def __init__(self, **args):
        super().__init__(**args)
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)


class Ticking(keras.callbacks.Callback):
    """Lets so many seconds of a FakeClock go by before each execution."""

    def __init__(self, time, seconds):
        super().__init__()
        self.time, self.seconds = time, seconds

    def on_train_batch_begin(self, batch, logs=None):
        self.time.advance(self.seconds)

    def on_train_batch_end(self, batch, logs=None):
        """Keeps Keras from calling the other one asynchronously."""


def fit(model, callbacks, *, batches=10, epochs=1, **fit_args):
    """Fit quietly on `arrays(batches)`, in order."""
    data = dict(zip("xy", arrays(batches), strict=True)) if "x" not in fit_args else {}
    data |= {"batch_size": BATCH, "shuffle": False} if data else {}
    return model.fit(**{"verbose": 0, "epochs": epochs, "callbacks": callbacks, **data, **fit_args})


def clear_session():
    """Names begin anew, as in a new process. Keras 3 would collect garbage too: a second each."""
    if IS_TF_KERAS:
        keras.backend.clear_session()
    else:
        keras.utils.clear_session(free_memory=False)


def loss_scaled(optimizer, **args):
    """The optimizer within the flavour's LossScaleOptimizer."""
    home = keras.mixed_precision if IS_TF_KERAS else keras.optimizers
    return home.LossScaleOptimizer(optimizer, **args)


def state_of(model):
    """Every array of the model and its optimizer, seed generators included."""
    variables = [*model.variables, *_variables(model.optimizer)]
    return [np.array(keras_to_numpy(v)) for v in variables]


def keras_to_numpy(variable):
    return variable.numpy() if IS_TF_KERAS else keras.ops.convert_to_numpy(variable)


def _variables(optimizer):
    found = optimizer.variables
    return found() if callable(found) else found


@functools.cache
def mirrored_strategy():
    """A MirroredStrategy over two virtual CPU devices; TensorFlow bears one a process."""
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def mirrored_scope():
    """The scope of `mirrored_strategy`."""
    return mirrored_strategy().scope()


no_scope = contextlib.nullcontext
