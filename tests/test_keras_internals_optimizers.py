"""An optimizer that is built before fit would do so."""

import numpy as np
import pytest
from flavours import (
    IS_TF_KERAS,
    ON_TENSORFLOW,
    fit,
    keras,
    loss_scaled,
    make_model,
    mirrored_scope,
    no_scope,
    state_of,
)

from keras_steps.keras_internals import build_optimizer, state_variables
from keras_steps.keras_internals.optimizers import trained_by

OPTIMIZERS = {
    "adam": (lambda: keras.optimizers.Adam(0.01), no_scope),
    "adagrad": (lambda: keras.optimizers.Adagrad(0.01), no_scope),
    "loss scale": (lambda: loss_scaled(keras.optimizers.Adam(0.01)), no_scope),
}
if ON_TENSORFLOW:
    OPTIMIZERS["mirrored"] = (lambda: keras.optimizers.Adam(0.01), mirrored_scope)
if IS_TF_KERAS:
    OPTIMIZERS["legacy"] = (lambda: keras.optimizers.legacy.Adam(0.01), no_scope)


def model_of(name):
    optimizer, scope = OPTIMIZERS[name]
    with scope():
        return make_model(optimizer())


def keys(model):
    return [key for key in state_variables(model) if not key.startswith("metrics/")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_has_the_variables_that_fit_gives_it_and_trains_alike(name):
    model, other = model_of(name), model_of(name)
    build_optimizer(model)
    built = keys(model)
    build_optimizer(model)
    assert keys(model) == built
    fit(model, [])
    fit(other, [])
    assert len(keys(model)) == len(built) == len(keys(other))
    np.testing.assert_equal(state_of(model), state_of(other))


def test_leaves_alone_what_belongs_to_a_model_that_is_not_built():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    build_optimizer(model)
    assert not model.built
    fit(model, [])


@pytest.mark.skipif(IS_TF_KERAS, reason="it has no JAX, and keeps other books")
def test_what_stands_for_several_optimizers_has_been_built_for_none_itself():
    class Both:
        def __init__(self, *optimizers):
            self.iterations = optimizers[0].iterations
            self.variables = [v for optimizer in optimizers for v in optimizer.variables]

    model = make_model()
    model.second = keras.optimizers.SGD(0.1)
    model.second.build(model.trainable_variables[:2])
    both = Both(model.optimizer, model.second)
    assert trained_by(both, model) == []
    assert trained_by(model.second, model) == model.trainable_variables[:2]
