"""StepScheduled and StepScheduledLR: which value each update used, seen from the weights."""

import math

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    fit,
    keras,
    keras_to_numpy,
    loss_scaled,
    make_model,
    mirrored_scope,
    no_scope,
)

import keras_steps as ks
from keras_steps import keras_internals
from keras_steps.clock import Clock
from keras_steps.testing import Recorder

keras_3 = pytest.mark.skipif(IS_TF_KERAS, reason="Keras 3 only")


def sgd(rate=1.0, **args):
    return keras.optimizers.SGD(rate, **args)


def halves(step):
    """1, 1/2, 1/4, …: sums and differences of these are exact."""
    return 2.0**-step


def output(y, y_pred):
    """A loss whose gradient by the weight is the input, 1."""
    return y_pred


def falling(optimizer=None, **compile_args):
    """A model of one weight, 0 at first, that falls by the learning rate with each update."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(optimizer or sgd(), output, **compile_args)
    return model


def ones(batches):
    x = np.ones((batches * BATCH, 1), "float32")
    return {"x": x, "y": x, "batch_size": BATCH, "shuffle": False}


class Falls(keras.callbacks.Callback):
    """By how much the first weight fell with each execution."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_begin(self, logs=None):
        self.last = self.weight()

    def on_train_batch_end(self, batch, logs=None):
        last, self.last = self.last, self.weight()
        self.found.append(last - self.last)

    def weight(self):
        return weight_of(self.model)


def falls(model, callbacks, batches=8, **fit_args):
    """Fit, and return by how much the weight fell with each execution."""
    seen = Falls()
    fit(model, [*callbacks, seen], **(ones(batches) | fit_args))
    return seen.found


def weight_of(model):
    return keras_to_numpy(model.trainable_variables[0]).item()


class Asked:
    """A schedule that notes at which steps it is asked for its value, each once."""

    def __init__(self, schedule=halves):
        self.schedule = schedule
        self.steps = []

    def __call__(self, step):
        if step not in self.steps:
            self.steps.append(step)
        return self.schedule(step)


# ---------------------------------------------------------------- which update uses which value


def test_update_number_s_counted_from_0_uses_the_schedule_at_s():
    found = falls(falling(), [ks.StepScheduledLR(halves)], batches=5)
    assert found == [1.0, 0.5, 0.25, 0.125, 0.0625]


def test_it_does_so_without_any_other_callback():
    """None that would have JAX hand the weights out after each batch."""
    model = falling()
    fit(model, [ks.StepScheduledLR(halves)], **ones(10))
    assert weight_of(model) == -(2 - 2.0**-9)


def test_over_epochs_with_validation_and_in_a_second_fit():
    model = falling()
    lr = ks.StepScheduledLR(halves)
    data = ones(3)
    validation = (data["x"], data["y"])
    found = falls(model, [lr], epochs=2, validation_data=validation, **data)
    found += falls(model, [lr], batches=2)
    assert found == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125]


def test_from_a_step_that_was_set():
    model = falling()
    ks.set_global_step(model, 3)
    assert falls(model, [ks.StepScheduledLR(halves)], batches=2) == [0.125, 0.0625]


@pytest.mark.skipif(not ON_TENSORFLOW, reason="strategies are TensorFlow's")
def test_under_mirrored():
    with mirrored_scope():
        model = falling()
    assert falls(model, [ks.StepScheduledLR(halves)], batches=4) == [1.0, 0.5, 0.25, 0.125]


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
@pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses steps_per_execution > 1")
def test_with_4_steps_an_execution_the_rate_is_that_of_its_first_update_and_a_warning_says_so():
    model = falling(steps_per_execution=4)
    with pytest.warns(UserWarning, match="^StepScheduledLR sets its value once an execution, of 4"):
        found = falls(model, [ks.StepScheduledLR(halves)], batches=12)
    assert found == [4.0, 4 * 2.0**-4, 4 * 2.0**-8]


def test_loss_scaled():
    model = falling(loss_scaled(sgd()))
    assert falls(model, [ks.StepScheduledLR(halves)], batches=4) == [1.0, 0.5, 0.25, 0.125]


