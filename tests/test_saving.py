"""A model's state: copied, put back, and written from the copy while the training goes on."""

import contextlib
import gc
import random
import sys
import threading
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from flavours import (
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    arrays,
    fit,
    keras,
    keras_to_numpy,
    loss_scaled,
    make_model,
    mirrored_scope,
)

import keras_steps as ks
from keras_steps import global_step
from keras_steps import keras_internals as internals

keras_3 = pytest.mark.skipif(IS_TF_KERAS, reason="Keras 3 only")
on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="strategies are TensorFlow's")
register = (
    keras.saving.register_keras_serializable("test_saving")
    if hasattr(keras, "saving")
    else keras.utils.register_keras_serializable("test_saving")
)


def copy_of(model, optimizers=()):
    return internals.copied(internals.state_variables(model, optimizers))


def place(key):
    """Without the path: in a model that was loaded it is another."""
    return key.split("/")[0], key.split("/")[1]


def by_place(copy):
    return {place(key): array for key, array in copy.items()}


def layered(optimizer, *, seed=1, metrics=("mae",), **compile_args):
    """A model with what is easily forgotten: moving averages, dropout, metrics."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse", metrics=list(metrics), **compile_args)
    return model


@pytest.fixture
def tf_random_generator():
    """Without it tf_keras's dropout has no state that could be put back."""
    if not IS_TF_KERAS:
        yield
        return
    keras.backend.experimental.enable_tf_random_generator()
    yield
    keras.backend.experimental.disable_tf_random_generator()


def in_thread(function):
    """Run it in another thread, and raise here what it raises there."""
    raised = []

    def run():
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join(60)
        assert not thread.is_alive()
        if raised:
            raise raised[0]

    return join


# ---------------------------------------------------------------- which variables


def test_keys_are_group_index_and_path():
    model = make_model(keras.optimizers.SGD(0.01, momentum=0.5), seed=3)
    fit(model, [], batches=1)
    keys = list(internals.state_variables(model))
    if IS_TF_KERAS:
        assert keys == [
            "model/0/dense/kernel:0",
            "model/1/dense/bias:0",
            "model/2/dense/kernel:0",
            "model/3/dense/bias:0",
            "metrics/0/total:0",
            "metrics/1/count:0",
            "metrics/2/total:0",
            "metrics/3/count:0",
            "optimizer/0/iteration:0",
            "optimizer/1/SGD/m/dense/kernel:0",
            "optimizer/2/SGD/m/dense/bias:0",
            "optimizer/3/SGD/m/dense/kernel:0",
            "optimizer/4/SGD/m/dense/bias:0",
            "optimizer/5/learning_rate:0",
        ]
    else:
        name = model.optimizer.name.partition("_")[0]  # "SGD" in Keras 3.12, "sgd_2" in 3.15
        assert keys == [
            "model/0/sequential/dense/kernel",
            "model/1/sequential/dense/bias",
            "model/2/sequential/dense/kernel",
            "model/3/sequential/dense/bias",
            "metrics/0/loss/total",
            "metrics/1/loss/count",
            "metrics/2/mean_absolute_error/total",
            "metrics/3/mean_absolute_error/count",
            f"optimizer/0/{name}/iteration",
            f"optimizer/1/{name}/learning_rate",
            f"optimizer/2/{name}/sequential_dense_kernel_momentum",
            f"optimizer/3/{name}/sequential_dense_bias_momentum",
            f"optimizer/4/{name}/sequential_dense_kernel_momentum",
            f"optimizer/5/{name}/sequential_dense_bias_momentum",
        ]


@pytest.mark.usefixtures("tf_random_generator")
def test_a_model_that_is_built_again_has_the_same_keys():
    models = [layered(keras.optimizers.Adam(0.01)) for _ in range(2)]
    for model in models:
        fit(model, [], batches=1)
    one, other = (list(internals.state_variables(model)) for model in models)
    assert one == other
    assert len(set(one)) == len(one)


@pytest.mark.usefixtures("tf_random_generator")
def test_the_random_state_of_dropout_is_among_them():
    model = layered(keras.optimizers.SGD(0.01))
    fit(model, [], batches=1)
    before = copy_of(model)
    fit(model, [], batches=1)
    after = copy_of(model)
    seeds = [key for key in before if before[key].dtype.kind in "iu" and key.startswith("model/")]
    assert len(seeds) == 1
    if FLAVOUR != "torch":  # where dropout draws from torch's own random state
        assert not np.array_equal(before[seeds[0]], after[seeds[0]])


