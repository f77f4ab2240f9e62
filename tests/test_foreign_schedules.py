"""Schedules of Keras's, of optax's and of one's own: the same values, at few calls."""

import copy
import math

import numpy as np
import pytest
from flavours import (
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    fit,
    keras,
    keras_to_numpy,
    make_model,
    mirrored_scope,
)

from keras_steps import StepScheduledLR, schedules
from keras_steps.foreign_schedules import BLOCK, ScheduleValues

on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow only")
on_jax = pytest.mark.skipif(FLAVOUR != "jax", reason="JAX only")

STEPS = 600
AROUND_BLOCKS = [0, 1, 2, 99, 100, 101, 255, 256, 257, 511, 512, 513, 599]


class Counted:
    """A schedule that counts how often Python calls it."""

    def __init__(self, schedule):
        self.schedule = schedule
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return self.schedule(step)


# ---------------------------------------------------------------- one's own functions


def test_a_plain_function_is_called_as_it_is_with_an_int_each_time():
    asked = []

    def schedule(step):
        asked.append((type(step), step))
        return 0.1 / (step + 1)

    values = ScheduleValues(schedule)
    assert values(3) == 0.025
    asked.clear()
    assert [values(step) for step in (0, 4, 4, 9)] == [0.1, 0.02, 0.02, 0.01]
    assert asked == [(int, 0), (int, 4), (int, 4), (int, 9)]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (1, 1),
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        (np.int64(3), 3),
        (None, None),
        ("x", "x"),
        (True, True),
    ],
    ids=repr,
)
def test_what_is_one_number_is_returned_as_one_of_pythons_and_the_rest_as_it_is(returned, expected):
    value = ScheduleValues(lambda step: returned)(0)
    assert value == expected
    assert type(value) is type(expected)


def test_what_is_no_single_number_is_handed_on_for_the_caller_to_refuse():
    two = np.zeros(2)
    assert ScheduleValues(lambda step: two)(0) is two


def test_an_error_of_the_function_is_the_users_to_see():
    def schedule(step):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ScheduleValues(schedule)(0)


def test_ours_are_plain_functions():
    schedule = Counted(schedules.cosine(1.0, 500))
    values = ScheduleValues(schedule)
    found = [values(step) for step in range(STEPS)]
    assert found == [schedules.cosine(1.0, 500)(step) for step in range(STEPS)]


# ---------------------------------------------------------------- Keras's

HOME = keras.optimizers.schedules
KERAS = {
    "CosineDecay": HOME.CosineDecay(0.5, 500, alpha=0.125),
    "PiecewiseConstantDecay": HOME.PiecewiseConstantDecay([100, 300], [1.0, 0.5, 0.125]),
    "warm-up, then CosineDecay": HOME.CosineDecay(0.0, 500, warmup_target=0.5, warmup_steps=100),
}


@pytest.mark.parametrize("schedule", KERAS.values(), ids=KERAS)
def test_a_keras_schedule_equals_its_own_eager_values(schedule):
    """Over 600 steps; on JAX, where a call costs up to 100 ms, around the blocks' limits."""
    values = ScheduleValues(schedule)
    found = np.array([values(step) for step in range(STEPS)])
    steps = AROUND_BLOCKS if FLAVOUR == "jax" else range(STEPS)
    eager = np.array([float(schedule(step)) for step in steps])
    np.testing.assert_allclose(found[list(steps)], eager, rtol=1e-6, atol=1e-7)
    assert all(type(value) is float for value in found.tolist())


def test_piecewise_constant_is_exact_at_its_boundaries():
    values = ScheduleValues(KERAS["PiecewiseConstantDecay"])
    found = [values(step) for step in (99, 100, 101, 299, 300, 301)]
    assert found == [1.0, 1.0, 0.5, 0.5, 0.5, 0.125]


@pytest.mark.skipif(FLAVOUR == "torch", reason="torch has no compiled form: a call costs 0.2 ms")
def test_a_keras_schedule_is_called_for_its_kind_and_traced_not_for_each_step():
    schedule = Counted(KERAS["CosineDecay"])
    values = ScheduleValues(schedule)
    for step in range(STEPS):
        values(step)
    assert schedule.calls <= 4


def test_steps_in_any_order_and_far_apart():
    schedule = KERAS["warm-up, then CosineDecay"]
    values, again = ScheduleValues(schedule), ScheduleValues(schedule)
    steps = [599, 0, 3 * BLOCK, 1, BLOCK, BLOCK - 1, 10**6, 2]
    forward = {step: again(step) for step in sorted(steps)}
    assert {step: values(step) for step in steps} == forward


def test_a_copy_has_the_same_values_before_and_after_use():
    schedule = KERAS["CosineDecay"]
    values = ScheduleValues(schedule)
    assert copy.deepcopy(values)(300) == values(300)
    assert copy.deepcopy(values)(301) == values(301)


@pytest.mark.parametrize(
    "backend", [pytest.param("jax", marks=on_jax), pytest.param("tensorflow", marks=on_tensorflow)]
)
def test_c42_a_keras_schedule_in_step_scheduled_lr_is_not_called_per_batch(backend):
    class Cosine(HOME.CosineDecay):
        calls = 0

        def __call__(self, step):
            Cosine.calls += 1
            return super().__call__(step)

    model = make_model()
    fit(model, [StepScheduledLR(Cosine(0.5, 100))], batches=100)
    assert Cosine.calls <= 4