def test_after_an_overflow_the_schedule_follows_the_counter():
    """Keras 3 doesn't count the batch that brought no update, tf_keras does."""
    model = falling(loss_scaled(sgd()))
    data = ones(5)
    data["x"][2 * BATCH : 3 * BATCH] = np.inf
    found = falls(model, [ks.StepScheduledLR(halves)], **data)
    assert found == (
        [1.0, 0.5, 0.0, 0.125, 0.0625] if IS_TF_KERAS else [1.0, 0.5, 0.0, 0.25, 0.125]
    )


@keras_3
@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, loss_scaled], ids=["", "scaled"])
def test_c23_under_accumulation_the_schedule_sees_updates_not_batches(wrap):
    schedule = Asked()
    model = falling(wrap(sgd(gradient_accumulation_steps=4)))
    found = falls(model, [ks.StepScheduledLR(schedule)], batches=20)
    assert found == [0, 0, 0, 1.0, 0, 0, 0, 0.5, 0, 0, 0, 0.25, 0, 0, 0, 0.125, 0, 0, 0, 0.0625]
    assert schedule.steps == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------- every

EVERY = [
    (1, [0, 1, 2, 3, 4, 5, 6, 7]),
    (3, [0, 0, 0, 3, 3, 3, 6, 6]),
    (np.int64(5), [0, 0, 0, 0, 0, 5, 5, 5]),
    (100, [0, 0, 0, 0, 0, 0, 0, 0]),
    (ks.EverySteps(4, start=1), [0, 1, 1, 1, 1, 5, 5, 5]),
    (ks.AtSteps(3, 4), [0, 0, 0, 3, 4, 4, 4, 4]),
    (ks.GeometricSteps(), [0, 1, 2, 2, 4, 4, 4, 4]),
    (ks.EverySteps(5) | ks.AtSteps(2, 7), [0, 0, 2, 2, 2, 5, 5, 7]),
]


@pytest.mark.parametrize(("every", "points"), EVERY, ids=[repr(every) for every, _ in EVERY])
def test_every_the_value_is_that_of_the_largest_grid_point_so_far(every, points):
    schedule = Asked()
    found = falls(falling(), [ks.StepScheduledLR(schedule, every=every)])
    assert found == [halves(point) for point in points]
    assert schedule.steps == sorted(set(points))


@pytest.mark.parametrize(
    ("every", "points"),
    [(5, [5, 5, 5, 10, 10]), (ks.AtSteps(3, 8), [3, 8, 8, 8, 8]), (100, [0, 0, 0, 0, 0])],
    ids=repr,
)
def test_every_also_right_after_a_resume(every, points):
    model = falling()
    fit(model, [], **ones(7))
    schedule = Asked()
    found = falls(model, [ks.StepScheduledLR(schedule, every=every)], batches=5)
    assert found == [halves(point) for point in points]
    assert schedule.steps == sorted(set(points))


@pytest.mark.parametrize("every", [ks.EverySecs(1), ks.EverySteps(3) | ks.EverySecs(1)], ids=repr)
def test_every_a_matter_of_seconds_is_refused(every):
    with pytest.raises(ValueError, match=r"^StepScheduledLR\(every\) must be a matter of steps"):
        ks.StepScheduledLR(halves, every=every)
    with pytest.raises(ValueError, match=r"^StepScheduled\(every\) must be .* received Every"):
        ks.StepScheduled(print, halves, every=every)


# ---------------------------------------------------------------- what a report says


def piecewise():
    return keras.optimizers.schedules.PiecewiseConstantDecay([1, 3], [1.0, 0.5, 0.25])


RATES = {
    "a number": (lambda: sgd(0.5), None, [0.5, 0.5, 0.5, 0.5, 0.5]),
    "a schedule": (lambda: sgd(piecewise()), None, [1.0, 1.0, 0.5, 0.5, 0.25]),
    "a callable": (lambda: sgd(lambda: 0.5), None, [0.5, 0.5, 0.5, 0.5, 0.5]),
    "a number, loss scaled": (lambda: loss_scaled(sgd(0.5)), None, [0.5] * 5),
    "a schedule, loss scaled": (
        lambda: loss_scaled(sgd(piecewise())),
        None,
        [1.0, 1.0, 0.5, 0.5, 0.25],
    ),
    "StepScheduledLR": (sgd, halves, [1.0, 0.5, 0.25, 0.125, 0.0625]),
    "StepScheduledLR, loss scaled": (
        lambda: loss_scaled(sgd()),
        halves,
        [1.0, 0.5, 0.25, 0.125, 0.0625],
    ),
}