def test_every_optimizer_is_found_once():
    model = make_model(keras.optimizers.SGD(0.01))
    model.critic = keras.optimizers.SGD(0.02)
    model.again = model.critic
    model.others = [keras.optimizers.SGD(0.03), "none"]
    model.named = {"slow": keras.optimizers.SGD(0.04)}
    given = [keras.optimizers.SGD(0.05), model.critic]
    rates = {}
    for key, array in copy_of(model, given).items():
        if "learning_rate" in key:
            rates[key.partition("/")[0]] = round(float(array), 3)
    assert rates == {
        "optimizer": 0.01,
        "critic": 0.02,
        "others_0": 0.03,
        "named_slow": 0.04,
        "optimizer_given_0": 0.05,
    }


def test_a_loss_scale_and_its_counter_are_found():
    model = make_model(loss_scaled(keras.optimizers.SGD(0.01), initial_scale=2.0**7))
    fit(model, [], batches=1)
    of_optimizer = [a for key, a in copy_of(model).items() if key.startswith("optimizer/")]
    found = [float(array) for array in of_optimizer if array.shape == ()]
    assert 2.0**7 in found
    # Scale, its counter, iteration, rate; Keras 3 has the last two of both optimizers.
    assert len(found) == (4 if IS_TF_KERAS else 6)


# ---------------------------------------------------------------- copied and put back


def ema(**args):
    return keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, **args)


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "Nadam": lambda: keras.optimizers.Nadam(0.01),
    "a schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 20)),
    "moving averages": lambda: ema(ema_overwrite_frequency=4),
    "loss scaled": lambda: loss_scaled(keras.optimizers.Adam(0.01)),
}
if IS_TF_KERAS:
    OPTIMIZERS["legacy"] = lambda: keras.optimizers.legacy.Adam(0.01)
else:
    OPTIMIZERS["accumulating"] = lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=4)


if FLAVOUR == "jax":  # Keras 3.12 and 3.15 can't fit such a model twice
    del OPTIMIZERS["moving averages"]


def random_state():
    if FLAVOUR != "torch":
        return None
    import torch

    return torch.random.get_rng_state()


def set_random_state(state):
    if state is not None:
        import torch

        torch.random.set_rng_state(state)


@contextlib.contextmanager
def policy(name):
    home = keras.mixed_precision if IS_TF_KERAS else keras.config
    get, set_to = (
        (home.global_policy, home.set_global_policy)
        if IS_TF_KERAS
        else (home.dtype_policy, home.set_dtype_policy)
    )
    before = get()
    set_to(name)
    yield
    set_to(before)


def goes_on_bit_for_bit(make, **fit_args):
    """Whether a copy, put back into its own model or into another, leads to the same end."""
    model = make(seed=1)
    fit(model, [], batches=6, **fit_args)
    copy, drawn = copy_of(model), random_state()
    kept = {key: array.copy() for key, array in copy.items()}
    fit(model, [], batches=7, **fit_args)
    expected = copy_of(model)
    assert global_step(model) > 0
    assert any(not np.array_equal(expected[key], copy[key]) for key in copy)

    other = make(seed=2)
    fit(other, [], batches=1, **fit_args)
    for one in (model, other):
        internals.assigned(internals.state_variables(one), copy)
        np.testing.assert_equal(copy_of(one), kept)
        set_random_state(drawn)
        fit(one, [], batches=7, **fit_args)
        np.testing.assert_equal(copy_of(one), expected)
    np.testing.assert_equal(copy, kept)  # neither training nor putting back wrote to it


@pytest.mark.usefixtures("tf_random_generator")
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_copy_that_is_put_back_goes_on_bit_for_bit(make):
    goes_on_bit_for_bit(lambda seed: layered(make(), seed=seed))


