"""Schedules: their values, what they equal elsewhere, and their lives as Keras schedules."""

import doctest
import math
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from keras.optimizers import schedules as keras_schedules

from keras_steps import schedule_curves, schedules
from keras_steps.schedules import (
    cosine,
    inverse_sqrt,
    join,
    linear,
    one_cycle,
    warmup,
    warmup_stable_decay,
)

# Keras 3.15 on NumPy 2.4: its own saving and convert_to_numpy warn.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

STEPS = np.arange(2000, dtype="int32")

EXAMPLES = {
    "linear": linear(0.25, 1.0, 1500),
    "cosine": cosine(1.0, 1500, final=0.125),
    "inverse_sqrt": inverse_sqrt(1.0, 300),
    "warmup": warmup(300, cosine(1.0, 1200), initial=0.5),
    "warmup_number": warmup(300, 1.0),
    "warmup_keras": warmup(300, keras_schedules.PolynomialDecay(1.0, 900, power=2.0)),
    "one_cycle": one_cycle(1.0, 1500),
    "warmup_stable_decay": warmup_stable_decay(1.0, 1500, warmup_steps=300, decay_steps=500),
    "join": join([0.5, inverse_sqrt(1.0, 9), join([linear(1.0, 0.5, 7), 0.25], [7])], [70, 700]),
}
OURS = {name: schedule for name, schedule in EXAMPLES.items() if name != "warmup_keras"}

each_example = pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)
each_of_ours = pytest.mark.parametrize("schedule", OURS.values(), ids=OURS)


def ints(schedule):
    return np.array([schedule(step) for step in STEPS])


