"""Building what fit builds with its first batch: each test fails when Keras changes its way."""

import numpy as np
import pytest
from flavours import (
    BATCH,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    arrays,
    fit,
    keras,
    keras_to_numpy,
    loss_scaled,
    make_model,
)

from keras_steps.keras_internals import build_like, build_optimizer, unkept_generators
from keras_steps.keras_internals.optimizers import trained_by


def are(found, expected):
    return len(found) == len(expected) and all(
        one is other for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, loss_scaled])
def test_trained_by_names_the_variables_in_the_order_of_the_optimizer(wrap):
    model = make_model(wrap(keras.optimizers.Adam(0.01)))
    assert trained_by(model.optimizer, model) == []
    trainable = model.trainable_variables
    build_optimizer(model, model.optimizer, trainable[::-1])
    assert are(trained_by(model.optimizer, model), trainable[::-1])


def test_trained_by_names_those_that_a_fit_has_trained():
    model = make_model(keras.optimizers.Adam(0.01))
    model.layers[0].trainable = False
    model.compile("adam", "mse")
    fit(model, [], batches=1)
    assert are(trained_by(model.optimizer, model), model.layers[1].trainable_variables)


def drops():
    return keras.Sequential(
        [
            keras.layers.Dropout(0.5, name="first"),
            keras.Sequential([keras.layers.Dropout(0.5, name="second")]),
        ]
    )


def test_unkept_generators_are_those_of_tf_keras_without_its_generator():
    if not IS_TF_KERAS:
        assert unkept_generators(drops()) == []
        return
    assert unkept_generators(drops()) == ["first", "second"]
    keras.backend.experimental.enable_tf_random_generator()
    try:
        assert unkept_generators(drops()) == []
    finally:
        keras.backend.experimental.disable_tf_random_generator()


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(3), keras.layers.Dense(1)

    def call(self, x):
        return self.out(self.hidden(x["a"]))


@pytest.mark.skipif(not ON_TENSORFLOW, reason="elsewhere fit builds before train begin")
def test_build_like_builds_on_the_shapes_of_a_batch_and_draws_as_fit_does():
    import tensorflow as tf

    def made():
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = Subclassed()
        model.compile(keras.optimizers.SGD(0.0), "mse")
        return model

    model = made()
    batch = ({"a": tf.TensorSpec((None, 4), "float32")}, tf.TensorSpec((None, 1), "float32"))
    build_like(model, {"model": None, "optimizers": {}}, batch)
    assert [tuple(variable.shape) for variable in model.variables] == [(4, 3), (3,), (3, 1), (1,)]
    assert are(trained_by(model.optimizer, model), model.trainable_variables)
    other = made()
    x, y = arrays(1)
    fit(other, [], x={"a": x}, y=y, batch_size=BATCH)
    for one, two in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(keras_to_numpy(one), keras_to_numpy(two))
