"""What callbacks give of themselves comes back from a backup as it was, or is refused at once."""

import collections
import enum
import threading

import numpy as np
import pytest
from flavours import FLAVOUR, arrays, fit, keras, make_model
from loops import loop

import keras_steps as ks


class Gives:
    """A callback that gives a state, and keeps what it gets."""

    def __init__(self, state, *args):
        super().__init__(*args)
        self.given, self.got, self.threads = state, None, set()

    def get_state(self):
        self.threads.add(threading.current_thread())
        return self.given

    def set_state(self, state):
        self.got = state


class Own(Gives, ks.StepCallback):
    """Of this library's kind."""


class OfKeras(Gives, keras.callbacks.Callback):
    """Of Keras's kind."""


def own_array(value):
    """An array of the backend's own framework."""
    if FLAVOUR == "torch":
        import torch

        return torch.tensor(value)
    if FLAVOUR == "jax":
        import jax.numpy as jnp

        return jnp.asarray(value)
    import tensorflow as tf

    return tf.constant(value)


def shapes():
    """States of which JSON, or a mark among the names, makes others."""
    ones = np.ones(2, "float32")
    return {
        "array": ones,
        "empty": [{}, [], (), "", None],
        "marks": [{"array": "x"}, {"array": ones}, {"dict": {"array": 1}}, {"list": []}],
        "structure": {"structure": 1, "arrays": {}},
        "keys": {1: 2.0, "1": 3.0, 2.5: "x", None: 0, False: 7},
        "tuples": (1, (2.0, "x"), [(3,)]),
        "paths": {"a/b": {"c": ones}, "a": {"b/c": 2 * ones, "b": {"c": 3 * ones}}},
        "scalars": [np.float32(0.1), np.int64(2**60), np.bool_(True), np.inf, 2**70],
        "small": [np.array(5.0), np.zeros((0, 3), "int8"), np.array(True)],
        "own": own_array([1.5, 2.5]),
        "text": "å\n\x00",
    }


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert [(type(key), key) for key in one] == [(type(key), key) for key in other]
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif hasattr(one, "dtype"):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    else:
        assert one == other


@pytest.mark.parametrize(
    ("train", "makers"), [(fit, (Own, OfKeras)), (loop, (Own,))], ids=["fit", "loop"]
)
def test_it_comes_back_as_it_was(train, makers, tmp_path):
    for got_some in (False, True):
        callbacks = [make(shapes()) for make in makers] + [Own({"array": np.ones(3)})]
        stop = ks.StopAtStep(12 if got_some else 7)
        train(make_model(), [*callbacks, ks.StepBackupAndRestore(tmp_path, 3), stop], epochs=2)
        for callback in callbacks:
            assert callback.threads == {threading.main_thread()}
            assert (callback.got is not None) == got_some
            if got_some:
                assert_same(callback.got, callback.given)


Point = collections.namedtuple("Point", "x y")
Color = enum.IntEnum("Color", "RED")

REFUSED = [
    ({"seen": {1, 2}}, "/seen must be an array, a number, .*received {1, 2} of the type set"),
    ({"a": [0, {"b": print}]}, "/a/1/b must be an array, .*of the type builtin_function"),
    ({"at": Point(1, 2)}, r"/at must be .*received Point\(x=1, y=2\) of the type Point"),
    ({"n": collections.Counter("a")}, r"/n must be .*Counter\({'a': 1}\) of the type Counter"),
    ({"c": Color.RED}, "/c must be .* of the type Color"),
    ({"of": {(1, 2): 3}}, r"/of: a key must be a number or a string; received \(1, 2\)"),
    ({"names": np.array(["x"])}, "/names must hold numbers; received an array of the type"),
    ({1, 2}, " must be .*received {1, 2} of the type set"),
]


@pytest.mark.parametrize(("state", "message"), REFUSED)
def test_what_cant_come_back_is_refused_at_train_begin(state, message, tmp_path):
    stop = ks.StopAtStep(7)
    for callback, name in ((Own(state), "Own"), (OfKeras(state), "OfKeras 1")):
        model, backup = make_model(), ks.StepBackupAndRestore(tmp_path / name, 3)
        with pytest.raises(TypeError, match=rf"^{name}.get_state\(\){message}") as raised:
            fit(model, [callback, backup, stop])
        assert "StepBackupAndRestore keeps what get_state returns" in raised.value.__notes__[0]
        assert ks.global_step(model) == 0
        assert callback.threads == {threading.main_thread()}
    fit(make_model(), [Own(state), stop])  # where nothing is kept, nobody asks


def test_a_name_that_is_logged_may_look_like_a_mark(tmp_path):
    x, y = arrays(1)
    reports = []
    for last_step in (4, 6):
        model = make_model()
        callbacks = [
            ks.OnStep(6, lambda step, logs: reports.append(logs["array"])),
            ks.StepBackupAndRestore(tmp_path, 2),
            ks.StopAtStep(last_step),
        ]
        with ks.StepLoop(callbacks, model=model) as the_loop:
            for number in the_loop.over(range(1, 10)):
                model.train_on_batch(x, y)
                the_loop.log(array=float(number))
    assert reports == [3.5]