@pytest.mark.parametrize(("make", "schedule", "rates"), RATES.values(), ids=RATES)
def test_c22_the_reported_rate_is_the_one_that_the_update_used(make, schedule, rates):
    recorder = Recorder(1)
    callbacks = [recorder] if schedule is None else [recorder, ks.StepScheduledLR(schedule)]
    assert falls(falling(make()), callbacks, batches=5) == rates
    assert [logs["learning_rate"] for logs in recorder.logs] == rates


@keras_3
def test_c22_under_accumulation():
    recorder = Recorder(1)
    model = falling(sgd(gradient_accumulation_steps=2))
    fit(model, [recorder, ks.StepScheduledLR(halves)], **ones(6))
    assert recorder.steps == [1, 2, 3]
    assert [logs["learning_rate"] for logs in recorder.logs] == [1.0, 0.5, 0.25]


# ---------------------------------------------------------------- what is refused at train begin


def refused(model, callbacks, message):
    with pytest.raises(ValueError, match=message):
        fit(model, callbacks, **ones(3))
    assert ks.global_step(model) == 0
    assert weight_of(model) == 0.0


def test_a_model_whose_fit_was_refused_can_be_fitted():
    model = falling()
    refused(model, [ks.StepScheduled("no_such", halves)], "has no attribute")
    assert falls(model, [ks.StepScheduledLR(halves)], batches=3) == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, loss_scaled], ids=["", "scaled"])
def test_c21_an_optimizer_that_was_built_with_a_schedule(wrap):
    refused(
        falling(wrap(sgd(piecewise()))),
        [ks.StepScheduledLR(halves)],
        r"^StepScheduledLR: SGD was built with .*PiecewiseConstantDecay.* as its learning rate, "
        r".*Build it with a number, as in Adam\(learning_rate=0.001\), or .* drop StepScheduledLR",
    )


@keras_3
def test_c21_an_optimizer_that_was_built_with_a_callable():
    refused(
        falling(sgd(lambda: 0.5)),
        [ks.StepScheduledLR(halves)],
        "^StepScheduledLR: SGD was built with <function .* as its learning rate, which can't be",
    )


@pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 keeps the callable: refused, see above")
def test_c21_tf_keras_makes_a_variable_of_a_callables_value():
    found = falls(falling(sgd(lambda: 0.5)), [ks.StepScheduledLR(halves)], batches=3)
    assert found == [1.0, 0.5, 0.25]


def test_a_second_step_scheduled_lr_on_one_optimizer():
    message = "^Two callbacks set the learning rate of the same optimizer; keep one.*schedules.join"
    refused(falling(), [ks.StepScheduledLR(halves), ks.StepScheduledLR(halves)], message)


def test_a_second_step_scheduled_with_one_target():
    def setter(value):
        pass

    for target_of in (lambda model: setter, lambda model: model.strength):
        model = scaled()
        twice = [ks.StepScheduled(target_of(model), halves) for _ in range(2)]
        refused(model, twice, "^Two callbacks set (setter|strength.*) of the same optimizer; keep")


def test_the_learning_rate_by_name():
    """tf_keras would have its copy of a schedule's value set, to no effect."""
    message = r"^StepScheduled\('learning_rate'\): use StepScheduledLR"
    refused(falling(), [ks.StepScheduled("learning_rate", halves)], message)


def test_an_attribute_that_is_not_there():
    message = r"^StepScheduled\('no_such'\): SGD has no attribute of this name\."
    refused(falling(), [ks.StepScheduled("no_such", halves)], message)


