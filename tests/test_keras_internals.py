"""What keras_internals takes from Keras's private parts: each test fails when Keras changes one."""

import sys
from types import SimpleNamespace

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
    keras_to_numpy,
    loss_scaled,
    make_model,
    mirrored_scope,
    state_of,
)

from keras_steps import global_step
from keras_steps import keras_internals as internals

on_jax = pytest.mark.skipif(FLAVOUR != "jax", reason="only JAX keeps a fit's state outside")
keras_3 = pytest.mark.skipif(IS_TF_KERAS, reason="Keras 3 only")


def sgd(**args):
    return keras.optimizers.SGD(0.01, **args)


def variables_of(optimizer):
    found = optimizer.variables
    return found() if callable(found) else found


class Around(keras.callbacks.Callback):
    """Calls `function(inner, *args)` in place of the model's train_function, during fit."""

    def __init__(self, model, function):
        super().__init__()
        self.held, self.function = model, function

    def on_train_begin(self, logs=None):
        self.inner = self.held.train_function
        self.held.train_function = lambda *args: self.function(self.inner, *args)

    def on_train_end(self, logs=None):
        self.held.train_function = self.inner


class AtTrainBegin(keras.callbacks.Callback):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def on_train_begin(self, logs=None):
        self.function()


def test_backend_of_a_model_an_optimizer_and_a_metric():
    model = make_model()
    model.build((None, 4))
    for thing in (model, model.optimizer, keras.metrics.Mean(), loss_scaled(sgd())):
        assert internals.backend_of(thing) == FLAVOUR


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("value", [0, 3, 2**40])
def test_read_number_of_whole_numbers(value):
    assert internals.read_number(np.int64(value)) == value
    assert internals.read_number(value) == value
    if ON_TENSORFLOW:
        import tensorflow as tf

        variable = tf.Variable(value, dtype="int64")
        assert internals.read_number(variable) == value
        assert type(internals.read_number(variable)) is int


def test_read_number_of_the_flavours_variables():
    model = make_model(sgd())
    counter = model.optimizer.iterations
    counter.assign(7)
    assert internals.read_number(counter) == 7
    rate = internals.learning_rate_source(model.optimizer)
    assert internals.read_number(rate) == np.float32(0.01)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="strategies are TensorFlow's")
def test_read_number_under_mirrored_of_the_counter_the_rate_and_a_metrics_sum():
    with mirrored_scope():
        model = make_model(sgd())
    history = fit(model, [], batches=4).history
    assert internals.read_number(model.optimizer.iterations) == 4
    assert internals.read_number(model.optimizer._learning_rate) == np.float32(0.01)
    loss = internals.mean_metrics(model)["loss"]
    assert internals.read_number(loss.count) == 4 * BATCH
    mean = internals.read_number(loss.total) / internals.read_number(loss.count)
    assert np.float32(mean) == np.float32(history["loss"][0])


# ---------------------------------------------------------------- the optimizer

WRAPPED = {
    "plain": (lambda: sgd(), 1),
    "loss scaled": (lambda: loss_scaled(sgd()), 1),
}
if not IS_TF_KERAS:
    WRAPPED |= {
        "accumulating": (lambda: sgd(gradient_accumulation_steps=4), 4),
        "loss scaled, accumulating": (lambda: loss_scaled(sgd(gradient_accumulation_steps=4)), 4),
    }


@pytest.mark.parametrize(("make", "per_update"), WRAPPED.values(), ids=WRAPPED)
def test_counter_of_is_the_one_variable_that_counts_batches(make, per_update):
    model = make_model(make())
    fit(model, [], batches=6)
    variable, counts = internals.counter_of(model.optimizer)
    assert counts == per_update
    assert internals.read_number(variable) == 6
    if FLAVOUR != "tf_keras" or internals.core_optimizer(model.optimizer) is model.optimizer:
        assert sum(variable is other for other in variables_of(model.optimizer)) == 1


