"""One worker of a MultiWorkerMirroredStrategy, which trains models of Keras 3 of every kind."""

import os
import tempfile
from pathlib import Path

import tensorflow as tf

if os.environ["DEVICES"] == "2":  # TensorFlow itself gives a worker its GPUs or one CPU device
    from tensorflow.python.distribute.collective_all_reduce_strategy import (
        CollectiveAllReduceExtended,
    )

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    CollectiveAllReduceExtended._initialize_local_devices = lambda self, resolver, worker: (
        tuple(f"{worker}/device:CPU:{n}" for n in range(2)),
        "CPU",
    )

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import keras  # noqa: E402
from cluster import report  # noqa: E402
from flavours import BATCH, arrays, make_model  # noqa: E402

from keras_steps.distribution import prepare  # noqa: E402

x, y = arrays(5)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).with_options(options)
layers = keras.layers


class Own(keras.Model):
    """A model with a training step of its own, which returns what it likes."""

    def __init__(self, **config):
        super().__init__(**config)
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        results = super().train_step(data)
        return {**results, "two": 2.0, "vector": tf.ones(3)}


def sequential():
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(1)])


def unbuilt():
    return keras.Sequential([layers.Dense(3, "tanh"), layers.Dense(1)])


def functional():
    inputs = keras.Input((4,))
    hidden = layers.Dropout(0.5)(layers.BatchNormalization()(layers.Dense(3, "tanh")(inputs)))
    return keras.Model(inputs, layers.Dense(1)(hidden))


def mixed():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        hidden = layers.Dense(3, "tanh")
        return keras.Sequential([hidden, layers.Dense(1, dtype="float32")])
    finally:
        keras.config.set_dtype_policy("float32")


def raised(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    return None


def trained(make, *, within, loss_scale=False, **compile_args):
    """What comes of a model that is prepared within the scope or after it."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = make()
        if within:
            prepare(model)
        optimizer = keras.optimizers.SGD(0.1)
        if loss_scale:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        model.compile(optimizer, "mse", metrics=["mae"], **compile_args)
    if not within:
        assert prepare(prepare(model)) is model
    history = model.fit(data, epochs=2, verbose=0, validation_data=data)
    evaluated = model.evaluate(data, verbose=0, return_dict=True)
    predicted = model.predict(data, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        loaded = keras.saving.load_model(path, custom_objects={"Own": Own})
    weights = [w.numpy().tolist() for w in model.trainable_weights]
    on_batch = model.train_on_batch(x[:8], y[:8], return_dict=True)
    tested = model.test_on_batch(x[:8], y[:8], return_dict=True)
    return {
        "history": {name: list(map(float, values)) for name, values in history.history.items()},
        "evaluated": evaluated,
        "predicted": list(predicted.shape),
        "finite": all(float(v) == float(v) for v in [*on_batch.values(), *tested.values()]),
        "weights": weights,
        "loaded": type(loaded).__name__,
        "kept": [w.numpy().tolist() for w in loaded.trainable_weights],
        "is_prepared": "_make_function" in vars(loaded),
    }


def refused():
    """The messages for what fails all the same."""
    with strategy.scope():
        several = make_model(steps_per_execution=4)
        accumulating = make_model(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))
        later = prepare(sequential())
        later.compile("sgd", "mse", steps_per_execution=4)
    outside = sequential()
    with strategy.scope():
        from_outside = raised(ValueError, lambda: prepare(outside))
    return {
        "several": raised(ValueError, lambda: prepare(several)),
        "accumulating": raised(ValueError, lambda: prepare(accumulating)),
        "later": raised(ValueError, lambda: later.fit(data, verbose=0)),
        "outside": from_outside,
    }


kinds = {
    "sequential": (sequential, {"within": True}),
    "unbuilt": (unbuilt, {"within": False}),
    "functional": (functional, {"within": True}),
    "own": (Own, {"within": False}),
    "mixed": (mixed, {"within": False, "loss_scale": True}),
    "eager": (sequential, {"within": False, "run_eagerly": True}),
}
with strategy.scope():
    bare = make_model()
is_bare_tried = os.environ["DEVICES"] == "1"  # with two devices Keras's own failure is to hang
report(
    replicas=strategy.num_replicas_in_sync,
    bare=raised(Exception, lambda: bare.fit(data, verbose=0)) if is_bare_tried else None,
    trained={
        kind: trained(make, **options)
        for kind, (make, options) in kinds.items()
        if kind in os.environ["KINDS"].split()
    },
    refused=refused(),
)
