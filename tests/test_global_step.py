"""global_step and set_global_step: exact, from everything that counts, at any time."""

import re

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    Subclassed,
    arrays,
    fit,
    keras,
    loss_scaled,
    make_model,
    mirrored_scope,
)

from keras_steps import global_step, set_global_step
from keras_steps.keras_internals import counter_of, read_number


def sgd(**args):
    return keras.optimizers.SGD(0.01, **args)


# How it is built, and batches an update.
OPTIMIZERS = {
    "plain": (sgd, 1),
    "adam": (lambda: keras.optimizers.Adam(), 1),
    "loss scaled": (lambda: loss_scaled(sgd()), 1),
}
if not IS_TF_KERAS:  # tf_keras has no accumulation, and refuses a wrapper in a wrapper
    OPTIMIZERS |= {
        "accumulating": (lambda: sgd(gradient_accumulation_steps=4), 4),
        "loss scaled, accumulating": (lambda: loss_scaled(sgd(gradient_accumulation_steps=4)), 4),
        "loss scaled twice, accumulating": (
            lambda: loss_scaled(loss_scaled(sgd(gradient_accumulation_steps=3))),
            3,
        ),
    }

each_optimizer = pytest.mark.parametrize(
    ("make", "per_update"), OPTIMIZERS.values(), ids=OPTIMIZERS
)


