"""The variables of an object have the same keys, however and whenever it was built."""

import pytest
from flavours import FLAVOUR, IS_TF_KERAS, fit, keras, loss_scaled, make_model

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


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="TensorFlow and Keras 3")
def test_a_module_has_the_metrics_and_seeds_that_tensorflow_does_not_track():
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self, within=None):
            super().__init__()
            self.variable = tf.Variable(1.0, name="v")
            self.mean = keras.metrics.Mean()
            self.seeds = [{"a": keras.random.SeedGenerator(1)}]
            self.within = within

    module = Module(Module())
    tracked = tf.train.TrackableView(module).descendants()
    assert not [each for each in tracked if isinstance(each, keras.random.SeedGenerator)]
    kinds = [key.split("/")[0] + "/" + key.rsplit("/", 1)[1] for key in keys(module)]
    assert (
        kinds
        == ["module/v:0"] * 2
        + ["module/seed_generator_state"] * 2
        + ["metric/total", "metric/count"] * 2
    )
    held = {id(variable) for _, variable in object_variables(module)}
    assert held >= {
        id(each) for each in [*module.mean.variables, module.within.seeds[0]["a"].state]
    }


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="TensorFlow and Keras 3")
def test_a_module_with_a_lookup_table_that_changes_is_refused():
    import tensorflow as tf

    module = tf.Module()
    values = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    module.constant, module.variable = tf.lookup.StaticHashTable(values, 0), tf.Variable(1.0)
    assert len(keys(module)) == 1
    module.nested = tf.Module()
    module.nested.tables = [tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)]
    with pytest.raises(TypeError, match="must hold its state in variables; .* MutableHashTable"):
        object_variables(module)


@pytest.mark.parametrize("thing", [3, "a", [1], print, None, keras.layers.Dense, make_model])
def test_other_things_are_none(thing):
    assert object_variables(thing) is None