@pytest.mark.usefixtures("tf_random_generator")
@pytest.mark.parametrize("name", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_so_it_does_in_other_types(name):
    def make(seed):
        with policy(name):
            return layered(keras.optimizers.Adam(0.01), seed=seed)

    goes_on_bit_for_bit(make)


@on_tensorflow
def test_so_it_does_under_mirrored_where_each_replica_has_its_own_sums():
    def make(seed):
        with mirrored_scope():
            return layered(keras.optimizers.Adam(0.01), seed=seed, metrics=())

    model = make(1)
    fit(model, [], batches=1)
    keys = list(internals.state_variables(model))
    assert [key.partition("/")[2] for key in keys if key.startswith("metrics/")] == (
        ["0/total:0/replica_0", "0/total:0/replica_1", "1/count:0/replica_0", "1/count:0/replica_1"]
        if IS_TF_KERAS
        else [
            "0/loss/total/replica_0",
            "0/loss/total/replica_1",
            "1/loss/count/replica_0",
            "1/loss/count/replica_1",
        ]
    )
    averages = [key for key in keys if "moving_mean" in key]
    assert len(averages) == (2 if IS_TF_KERAS else 1)
    sums = copy_of(model)
    assert not np.array_equal(*(sums[k] for k in keys if "metrics/0/" in k))

    def without_dropout(seed):
        with mirrored_scope():
            return make_model(keras.optimizers.Adam(0.01), seed=seed)

    goes_on_bit_for_bit(without_dropout)


def variable(values):
    """One of another value."""
    if IS_TF_KERAS:
        import tensorflow as tf

        return tf.Variable(np.zeros_like(values))
    args = {"dtype": values.dtype.name, "trainable": False}
    if FLAVOUR == "torch" and values.dtype.name.startswith("float8"):  # it knows no such arrays
        return keras.Variable("zeros", shape=values.shape, **args)
    return keras.Variable(np.zeros_like(values), **args)


TYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "uint8", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3,), (), (0,)], ids=["vector", "scalar", "empty"])
def test_every_type_comes_back_as_it_was(dtype, shape):
    if dtype == "bool":
        values = np.array([True, False, True])
    else:
        values = np.array([1, 0, 3]).astype(getattr(ml_dtypes, dtype, dtype))
    values = values[: shape[0]] if shape else np.asarray(values[2])
    held = {"v": variable(values)}
    internals.assigned(held, {"v": values})
    copy = internals.copied(held)["v"]
    assert copy.dtype == values.dtype
    assert copy.shape == shape
    assert copy.tobytes() == values.tobytes()


@pytest.mark.skipif(not IS_TF_KERAS, reason="only TensorFlow has them")
def test_strings_come_back_as_they_were():
    import tensorflow as tf

    held = {"v": tf.Variable(["one", "two"])}
    copy = internals.copied(held)
    held["v"].assign(["three", "four"])
    internals.assigned(held, copy)
    assert held["v"].numpy().tolist() == [b"one", b"two"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("1"), r"1 is only in the model and its optimizers \(1 arrays for 2"),
        (lambda a: a.update(x=a["0"]), r"x is only in the state that was saved \(3 arrays"),
        (
            lambda a: a.update({"1": a["1"][:2]}),
            r"1 has the shape and type \(\(3,\), 'int32'\) here, and \(\(2,\), 'int32'\) in",
        ),
        (lambda a: a.update({"1": a["1"].astype("int64")}), r"and \(\(3,\), 'int64'\) in the"),
    ],
    ids=["one missing", "one more", "another shape", "another type"],
)
def test_what_does_not_fit_raises_and_nothing_is_put_back(change, message):
    held = {n: variable(np.ones(3, d)) for n, d in (("0", "float32"), ("1", "int32"))}
    saved = {key: array + 1 for key, array in internals.copied(held).items()}
    change(saved)
    with pytest.raises(ValueError, match=message):
        internals.assigned(held, saved)
    assert internals.copied(held)["0"].tolist() == [0, 0, 0]


@pytest.mark.skipif(FLAVOUR != "jax", reason="only JAX keeps a fit's state outside")
def test_without_publishing_the_state_of_a_fit_copies_raise():
    model = make_model()
    found = []

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            held = internals.state_variables(model)
            arrays = {key: np.zeros(v.shape, v.dtype) for key, v in held.items()}
            for action in (
                lambda: internals.copied(held),
                lambda: internals.assigned(held, arrays),
            ):
                with pytest.raises(RuntimeError, match="kernel has handed its value to the fit"):
                    action()
                found.append(batch)

    fit(model, [Looks()], batches=2)
    assert found == [0, 0, 1, 1]


def test_putting_back_again_and_again_keeps_nothing():
    model = make_model()
    held = internals.state_variables(model)
    copy = internals.copied(held)
    for _ in range(50):
        internals.assigned(held, copy)
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(300):
        internals.assigned(held, copy)
    gc.collect()
    assert sys.getallocatedblocks() - before < 600  # one a time