@pytest.mark.skipif(FLAVOUR == "torch", reason="torch runs the step in Python: it takes effect")
@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, loss_scaled], ids=["", "scaled"])
def test_a_python_attribute_that_the_compiled_step_has_baked_in(wrap):
    refused(
        falling(wrap(sgd(weight_decay=0.5))),
        [ks.StepScheduled("weight_decay", halves)],
        r"^StepScheduled\('weight_decay'\): SGD.weight_decay is the Python value 0\.5, which the "
        r"compiled training step takes for a constant.* run_eagerly=True, or .* a variable",
    )


@pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 refuses SGD(1) by itself")
def test_a_learning_rate_that_is_an_integer_variable():
    """tf_keras makes a float one of SGD(1), and takes a variable as it is."""
    assert falls(falling(sgd(1)), [ks.StepScheduledLR(halves)], batches=2) == [1.0, 0.5]
    import tensorflow as tf

    model = falling(sgd(1.0))
    model.optimizer._learning_rate = tf.Variable(1)
    message = r"^StepScheduledLR: its target is a variable of type .*int32.*write SGD\(1\.0\)"
    with pytest.raises(ValueError, match=message):
        fit(model, [ks.StepScheduledLR(halves)], **ones(3))


def test_a_target_that_holds_whole_numbers():
    model = falling()
    message = "^StepScheduled: its target is a variable of type .*int.*can't hold the schedule's"
    refused(model, [ks.StepScheduled(model.optimizer.iterations, halves)], message)


# ---------------------------------------------------------------- what the schedule returns

NO_RATES = [math.nan, math.inf, -math.inf, -0.5, None, "x", "0.5", True, [0.5], 1j, np.bool_(True)]
NO_NUMBERS = [value for value in NO_RATES if value != -0.5]


@pytest.mark.parametrize("value", NO_RATES, ids=repr)
def test_a_value_that_is_no_rate_at_the_first_step_is_seen_at_train_begin(value):
    message = r"^StepScheduledLR: schedule\(0\) returned .*; expected a finite number of at least 0"
    refused(falling(), [ks.StepScheduledLR(lambda step: value)], message)


@pytest.mark.parametrize("value", [math.nan, -0.5, None, "x"], ids=repr)
def test_a_value_that_is_no_rate_is_seen_before_the_update_that_would_use_it(value):
    model = falling()
    bad_at_3 = ks.StepScheduledLR(lambda step: halves(step) if step < 3 else value)
    received = rf"^StepScheduledLR: schedule\(3\) returned {value!r}; expected a finite number of"
    with pytest.raises(ValueError, match=received):
        fit(model, [bad_at_3], **ones(8))
    if FLAVOUR != "jax":  # whose model gets its values back at an epoch's end only
        assert ks.global_step(model) == 3
        assert weight_of(model) == -1.75


def test_with_every_the_error_names_the_step_that_the_schedule_was_asked_for():
    bad_at_4 = ks.StepScheduledLR(lambda step: -1 if step else 1, every=4)
    with pytest.raises(ValueError, match=r"schedule\(4\) returned -1; expected"):
        fit(falling(), [bad_at_4], **ones(8))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_step_scheduled_takes_any_finite_number_and_no_more(value):
    message = r"^StepScheduled: schedule\(0\) returned .*; expected a finite number\.$"
    refused(falling(), [ks.StepScheduled(print, lambda step: value)], message)


def test_step_scheduled_takes_negative_numbers():
    found = []
    fit(falling(), [ks.StepScheduled(found.append, lambda step: -step)], **ones(3))
    assert found == [0.0, -1.0, -2.0]


@pytest.mark.parametrize("value", [1, 0, np.float32(0.5), np.array(0.25), np.int64(2)], ids=repr)
def test_whole_numbers_zero_and_numpys_are_rates(value):
    assert falls(falling(), [ks.StepScheduledLR(lambda step: value)], batches=2) == [value, value]


# ---------------------------------------------------------------- other targets