def compiled(function):
    """`function` in the backend's compiler; torch runs Keras eagerly."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function


def keras_values(schedule):
    """A Keras schedule at STEPS, one at a time: some of them branch on the step."""
    traced = compiled(lambda steps: ops.map(schedule, steps))
    return ops.convert_to_numpy(traced(ops.convert_to_tensor(STEPS)))


@pytest.fixture
def optax():
    return pytest.importorskip("optax")


def optax_values(schedule):
    import jax

    return np.asarray(jax.vmap(schedule)(STEPS))


def assert_close(values, expected, peak=1.0):
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6 * peak)


# Values


@pytest.mark.parametrize(
    "schedule, expected",
    [
        (linear(0.0, 1.0, 10), {0: 0.0, 1: 0.1, 5: 0.5, 10: 1.0, 11: 1.0, 10**9: 1.0}),
        (linear(0.3, 0.1, 4), {0: 0.3, 2: 0.2, 4: 0.1, 5: 0.1}),
        (linear(0.1, 0.1, 3), {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.1}),
        (linear(1, 0, 1), {0: 1.0, 1: 0.0, 2: 0.0}),
        (cosine(0.3, 100, final=0.1), {0: 0.3, 50: 0.2, 100: 0.1, 101: 0.1, 10**9: 0.1}),
        (cosine(1.0, 4), {0: 1.0, 1: 0.8535533905932737, 2: 0.5, 3: 0.1464466094067262, 4: 0.0}),
        (inverse_sqrt(0.5, 4), {0: 0.0, 1: 0.125, 4: 0.5, 16: 0.25, 400: 0.05}),
        (warmup(4, 0.3), {0: 0.0, 1: 0.075, 4: 0.3, 5: 0.3}),
        (warmup(4, linear(0.3, 0.1, 2), initial=0.7), {0: 0.7, 2: 0.5, 4: 0.3, 5: 0.2, 6: 0.1}),
        (one_cycle(1.0, 10), {0: 0.04, 3: 1.0, 10: 4e-6, 11: 4e-6}),
        (
            one_cycle(0.8, 8, warmup_fraction=0.5, initial_divisor=4, final_divisor=2),
            {0: 0.2, 2: 0.5, 4: 0.8, 6: 0.45, 8: 0.1, 9: 0.1},
        ),
        (
            warmup_stable_decay(0.4, 10, warmup_steps=2, decay_steps=4, final=0.2),
            {0: 0.0, 1: 0.2, 2: 0.4, 6: 0.4, 8: 0.3, 10: 0.2, 11: 0.2},
        ),
        (
            warmup_stable_decay(0.4, 6, warmup_steps=2, decay_steps=4),
            {0: 0.0, 1: 0.2, 2: 0.4, 4: 0.2, 6: 0.0},
        ),
        (join([0.5, linear(0.0, 1.0, 2), 0.1], [3, 4]), {0: 0.5, 2: 0.5, 3: 0.0, 4: 0.1, 5: 0.1}),
        (join([0.5], []), {0: 0.5, 1: 0.5}),
        (join([0.5, lambda step: step / 8], [3]), {2: 0.5, 3: 0.0, 4: 0.125}),
    ],
)
def test_values(schedule, expected):
    """The table, up to the last digit."""
    assert {step: schedule(step) for step in expected} == pytest.approx(expected, rel=1e-15, abs=0)


@pytest.mark.parametrize(
    "schedule, step, expected",
    [
        (linear(0.3, 0.1, 7), 0, 0.3),
        (linear(0.3, 0.1, 7), 7, 0.1),
        (cosine(0.3, 7, final=0.1), 0, 0.3),
        (cosine(0.3, 7, final=0.1), 7, 0.1),
        (cosine(0.3, 7), 7, 0.0),
        (inverse_sqrt(0.3, 7), 0, 0.0),
        (inverse_sqrt(0.3, 7), 7, 0.3),
        (warmup(7, cosine(0.3, 9), initial=0.1), 0, 0.1),
        (warmup(7, cosine(0.3, 9), initial=0.1), 7, 0.3),
        (warmup(7, cosine(0.3, 9), initial=0.1), 16, 0.0),
        (one_cycle(0.3, 10), 0, 0.3 / 25),
        (one_cycle(0.3, 10), 3, 0.3),
        (one_cycle(0.3, 10), 10, 0.3 / 25 / 1e4),
        (warmup_stable_decay(0.3, 9, warmup_steps=2, decay_steps=3, final=0.1), 2, 0.3),
        (warmup_stable_decay(0.3, 9, warmup_steps=2, decay_steps=3, final=0.1), 6, 0.3),
        (warmup_stable_decay(0.3, 9, warmup_steps=2, decay_steps=3, final=0.1), 9, 0.1),
    ],
)
def test_boundaries_are_exact(schedule, step, expected):
    """Where a piece begins or ends, its rate is the argument itself, not one near it."""
    assert schedule(step) == expected


@pytest.mark.parametrize(
    "schedule, horizon",
    [
        (linear(0.0, 1.0, 10), 10),
        (linear(1.0, 1.0, 10), 0),
        (cosine(1.0, 10), 10),
        (inverse_sqrt(1.0, 10), None),
        (warmup(10, 1.0), 10),
        (warmup(10, cosine(1.0, 100)), 110),
        (warmup(10, inverse_sqrt(1.0, 5)), None),
        (warmup(10, lambda step: 1.0), None),
        (one_cycle(1.0, 10), 10),
        (warmup_stable_decay(1.0, 10, warmup_steps=2, decay_steps=3), 10),
        (join([1.0], []), 0),
        (join([inverse_sqrt(1.0, 5), 1.0, linear(1.0, 0.0, 4)], [20, 30]), 34),
    ],
)
def test_horizon(schedule, horizon):
    """The step from which on nothing changes, None where there is none or no one can tell."""
    assert schedule.horizon == horizon


rates = st.floats(0, 1e3)
lengths = st.integers(1, 10**6)


def joined(pieces):
    return st.lists(pieces, min_size=1, max_size=4).flatmap(
        lambda chosen: st.sets(lengths, min_size=len(chosen) - 1, max_size=len(chosen) - 1).map(
            lambda boundaries: join(chosen, sorted(boundaries))
        )
    )


any_schedule = st.recursive(
    st.one_of(
        st.builds(linear, rates, rates, lengths),
        st.builds(cosine, rates, lengths, final=rates),
        st.builds(inverse_sqrt, rates, lengths),
        st.builds(one_cycle, rates, st.integers(4, 10**6)),
        st.builds(
            lambda peak, up, flat, down, final: warmup_stable_decay(
                peak, up + flat + down, warmup_steps=up, decay_steps=down, final=final
            ),
            rates,
            lengths,
            st.integers(0, 10**6),
            lengths,
            rates,
        ),
    ),
    lambda inner: st.one_of(
        st.builds(warmup, lengths, inner | rates, initial=rates), joined(inner)
    ),
    max_leaves=4,
)


@settings(deadline=None)
@given(any_schedule, st.integers(0, 10**9))
def test_always_a_rate_and_constant_from_the_horizon_on(schedule, step):
    """At every step a finite float not below 0; from the horizon on always the same one."""
    value = schedule(step)
    assert type(value) is float
    assert 0 <= value < math.inf
    if schedule.horizon is not None:
        assert schedule(schedule.horizon + step) == schedule(schedule.horizon)


# The same curves elsewhere


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (linear(0.8, 0.2, 1500), keras_schedules.PolynomialDecay(0.8, 1500, 0.2, power=1.0)),
        (cosine(0.8, 1500), keras_schedules.CosineDecay(0.8, 1500)),
        (cosine(0.8, 1500, final=0.2), keras_schedules.CosineDecay(0.8, 1500, alpha=0.25)),
        (
            warmup(300, cosine(0.8, 1200, final=0.2), initial=0.1),
            keras_schedules.CosineDecay(0.1, 1200, 0.25, warmup_target=0.8, warmup_steps=300),
        ),
        (
            join([0.8, 0.4, 0.2], [300, 1000]),  # Keras's last step of a piece is our boundary - 1
            keras_schedules.PiecewiseConstantDecay([299, 999], [0.8, 0.4, 0.2]),
        ),
    ],
    ids=["linear", "cosine", "cosine_final", "warmup", "join"],
)
def test_equals_keras(ours, theirs):
    """The curves that Keras has too."""
    assert_close(ints(ours), keras_values(theirs), peak=0.8)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (linear(0.2, 0.8, 1500), lambda o: o.linear_schedule(0.2, 0.8, 1500)),
        (cosine(0.8, 1500, final=0.2), lambda o: o.cosine_decay_schedule(0.8, 1500, alpha=0.25)),
        (
            warmup(300, cosine(0.8, 1200, final=0.2), initial=0.1),
            lambda o: o.warmup_cosine_decay_schedule(0.1, 0.8, 300, 1500, 0.2),
        ),
        (
            warmup(300, 0.8, initial=0.1),
            lambda o: o.warmup_constant_schedule(0.1, 0.8, 300),
        ),
        (one_cycle(0.8, 1500), lambda o: o.cosine_onecycle_schedule(1500, 0.8)),
        (
            one_cycle(0.8, 1499, warmup_fraction=0.29, initial_divisor=10, final_divisor=100),
            lambda o: o.cosine_onecycle_schedule(1499, 0.8, 0.29, 10, 100),
        ),
        (
            warmup_stable_decay(0.8, 1500, warmup_steps=300, decay_steps=500, final=0.2),
            lambda o: o.join_schedules(
                [
                    o.linear_schedule(0.0, 0.8, 300),
                    o.constant_schedule(0.8),
                    o.linear_schedule(0.8, 0.2, 500),
                ],
                [300, 1000],
            ),
        ),
        (
            join([cosine(0.8, 500), 0.4, linear(0.4, 0.1, 900)], [300, 1000]),
            lambda o: o.join_schedules(
                [
                    o.cosine_decay_schedule(0.8, 500),
                    o.constant_schedule(0.4),
                    o.linear_schedule(0.4, 0.1, 900),
                ],
                [300, 1000],
            ),
        ),
    ],
    ids=[
        "linear",
        "cosine",
        "warmup_cosine",
        "warmup_constant",
        "one_cycle",
        "one_cycle_arguments",
        "warmup_stable_decay",
        "join",
    ],
)
def test_equals_optax(optax, ours, theirs):
    """The curves that optax has too."""
    assert_close(ints(ours), optax_values(theirs(optax)), peak=0.8)


def test_inverse_sqrt_equals_the_paper():
    """Vaswani et al. 2017, equation 3, for their base model: d_model 512, here 300 warmup steps."""
    ours = inverse_sqrt((512 * 300) ** -0.5, 300)
    paper = [512**-0.5 * min(step**-0.5, step * 300**-1.5) for step in range(1, 2000)]
    assert ints(ours)[1:].tolist() == pytest.approx(paper, rel=1e-14)


def test_takes_optax_schedules(optax):
    """An optax schedule is a piece like any other."""
    ours = warmup(300, optax.cosine_decay_schedule(0.8, 1200))
    assert [ours(step) for step in (150, 300, 900, 1500)] == pytest.approx([0.4, 0.8, 0.4, 0.0])


# Ints and tensors


@each_of_ours
def test_ints_touch_no_tensors(schedule, monkeypatch):
    """An int, also NumPy's, gives a float, and keras.ops has no part in it."""
    monkeypatch.setattr(schedule_curves, "ops", None)
    for step in (0, 299, 300, 1499, 1500, 10**12, np.int64(7), np.uint8(7)):
        assert type(schedule(step)) is float
    assert schedule(np.int64(7)) == schedule(7)