@keras_3
def test_under_accumulation_the_public_counter_is_no_variable():
    optimizer = sgd(gradient_accumulation_steps=4)
    assert not hasattr(optimizer.iterations, "assign")
    assert internals.counter_of(optimizer)[0] is not optimizer.iterations


def test_core_optimizer_is_the_one_within_all_wrappers():
    core = sgd()
    assert internals.core_optimizer(core) is core
    assert not internals.is_loss_scaled(core)
    wrapped = loss_scaled(core)
    assert internals.core_optimizer(wrapped) is core
    if not IS_TF_KERAS:
        assert internals.core_optimizer(loss_scaled(wrapped)) is core


def test_is_loss_scaled_where_an_overflow_is_not_counted():
    """tf_keras counts such a batch, so that each batch counts."""
    assert internals.is_loss_scaled(loss_scaled(sgd())) is not IS_TF_KERAS


@keras_3
def test_mixed_float16_wraps_by_itself():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make_model(sgd())
    finally:
        keras.config.set_dtype_policy(policy)
    assert internals.is_loss_scaled(model.optimizer)
    assert internals.read_number(internals.counter_of(model.optimizer)[0]) == 0


def test_is_optimizer():
    assert internals.is_optimizer(sgd())
    assert internals.is_optimizer(loss_scaled(sgd()))
    for other in (make_model(), keras.layers.Dense(1), keras.metrics.Mean(), "sgd", None, 3):
        assert not internals.is_optimizer(other)


def test_learning_rate_source_of_a_number_is_a_variable():
    for optimizer in (sgd(), loss_scaled(sgd())):
        source = internals.learning_rate_source(optimizer)
        assert hasattr(source, "assign")
        assert internals.read_number(source) == np.float32(0.01)
        optimizer.learning_rate = 0.5
        assert internals.read_number(internals.learning_rate_source(optimizer)) == 0.5


def test_learning_rate_source_of_a_schedule_is_the_schedule():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    for optimizer in (keras.optimizers.SGD(schedule), loss_scaled(keras.optimizers.SGD(schedule))):
        assert internals.learning_rate_source(optimizer) is schedule
        assert not hasattr(schedule, "assign")


def test_learning_rate_source_of_a_callable_is_the_callable():
    """tf_keras calls it once and keeps a variable."""

    def rate():
        return 0.25

    source = internals.learning_rate_source(keras.optimizers.SGD(rate))
    if IS_TF_KERAS:
        assert internals.read_number(source) == 0.25
    else:
        assert source is rate


def test_learning_rate_source_of_something_without_one():
    assert internals.learning_rate_source(SimpleNamespace(iterations=3)) is None


# ---------------------------------------------------------------- fit


def test_steps_per_execution():
    assert internals.steps_per_execution(make_model()) == 1
    assert internals.steps_per_execution(make_model(steps_per_execution=4)) == 4
    assert internals.steps_per_execution(make_model(steps_per_execution=None)) == 1


@pytest.mark.skipif(not IS_TF_KERAS, reason="only tf_keras keeps them in a variable")
def test_batches_set_to_cuts_an_execution_of_tf_keras_and_puts_it_back():
    model = make_model(steps_per_execution=4)
    assert hasattr(model._steps_per_execution, "assign")
    found = []

    def two_at_a_time(inner, iterator):
        with internals.batches_set_to(model, 2):
            logs = inner(iterator)
        found.append(global_step(model))
        return logs

    fit(model, [Around(model, two_at_a_time)], batches=8)
    assert found == [2, 4]
    assert internals.steps_per_execution(model) == 4


class Own(Subclassed):
    def train_step(self, *args):
        return super().train_step(*args)


class InheritsOwn(Own):
    pass


class OwnSequential(keras.Sequential):
    def train_step(self, *args):
        return super().train_step(*args)


def functional():
    inputs = keras.layers.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (make_model, True),
        (functional, True),
        (Subclassed, True),
        (Own, False),
        (InheritsOwn, False),
        (OwnSequential, False),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_has_keras_train_step(make, expected):
    assert internals.has_keras_train_step(make()) is expected