BFLOAT16 = ml_dtypes.bfloat16
FLOAT8 = ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize(
    ("values", "dtype", "finite"),
    [
        ([1, 2], "float32", True),
        ([1, np.nan], "float32", False),
        ([np.inf, -np.inf], "float32", False),
        ([3e38, 3e38], "float32", True),  # the sum overflows
        ([3e38, 3e38, np.nan], "float32", False),
        ([], "float32", True),
        (np.inf, "float64", False),
        ([6e4, 6e4], "float16", True),
        ([6e4, -np.inf], "float16", False),
        ([3e38, -3e38], BFLOAT16, True),
        ([-np.inf, 0], BFLOAT16, False),
        ([np.nan, 0], BFLOAT16, False),
        ([], BFLOAT16, True),
        ([448, -448], FLOAT8, True),
        ([np.nan, 1], FLOAT8, False),
        ([2**31 - 1, 2], "int32", True),
        ([True, False], "bool", True),
        ([b"nan"], "object", True),
        ([1j, complex(0, np.nan)], "complex64", False),
    ],
)
def test_first_non_finite(values, dtype, finite):
    found = internals.first_non_finite({"a": np.ones(3), "b": np.array(values, dtype)})
    assert found == (None if finite else "b")


@pytest.mark.parametrize("dtype", ["float64", "float16", BFLOAT16, FLOAT8, "complex64"])
@pytest.mark.parametrize(("value", "found"), [(np.nan, "b"), (np.inf, None)])
def test_first_non_finite_where_infinity_is_meant(value, found, dtype):
    if dtype == FLOAT8 and found is None:
        value = 1.0  # it has no infinity
    arrays = {"b": np.array([value, -value], dtype)}
    assert internals.first_non_finite(arrays, {"b"}) == found
    assert internals.first_non_finite({**arrays, "c": np.array(np.inf)}, {"b"}) == (found or "c")


def test_first_non_finite_of_several_is_the_first():
    assert internals.first_non_finite({}) is None
    bad = np.array([np.nan])
    assert internals.first_non_finite({"a": np.ones(1), "b": bad, "c": bad}) == "b"


# ---------------------------------------------------------------- written meanwhile


@register
class Scale(keras.layers.Layer):
    """Saves its variable in a way of its own, under a name of its own."""

    def __init__(self, start=1.0, **args):
        super().__init__(**args)
        self.start = start

    def build(self, shape):
        self.factor = self.add_weight(
            name="factor", shape=(1,), initializer=keras.initializers.Constant(self.start)
        )
        super().build(shape)

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return super().get_config() | {"start": self.start}

    def save_own_variables(self, store):
        store["doubled"] = 2 * keras_to_numpy(self.factor)

    def load_own_variables(self, store):
        self.factor.assign(np.array(store["doubled"]) / 2)


@register
class Subclassed(keras.Model):
    def __init__(self, units=3, **args):
        super().__init__(**args)
        self.units = units
        self.blocks = [keras.layers.Dense(units, activation="tanh"), Scale()]
        self.head = {"out": keras.layers.Dense(1)}

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head["out"](x)

    def get_config(self):
        return super().get_config() | {"units": self.units}


@register
class TwoOptimizers(Subclassed):
    """One for the blocks and one for the rest, as a GAN has, in a training step of its own."""

    def compile(self, optimizer, loss, head_optimizer=None, **args):
        super().compile(optimizer, loss, **args)
        self.head_optimizer = head_optimizer

    def get_compile_config(self):
        return None


def compiled(model, optimizer, **args):
    model.compile(optimizer, "mse", metrics=["mae"], **args)
    model(arrays(1)[0])
    return model


def mixed():
    with policy("mixed_float16"):
        return layered(keras.optimizers.Adam(0.01))


def two_optimizers():
    model = TwoOptimizers()
    compiled(model, keras.optimizers.SGD(0.01), head_optimizer=keras.optimizers.Adam(0.1))
    model.head_optimizer.build(model.trainable_variables)
    return model


MODELS = {
    "sequential": lambda: layered(keras.optimizers.Adam(0.01)),
    "a schedule": lambda: make_model(OPTIMIZERS["a schedule"]()),
    "loss scaled": lambda: make_model(OPTIMIZERS["loss scaled"]()),
    "moving averages": lambda: make_model(ema()),
    "mixed_float16": mixed,
    "subclassed": lambda: compiled(Subclassed(), keras.optimizers.Adam(0.01)),
    "two optimizers": two_optimizers,
}
if not IS_TF_KERAS:
    MODELS["accumulating"] = lambda: make_model(OPTIMIZERS["accumulating"]())


