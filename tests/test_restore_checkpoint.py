"""StepCheckpoint(objects=...) and restore_checkpoint: a loop goes on as if it had not ended."""

import copy
import errno
import math
import re
from collections import Counter, namedtuple
from contextlib import suppress
from dataclasses import dataclass

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
    make_model,
    mirrored_strategy,
    state_of,
)
from loops import batches_of

import keras_steps as ks
from keras_steps.array_files import write_arrays
from keras_steps.testing import Recorder

NAN = math.nan
on_keras_3 = pytest.mark.skipif(IS_TF_KERAS, reason="Keras 3 only")
on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="of TensorFlow")
on_jax = pytest.mark.skipif(FLAVOUR != "jax", reason="of JAX")
on_torch = pytest.mark.skipif(FLAVOUR != "torch", reason="of torch")


def steps_in(path):
    return [checkpoint.step for checkpoint in ks.list_checkpoints(path)]


def saved(path, objects):
    """The file of a checkpoint of these objects as they are."""
    saver = ks.StepCheckpoint(path, objects=objects, overwrite=True)
    for _ in ks.StepLoop([saver]).over(range(1)):
        pass
    return ks.latest_checkpoint(path)


def make_network(seed, width=8):
    """A model that draws random numbers, where its seeds can be saved, and is built."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1)]
    if not IS_TF_KERAS:
        layers.insert(2, keras.layers.Dropout(0.5))
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def objects_of(generator, critic):
    """On torch Keras's dropout draws from torch's own random state."""
    objects = {"generator": generator, "critic": critic, "g_optimizer": generator.optimizer}
    if FLAVOUR == "torch":
        import torch

        objects["random"] = torch.get_rng_state
    return objects


def restored(path, objects):
    found = ks.restore_checkpoint(path, objects)
    if FLAVOUR == "torch":
        import torch

        torch.set_rng_state(found.pop("random"))
    assert found == {}


def train_two(path, batches, seed, *, last_step, goes_on=False):
    """A generator and a critic, which makes two updates to one, in a loop without a model."""
    generator, critic = make_network(seed), make_network(seed + 1)
    objects = objects_of(generator, critic)
    if goes_on:
        restored(ks.latest_checkpoint(path), objects)
    done = ks.global_step(generator)
    saver = ks.StepCheckpoint(path, 4, objects=objects, max_to_keep=None)
    recorder = Recorder(3)
    callbacks = [saver, recorder, ks.StopAtStep(last_step)]
    with ks.StepLoop(callbacks, optimizer=generator.optimizer) as loop:
        for x, y in loop.over(batches[done:]):
            for model in (generator, critic, critic):
                model.reset_metrics()
                loss = model.train_on_batch(x, y)[0]
            loop.log(loss=loss)
    return [*state_of(generator), *state_of(critic)], recorder.steps


def test_c24_a_loop_without_a_model_goes_on_from_its_objects_bit_for_bit(tmp_path):
    batches = batches_of(*arrays(14))
    whole, _ = train_two(tmp_path / "whole", batches, 1, last_step=14)
    _, first = train_two(tmp_path / "parts", batches, 1, last_step=9)
    assert first == [3, 6, 9]
    assert steps_in(tmp_path / "parts") == [4, 8, 9]
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names[:2] == ["checkpoints.json", "step_00000004.npz"]
    (tmp_path / "parts" / names[-1]).unlink()
    with pytest.warns(UserWarning, match=r"step_00000009.npz is gone. step_00000008.npz is taken"):
        resumed, second = train_two(tmp_path / "parts", batches, 7, last_step=14, goes_on=True)
    assert second == [9, 12]
    assert steps_in(tmp_path / "parts") == [4, 8, 12, 14]
    np.testing.assert_equal(resumed, whole)


def test_a_run_that_goes_on_from_an_earlier_one_drops_what_lies_past_it(tmp_path):
    batches = batches_of(*arrays(10))
    train_two(tmp_path, batches, 1, last_step=10)
    model = make_network(3)
    objects = objects_of(model, make_network(4))
    restored(tmp_path / "step_00000004.npz", objects)
    assert ks.global_step(model) == 4
    saver = ks.StepCheckpoint(tmp_path, 3, objects=objects)
    for x, y in ks.StepLoop([saver, ks.StopAtStep(7)], model=model).over(batches[4:]):
        model.train_on_batch(x, y)
    assert steps_in(tmp_path) == [4, 6, 7]


def test_a_fresh_run_refuses_a_directory_of_another(tmp_path):
    saved(tmp_path, {"n": lambda: 1})
    saver = ks.StepCheckpoint(tmp_path, objects={"n": lambda: 1})
    with pytest.raises(FileExistsError, match="restore"):
        list(ks.StepLoop([saver]).over(range(1)))


def test_files_whose_index_is_lost_are_told_before_any_step(tmp_path):
    saved(tmp_path, {"n": lambda: 1})
    (tmp_path / "checkpoints.json").unlink()
    saver = ks.StepCheckpoint(tmp_path, objects={"n": lambda: 1})
    with pytest.raises(FileNotFoundError, match=r"holds step_00000001.npz, but not checkpoints"):
        list(ks.StepLoop([saver]).over(range(1)))


def test_the_loops_own_count_may_be_among_them(tmp_path):
    def run(last_step, seen):
        value = {"sum": 0}
        objects = {"value": lambda: value, "step": lambda: loop.global_step}
        saver = ks.StepCheckpoint(tmp_path, 4, objects=objects)
        loop = ks.StepLoop([saver, ks.StopAtStep(last_step)])
        path = ks.latest_checkpoint(tmp_path)
        with loop:
            if path is not None:
                value = ks.restore_checkpoint(path, objects)["value"]
            for number in loop.over(range(100)):
                value = {"sum": value["sum"] + 1}
                seen.append((number, value["sum"]))
        return value

    assert run(6, []) == {"sum": 6}
    seen = []
    assert run(9, seen) == {"sum": 9}
    assert seen == [(0, 7), (1, 8), (2, 9)]
    assert steps_in(tmp_path) == [4, 6, 8, 9]


def test_in_fit_in_the_place_of_the_model(tmp_path):
    model = make_model(keras.optimizers.Adam(0.01))
    objects = {"hidden": model.layers[0], "optimizer": model.optimizer, "model": model}
    saver = ks.StepCheckpoint(tmp_path, 4, objects=objects, monitor="val_loss")
    fit(model, [saver, ks.EvaluateEveryN(arrays(2, seed=3), 4)])
    assert steps_in(tmp_path) == [4, 8, 10]
    assert ks.best_checkpoint(tmp_path).suffix == ".npz"
    other = make_model(keras.optimizers.Adam(0.01), seed=5)
    other.optimizer.build(other.trainable_variables)
    names = {"hidden": other.layers[0], "optimizer": other.optimizer, "model": None}
    ks.restore_checkpoint(ks.latest_checkpoint(tmp_path), names)
    assert ks.global_step(other) == 10
    np.testing.assert_equal(other.layers[0].get_weights(), model.layers[0].get_weights())
    assert (other.layers[1].get_weights()[0] != model.layers[1].get_weights()[0]).all()
    ks.restore_checkpoint(
        ks.latest_checkpoint(tmp_path),
        {"hidden": None, "optimizer": other.optimizer, "model": other},
    )
    np.testing.assert_equal(state_of(other), state_of(model))


def test_a_copy_of_the_callback_saves_the_same_objects(tmp_path):
    model = make_network(1)
    saver = copy.deepcopy(ks.StepCheckpoint(tmp_path, objects={"model": model}))
    for _ in ks.StepLoop([saver]).over(range(1)):
        model.set_weights([weight + 1 for weight in model.get_weights()])
    expected = model.get_weights()
    model.set_weights([weight * 0 for weight in expected])
    ks.restore_checkpoint(ks.latest_checkpoint(tmp_path), {"model": model})
    np.testing.assert_equal(model.get_weights(), expected)


def test_the_file_holds_the_values_as_of_its_step(tmp_path):
    """They are copied: what happens in place while it is written is not in it."""
    array = np.zeros(1000)
    saver = ks.StepCheckpoint(tmp_path, 1, objects={"array": lambda: array})
    for _ in ks.StepLoop([saver]).over(range(3)):
        array += 1
    for checkpoint in ks.list_checkpoints(tmp_path):
        found = ks.restore_checkpoint(checkpoint.path, {"array": lambda: array})["array"]
        assert (found == checkpoint.step).all()


def test_trees_with_odd_names_and_types(tmp_path):
    state = {
        "a/b": np.arange(3, dtype=">i4"),
        "a": {"b": np.zeros((0, 2)), 3: (), "": [], None: 1, "ü / ..": np.float64(2)},
        "c": Counter("abca"),
        "d": -0.0,
        "e": np.array(1 + 2j),
    }
    path = saved(tmp_path, {"state.1": lambda: state})
    fresh = {**copy.deepcopy(state), "c": Counter("abc"), "d": 0}
    found = ks.restore_checkpoint(path, {"state.1": lambda: fresh})["state.1"]
    assert list(found["c"].elements()) == ["a", "a", "b", "c"]
    assert repr(found) == repr(state)


def test_what_has_grown_comes_back_into_what_is_empty(tmp_path):
    state = {"losses": [1.0, 2.0], "best": {"a": [np.arange(2), (3, None)]}}
    path = saved(tmp_path, {"state": lambda: state})
    found = ks.restore_checkpoint(path, {"state": lambda: {"losses": [], "best": {}}})["state"]
    assert repr(found) == repr(state)
    with pytest.raises(ValueError, match="losses is a list of 2 in the file, and a list of 1 here"):
        ks.restore_checkpoint(path, {"state": lambda: {"losses": [1.0], "best": {}}})
    with pytest.raises(ValueError, match="losses is a list of 2 in the file, and a dict of 0 here"):
        ks.restore_checkpoint(path, {"state": lambda: {"losses": {}, "best": {}}})
    named = [namedtuple("State", ("mu", "nu"))(1, 2)]
    path = saved(tmp_path, {"state": lambda: named})
    with pytest.raises(ValueError, match="state is a list of 1 in the file, and a list of 0 here"):
        ks.restore_checkpoint(path, {"state": lambda: []})


class Refuses:
    """As an object whose state has another version."""

    def state_dict(self):
        return {"version": 1}

    def load_state_dict(self, state):
        raise RuntimeError(f"cannot read version {state['version']}")


def test_an_object_that_refuses_its_state_is_asked_before_others_are_changed(tmp_path):
    model = make_network(1)
    path = saved(tmp_path, {"model": model, "theirs": Refuses()})
    other = make_network(2)
    before = copy.deepcopy(state_of(other))
    with pytest.raises(RuntimeError, match="cannot read version 1") as raised:
        ks.restore_checkpoint(path, {"model": other, "theirs": Refuses()})
    first, second = raised.value.__notes__
    assert first == "restore_checkpoint called load_state_dict of 'theirs'."
    assert second.startswith("'theirs' has refused what it had before as well, and may be half")
    np.testing.assert_equal(state_of(other), before)


class Picky:
    """Refuses numbers below the one that it was made with, having taken its array."""

    def __init__(self, number):
        self.least, self.number, self.array = number, number, np.full(2, number)

    def state_dict(self):
        return {"array": self.array, "number": self.number}

    def load_state_dict(self, state):
        self.array[:] = state["array"]
        if state["number"] < self.least:
            raise RuntimeError(f"{state['number']} is too old")
        self.number = state["number"]


def test_where_one_refuses_all_have_what_they_had(tmp_path):
    path = saved(tmp_path, {"a": Picky(1), "b": Picky(2), "model": make_network(1)})
    a, b, model = Picky(0), Picky(3), make_network(2)
    before = copy.deepcopy(state_of(model))
    with pytest.raises(RuntimeError, match="2 is too old") as raised:
        ks.restore_checkpoint(path, {"a": a, "b": b, "model": model})
    assert raised.value.__notes__ == ["restore_checkpoint called load_state_dict of 'b'."]
    np.testing.assert_equal(
        [a.state_dict(), b.state_dict()], [Picky(n).state_dict() for n in (0, 3)]
    )
    np.testing.assert_equal(state_of(model), before)


def test_one_model_in_the_place_of_two_is_refused_unless_they_are_equal(tmp_path):
    def networks():
        if FLAVOUR != "torch":
            return make_network(1), make_network(2)
        import torch

        return torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

    def weights(model):
        found = model.get_weights() if hasattr(model, "get_weights") else model.parameters()
        return [np.array(keras_to_numpy(w) if FLAVOUR == "torch" else w) for w in found]

    online, target = networks()
    path = saved(tmp_path / "two", {"online": online, "target": target})
    before = copy.deepcopy(weights(target))
    with pytest.raises(ValueError, match="online/.* and target/.* are one variable here, and two"):
        ks.restore_checkpoint(path, {"online": target, "target": target})
    np.testing.assert_equal(weights(target), before)
    path = saved(tmp_path / "one", {"online": target, "target": target})
    ks.restore_checkpoint(path, {"online": online, "target": online})
    np.testing.assert_equal(weights(online), before)


def test_arrays_whose_names_end_like_files(tmp_path):
    state = {"a": np.zeros(2), "a.npy": np.ones(2), "a.npy.npy": np.full(2, 2.0)}
    path = saved(tmp_path, {"state": lambda: state})
    np.testing.assert_equal(ks.restore_checkpoint(path, {"state": lambda: state})["state"], state)


@on_keras_3
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int32", "uint8", "bool"])
def test_variables_of_each_type_come_back(tmp_path, dtype):
    values = np.random.default_rng(0).normal(size=(3, 2)) * 3
    one = keras.Variable(values, dtype=dtype, trainable=False)
    scalar = keras.Variable(1, dtype=dtype, trainable=False)
    expected = [
        np.array(keras.ops.convert_to_numpy(keras.ops.cast(v, "float32"))) for v in (one, scalar)
    ]
    path = saved(tmp_path, {"one": one, "scalar": scalar})
    one.assign(values * 0)
    scalar.assign(0)
    ks.restore_checkpoint(path, {"one": one, "scalar": scalar})
    found = [keras.ops.convert_to_numpy(keras.ops.cast(v, "float32")) for v in (one, scalar)]
    np.testing.assert_equal(found, expected)


def test_metrics_and_seed_generators(tmp_path):
    metric = keras.metrics.Mean()
    metric.update_state([1.0, 4.0])
    objects = {"metric": metric}
    if not IS_TF_KERAS:
        objects["seeds"] = keras.random.SeedGenerator(3)
        keras.random.uniform((2,), seed=objects["seeds"])
    path = saved(tmp_path, objects)

    def draw():
        return keras_to_numpy(keras.random.uniform((2,), seed=objects["seeds"]))

    expected = None if IS_TF_KERAS else draw()
    metric.reset_state()
    ks.restore_checkpoint(path, objects)
    assert float(keras_to_numpy(metric.result())) == 2.5
    np.testing.assert_equal(None if IS_TF_KERAS else draw(), expected)


# ---------------------------------------------------------------- what is not finite


@pytest.mark.parametrize("value", [NAN, math.inf])
def test_c43_what_is_not_finite_is_never_saved(tmp_path, value):
    model = make_network(1)
    saver = ks.StepCheckpoint(tmp_path, 2, objects={"critic": model})
    with (
        pytest.warns(UserWarning, match="no checkpoint of step 4: objects/critic/.*is not finite"),
        ks.StepLoop([saver, ks.StopAtStep(5)], model=None) as loop,
    ):
        for number in loop.over(range(10)):
            weights = model.get_weights()
            weights[-1][...] = value if number == 3 else 0.5
            model.set_weights(weights)
    assert steps_in(tmp_path) == [2, 5]


def test_c43_arrays_of_functions_too_but_neither_plain_values_nor_metrics(tmp_path):
    metric = keras.metrics.Mean()
    metric.update_state(math.inf)
    state = {"best": math.inf, "array": np.zeros(3)}
    objects = {"metrics": metric, "state": lambda: state}
    saver = ks.StepCheckpoint(tmp_path, 1, objects=objects)
    with pytest.warns(UserWarning, match="step 2: objects/state/array is not finite"):
        for number in ks.StepLoop([saver]).over(range(2)):
            state["array"][1] = [0, NAN][number]
    assert steps_in(tmp_path) == [1]
    found = ks.restore_checkpoint(ks.latest_checkpoint(tmp_path), objects)["state"]
    assert found["best"] == math.inf
    assert float(keras_to_numpy(metric.result())) == math.inf


def test_infinity_that_is_meant_is_saved_and_nan_is_not(tmp_path):
    layer = keras.layers.BatchNormalization()
    layer.build((None, 1))
    state = {"best": np.array(math.inf, "float32"), "mask": np.array([0, -math.inf])}
    objects = {"layer": layer, "state": lambda: state}
    saver = ks.StepCheckpoint(tmp_path, 1, objects=objects)
    scale, offset, mean, variance = layer.get_weights()
    with (
        pytest.warns(UserWarning, match="step 2: objects/layer/layer/2.*is not finite"),
        ks.StepLoop([saver]) as loop,
    ):
        for number in loop.over(range(3)):
            layer.set_weights([scale, offset, mean + [math.inf, NAN, 0][number], variance])
    assert steps_in(tmp_path) == [1, 3]
    found = ks.restore_checkpoint(ks.list_checkpoints(tmp_path)[0].path, objects)
    np.testing.assert_equal(found["state"], state)
    np.testing.assert_equal(layer.get_weights()[2], [math.inf])


@on_torch
def test_what_torch_trains_is_finite_and_its_buffers_without_nan(tmp_path):
    import torch

    network = torch.nn.BatchNorm1d(1)
    saver = ks.StepCheckpoint(tmp_path, 1, objects={"network": network})
    with (
        pytest.warns(UserWarning, match="step 2: objects/network/running_mean is not finite"),
        ks.StepLoop([saver]) as loop,
    ):
        for number in loop.over(range(4)):
            network.weight.data.fill_([1, 1, math.inf, 1][number])
            network.running_mean.fill_([math.inf, NAN, 0, 0][number])
    assert steps_in(tmp_path) == [1, 4]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("objects", "error", "text"),
    [
        ([1], TypeError, r"must be a dict from names to objects.*received \[1\]"),
        ({}, ValueError, "at least one object; received an empty dict"),
        ({"a": 3.0}, TypeError, r"'a' must be an object .* `lambda: params`; received 3.0"),
        ({"a": np.zeros(2)}, TypeError, r"'a' must be .* received array"),
        ({"a": {"b": 1}}, TypeError, r"'a' must be .* received {'b': 1}"),
        ({"a": keras.optimizers.Adam}, TypeError, "'a' must be .* received <class"),
        ({"a": lambda step: step}, TypeError, "'a' must be .* received <function"),
        ({"a": None}, TypeError, "'a' must be .* received None"),
        ({"": print}, ValueError, "part of a path; received ''"),
        ({"a/b": print}, ValueError, "part of a path; received 'a/b'"),
        ({"..": print}, ValueError, "part of a path; received '..'"),
        ({3: print}, ValueError, "part of a path; received 3"),
    ],
)
def test_what_can_be_saved_is_said_at_once(objects, error, text):
    with pytest.raises(error, match=text):
        ks.StepCheckpoint("c", objects=objects)


def test_weights_only_is_about_a_model():
    with pytest.raises(ValueError, match="without save_weights_only=True"):
        ks.StepCheckpoint("c", objects={"a": lambda: 1}, save_weights_only=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, object()]}, "state/a/1 must be an array, .*received <object"),
        ({"a": {(1, 2): 3}}, r"state/a: a key must be a number or a string; received \(1, 2\)"),
        (np.array(["a", None]), "state must hold numbers; received an array of the type object"),
        ({"s": {1, 2}}, r"state/s must be .* received {1, 2}"),
        (np.ma.array([1, 2], mask=[0, 1]), "state must be without a mask; received a MaskedArray"),
    ],
)
def test_what_a_function_returns_is_looked_at_before_the_first_step(tmp_path, value, text):
    saver = ks.StepCheckpoint(tmp_path, objects={"state": lambda: value})
    loop = ks.StepLoop([saver])
    with pytest.raises(TypeError, match=text):
        next(loop.over(range(3)))


@pytest.mark.parametrize("fields", [("nu", "mu"), ("mu", "variance"), None])
def test_a_named_tuple_of_other_fields_is_another_state(tmp_path, fields):
    state = namedtuple("State", ("mu", "nu"))(np.zeros(2), np.ones(2))
    path = saved(tmp_path, {"state": lambda: state})
    other = (np.zeros(2), np.zeros(2))
    if fields is not None:
        other = namedtuple("State", fields)(*other)
    text = f"state is a tuple mu,nu of 2 in the file, and a tuple {','.join(fields or ())}"
    with pytest.raises(ValueError, match=text.rstrip()):
        ks.restore_checkpoint(path, {"state": lambda: other})
    found = ks.restore_checkpoint(path, {"state": lambda: type(state)(*other)})["state"]
    assert type(found) is type(state)
    np.testing.assert_equal(found, state)


def test_arrays_of_python_objects_are_not_written(tmp_path):
    with pytest.raises(TypeError, match="a/b must hold numbers; received an array of Python"):
        write_arrays(tmp_path / "arrays.npz", {"a/b": np.array(["a", None])})


def test_what_is_not_built_at_a_save(tmp_path):
    layer = keras.layers.Dense(3)
    saver = ks.StepCheckpoint(tmp_path, 2, objects={"layer": layer})
    with pytest.raises(ValueError, match="'layer' has no variables yet.*Build it"):
        list(ks.StepLoop([saver]).over(range(2)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    model = make_network(1)
    objects = {"model": model, "state": lambda: {"a": np.zeros(3), "b": [1, None]}}
    return saved(tmp_path_factory.mktemp("stored"), objects)


def wider():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (lambda: {"model": make_network(1)}, "'state' is not among the objects"),
        (lambda: {"model": make_network(1), "stat": print}, "'stat' is not in it, and 'state' is"),
        (lambda: {"model": wider(), "state": None}, r"model/.* only .*is 'model' built\?"),
        (
            lambda: {"model": make_network(1, width=5), "state": None},
            r"kernel(:0)? is float32 of shape \(4, 8\) in the file, and float32 of shape \(4, 5\)",
        ),
        (
            lambda: {"model": print, "state": None},
            "model was saved as variables, and is a function",
        ),
        (
            lambda: {"model": None, "state": lambda: {"a": np.zeros(4), "b": [1, None]}},
            r"state/a is float64 of shape \(3,\) in the file, and float64 of shape \(4,\) here",
        ),
        (
            lambda: {"model": None, "state": lambda: {"a": np.zeros(3, "int8"), "b": [1, 2]}},
            "state/a is float64 .* in the file, and int8",
        ),
        (
            lambda: {"model": None, "state": lambda: {"a": np.zeros(3), "b": [1], "c": 2}},
            r"state/b is a list of 2 in the file, and a list of 1 here; state/c is only here",
        ),
        (
            lambda: {"model": None, "state": lambda: {"a": 3, "b": (1, 2)}},
            r"state/a is float64 of shape \(3,\) in the file, and 3 here; state/b is a list of 2 .*"
            "a tuple of 2 here",
        ),
    ],
)
def test_what_does_not_fit_is_one_error_and_nothing_is_changed(stored, objects, text):
    given = objects()
    model = given["model"] if hasattr(given["model"], "get_weights") else None
    if model is not None:
        model.set_weights([weight * 0 + 9 for weight in model.get_weights()])
    before = None if model is None else copy.deepcopy(state_of(model))
    with pytest.raises(ValueError, match=text):
        ks.restore_checkpoint(stored, given)
    np.testing.assert_equal(None if model is None else state_of(model), before)


def test_an_object_that_fits_is_not_restored_beside_one_that_does_not(stored):
    model = make_network(2)
    before = copy.deepcopy(state_of(model))
    with pytest.raises(ValueError, match="nothing has been changed: state/b is only in the file"):
        ks.restore_checkpoint(stored, {"model": model, "state": lambda: {"a": np.zeros(3)}})
    np.testing.assert_equal(state_of(model), before)


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        (lambda stored: None, TypeError, "latest_checkpoint returns where there is no"),
        (lambda stored: stored.parent, ValueError, "received the directory .*latest_checkpoint"),
        (lambda stored: stored.with_suffix(".keras"), ValueError, "keras.saving.load_model"),
        (lambda stored: stored.with_suffix(".weights.h5"), ValueError, "model.load_weights"),
        (lambda stored: stored.with_name("none.npz"), FileNotFoundError, "none.npz"),
        (lambda stored: 3, TypeError, "must be a path; received 3"),
    ],
)
def test_paths_that_are_none(stored, path, error, text):
    with pytest.raises(error, match=text):
        ks.restore_checkpoint(path(stored), {"state": print})


def test_an_npz_of_somebody_else(tmp_path):
    np.savez(tmp_path / "theirs.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="is no checkpoint that StepCheckpoint"):
        ks.restore_checkpoint(tmp_path / "theirs.npz", {"a": print})


def test_c18_no_damage_goes_unseen(tmp_path):
    """A byte that is changed is told of, or is one that nothing depends on."""
    state = {"a": np.arange(20.0), "b": [1, 2.5, "text"]}
    path = saved(tmp_path, {"state": lambda: state})
    whole, told = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
        try:
            found = ks.restore_checkpoint(path, {"state": lambda: state})["state"]
        except ValueError as error:
            told += bool(re.search("damaged|no checkpoint", str(error)))
        else:
            np.testing.assert_equal(found, state)
    assert told > len(whole) / 7 * 0.5
    for place in range(len(whole) - 22, len(whole)):  # the record that all is found by
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        with suppress(ValueError):
            ks.restore_checkpoint(path, {"state": lambda: state})
    path.write_bytes(whole[:-30])
    with pytest.raises(ValueError, match="is damaged: .*latest_checkpoint"):
        ks.restore_checkpoint(path, {"state": lambda: state})


@pytest.mark.parametrize("error", [MemoryError(), ImportError("ml_dtypes"), OSError(errno.EIO, "")])
def test_what_the_machine_lacks_is_no_damage(tmp_path, monkeypatch, error):
    state = {"a": np.arange(20.0)}
    path = saved(tmp_path, {"state": lambda: state})

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(type(error)) as raised:
        ks.restore_checkpoint(path, {"state": lambda: state})
    assert raised.value is error


def test_an_evaluation_of_checkpoints_of_objects_says_what_they_are(stored):
    model = make_network(1)
    with pytest.raises(ValueError, match="is a checkpoint of objects.*restore_checkpoint"):
        ks.evaluate_checkpoints(model, stored.parent, arrays(1), print, timeout=0)


# ---------------------------------------------------------------- TensorFlow


@on_tensorflow
def test_variables_of_strings_are_refused_before_the_first_step(tmp_path):
    import tensorflow as tf

    saver = ks.StepCheckpoint(tmp_path, objects={"v": tf.Variable(["a", "b"])})
    loop = ks.StepLoop([saver])
    with pytest.raises(TypeError, match="v/value must hold numbers; .* of the type string"):
        next(loop.over(range(3)))


@on_tensorflow
def test_a_module_of_tensorflow_with_all_that_it_tracks(tmp_path):
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self, start):
            super().__init__()
            self.weights = [tf.Variable(start), {"k": tf.Variable([start] * 2)}]
            self.half = tf.Variable(start, dtype=tf.bfloat16)
            self.dense = keras.layers.Dense(2)
            self.dense.build((None, 3))
            self.random = tf.random.Generator.from_seed(int(start))

    one, other = Module(1.0), Module(2.0)
    one.random.normal((3,))
    path = saved(tmp_path, {"module": one, "generator": one.random})
    ks.restore_checkpoint(path, {"module": other, "generator": other.random})
    assert [float(other.weights[0]), float(other.half)] == [1.0, 1.0]
    np.testing.assert_equal(other.weights[1]["k"].numpy(), [1.0, 1.0])
    np.testing.assert_equal(other.dense.get_weights(), one.dense.get_weights())
    np.testing.assert_equal(one.random.normal((3,)).numpy(), other.random.normal((3,)).numpy())


@on_tensorflow
def test_variables_of_replicas_come_back_one_by_one(tmp_path):
    import tensorflow as tf

    strategy = mirrored_strategy()
    with strategy.scope():
        mirrored = tf.Variable(3.0)
        own = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def add():
        context = tf.distribute.get_replica_context()
        own.assign_add(tf.cast(context.replica_id_in_sync_group + 1, tf.float32) * 0.1)

    strategy.run(add)
    expected = [value.numpy() for value in own.values]
    objects = {"mirrored": mirrored, "own": own}
    path = saved(tmp_path, objects)
    mirrored.assign(0.0)
    strategy.run(add)
    ks.restore_checkpoint(path, objects)
    assert [value.numpy() for value in mirrored.values] == [3.0, 3.0]
    assert [value.numpy() for value in own.values] == expected
    alone = tf.Variable(0.0)
    ks.restore_checkpoint(path, {"mirrored": alone, "own": None})
    assert float(alone) == 3.0


# ---------------------------------------------------------------- JAX


@on_jax
def test_a_functional_loop_on_jax_goes_on_bit_for_bit(tmp_path):
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.adamw(optax.cosine_decay_schedule(0.1, 20))

    @jax.jit
    def update(state, x, y):
        key, drop = jax.random.split(state["key"])
        keep = jax.random.bernoulli(drop, 0.5, (8, 4))

        def loss_of(params):
            return jnp.mean((jnp.where(keep, x, 0) @ params["w"] + params["b"] - y) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state["params"])
        changes, opt_state = optimizer.update(gradients, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], changes)
        return {**state, "key": key, "params": params, "opt": opt_state}, loss

    def train(path, last_step, *, goes_on=False):
        params = {"w": jnp.ones((4, 1), "bfloat16"), "b": jnp.zeros(1)}
        key = jax.random.key(0, impl="rbg")
        opt, weak = optimizer.init(params), jnp.asarray(1.5)
        state = {"params": params, "opt": opt, "key": key, "weak": weak}
        objects = {"state": lambda: state}
        saver = ks.StepCheckpoint(path, 4, objects=objects)
        if goes_on:
            state = ks.restore_checkpoint(ks.latest_checkpoint(path), objects)["state"]

        def step():
            return int(state["opt"][0].count)

        batches = batches_of(*arrays(12))
        with ks.StepLoop([saver, ks.StopAtStep(last_step)], optimizer=step) as loop:
            for x, y in loop.over(batches[step() :]):
                state, loss = update(state, x, y)
                loop.log(loss=loss)
        return state

    whole = train(tmp_path / "whole", 12)
    train(tmp_path / "parts", 6)
    resumed = train(tmp_path / "parts", 12, goes_on=True)
    assert steps_in(tmp_path / "parts") == [4, 6, 8, 12]
    assert jax.tree.structure(resumed) == jax.tree.structure(whole)
    kinds = [
        [(x.dtype, getattr(x, "weak_type", None), x.committed) for x in jax.tree.leaves(state)]
        for state in (resumed, whole)
    ]
    assert kinds[0] == kinds[1]
    plain = [
        jax.tree.map(np.asarray, {**s, "key": jax.random.key_data(s["key"])})
        for s in (resumed, whole)
    ]
    jax.tree.map(np.testing.assert_array_equal, *plain)


@on_jax
def test_pytrees_keep_their_types_and_devices(tmp_path):
    import jax
    import jax.numpy as jnp

    @jax.tree_util.register_dataclass
    @dataclass
    class State:
        step: int
        params: dict

    here = jax.device_put(jnp.arange(3.0), jax.devices()[0])
    state = State(0, {"w": (here, [np.float32(2), None, True, "text", 2**80])})
    path = saved(tmp_path, {"state": lambda: state})
    found = ks.restore_checkpoint(path, {"state": lambda: state})["state"]
    assert type(found) is State and found.step == 0
    array, rest = found.params["w"]
    assert isinstance(array, jax.Array) and array.committed
    assert rest == [np.float32(2), None, True, "text", 2**80] and type(rest[0]) is np.float32
    state = State(jnp.asarray(7), state.params)  # as a compiled step returns it
    path = saved(tmp_path, {"state": lambda: state})
    fresh = State(0, state.params)
    assert int(ks.restore_checkpoint(path, {"state": lambda: fresh})["state"].step) == 7
    with pytest.raises(ValueError, match="state is a pytree State of 2 in the file, and a dict"):
        ks.restore_checkpoint(path, {"state": lambda: {"step": 0}})


# ---------------------------------------------------------------- torch


@on_torch
def test_a_torch_loop_goes_on_bit_for_bit(tmp_path):
    import torch

    def train(path, last_step, *, goes_on=False):
        torch.manual_seed(5 if goes_on else 1)
        network = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
        )
        network.register_buffer("mask", torch.full((2,), -math.inf))
        optimizer = torch.optim.AdamW(network.parameters(), 0.01)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 7], gamma=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        objects = {"network": network, "optimizer": optimizer, "rate": schedule, "scaler": scaler}
        if goes_on:
            assert ks.restore_checkpoint(ks.latest_checkpoint(path), objects) == {}
            assert sorted(schedule.milestones.elements()) == [3, 7]
        saver = ks.StepCheckpoint(path, 4, objects=objects)
        done = schedule.last_epoch
        with ks.StepLoop([saver, ks.StopAtStep(last_step)], optimizer=optimizer) as loop:
            for x, y in loop.over(batches_of(*arrays(12))[done:]):
                optimizer.zero_grad()
                loss = ((network(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                schedule.step()
                loop.log(loss=loss.detach())
        return [each.state_dict() for each in objects.values()]

    whole = train(tmp_path / "whole", 12)
    train(tmp_path / "parts", 6)
    resumed = train(tmp_path / "parts", 12, goes_on=True)
    assert steps_in(tmp_path / "parts") == [4, 6, 8, 12]
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


@on_torch
def test_c24_a_torch_gan_has_two_clocks_and_goes_on_with_both(tmp_path):
    """Neither a Keras model nor a Keras optimizer: five updates of the critic to one."""
    import torch

    def train(path, last_step, *, goes_on=False):
        torch.manual_seed(5 if goes_on else 1)
        generator, critic = torch.nn.Linear(2, 4), torch.nn.Linear(4, 1)
        g, d = (torch.optim.Adam(each.parameters(), 0.01) for each in (generator, critic))
        objects = {"generator": generator, "critic": critic, "g": g, "d": d}
        by_g, by_d = Recorder(2), Recorder(10, optimizer=lambda model: d)
        by_clock = ks.AtSteps(25, 33)
        saver = ks.StepCheckpoint(path, by_clock, objects=objects, optimizer=lambda model: d)
        callbacks = [by_g, by_d, saver, ks.StopAtStep(last_step)]
        loop = ks.StepLoop(callbacks, optimizer=g)
        if goes_on:
            ks.restore_checkpoint(ks.latest_checkpoint(path), objects)
        with loop:
            for x, _ in loop.over(batches_of(*arrays(8))[int(loop.global_step) :]):
                noise = torch.linspace(-1, 1, 16).reshape(8, 2)
                for _ in range(5):
                    d.zero_grad()
                    (
                        critic(generator(noise)).mean() - critic(torch.from_numpy(x)).mean()
                    ).backward()
                    d.step()
                g.zero_grad()
                (-critic(generator(noise)).mean()).backward()
                g.step()
        return [each.state_dict() for each in objects.values()], by_g.steps, by_d.steps

    whole, *steps = train(tmp_path / "whole", 8)
    assert steps == [[2, 4, 6, 8], [10, 20, 30, 40]]
    assert steps_in(tmp_path / "whole") == [25, 35, 40]
    assert train(tmp_path / "parts", 5)[1:] == ([2, 4], [10, 20])
    resumed, *steps = train(tmp_path / "parts", 8, goes_on=True)
    assert steps == [[6, 8], [30, 40]]
    assert steps_in(tmp_path / "parts") == [25, 35, 40]
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


@on_torch
def test_torch_objects_that_do_not_fit_are_told_before_any_is_changed(tmp_path):
    import torch

    def made(width):
        network = torch.nn.Linear(4, width)
        return {"network": network, "optimizer": torch.optim.Adam(network.parameters())}

    path = saved(tmp_path, made(3))
    given = made(2)
    before = copy.deepcopy(given["network"].state_dict())
    with pytest.raises(ValueError, match=r"network/weight is float32 of shape \(3, 4\).*shapes"):
        ks.restore_checkpoint(path, given)
    with pytest.raises(ValueError, match="optimizer was saved as a torch optimizer, and is a tor"):
        ks.restore_checkpoint(path, {"network": None, "optimizer": given["network"]})
    torch.testing.assert_close(given["network"].state_dict(), before, rtol=0, atol=0)


@on_torch
def test_the_state_of_another_class_of_optimizer_is_refused(tmp_path):
    import torch

    weights = [torch.nn.Parameter(torch.ones(2))]
    path = saved(tmp_path, {"optimizer": torch.optim.Adam(weights)})
    other = torch.optim.SGD(weights, 0.1)
    with pytest.raises(ValueError, match="optimizer is Adam in the file, and SGD here"):
        ks.restore_checkpoint(path, {"optimizer": other})
    assert "betas" not in other.param_groups[0]


@on_torch
def test_a_lazy_module_is_saved_once_it_is_built_and_restored_where_it_is(tmp_path):
    import torch

    def made():
        lazy = torch.nn.LazyLinear(2)
        return {"lazy": lazy, "optimizer": torch.optim.SGD(lazy.parameters(), 0.1, momentum=0.9)}

    objects = made()
    saver = ks.StepCheckpoint(tmp_path / "built", objects=objects)
    for _ in ks.StepLoop([saver]).over(range(1)):
        objects["lazy"](torch.ones(1, 3)).sum().backward()
        objects["optimizer"].step()
    path = ks.latest_checkpoint(tmp_path / "built")
    others = made()
    with pytest.raises(ValueError, match="lazy has no weight yet: call it once, as it is lazy"):
        ks.restore_checkpoint(path, others)
    others["lazy"](torch.ones(1, 3))
    ks.restore_checkpoint(path, others)
    assert torch.equal(others["lazy"].weight, objects["lazy"].weight)
    with pytest.raises(ValueError, match="'lazy' has no weight yet, as it is lazy. Call it"):
        saved(tmp_path / "never", made())


@on_torch
def test_what_a_module_has_beside_tensors_may_have_grown_and_may_be_refused(tmp_path):
    import torch

    class Counted(torch.nn.Linear):
        def __init__(self, seen):
            super().__init__(1, 1)
            self.seen = seen

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            if self.seen == [9]:
                raise RuntimeError("refused")
            self.seen = state["seen"]

    one = Counted([7])
    path = saved(tmp_path, {"picky": Picky(1), "module": one})
    other = Counted([])
    ks.restore_checkpoint(path, {"picky": None, "module": other})
    assert other.seen == [7] and torch.equal(other.weight, one.weight)
    picky, other = Picky(0), Counted([9])
    before = other.weight.detach().clone()
    with pytest.raises(RuntimeError, match="refused"):
        ks.restore_checkpoint(path, {"picky": picky, "module": other})
    assert picky.number == 0 and torch.equal(other.weight, before)


@on_torch
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda torch: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
            "must be a dense tensor; received one of the layout nested",
        ),
        (lambda torch: torch.zeros(2).to(torch.complex32), "must hold numbers; .* complex32"),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_tensors_that_no_file_holds_are_refused_before_the_first_step(tmp_path, make, text):
    import torch

    tensor = make(torch)
    saver = ks.StepCheckpoint(tmp_path, objects={"state": lambda: tensor})
    with pytest.raises(TypeError, match=text):
        next(ks.StepLoop([saver]).over(range(3)))


@on_torch
def test_tensors_of_functions_and_types_that_numpy_lacks(tmp_path):
    import torch

    state = {
        "half": torch.randn(3).bfloat16().requires_grad_(),
        "eighth": torch.ones(2).to(torch.float8_e4m3fn),
        "number": torch.tensor(3),
    }
    path = saved(tmp_path, {"state": lambda: state})
    found = ks.restore_checkpoint(path, {"state": lambda: state})["state"]
    assert found["half"].requires_grad and not found["number"].requires_grad
    for name in state:
        assert found[name].dtype == state[name].dtype
        assert torch.equal(found[name].float(), state[name].float())


@on_torch
def test_sparse_tensors_are_refused_by_name(tmp_path):
    import torch

    state = {"w": torch.eye(3).to_sparse()}
    saver = ks.StepCheckpoint(tmp_path, objects={"state": lambda: state})
    loop = ks.StepLoop([saver])
    with pytest.raises(TypeError, match="state/w must be a dense tensor; .*torch.sparse_coo"):
        next(loop.over(range(3)))


@on_torch
def test_tensors_whose_conjugation_or_sign_is_put_off(tmp_path):
    import torch

    state = {"conj": torch.tensor([1 + 2j]).conj()}
    state["neg"] = state["conj"].imag
    assert state["conj"].is_conj() and state["neg"].is_neg()
    path = saved(tmp_path, {"state": lambda: state})
    found = ks.restore_checkpoint(path, {"state": lambda: state})["state"]
    assert found["conj"].tolist() == [1 - 2j] and found["neg"].tolist() == [-2]


@on_torch
def test_a_tensor_that_is_divided_among_processes_is_refused(tmp_path):
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        divided = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        with pytest.raises(TypeError, match="state/w must be a whole tensor; received DTensor"):
            saved(tmp_path, {"state": lambda: {"w": divided}})
    finally:
        torch.distributed.destroy_process_group()