def test_a_keras_schedule_drives_the_rate_of_a_fit():
    schedule = KERAS["PiecewiseConstantDecay"]
    model = make_model()
    found = []

    class Rates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(keras_to_numpy(self.model.optimizer.learning_rate).item())

    driven = StepScheduledLR(lambda step: schedule(step * 100))
    fit(model, [driven, Rates()], batches=5)
    assert found == [1.0, 1.0, 0.5, 0.5, 0.125]


# ---------------------------------------------------------------- optax's


def test_optax_schedules_equal_their_own_eager_values():
    optax = pytest.importorskip("optax")
    for schedule in (
        optax.cosine_decay_schedule(0.5, 500, alpha=0.125),
        optax.warmup_cosine_decay_schedule(0.0, 0.5, 100, 500),
        optax.join_schedules(
            [optax.linear_schedule(0.0, 1.0, 100), optax.constant_schedule(0.25)], [100]
        ),
        optax.constant_schedule(0.25),
    ):
        values = ScheduleValues(schedule)
        found = [values(step) for step in range(STEPS)]
        eager = [float(schedule(step)) for step in AROUND_BLOCKS]
        np.testing.assert_allclose([found[s] for s in AROUND_BLOCKS], eager, rtol=1e-6, atol=1e-7)
        assert all(type(value) is float for value in found)


def test_an_optax_schedule_is_not_called_for_each_step():
    optax = pytest.importorskip("optax")
    schedule = Counted(optax.cosine_decay_schedule(0.5, 500))
    values = ScheduleValues(schedule)
    for step in range(STEPS):
        values(step)
    assert schedule.calls <= 4


# ---------------------------------------------------------------- what can't be traced


def jax_branches():
    jnp = pytest.importorskip("jax.numpy")
    return lambda step: jnp.array(0.5) if step < 300 else jnp.array(0.25)


def jax_looks_up():
    jnp = pytest.importorskip("jax.numpy")
    table = [0.5] * 300 + [0.25] * 300
    return lambda step: jnp.array(table[step])


def jax_with_math():
    jnp = pytest.importorskip("jax.numpy")
    return lambda step: jnp.array(0.5 if math.floor(step) < 300 else 0.25)


def tensorflow_looks_up():
    tf = pytest.importorskip("tensorflow")
    table = [0.5] * 300 + [0.25] * 300
    return lambda step: tf.constant(table[step])


def tensorflow_with_math():
    tf = pytest.importorskip("tensorflow")
    return lambda step: tf.constant(0.5 if math.floor(step) < 300 else 0.25)


def tensorflow_with_pythons_types():
    tf = pytest.importorskip("tensorflow")
    return lambda step: tf.constant(0.5) / (1 + (step >= 300))


MAKERS = [jax_branches, jax_looks_up, jax_with_math]
if ON_TENSORFLOW:
    MAKERS += [tensorflow_looks_up, tensorflow_with_math, tensorflow_with_pythons_types]


@pytest.mark.parametrize("make", MAKERS)
def test_a_function_that_cannot_be_traced_is_called_with_each_step(make):
    schedule = Counted(make())
    values = ScheduleValues(schedule)
    found = [values(step) for step in (0, 299, 300, 599)]
    assert found == [0.5, 0.5, 0.25, 0.25]
    assert all(type(value) is float for value in found)
    assert schedule.calls >= 4


@on_tensorflow
def test_the_attempt_to_trace_leaves_tensorflow_as_it_was():
    """An error within tf.map_fn would keep every later strategy from opening its scope."""
    import tensorflow as tf

    ScheduleValues(tensorflow_looks_up())(0)
    assert tf.compat.v1.get_variable_scope().caching_device is None
    with mirrored_scope():
        assert tf.distribute.has_strategy()


@on_tensorflow
def test_a_function_whose_type_depends_on_the_steps_is_traced_as_it_is():
    import tensorflow as tf

    schedule = Counted(lambda step: tf.constant(step) / 4)  # float64, of an int64 step
    values = ScheduleValues(schedule)
    assert [values(step) for step in (0, 1, 299, 300)] == [0.0, 0.25, 74.75, 75.0]


@on_tensorflow
def test_a_tensorflow_function_that_branches_is_converted():
    tf = pytest.importorskip("tensorflow")

    def branches(step):
        if step < 300:
            return tf.constant(0.5)
        return tf.constant(0.25)

    schedule = Counted(branches)
    values = ScheduleValues(schedule)
    assert [values(step) for step in (0, 299, 300, 599)] == [0.5, 0.5, 0.25, 0.25]
    assert schedule.calls <= 4


def test_the_flavours_own_tensors_are_numbers_too():
    if IS_TF_KERAS:
        import tensorflow as tf

        make = tf.constant
    else:
        make = keras.ops.convert_to_tensor
    values = ScheduleValues(lambda step: make(0.25))
    assert [values(0), values(1)] == [0.25, 0.25]
    assert type(values(1)) is float