@each_of_ours
def test_tensors_equal_ints(schedule):
    """A tensor of steps gives the same rates as float32, eagerly and compiled."""
    for function in schedule, compiled(schedule):
        values = function(ops.convert_to_tensor(STEPS))
        assert keras.backend.standardize_dtype(values.dtype) == "float32"
        assert_close(ops.convert_to_numpy(values), ints(schedule))


@each_example
def test_scalar_tensors_and_variables(schedule):
    """A scalar tensor of any integer type, and a Variable, give a scalar."""
    traced = compiled(schedule)
    for step in (0, 299, 300, 700, 1500):
        expected = pytest.approx(schedule(step), abs=1e-6)
        for dtype in ("int32", "int64"):
            tensor = ops.convert_to_tensor(np.array(step, dtype))
            assert float(schedule(tensor)) == expected
            assert float(traced(tensor)) == expected
        assert float(schedule(keras.Variable(step, dtype="int32", trainable=False))) == expected


def test_an_array_gives_the_curve():
    """A NumPy array of steps, for a plot."""
    assert ops.convert_to_numpy(linear(0.0, 1.0, 2)(np.arange(4))).tolist() == [0, 0.5, 1, 1]


def test_boundaries_are_exact_beyond_float32():
    """Steps that float32 can't tell apart are still counted from the boundary."""
    schedule = join([1.0, linear(0.0, 1.0, 8)], [2**25])
    steps = np.array([2**25 - 1, 2**25, 2**25 + 1, 2**25 + 3], "int32")
    assert ops.convert_to_numpy(schedule(steps)).tolist() == [1, 0, 0.125, 0.375]