class Skips(keras.callbacks.Callback):
    """Skips all epochs of a fit, and notes what happens all the same."""

    def __init__(self):
        super().__init__()
        self.events = []

    def on_train_begin(self, logs=None):
        internals.skip_all_epochs(self.model, next(internals.calls_around()))

    def on_epoch_begin(self, epoch, logs=None):
        self.events.append("epoch")

    def on_test_begin(self, logs=None):
        self.events.append("validation")

    def on_train_end(self, logs=None):
        self.events.append("end")


def test_a_fit_whose_epochs_are_all_skipped_makes_none_and_the_next_one_is_normal():
    model = make_model()
    model.build((None, 4))
    before = state_of(model)
    skips = Skips()
    history = fit(model, [skips], epochs=3, validation_data=arrays(2))
    assert skips.events == ["end"]
    assert history.history == {}
    np.testing.assert_equal(state_of(model), before)

    history = fit(model, [], epochs=3)
    assert history.epoch == [0, 1, 2]
    assert global_step(model) == 30


def test_epochs_to_be_skipped_in_a_fit_that_is_broken_off_before_are_not_skipped_in_the_next():
    def interrupt():
        raise KeyboardInterrupt

    model = make_model()
    model.build((None, 4))
    with pytest.raises(KeyboardInterrupt):
        fit(model, [Skips(), AtTrainBegin(interrupt)], epochs=3)
    assert fit(model, [], epochs=2).epoch == [0, 1]
    assert fit(model, [], epochs=4, initial_epoch=2).epoch == [2, 3]
    assert global_step(model) == 40


def test_calls_around_tells_which_fit_is_under_way():
    model = make_model()
    found = []

    class Look(keras.callbacks.Callback):
        def look(self):
            calls = list(internals.calls_around())
            assert all(isinstance(c.callbacks, keras.callbacks.CallbackList) for c in calls)
            found.append([(call.name, call.epochs, call.initial_epoch) for call in calls])
            return calls[0].callbacks

        def on_train_begin(self, logs=None):
            self.mine = self.look()
            assert internals.is_within(self.mine)

        def on_epoch_end(self, epoch, logs=None):
            assert self.look() is self.mine

    fit(model, [Look()], batches=2, epochs=3, initial_epoch=2)
    assert found == [[("fit", 3, 2)], [("fit", 3, 2)]]
    assert list(internals.calls_around()) == []
    assert not internals.is_within(None)


def test_calls_around_names_an_evaluation_within_fit_before_the_fit():
    model = make_model()
    found = []

    class Names(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            calls = list(internals.calls_around())
            found.extend(call.name for call in calls)
            assert internals.is_within(calls[0].callbacks)
            assert not internals.is_within(calls[1].callbacks)

    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(*arrays(1), verbose=0, callbacks=[Names()])

    fit(model, [Evaluates()], batches=2)
    assert found == ["evaluate", "fit"]


def _no_batch(model, prepare):
    """A fit of one epoch in which no batch is trained."""

    def nothing(inner, *args):
        model.stop_training = True
        return ({}, args[0]) if FLAVOUR == "jax" else {}

    return fit(model, [Around(model, nothing), AtTrainBegin(prepare)])


def test_without_results_an_epoch_without_a_batch_can_end():
    model = make_model()
    history = _no_batch(model, lambda: internals.without_results(model))
    assert history.history == {}
    assert global_step(model) == 0
    assert set(fit(model, []).history) == {"loss", "mae"}


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="the others build metrics before a batch")
def test_otherwise_keras_refuses_an_epoch_without_a_batch():
    """If this fails, `without_results` has become superfluous."""
    model = make_model()
    with pytest.raises(ValueError, match="not yet been built"):
        _no_batch(model, lambda: None)