def shrinking(**compile_args):
    """A model of one weight, 1 at first, that only weight decay changes."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(sgd(weight_decay=0.0), lambda y, y_pred: 0 * y_pred, **compile_args)
    return model


@pytest.mark.parametrize(
    "compile_args",
    [
        {"run_eagerly": True},
        pytest.param({}, marks=pytest.mark.skipif(FLAVOUR != "torch", reason="compiled")),
    ],
    ids=["eagerly", "torch"],
)
def test_an_attribute_of_an_optimizer_whose_step_runs_in_python(compile_args):
    model = shrinking(**compile_args)
    recorder = Recorder(1)
    decay = ks.StepScheduled("weight_decay", lambda step: [0.5, 0.25, 0.0][step])
    found = falls(model, [decay, recorder], batches=3)
    assert found == [0.5, 0.125, 0.0]
    assert [logs["weight_decay"] for logs in recorder.logs] == [0.5, 0.25, 0.0]
    assert model.optimizer.weight_decay == 0.0


class Scaled(keras.Model):
    """A weight times a strength that no optimizer changes."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self.strength = self.add_weight(
            name="strength", shape=(), initializer="ones", trainable=False
        )

    def build(self, shape):
        self.dense.build(shape)
        self.built = True

    def call(self, x):
        return self.dense(x) * self.strength


def scaled():
    model = Scaled()
    model.build((None, 1))
    model.compile(sgd(), output)
    return model


@pytest.mark.parametrize("scope", [no_scope, mirrored_scope] if ON_TENSORFLOW else [no_scope])
def test_a_variable_of_the_model(scope):
    with scope():
        model = scaled()
    recorder = Recorder(1)
    target = ks.StepScheduled(model.strength, halves, every=2)
    assert falls(model, [target, recorder], batches=5) == [1.0, 1.0, 0.25, 0.25, 0.0625]
    assert [logs[target.label] for logs in recorder.logs] == [1.0, 1.0, 0.25, 0.25, 0.0625]
    assert target.label.startswith("strength")  # tf_keras: strength:0


def outside_variable():
    if IS_TF_KERAS:
        import tensorflow as tf

        return tf.Variable(1.0, trainable=False)
    return keras.Variable(1.0, trainable=False)


def test_a_variable_outside_of_the_model_is_refused_on_jax_and_works_elsewhere():
    strength = outside_variable()
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(sgd(), lambda y, y_pred: y_pred * strength)
    target = ks.StepScheduled(strength, halves)
    if FLAVOUR == "jax":
        refused(model, [target], "^StepScheduled: .* is no variable of the model or of its optim")
    else:
        assert falls(model, [target], batches=3) == [1.0, 0.5, 0.25]


def test_a_setter_function_is_called_with_each_new_value_before_its_update():
    events = []
    model = falling()

    def set_rate(value):
        events.append(value)

    seen = ks.OnStep(1, lambda step, logs: events.append(f"step {step}"))
    target = ks.StepScheduled(set_rate, lambda step: step // 2 / 4)
    fit(model, [seen, target], **ones(5))
    assert events == [0.0, "step 1", "step 2", 0.25, "step 3", "step 4", 0.5, "step 5"]
    assert all(type(value) is float for value in events if not isinstance(value, str))


def test_several_setters_each_on_its_own():
    """Functions of one name are not taken for one target."""
    first, second = [], []
    callbacks = [
        ks.StepScheduled(lambda value: first.append(value), lambda step: step),
        ks.StepScheduled(lambda value: second.append(value), lambda step: 10 * step),
        ks.StepScheduledLR(halves),
    ]
    assert falls(falling(), callbacks, batches=3) == [1.0, 0.5, 0.25]
    assert (first, second) == ([0.0, 1.0, 2.0], [0.0, 10.0, 20.0])


def test_a_second_fit_sets_the_value_again():
    found = []
    model = falling()
    target = ks.StepScheduled(found.append, lambda step: 3.0)
    fit(model, [target], **ones(4))
    fit(model, [target], **ones(4))
    assert found == [3.0, 3.0]


# ---------------------------------------------------------------- construction


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: ks.StepScheduledLR(0.1),
            TypeError,
            r"^StepScheduledLR\(schedule\) .*received 0\.1",
        ),
        (lambda: ks.StepScheduledLR(None), TypeError, r"\(schedule\) must be a function .* None"),
        (lambda: ks.StepScheduledLR("cosine"), TypeError, r"\(schedule\) .*received 'cosine'"),
        (lambda: ks.StepScheduledLR(halves, every=0), ValueError, r"\(every\) must be at least 1"),
        (lambda: ks.StepScheduledLR(halves, every=-2), ValueError, r"at least 1; received -2"),
        (lambda: ks.StepScheduledLR(halves, every=1.5), TypeError, r"an integer; received 1\.5"),
        (lambda: ks.StepScheduledLR(halves, every=True), TypeError, r"trigger.*received True"),
        (lambda: ks.StepScheduledLR(halves, every=None), TypeError, r"trigger.*received None"),
        (lambda: ks.StepScheduledLR(halves, every="9"), TypeError, r"trigger.*received '9'"),
        (lambda: ks.StepScheduledLR(halves, 5), TypeError, "positional argument"),
        (lambda: ks.StepScheduledLR(halves, optimizer=3), TypeError, r"\(optimizer\) .*received 3"),
        (lambda: ks.StepScheduled(3, halves), TypeError, r"^StepScheduled\(target\) .*received 3"),
        (lambda: ks.StepScheduled(None, halves), TypeError, r"\(target\) .*received None"),
        (lambda: ks.StepScheduled(0.5, halves), TypeError, r"\(target\) .*received 0\.5"),
        (
            lambda: ks.StepScheduled("momentum", 0.9),
            TypeError,
            r"^StepScheduled\(schedule\) .*0\.9",
        ),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ---------------------------------------------------------------- cost