def test_only_the_piece_in_force_is_called_with_an_int():
    """A function that is defined on its own part alone can be a piece."""
    schedule = join([[0.1, 0.2].__getitem__, [0.3, 0.4].__getitem__, 0.5], [2, 4])
    assert [schedule(step) for step in range(6)] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.5]


# As Keras schedules


@each_example
def test_config_round_trip(schedule):
    """The config rebuilds the schedule, through JSON and by its registered name alone."""
    config = keras.saving.serialize_keras_object(schedule)
    assert config["registered_name"].startswith("keras_steps>")
    again = keras_schedules.deserialize(config)
    assert type(again) is type(schedule)
    assert again.get_config() == schedule.get_config()
    assert again.horizon == schedule.horizon
    assert [again(step) for step in STEPS[::100]] == [schedule(step) for step in STEPS[::100]]


@keras.saving.register_keras_serializable("test_schedules")
def eighths(step):
    return step / 8


def test_config_of_a_registered_function():
    """A function as a piece is saved by name."""
    schedule = join([1.0, eighths], [10])
    again = keras_schedules.deserialize(keras.saving.serialize_keras_object(schedule))
    assert (again(9), again(11)) == (1.0, 0.125)


def trained_model(schedule):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(schedule), "mse")
    train_one_step(model)
    return model