class AtBatchEnds(keras.callbacks.Callback):
    """A callback of Keras's own kind that notes what a function returns after each batch."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append(self.function(self))


# ---------------------------------------------------------------- what it counts


@each_optimizer
def test_updates_outside_and_in_the_middle_of_fit_and_on_from_where_it_is_set(make, per_update):
    model = make_model(make())
    assert global_step(model) == global_step(model.optimizer) == 0
    held = AtBatchEnds(lambda callback: global_step(model))
    asked = AtBatchEnds(lambda callback: global_step(callback.model))
    fit(model, [held, asked], batches=10)
    assert held.found == asked.found == [n // per_update for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)]
    for source in (model, model.optimizer):
        assert type(global_step(source)) is int
        assert global_step(source) == 10 // per_update

    for step in (1000, 0, np.int64(7)):
        set_global_step(model, step)
        assert global_step(model) == global_step(model.optimizer) == step
        assert read_number(counter_of(model.optimizer)[0]) == step * per_update
        fit(model, [], batches=10)
        assert global_step(model) == step + 10 // per_update


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras has no gradient accumulation")
def test_under_accumulation_it_counts_every_fourth_batch_across_fits():
    model = make_model(sgd(gradient_accumulation_steps=4))
    found = []
    for batches in (3, 1, 6, 2):
        fit(model, [], batches=batches)
        found.append(global_step(model))
    assert found == [0, 1, 2, 3]


def test_c08_a_batch_that_overflows_is_no_step_in_keras_3_and_one_in_tf_keras():
    model = make_model(loss_scaled(sgd()))
    x, y = arrays(10)
    x[3 * BATCH : 4 * BATCH] = np.inf
    fit(model, [], x=x, y=y, batch_size=BATCH, shuffle=False)
    assert global_step(model) == (10 if IS_TF_KERAS else 9)


def test_an_optimizer_that_no_model_has_used():
    assert global_step(keras.optimizers.Adam()) == 0


def test_a_model_that_is_compiled_but_not_built():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    assert global_step(model) == 0
    set_global_step(model, 7)
    assert global_step(model) == 7
    fit(model, [], batches=3)
    assert global_step(model) == 10


def test_a_subclassed_model():
    model = Subclassed()
    model.compile("sgd", "mse")
    assert global_step(model) == 0
    fit(model, [], batches=3)
    assert global_step(model) == 3


# ---------------------------------------------------------------- in the middle of fit


def test_in_the_middle_of_fit_in_the_second_epoch_and_the_second_fit():
    model = make_model()
    held = AtBatchEnds(lambda callback: global_step(model))
    fit(model, [held], batches=2, epochs=2)
    fit(model, [held], batches=2)
    assert held.found == [1, 2, 3, 4, 5, 6]


@pytest.mark.skipif(FLAVOUR == "jax", reason="on JAX an optimizer alone can't tell; see below")
def test_in_the_middle_of_fit_from_the_optimizer():
    model = make_model()
    held = AtBatchEnds(lambda callback: global_step(model.optimizer))
    fit(model, [held], batches=5)
    assert held.found == [1, 2, 3, 4, 5]


@pytest.mark.skipif(FLAVOUR != "jax", reason="only JAX takes the variables' values away")
def test_on_jax_in_the_middle_of_fit_the_optimizer_raises_and_points_to_the_model():
    model = make_model()
    held = AtBatchEnds(lambda callback: global_step(model.optimizer))
    message = r"^global_step: on JAX an optimizer's counter can't be read .* Pass the model instead"
    with pytest.raises(ValueError, match=message):
        fit(model, [held])


@pytest.mark.skipif(FLAVOUR != "jax", reason="only JAX takes the variables' values away")
@pytest.mark.parametrize("source", ["model", "optimizer"])
def test_on_jax_setting_it_in_the_middle_of_fit_raises(source):
    model = make_model()
    thing = model if source == "model" else model.optimizer
    held = AtBatchEnds(lambda callback: set_global_step(thing, 5))
    with pytest.raises(ValueError, match="^set_global_step: .* can't be set in the middle of fit"):
        fit(model, [held])


# ---------------------------------------------------------------- strategies


def one_device():
    import tensorflow as tf

    return tf.distribute.OneDeviceStrategy("CPU:1").scope()


def central_storage():
    import tensorflow as tf

    return tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]).scope()


# Under Mirrored and CentralStorage Keras 3's accumulation fails in Keras itself ("merge_call called
# while defining a new graph"); so does loss scaling under CentralStorage, in both flavours.
SCOPES = {
    "OneDevice": (one_device, [name for name in OPTIMIZERS if name != "loss scaled"]),
    "Mirrored": (mirrored_scope, ["adam", "loss scaled"]),
    "CentralStorage": (central_storage, ["adam"]),
}


@pytest.mark.skipif(not ON_TENSORFLOW, reason="strategies are TensorFlow's")
@pytest.mark.parametrize(
    ("scope", "optimizer"),
    [(scope, name) for scope, (_, names) in SCOPES.items() for name in names],
)
def test_under_strategies_outside_and_in_the_middle_of_fit(scope, optimizer):
    keras.backend.clear_session()  # a strategy leaves settings for variables to the next one
    make, per_update = OPTIMIZERS[optimizer]
    with SCOPES[scope][0]():
        model = make_model(make())
    held = AtBatchEnds(lambda callback: (global_step(model), global_step(model.optimizer)))
    assert global_step(model) == 0
    fit(model, [held], batches=5)
    assert held.found == [(n // per_update,) * 2 for n in (1, 2, 3, 4, 5)]
    assert type(global_step(model)) is int
    assert global_step(model) == global_step(model.optimizer) == 5 // per_update
    set_global_step(model, 1000)
    assert global_step(model) == 1000
    fit(model, [], batches=8)
    assert global_step(model) == 1000 + 8 // per_update


# ---------------------------------------------------------------- what has no counter


def uncompiled():
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])


def compiled_without_optimizer():
    model = uncompiled()
    model.compile(None, "mse")
    return model


both_functions = pytest.mark.parametrize(
    ("name", "call"),
    [("global_step", global_step), ("set_global_step", lambda thing: set_global_step(thing, 3))],
    ids=["global_step", "set_global_step"],
)


@both_functions
@pytest.mark.parametrize("make", [uncompiled, Subclassed], ids=["functional", "subclassed"])
def test_a_model_that_is_not_compiled_raises_and_says_so(name, call, make):
    with pytest.raises(ValueError, match=rf"^{name}: .*(Compile it|from compile\(optimizer=)"):
        call(make())


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras can't compile without an optimizer")
@both_functions
def test_a_model_compiled_without_optimizer_raises(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: model\.optimizer of .* is None"):
        call(compiled_without_optimizer())


@both_functions
@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: 3,
        lambda: "adam",
        lambda: [keras.optimizers.Adam()],
        lambda: keras.layers.Dense(1),
        lambda: keras.Model,
        lambda: keras.optimizers.Adam,
        lambda: keras.optimizers.schedules.CosineDecay(0.1, 10),
    ],
    ids=["None", "3", "adam", "list", "layer", "class Model", "class Adam", "schedule"],
)
def test_an_object_of_another_kind_raises_with_what_was_received(name, call, make):
    thing = make()
    received = re.escape(f"{name} takes a compiled Keras model or an optimizer; received {thing!r}")
    with pytest.raises(TypeError, match=rf"^{received}\.$"):
        call(thing)


# ---------------------------------------------------------------- setting it


def test_it_is_set_through_the_optimizer_too():
    model = make_model()
    set_global_step(model.optimizer, 1000)
    assert global_step(model) == 1000


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras has no gradient accumulation")
def test_setting_it_in_the_middle_of_an_accumulation_begins_a_new_one():
    model = make_model(sgd(gradient_accumulation_steps=4))
    fit(model, [], batches=6)
    set_global_step(model, 1)
    fit(model, [], batches=3)
    assert global_step(model) == 1
    fit(model, [], batches=1)
    assert global_step(model) == 2


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (-1, ValueError, "must be at least 0; received -1"),
        (np.int64(-5), ValueError, "must be at least 0; received"),
        (True, TypeError, "must be an integer; received True"),
        (False, TypeError, "must be an integer; received False"),
        (1.0, TypeError, r"must be an integer; received 1\.0"),
        (1.5, TypeError, r"must be an integer; received 1\.5"),
        (float("nan"), TypeError, "must be an integer; received nan"),
        (None, TypeError, "must be an integer; received None"),
        ("10", TypeError, "must be an integer; received '10'"),
    ],
    ids=str,
)
def test_a_bad_step_raises_and_leaves_the_counter_alone(step, error, message):
    optimizer = sgd()
    set_global_step(optimizer, 3)
    with pytest.raises(error, match=rf"^set_global_step\(step\) {message}"):
        set_global_step(optimizer, step)
    assert global_step(optimizer) == 3


# ---------------------------------------------------------------- saving


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS)[1::2])
def test_a_saved_and_loaded_model_keeps_it(optimizer, tmp_path):
    make, per_update = OPTIMIZERS[optimizer]
    model = make_model(make())
    fit(model, [], batches=10)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert global_step(loaded) == 10 // per_update
    fit(loaded, [], batches=12)
    assert global_step(loaded) == 22 // per_update
