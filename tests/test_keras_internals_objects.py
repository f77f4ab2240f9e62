"""The variables of an object have the same keys, however and whenever it was built."""

import pytest
from flavours import IS_TF_KERAS, fit, keras, loss_scaled, make_model

from keras_steps.keras_internals import object_variables

OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "named": lambda: keras.optimizers.SGD(0.01, momentum=0.9, name="mine_2"),
    "loss scale": lambda: loss_scaled(keras.optimizers.Adam(0.01)),
}
if IS_TF_KERAS:
    OPTIMIZERS["legacy"] = lambda: keras.optimizers.legacy.Adam(0.01)


def keys(thing):
    return [key for key, _ in object_variables(thing) if not key.startswith("metrics/")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_built_by_hand_has_the_keys_of_one_that_fit_builds(name):
    by_fit, by_hand = make_model(OPTIMIZERS[name]()), make_model(OPTIMIZERS[name]())
    fit(by_fit, [], batches=1)
    optimizer = by_hand.optimizer
    build = getattr(optimizer, "build", None) or optimizer._create_all_weights
    build(by_hand.trainable_variables)
    assert keys(optimizer) == keys(by_fit.optimizer)
    assert len(keys(optimizer)) >= 6
    assert keys(by_hand) == keys(by_fit)


@pytest.mark.parametrize("thing", [3, "a", [1], print, None, keras.layers.Dense, make_model])
def test_other_things_are_none(thing):
    assert object_variables(thing) is None