class SavesMeanwhile(ks.StepCallback):
    """At each firing the save before must be done, and the next one begins."""

    def __init__(self, every, folder, *, weights_only=False):
        super().__init__(every)
        self.folder, self.weights_only = folder, weights_only
        self.saved, self.join = {}, lambda: None

    def on_step(self, step, logs):
        self.join()
        path = self.folder / f"{step}{'.weights.h5' if self.weights_only else '.keras'}"
        save = internals.prepare_save(self.model, weights_only=self.weights_only)
        self.saved[path] = copy_of(self.model)
        self.join = in_thread(partial(save.write, path))

    def on_train_end(self, logs=None):
        super().on_train_end(logs)
        self.join()


# What a file doesn't hold: metrics, the state of random draws, tf_keras's learning rate and
# loss scale (its config does), and an optimizer that the loaded model was not compiled with.
NOT_SAVED = (
    "metrics/",
    "seed_generator",
    "StateVar",
    "learning_rate:0",
    "loss_scale",
    "good_steps",
)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_files_written_meanwhile_hold_the_copy_and_the_training_is_as_without(make, tmp_path):
    """Among them the step, and the predictions that a load of the whole model makes."""
    keras.utils.set_random_seed(5)
    bare = make()
    drawn = random_state()
    fit(bare, [], batches=30, epochs=2)

    keras.utils.set_random_seed(5)
    model = make()
    set_random_state(drawn)
    saves = SavesMeanwhile(4 if make is MODELS.get("accumulating") else 14, tmp_path)
    fit(model, [saves], batches=30, epochs=2)
    if make is not MODELS["sequential"] or not IS_TF_KERAS:  # whose dropout isn't seeded
        np.testing.assert_equal(copy_of(model), copy_of(bare))
    assert len(saves.saved) >= 3

    x, _ = arrays(2, seed=9)
    for path, copy in saves.saved.items():
        # Keras doesn't save that it has wrapped the optimizer, and the policy is the user's.
        with policy("mixed_float16" if make is mixed else "float32"):
            loaded = keras.models.load_model(path)
        if make is two_optimizers:
            loaded.compile(keras.optimizers.SGD(0.01), "mse")
        found = by_place(copy_of(loaded))
        keys = [k for k in copy if not any(part in k for part in NOT_SAVED)]
        keys = [k for k in keys if make is not two_optimizers or k.startswith("model/")]
        assert len(keys) >= 4
        for key in keys:
            np.testing.assert_equal(found[place(key)], copy[key], err_msg=key)
        if make is not two_optimizers:
            assert global_step(loaded) == int(path.stem)
    internals.assigned(internals.state_variables(model), copy)
    np.testing.assert_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_weights_files_written_meanwhile_hold_the_copy(make, tmp_path):
    model = make()
    saves = SavesMeanwhile(4, tmp_path, weights_only=True)
    fit(model, [saves], batches=21)  # of which mixed_float16 skips some

    after = copy_of(model)
    assert saves.saved
    for path, copy in saves.saved.items():
        model.load_weights(path)
        found = by_place(copy_of(model))
        for key in (k for k in copy if not any(part in k for part in NOT_SAVED)):
            np.testing.assert_equal(found[place(key)], copy[key], err_msg=key)
    assert any(not np.array_equal(found[place(key)], after[key]) for key in after)


@on_tensorflow
def test_under_mirrored_too(tmp_path):
    def make():
        with mirrored_scope():
            return make_model(keras.optimizers.Adam(0.01))

    bare, model, saves = make(), make(), SavesMeanwhile(4, tmp_path)
    fit(bare, [], batches=12)
    fit(model, [saves], batches=12)
    np.testing.assert_equal(copy_of(model), copy_of(bare))
    for path, copy in saves.saved.items():
        loaded = keras.models.load_model(path)
        assert global_step(loaded) == int(path.stem)
        found = by_place(copy_of(loaded))
        for key in (k for k in copy if k.startswith("model/")):
            np.testing.assert_equal(found[place(key)], copy[key], err_msg=key)


def test_a_second_optimizer_is_in_the_file(tmp_path):
    """Keras loads it where the model makes it before the weights come."""
    model = two_optimizers()
    model.head_optimizer.iterations.assign(7)
    path = tmp_path / "two.weights.h5"
    save = internals.prepare_save(model, weights_only=True)
    model.head_optimizer.iterations.assign(9)
    in_thread(partial(save.write, path))()
    model.load_weights(path)
    assert global_step(model.head_optimizer) == 7


