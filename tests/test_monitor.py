"""Monitor: where a value comes from, and which of two is better."""

import math
from types import SimpleNamespace

import pytest
from flavours import IS_TF_KERAS, arrays, fit, keras, make_model

from keras_steps.evaluations import Evaluations
from keras_steps.monitor import Monitor
from keras_steps.step_callback import Order, StepCallback

NAN, INF = float("nan"), float("inf")


def monitor(name="val_loss", mode="min", **args):
    return Monitor(name, mode, "Asker", **args)


def a_run(*prefixes, model=None, are_known=True, callbacks=()):
    evaluations = Evaluations()
    evaluations.prefixes += prefixes
    evaluations.are_known = are_known
    return SimpleNamespace(
        evaluations=evaluations, model=model, callbacks=list(callbacks), stop_reason=None
    )


def begun(name, *prefixes, mode="min", **args):
    made = monitor(name, mode, **args)
    made.require_source(a_run(*prefixes))
    return made


# ---------------------------------------------------------------- which of two is better


def improvements(values, mode, min_delta=0.0):
    """The values that were better than the best before them."""
    made = monitor(mode=mode, min_delta=min_delta)
    found = []
    for value in values:
        if made.improves(value):
            made.best = value
            found.append(value)
    return found


@pytest.mark.parametrize(
    ("mode", "min_delta", "values", "expected"),
    [
        ("min", 0, [5, 4, 4, 6, 3.5], [5, 4, 3.5]),
        ("max", 0, [1, 2, 2, 0, 3], [1, 2, 3]),
        ("min", 1, [5, 4.5, 4, 3.5, 2.5], [5, 3.5]),
        ("max", 1, [1, 1.5, 2, 2.5, 3.5], [1, 2.5]),
        ("min", 0, [NAN, 2, NAN, 1], [2, 1]),
        ("max", 0, [NAN, 2, NAN, 3], [2, 3]),
        ("min", 0, [INF, 2, -INF, -INF], [2, -INF]),
        ("max", 0, [-INF, 2, INF, INF], [2, INF]),
        ("min", 1, [INF, NAN, INF], []),
    ],
)
def test_improvements(mode, min_delta, values, expected):
    assert improvements(values, mode, min_delta) == expected


def test_the_state_is_plain_and_moves():
    made = monitor()
    made.best = 0.25
    assert made.get_state() == {"monitor": "val_loss", "best": 0.25}
    other = monitor()
    other.set_state(made.get_state())
    assert [other.improves(0.25), other.improves(0.2)] == [False, True]


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ({"mode": "Min"}, ValueError, r"Asker.mode. must be one of .*; received 'Min'"),
        ({"mode": None}, ValueError, "received None"),
        ({"name": ""}, TypeError, "Asker.monitor. must be the name .*; received ''"),
        ({"name": ["val_loss"]}, TypeError, r"received \['val_loss'\]"),
        ({"min_delta": -0.1}, ValueError, "Asker.min_delta. must be finite and at least 0"),
        ({"min_delta": NAN}, ValueError, "received nan"),
        ({"min_delta": INF}, ValueError, "received inf"),
        ({"min_delta": "0"}, TypeError, "must be a number; received '0'"),
        ({"min_delta": True}, TypeError, "must be a number; received True"),
    ],
)
def test_bad_arguments(args, error, text):
    with pytest.raises(error, match=text):
        monitor(**args)


# ---------------------------------------------------------------- the source


def test_a_run_without_evaluations_can_bring_nothing():
    with pytest.raises(ValueError, match=r"Asker.monitor='val_loss'.: this run makes no eval"):
        begun("val_loss")


def test_a_metric_of_training_is_no_evaluation():
    text = r"begin with 'val_' or 'test_'. A metric of training .* monitor 'val_loss'"
    with pytest.raises(ValueError, match=text):
        begun("loss", "val_", "test_", "val_")


def test_other_evaluations_are_known_only_where_they_are():
    made = monitor("loss")
    made.require_source(a_run("val_", are_known=False))
    assert made.value_in({"loss": 2.0}) == 2.0


class Evaluator(StepCallback):
    order = Order.EVALUATE


@pytest.mark.parametrize(
    ("name", "run", "came", "raises"),
    [
        ("val_loss", a_run("val_"), False, False),
        ("val_loss", a_run("val_", are_known=False), False, True),
        ("val_loss", a_run("val_", are_known=False), True, False),
        ("val_loss", a_run("val_", are_known=False, callbacks=[StepCallback(1)]), False, True),
        ("val_loss", a_run("val_", are_known=False, callbacks=[Evaluator(9)]), False, False),
        ("own_loss", a_run("val_", are_known=False, callbacks=[Evaluator(9)]), False, True),
    ],
)
def test_what_could_not_be_known_is_known_after_an_epoch(name, run, came, raises):
    made = monitor(name)
    made.require_source(run)
    if came:
        made.value_in({name: 1.0})
    if not raises:
        return made.never_came(run)
    with pytest.raises(ValueError, match=f"{name}'.: no evaluation has brought it by the end"):
        made.never_came(run)
    run.stop_reason = "nan"  # whose evaluations nobody was told of
    made.never_came(run)
    run.stop_reason = None