def train_one_step(model):
    model.train_on_batch(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"))


@each_example
def test_saved_model_trains_on(schedule, tmp_path):
    """A model compiled with the schedule comes back with it, and its next update is the same."""
    model = trained_model(schedule)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert float(again.optimizer.learning_rate) == pytest.approx(schedule(1), rel=1e-6)
    train_one_step(model)
    train_one_step(again)
    assert int(again.optimizer.iterations) == 2
    for weights, expected in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, expected)


def test_loads_in_a_process_that_only_imports_keras_steps(tmp_path):
    """Nothing but the import is needed to load a saved model with a schedule in it."""
    trained_model(EXAMPLES["join"]).save(tmp_path / "model.keras")
    script = (
        "import sys, keras, keras_steps\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "print(float(model.optimizer.learning_rate))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.keras")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) == 0.5


# Errors


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: linear(0, 1, 0), ValueError, r"^steps must be at least 1, .* received 0"),
        (lambda: linear(0, 1, -5), ValueError, r"^steps must be at least 1, .* received -5"),
        (lambda: linear(0, 1, True), TypeError, r"^steps must be an int, .* received True"),
        (lambda: linear(0, 1, 1e3), TypeError, r"^steps must be an int, .* 1000.0. Use int\("),
        (lambda: linear(0, 1, None), TypeError, r"^steps must be an int, .* received None"),
        (lambda: linear(-1, 1, 9), ValueError, r"^initial must be finite and .* received -1"),
        (lambda: linear(0, math.nan, 9), ValueError, r"^final must be finite and .* received nan"),
        (lambda: linear(0, math.inf, 9), ValueError, r"^final must be finite and .* received inf"),
        (lambda: linear(False, 1, 9), TypeError, r"^initial must be a number; received False"),
        (lambda: cosine("1", 9), TypeError, r"^initial must be a number; received '1'"),
        (lambda: cosine(1, 9, final=-0.1), ValueError, r"^final must be .* received -0.1"),
        (lambda: cosine(1, 1.5), TypeError, r"^steps must be an int, .* received 1.5"),
        (lambda: inverse_sqrt(1, 0), ValueError, r"^warmup_steps must be at least 1"),
        (lambda: inverse_sqrt(math.nan, 9), ValueError, r"^peak must be finite"),
        (lambda: warmup(0, 1.0), ValueError, r"^steps must be at least 1"),
        (lambda: warmup(9, -1.0), ValueError, r"^after must be finite and .* received -1.0"),
        (lambda: warmup(9, 1.0, initial=-1), ValueError, r"^initial must be finite"),
        (lambda: warmup(9, None), TypeError, r"^after must be a schedule, a function of the step"),
        (lambda: warmup(9, lambda step: math.nan), ValueError, r"^after\(0\) must be finite"),
        (lambda: one_cycle(-1, 9), ValueError, r"^peak must be finite"),
        (lambda: one_cycle(1, 0), ValueError, r"^steps must be at least 1"),
        (
            lambda: one_cycle(1, 9, warmup_fraction=0),
            ValueError,
            r"^warmup_fraction must lie between 0 and 1; received 0",
        ),
        (
            lambda: one_cycle(1, 9, warmup_fraction=1.0),
            ValueError,
            r"^warmup_fraction must lie between 0 and 1; received 1.0",
        ),
        (lambda: one_cycle(1, 9, warmup_fraction=math.nan), ValueError, r"^warmup_fraction must"),
        (
            lambda: one_cycle(1, 3),
            ValueError,
            r"at least 1 update; received warmup_fraction=0.3, steps=3. Raise one",
        ),
        (lambda: one_cycle(1, 9, initial_divisor=0), ValueError, r"^initial_divisor .* least 1"),
        (lambda: one_cycle(1, 9, final_divisor=0.5), ValueError, r"^final_divisor .* least 1"),
        (
            lambda: warmup_stable_decay(1, 9, warmup_steps=5, decay_steps=5),
            ValueError,
            r"^warmup_steps \+ decay_steps must be at most steps; received 5 \+ 5 and 9",
        ),
        (
            lambda: warmup_stable_decay(1, 9, warmup_steps=0, decay_steps=5),
            ValueError,
            r"^warmup_steps must be at least 1",
        ),
        (
            lambda: warmup_stable_decay(1, 9, warmup_steps=1, decay_steps=2.5),
            TypeError,
            r"^decay_steps must be an int",
        ),
        (lambda: join([], []), ValueError, r"at least one piece, .* received 0 pieces and 0 b"),
        (lambda: join([1.0, 2.0], []), ValueError, r"received 2 pieces and 0 boundaries"),
        (lambda: join([1.0], [5]), ValueError, r"received 1 pieces and 1 boundaries"),
        (lambda: join([1.0, 2.0, 3.0], [5, 5]), ValueError, r"must rise; received \[5, 5\]"),
        (lambda: join([1.0, 2.0, 3.0], [5, 4]), ValueError, r"must rise; received \[5, 4\]"),
        (lambda: join([1.0, 2.0], [0]), ValueError, r"^boundaries\[0\] must be at least 1"),
        (lambda: join([1.0, 2.0], [5.0]), TypeError, r"^boundaries\[0\] must be an int"),
        (lambda: join([1.0, "2"], [5]), TypeError, r"^pieces\[1\] must be a schedule, a function"),
        (lambda: join([1.0, -2.0], [5]), ValueError, r"^pieces\[1\] must be finite"),
        (lambda: join(linear(0, 1, 9), []), TypeError, r"^pieces must be a list; received Ramp"),
        (lambda: join([1.0, 2.0], 5), TypeError, r"^boundaries must be a list; .* 5\. Put it in b"),
        (lambda: join([1, 2], np.array([5])), TypeError, r"received array\(\[5\]\)\. Use list"),
        (lambda: linear(0, 1, 9)(-1), ValueError, r"^step must be at least 0, .* received -1"),
        (lambda: warmup(9, 1.0)(-1), ValueError, r"^step must be at least 0, .* received -1"),
        (lambda: linear(0, 1, 9)(2.0), TypeError, r"^step must be an int, .* received 2.0"),
        (lambda: linear(0, 1, 9)(True), TypeError, r"^step must be an int, .* received True"),
    ],
)
def test_errors_say_what_was_received(make, error, message):
    """One message: which argument, what was expected, what was received."""
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint8])
def test_numpy_numbers_are_numbers(integer):
    """Counts and rates that come out of an array, also in the saved config."""
    schedule = linear(np.float32(0), np.float64(1), integer(10))
    assert schedule(5) == 0.5
    assert [type(value) for value in schedule.get_config().values()] == [float, float, int, str]
    schedule = warmup_stable_decay(
        1.0, 1000, warmup_steps=integer(10), decay_steps=integer(100), final=np.float32(0)
    )
    assert [schedule(step) for step in (5, 900, 950)] == [0.5, 1.0, 0.5]
    assert [type(boundary) for boundary in schedule.boundaries] == [int]


# Documentation


def test_docstring_examples():
    """Every public function shows an example, and all of them run."""
    for name in schedules.__all__:
        assert ">>> " in getattr(schedules, name).__doc__, name
    results = doctest.testmod(schedules)
    assert results.attempted >= len(schedules.__all__)
    assert results.failed == 0