def test_a_save_draws_no_random_number_and_takes_no_name(tmp_path):
    model = layered(keras.optimizers.Adam(0.01))
    fit(model, [], batches=1)
    name = keras.layers.Dense(1).name
    before = random.getstate(), np.random.get_state()[1].tolist(), random_state()
    assert internals.can_save(model) is None
    save = internals.prepare_save(model, weights_only=False)
    in_thread(partial(save.write, tmp_path / "a.keras"))()
    after = random.getstate(), np.random.get_state()[1].tolist(), random_state()
    number = int(name.rpartition("_")[2])
    assert keras.layers.Dense(1).name == f"dense_{number + 1}"
    np.testing.assert_equal(after[:2], before[:2])
    assert before[2] is None or bool((after[2] == before[2]).all())


@keras_3
def test_a_copy_that_is_there_already_is_taken(tmp_path):
    model = make_model()
    copy = copy_of(model)
    key = next(key for key in copy if key.endswith("kernel"))
    copy[key] += 1
    save = internals.prepare_save(model, weights_only=False, arrays=copy)
    assert save.arrays is copy
    in_thread(partial(save.write, tmp_path / "a.keras"))()
    loaded = keras.models.load_model(tmp_path / "a.keras")
    np.testing.assert_equal(by_place(copy_of(loaded))[place(key)], copy[key])


def test_the_arrays_of_a_save_are_what_it_will_write(tmp_path):
    model = make_model()
    model.layers[0].kernel.assign(np.full((4, 3), np.nan, "float32"))
    save = internals.prepare_save(model, weights_only=False)
    assert "dense" in internals.first_non_finite(save.arrays)
    assert not (tmp_path / "a.keras").exists()


@register
class Vocabulary(keras.layers.Layer):
    """Has a file of its own in the archive."""

    def call(self, x):
        return x

    def save_assets(self, folder):
        with open(f"{folder}/words.txt", "w") as file:
            file.write("step")

    def load_assets(self, folder):
        with open(f"{folder}/words.txt") as file:
            self.words = file.read()


def test_assets_are_in_the_file(tmp_path):
    model = keras.Sequential([keras.layers.Input((4,)), Vocabulary(), keras.layers.Dense(1)])
    save = internals.prepare_save(model, weights_only=False)
    in_thread(partial(save.write, tmp_path / "a.keras"))()
    assert keras.models.load_model(tmp_path / "a.keras").layers[0].words == "step"


# ---------------------------------------------------------------- what can't be saved


class WithoutConfig(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


def test_can_save_tells_what_stands_in_the_way():
    assert internals.can_save(make_model()) is None
    model = keras.Sequential([keras.layers.Input((4,)), WithoutConfig(abs), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    error = internals.can_save(model)
    assert isinstance(error, NotImplementedError)
    assert "WithoutConfig" in str(error)


def test_a_file_that_cannot_be_written_raises_in_the_thread(tmp_path):
    save = internals.prepare_save(make_model(), weights_only=False)
    with pytest.raises(FileNotFoundError, match=r"no/a\.keras"):
        in_thread(partial(save.write, tmp_path / "no" / "a.keras"))()


@register
class Hides(Scale):
    """Saves a variable that no part of the model knows."""

    def build(self, shape):
        super().build(shape)
        lost = keras.Variable(1.0, name="lost")
        self.hidden = lambda: lost

    def save_own_variables(self, store):
        store["doubled"] = keras.ops.convert_to_numpy(self.hidden())


@keras_3
def test_a_variable_that_was_not_copied_is_named(tmp_path):
    model = keras.Sequential([keras.layers.Input((4,)), Hides()])
    save = internals.prepare_save(model, weights_only=False)
    with pytest.raises(RuntimeError, match="reads the variable .*lost, which was not copied"):
        in_thread(partial(save.write, tmp_path / "a.keras"))()


@register
class Clears(Scale):
    def save_own_variables(self, store):
        super().save_own_variables(store)
        keras.utils.clear_session(free_memory=False)


@keras_3
def test_clear_session_during_a_save_is_noticed(tmp_path):
    """It drops the scopes of all threads: what is read after it is no copy."""
    model = keras.Sequential([keras.layers.Input((4,)), Clears()])
    save = internals.prepare_save(model, weights_only=False)
    with pytest.raises(RuntimeError, match=r"clear_session\(\) was called while .*a\.keras"):
        in_thread(partial(save.write, tmp_path / "a.keras"))()