# ---------------------------------------------------------------- the value


@pytest.mark.parametrize(
    ("name", "prefixes", "results", "expected"),
    [
        ("val_loss", ["val_"], {"val_loss": 1, "val_mae": 2}, 1.0),
        ("val_loss", ["val_", "test_"], {"test_loss": 1}, None),
        ("test_loss", ["val_", "test_"], {"test_loss": 1, "val_loss": 2}, 1.0),
        ("val_b_loss", ["val_", "val_b_"], {"val_loss": 1}, None),
        ("val_loss", ["val_", "val_b_"], {"val_b_loss": 1}, None),
        ("val_b_loss", ["val_", "val_b_"], {"val_b_loss": 1}, 1.0),
        ("val_loss", ["val_"], {}, None),
        ("val_loss", ["val_"], {"other": 1}, None),
    ],
)
def test_values_come_from_the_evaluation_that_has_the_prefix(name, prefixes, results, expected):
    found = begun(name, *prefixes).value_in(results)
    assert found == expected
    assert type(found) is type(expected)


def test_a_name_that_is_missing_where_it_should_be():
    made = begun("val_acuracy", "val_", "test_")
    text = r"val_acuracy'.: the evaluation has no result of that name. It has val_loss, val_acc\."
    with pytest.raises(ValueError, match=text):
        made.value_in({"test_loss": 0.0, "val_loss": 1.0, "val_acc": 0.5})


# ---------------------------------------------------------------- mode="auto"


class Probe(StepCallback):
    """Asks for the direction at train begin, as the callbacks do."""

    def __init__(self, name):
        super().__init__()
        self.asked, self.rises = monitor(name, "auto"), None

    def begin(self, run):
        self.asked.require_source(run)
        self.asked.best = 0.0
        self.rises = self.asked.improves(1.0)


def direction(name, metrics=("mae",), epochs=1):
    probe = Probe(name)
    x, y = arrays(2)
    model = make_model(metrics=metrics)
    for _ in range(epochs):
        fit(model, [probe], batches=2, validation_data=(x, y))
    return "max" if probe.rises else "min"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val_loss", "min"),
        ("val_out_loss", "min"),
        ("val_mae", "min"),
        ("val_mean_absolute_error", "min"),
        ("val_out_binary_crossentropy", "min"),
        ("val_acc", "max"),
        ("val_top_k_categorical_accuracy", "max"),
        ("val_auc_2", "max"),
        ("val_precision", "max"),
        ("val_f1_score", "max"),
        ("val_mean_io_u", "max"),
    ],
)
def test_a_name_as_keras_gives_it_tells_the_direction(name, expected):
    assert direction(name) == expected


@pytest.mark.parametrize("epochs", [1, 2], ids=["before metrics are built", "after"])
def test_a_metric_of_the_model_tells_it_under_any_name(epochs):
    metrics = [
        keras.metrics.AUC(name="area"),
        keras.metrics.MeanSquaredError(name="miss"),
        keras.metrics.RootMeanSquaredError(name="not_accuracy"),
    ]
    assert direction("val_area", metrics, epochs) == "max"
    assert direction("val_miss", metrics, epochs) == "min"
    assert direction("val_not_accuracy", metrics, epochs) == "min"


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras's metrics bear no mark")
def test_a_metric_of_ones_own_may_bear_keras_mark():
    metric = keras.metrics.Mean(name="skill")
    metric._direction = "up"
    assert direction("val_skill", [metric_with_targets(metric)]) == "max"


def metric_with_targets(metric):
    """The Mean, which takes what `compile` hands to a metric."""
    update = metric.update_state
    metric.update_state = lambda y, predicted, sample_weight=None: update(predicted)
    return metric


def skill(y, predicted):
    return keras.backend.mean(predicted) if IS_TF_KERAS else keras.ops.mean(predicted)


@pytest.mark.parametrize("name", ["val_skill", "val_losses", "val_false_positives"])
def test_where_nothing_tells_it_mode_has_to(name):
    metrics = [skill, keras.metrics.FalsePositives(name="false_positives")]
    with pytest.raises(ValueError, match=f"{name}'.: neither .* Give mode='min' or mode='max'"):
        direction(name, metrics)


def test_mode_overrides_the_name():
    made = begun("val_loss", "val_", mode="max")
    made.best = 1.0
    assert made.improves(2.0)
    assert not made.improves(math.nextafter(1.0, 0.0))