@pytest.fixture
def reads(monkeypatch):
    found = []
    read = Clock._read
    monkeypatch.setattr(Clock, "_read", lambda self: found.append(1) or read(self))
    return found


@pytest.fixture
def assigned(monkeypatch):
    """What is assigned to variables during a run, in order."""
    found = []
    kind = keras_internals.JaxState if FLAVOUR == "jax" else keras_internals.Variables
    assign = kind.assign

    def spy(self, variable, value):
        found.append(value)
        return assign(self, variable, value)

    monkeypatch.setattr(kind, "assign", spy)
    return found


def test_the_counter_is_not_read_per_batch_where_each_batch_counts(reads):
    counts = []
    for batches in (20, 200):
        reads.clear()
        fit(falling(), [ks.StepScheduledLR(halves)], **ones(batches))
        counts.append(len(reads))
    assert counts[0] == counts[1] <= 4


@keras_3
def test_nor_under_accumulation(reads):
    model = falling(sgd(gradient_accumulation_steps=4))
    fit(model, [ks.StepScheduledLR(halves)], **ones(100))
    assert len(reads) <= 4


def test_the_value_is_assigned_only_when_it_changes(assigned):
    fit(falling(), [ks.StepScheduledLR(lambda step: 0.5)], **ones(20))
    assert assigned == [0.5]
    assigned.clear()
    fit(falling(), [ks.StepScheduledLR(halves, every=5)], **ones(18))
    assert assigned == [1.0, 2.0**-5, 2.0**-10, 2.0**-15]
    assigned.clear()
    fit(falling(), [ks.StepScheduledLR(lambda step: 0.25 if 3 <= step < 6 else 1.0)], **ones(9))
    assert assigned == [1.0, 0.25, 1.0]


def test_what_others_set_between_epochs_does_not_last():
    class Lowers(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.001

    recorder = Recorder(5)
    schedule = ks.schedules.join([0.1, 0.2], [15])
    fit(make_model(sgd()), [ks.StepScheduledLR(schedule), recorder, Lowers()], epochs=2)
    assert [round(logs["learning_rate"], 6) for logs in recorder.logs] == [0.1, 0.1, 0.1, 0.2]


def test_values_under_equal_labels_are_numbered_and_overwrite_nothing_in_reports():
    def loss(value):
        pass

    recorder = Recorder(2)
    twins = [ks.StepScheduled(lambda value: None, lambda step, k=k: k + step) for k in (10, 20)]
    fit(make_model(), [recorder, *twins, ks.StepScheduled(loss, lambda step: -1.0)], batches=2)
    (logs,) = recorder.logs
    assert [logs[name] for name in ("<lambda>", "<lambda>_2", "loss_2")] == [11.0, 21.0, -1.0]
    assert logs["loss"] > 0