@pytest.mark.parametrize(
    ("compile_args", "expected"),
    [
        ({}, FLAVOUR == "torch"),
        ({"run_eagerly": True}, True),
        ({"jit_compile": True}, False),
        ({"jit_compile": False}, FLAVOUR == "torch"),
    ],
    ids=str,
)
def test_reads_attributes_each_step_unless_the_step_is_compiled(compile_args, expected):
    assert internals.reads_attributes_each_step(make_model(**compile_args)) is expected


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_is_end_of_data_tells_how_an_iterator_ends_from_other_errors():
    model = make_model()
    ends = []

    def caught(inner, *args):
        try:
            return inner(*args)
        except Exception as error:
            ends.append((internals.is_end_of_data(error), global_step(model) > 0))
            raise

    x, y = arrays(3)
    batches = ((x[n : n + BATCH], y[n : n + BATCH]) for n in range(0, 3 * BATCH, BATCH))
    fit(model, [Around(model, caught)], x=batches)
    assert ends == ([] if FLAVOUR == "torch" else [(True, True)])  # torch hands over each batch
    assert not internals.is_end_of_data(ValueError("broken"))
    assert not internals.is_end_of_data(KeyboardInterrupt())


# ---------------------------------------------------------------- metrics


class Doubled(keras.metrics.MeanMetricWrapper):
    """Has the variables of a mean, and is none."""

    def result(self):
        return 2 * super().result()


def squares(name, kind=keras.metrics.MeanSquaredError):
    return kind(name=name)


def one_output(**compile_args):
    def make():
        model = functional()
        model.compile(sgd(), "mse", **compile_args)
        return model

    return make


def two_outputs(**compile_args):
    def make():
        inputs = keras.layers.Input((4,))
        outputs = {name: keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")}
        model = keras.Model(inputs, outputs)
        model.compile(sgd(), {"a": "mse", "b": "mae"}, **compile_args)
        return model

    return make


class OwnMetrics(Subclassed):
    """Trains as Keras does, and keeps metrics of its own."""

    def __init__(self):
        super().__init__()
        self.distance = keras.metrics.Mean(name="distance")
        self.root = keras.metrics.RootMeanSquaredError(name="root")

    @property
    def metrics(self):
        return [self.distance, self.root]

    def train_step(self, *args):
        (x, y) = args[-1]
        if FLAVOUR == "jax":
            _, state = super().train_step(*args)
            y_pred, _ = self.stateless_call(state[0], state[1], x)
            distance = self.distance.stateless_update_state(state[3][:2], abs(y - y_pred))
            root = self.root.stateless_update_state(state[3][2:], y, y_pred)
            logs = {
                "distance": self.distance.stateless_result(distance),
                "root": self.root.stateless_result(root),
            }
            return logs, (*state[:3], [*distance, *root])
        super().train_step(*args)
        y_pred = self(x)
        self.distance.update_state(abs(y - y_pred))
        self.root.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


def own_metrics():
    model = OwnMetrics()
    model.compile(sgd(), "mse")
    return model


MODELS = {
    "no metrics": (one_output(), ["loss"]),
    "strings": (one_output(metrics=["mae", "mse"]), ["loss", "mae", "mse"]),
    "named": (one_output(metrics=[squares("q")]), ["loss", "q"]),
    "no means": (
        one_output(
            metrics=[
                "mae",
                keras.metrics.RootMeanSquaredError(name="root"),
                keras.metrics.AUC(name="auc"),
                Doubled(keras.losses.mean_squared_error, name="doubled"),
            ]
        ),
        ["loss", "mae"],
    ),
    "accuracy": (one_output(metrics=["accuracy"]), ["accuracy", "loss"]),
    "weighted": (one_output(weighted_metrics=["mse", "mae"]), ["loss", "mae", "mse"]),
    "two outputs": (
        two_outputs(metrics={"a": ["mse"], "b": "mae"}),
        ["a_loss", "a_mse", "b_loss", "b_mae", "loss"],
    ),
    "two outputs, the same name": (
        two_outputs(metrics={"a": [squares("q")], "b": [squares("q")]}),
        ["a_loss", "a_q", "b_loss", "b_q", "loss"],
    ),
    "two outputs, one with metrics": (
        two_outputs(metrics={"b": [squares("q")]}),
        ["a_loss", "b_loss", "b_q", "loss"],
    ),
    "a train_step and metrics of one's own": (own_metrics, ["distance"]),
}
if not IS_TF_KERAS:  # tf_keras refuses a name that is there already
    MODELS |= {
        "weighted too": (
            one_output(metrics=["mse", "mae"], weighted_metrics=["mse"]),
            ["loss", "mae", "mse", "weighted_mse"],
        ),
        "twice": (
            one_output(metrics=["mse", "mse"], weighted_metrics=["mse", "mse"]),
            ["loss", "mse", "mse_1", "weighted_mse", "weighted_mse_1"],
        ),
        "three times, and a name that is taken": (
            one_output(metrics=["mse", "mse", "mse", squares("mse_1")]),
            ["loss", "mse", "mse_1", "mse_2"],
        ),
        "two outputs, weighted too": (
            two_outputs(metrics={"a": ["mse"]}, weighted_metrics={"a": ["mse", "mse"]}),
            ["a_loss", "a_mse", "a_weighted_mse", "a_weighted_mse_1", "b_loss", "loss"],
        ),
    }


@pytest.mark.parametrize("name", MODELS)
def test_mean_metrics_have_the_names_and_values_of_fits_logs(name):
    make, means = MODELS[name]
    model = make()
    x, y = arrays(3)
    y = (y > 0).astype("float32")
    weights = np.linspace(0.5, 2, len(x)) if name == "weighted" else None
    data = {"x": x, "y": {"a": y, "b": 1 - y} if "two outputs" in name else y}
    logs = fit(model, [], **data, sample_weight=weights, batch_size=BATCH, shuffle=False).history
    found = internals.mean_metrics(model)
    assert sorted(found) == means
    read = internals.read_number
    values = {name: np.float32(read(m.total) / read(m.count)) for name, m in found.items()}
    assert values == {name: np.float32(logs[name][0]) for name in found}


# ---------------------------------------------------------------- the state of a JAX fit


@on_jax
def test_jax_state_reads_and_assigns_what_goes_through_train_function():
    model = make_model()
    variables = internals.variables_of(model)
    assert type(variables) is internals.JaxState
    counter, rate = model.optimizer.iterations, model.optimizer._learning_rate
    loss = model.metrics[0]
    seen = []

    def around(inner, state, iterator):
        variables.state = state
        variables.assign(rate, 2.0 ** -len(seen))
        before = variables.read(counter)
        logs, variables.state = inner(variables.state, iterator)
        sums = variables.read(loss.total) / variables.read(loss.count)
        assert np.float32(sums) == np.float32(logs["loss"])
        seen.append((before, variables.read(counter), variables.read(rate)))
        state, variables.state = variables.state, None
        return logs, state

    fit(model, [Around(model, around)], batches=2, epochs=2)
    assert seen == [(0, 1, 1.0), (1, 2, 0.5), (2, 3, 0.25), (3, 4, 0.125)]
    assert variables.read(counter) == 4
    assert variables.read(rate) == 0.125
    variables.assign(rate, 0.5)
    assert internals.read_number(rate) == 0.5


@on_jax
def test_what_is_assigned_to_the_jax_state_is_what_the_update_uses():
    def zero(inner, state, iterator):
        variables.state = state
        variables.assign(model.optimizer._learning_rate, 0.0)
        return inner(variables.state, iterator)

    model = make_model()
    variables = internals.JaxState(model)
    before = [np.array(weight) for weight in model.get_weights()]
    fit(model, [Around(model, zero)])
    np.testing.assert_equal(model.get_weights(), before)
    assert global_step(model) == 10


@on_jax
def test_within_published_the_model_holds_its_values_and_goes_on_unchanged():
    def around(inner, state, iterator):
        variables.state = state
        logs, variables.state = inner(variables.state, iterator)
        weights = [np.array(value) for value in variables.state[0]]
        assert all(internals.is_purged(v) for v in model.trainable_variables)
        with variables.published():
            steps.append(global_step(model.optimizer))
            np.testing.assert_equal(model.get_weights(), weights)
            model.predict(arrays(1)[0], verbose=0)
        assert all(internals.is_purged(v) for v in model.trainable_variables)
        state, variables.state = variables.state, None
        return logs, state

    bare = make_model()
    history = fit(bare, [], epochs=2, batches=5).history
    model, steps = make_model(), []
    variables = internals.JaxState(model)
    assert fit(model, [Around(model, around)], epochs=2, batches=5).history == history
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    np.testing.assert_equal(state_of(model), state_of(bare))


@on_jax
def test_within_published_outside_of_fit_nothing_happens():
    model = make_model()
    with internals.JaxState(model).published():
        assert global_step(model) == 0


@on_jax
def test_place_finds_every_variable_of_the_model_by_identity():
    model = make_model(loss_scaled(keras.optimizers.Adam(gradient_accumulation_steps=2)))
    fit(model, [], batches=1)
    variables = internals.JaxState(model)
    groups = [
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    ]
    for number, group in enumerate(groups):
        assert [variables.place(v) for v in group] == [(number, n) for n in range(len(group))]
    stranger = keras.Variable(0.0)
    with pytest.raises(LookupError):
        variables.place(stranger)
    assert not variables.holds(stranger)
    assert variables.holds(model.optimizer.variables[0])


@pytest.mark.skipif(FLAVOUR == "jax", reason="on JAX they live in the fit's state")
def test_elsewhere_variables_are_read_and_assigned_where_they_are():
    variables = internals.variables_of(make_model())
    assert type(variables) is internals.Variables
    variable = sgd().iterations
    variables.assign(variable, 3)
    assert variables.read(variable) == 3
    assert variables.holds(variable)
    with variables.published():
        pass


def test_jax_state_in_flight_is_there_in_fit_until_the_model_has_been_synced():
    model = make_model()
    counter = model.optimizer.iterations
    found = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            state = internals.jax_state_in_flight(model)
            count = state and state.read(counter)
            purged = internals.is_purged(counter)
            assert self.model is model  # which syncs it
            assert not internals.is_purged(counter)
            found.append((count, purged, internals.jax_state_in_flight(model)))

    assert internals.jax_state_in_flight(model) is None
    fit(model, [Look()], batches=3)
    assert internals.jax_state_in_flight(model) is None
    assert not internals.is_purged(counter)
    in_flight = [(1, True, None), (2, True, None), (3, True, None)]
    assert found == (in_flight if FLAVOUR == "jax" else [(None, False, None)] * 3)


# ---------------------------------------------------------------- lines of text


@pytest.mark.parametrize(("verbose", "has_bar"), [(0, False), (1, True), (2, True)])
def test_progress_bar_of_a_fit(verbose, has_bar, capsys):
    model = make_model()
    found = []

    def look(inner, *args):
        call = next(internals.calls_around())
        found.append(internals.progress_bar(call.callbacks))
        return inner(*args)

    fit(model, [Around(model, look)], batches=2, verbose=verbose)
    assert [bar is not None for bar in found] == [has_bar] * 2
    if has_bar:
        assert found[0].progbar.verbose == verbose
        assert found[0].progbar._last_update > 0
    assert internals.progress_bar(None) is None


@pytest.fixture
def console(capsys):
    """A console with a progress bar of Keras's, and what is printed by a function."""
    console = internals.Console(make_model())
    bar = keras.utils.Progbar(3, verbose=1, interval=0)

    def printed(function, *args):
        function(*args)
        return capsys.readouterr().out

    return console, bar, printed


def with_bar(bar):
    """What a Console looks at in a CallbackList."""
    return SimpleNamespace(_progbar=SimpleNamespace(progbar=bar))


def test_a_line_is_printed_as_it_is_where_there_is_no_bar(console):
    console, _, printed = console
    assert printed(console.print_line, "one") == "one\n"
    assert printed(console.print_line, "two") == "two\n"


def test_a_line_begins_anew_behind_a_bar_that_has_been_drawn_since(console):
    console, bar, printed = console
    console.callbacks = with_bar(bar)
    assert printed(console.print_line, "before the bar") == "before the bar\n"
    drawn = printed(bar.update, 1)
    assert "1/3" in drawn
    assert not drawn.endswith("\n")
    assert printed(console.print_line, "behind the bar") == "\nbehind the bar\n"
    assert printed(console.print_line, "behind a line") == "behind a line\n"
    assert "2/3" in printed(bar.update, 2)
    assert printed(console.print_line, "behind the bar again") == "\nbehind the bar again\n"
    console.callbacks = None
    assert printed(console.print_line, "after fit") == "after fit\n"


def test_a_bar_that_was_not_redrawn_since_the_last_line_counts_as_none(console):
    console, bar, printed = console
    bar.interval = 1e6
    console.callbacks = with_bar(bar)
    assert printed(bar.update, 1) != ""
    assert printed(console.print_line, "one") == "\none\n"
    assert printed(bar.update, 2) == ""
    assert printed(console.print_line, "two") == "two\n"


@keras_3
def test_a_line_waits_for_threads_that_draw_the_bar(console):
    """On JAX and torch Keras calls its own batch hooks in a pool."""
    console, bar, printed = console
    callbacks = keras.callbacks.CallbackList(add_progbar=True, verbose=1, epochs=1, steps=3)
    assert internals.progress_bar(callbacks) is not None
    callbacks._progbar.progbar = bar
    callbacks._futures.append(SimpleNamespace(result=lambda: bar.update(1)))
    console.callbacks = callbacks
    out = printed(console.print_line, "one")
    assert "1/3" in out
    assert out.endswith("\none\n")


def test_on_a_terminal_a_line_takes_the_bars_place(console, monkeypatch):
    console, bar, printed = console
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.callbacks = with_bar(bar)
    printed(bar.update, 1)
    assert printed(console.print_line, "one") == "\r\x1b[Kone\n"
    assert printed(console.print_line, "two") == "two\n"


def test_with_verbose_2_there_is_no_bar_in_the_way(console):
    console, _, printed = console
    bar = keras.utils.Progbar(3, verbose=2)
    console.callbacks = with_bar(bar)
    assert printed(bar.update, 1) == ""
    assert printed(console.print_line, "one") == "one\n"


def test_without_interactive_logging_lines_go_where_keras_sends_its_own(console, monkeypatch):
    from absl import logging

    console, bar, printed = console
    logged = []
    monkeypatch.setattr(logging, "info", lambda message, *args: logged.append(message))
    console.callbacks = with_bar(bar)
    printed(bar.update, 1)
    keras.utils.disable_interactive_logging()
    try:
        assert printed(console.print_line, "one") == ""
    finally:
        keras.utils.enable_interactive_logging()
    assert logged == ["one"]


def test_state_of_covers_every_weight():
    """Guards the comparisons above."""
    assert len(state_of(make_model())) >= 4 + len(variables_of(make_model().optimizer))
    assert keras_to_numpy(make_model().weights[0]).shape == (4, 3)


def test_assigning_ever_new_values_keeps_nothing_of_them():
    """TensorFlow caches a tensor for each Python number; a long schedule has a million."""
    variable = make_model().optimizer.learning_rate
    variables = internals.Variables()

    def assign(count, offset):
        for n in range(count):
            variables.assign(variable, offset + n / 1e4)

    assign(500, 0.0)
    before = sys.getallocatedblocks()
    assign(5000, 1.0)
    assert sys.getallocatedblocks() - before < 2500
    assert internals.read_number(variable) == pytest.approx(1.4999)
