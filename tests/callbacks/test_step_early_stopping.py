"""StepEarlyStopping counts evaluations, whoever made them and wherever the epoch ends."""

import copy
import io
import json

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    ON_TENSORFLOW,
    arrays,
    fit,
    keras,
    make_model,
    mirrored_scope,
)

import keras_steps as ks
from keras_steps.callbacks.evaluate_every_n import EvaluateEveryN
from keras_steps.callbacks.step_early_stopping import StepEarlyStopping
from keras_steps.step_callback import Order, StepCallback

NAN = float("nan")
VALIDATION = arrays(2, seed=3)
not_on_torch = pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses spe > 1")


class Results(StepCallback):
    """Makes evaluations whose results are given, one after the other."""

    order = Order.EVALUATE

    def __init__(self, every, values, name="val_loss", uses_model=True):
        super().__init__(every)
        self.values, self.name, self.uses_model = values, name, uses_model
        self.made = []

    def begin(self, run):
        self.run, self.left = run, list(self.values)
        run.evaluations.prefixes.append("val_")

    def on_step(self, step, logs):
        self.made.append(step)
        self.run.evaluated({self.name: self.left.pop(0)})


class Stops(StepCallback):
    """Stops the run at a step, for a reason."""

    def __init__(self, step, reason):
        super().__init__(ks.AtSteps(step))
        self.reason = reason

    def begin(self, run):
        self.run = run

    def on_step(self, step, logs):
        self.run.stop(self.reason)


class Resumes(StepCallback):
    """Gives a callback the state that another one had, when a backup would."""

    order = Order.BACKUP

    def __init__(self, callback, state):
        super().__init__()
        self.callback, self.state = callback, state

    def begin(self, run):
        self.callback.set_state(self.state)


def stopped_at(values, *, every=4, epochs=3, name="val_loss", spe=1, **args):
    """The step at which a run of epochs of ten ends, if something stops it."""
    model = make_model(**({"steps_per_execution": spe} if spe > 1 else {}))
    stopping = StepEarlyStopping(name, **args)
    results = Results(every, values, name)
    fit(model, [stopping, results], epochs=epochs)
    step = ks.global_step(model)
    assert ks.stop_reason(model) == (None if step == 10 * epochs else "early")
    assert results.made[-1] <= step
    return step if step < 10 * epochs else None


# ---------------------------------------------------------------- patience


@pytest.mark.parametrize(
    ("every", "values", "expected"),
    [
        (1, [5, 4, 4, 4, 4], 5),
        (3, [5, 4, 4, 4, 4], 15),
        (4, [5, 4, 6, 7, 8], 20),
        (5, [5, 6, 7, 8], 20),
        (7, [5, 6, 7, 8], 28),
        (3, [5, 6, 7, 4, 5, 6, 7], 21),
        (3, [5, 6, 7, 4, 5, 6, 3, 4, 5, 2], None),
        (4, [NAN, NAN, NAN], 12),
        (4, [NAN, 5, NAN, 6, NAN], 20),
        (4, [5, NAN, 4, NAN, NAN, NAN], 24),
        (4, [7, 6, 5, 4, 3, 2, 1], None),
    ],
)
def test_c33_patience_3_stops_at_the_third_without_improvement(every, values, expected):
    values = [*values, *[0.0] * 30]
    assert stopped_at(values, every=every, patience=3) == expected


@pytest.mark.parametrize(("patience", "expected"), [(1, 8), (2, 12), (3, 16), (6, 28), (7, None)])
def test_other_patience(patience, expected):
    assert stopped_at([1.0] * 7, patience=patience) == expected


@not_on_torch
@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.filterwarnings("ignore:Results. its interval")
def test_c33_within_executions_of_several_batches():
    values = [5, 4, 6, 7, 8]  # at 4, 8, 10, 14, 18
    assert stopped_at(values, every=3, spe=4, patience=3) == 18


def test_min_delta():
    values = [5, 4.5, 4.0, 3.9, 3.8, 3.7, 3.6]
    assert stopped_at(values, patience=2, min_delta=1) == 12
    assert stopped_at(values, patience=3, min_delta=0.9) == 24
    assert stopped_at(values, patience=2) is None


@pytest.mark.parametrize(
    ("name", "mode", "expected"),
    [
        ("val_loss", "auto", 12),
        ("val_loss", "max", None),
        ("val_accuracy", "auto", None),
        ("val_accuracy", "min", 12),
    ],
)
def test_the_direction(name, mode, expected):
    rising = [1, 2, 3, 4, 5, 6, 7]
    assert stopped_at(rising, name=name, patience=2, mode=mode) == expected


# ---------------------------------------------------------------- whoever made them


def standing_still(callbacks, **args):
    """The step at which a model that learns nothing is stopped."""
    model = make_model(keras.optimizers.SGD(0.0))
    fit(model, [StepEarlyStopping(**args), *callbacks], epochs=5, validation_data=VALIDATION)
    return ks.global_step(model)


def test_c33_fits_own_validation_counts():
    assert standing_still([], patience=3) == 40


@pytest.mark.filterwarnings("ignore:Two evaluations at step 12")  # fit validates there too
def test_c33_both_kinds_count_together():
    assert standing_still([EvaluateEveryN(VALIDATION, 4)], patience=3, min_delta=0.001) == 12


@pytest.mark.filterwarnings("ignore:Two evaluations at step")
def test_two_evaluations_at_a_step_count_once():
    every_5 = EvaluateEveryN(VALIDATION, 5)
    assert standing_still([every_5], patience=3, min_delta=0.001) == 20


def test_evaluations_on_other_data_do_not_count():
    test = EvaluateEveryN(VALIDATION, 2, prefix="test_")
    assert standing_still([test], patience=3) == 40
    assert standing_still([test], monitor="test_mae", patience=3, mode="min") == 8


# ---------------------------------------------------------------- the best weights

VALUES = [5, 4, 3, 4, 5, 6, 7]  # at 3, 6, 9, 12, 15, 18, 21
BEST_AT = 9


def weights_after(step):
    model = make_model(keras.optimizers.Adam(0.01))
    fit(model, [ks.StopAtStep(step)], epochs=3)
    return model.get_weights()


def assert_equal(weights, others):
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("others", "patience", "reason", "step", "uses_model"),
    [
        ([], 2, "early", 15, True),
        ([], 2, "early", 15, False),
        ([], 10, None, 20, True),
        ([ks.StopAtStep(14)], 10, "reached", 14, True),
        ([Stops(13, "time")], 10, "time", 13, True),
    ],
)
def test_they_come_back_at_the_end(others, patience, reason, step, uses_model):
    model = make_model(keras.optimizers.Adam(0.01))
    stopping = StepEarlyStopping(patience=patience, restore_best_weights=True)
    fit(model, [stopping, Results(3, VALUES, uses_model=uses_model), *others], epochs=2)
    assert (ks.stop_reason(model), ks.global_step(model)) == (reason, step)
    assert_equal(model.get_weights(), weights_after(BEST_AT))


@pytest.mark.parametrize(
    ("restore", "others", "values", "step"),
    [
        (False, [], VALUES, 15),
        (True, [Stops(13, "nan")], VALUES, 13),
        (True, [], [NAN] * 3, 6),
    ],
    ids=["not asked for", "after a NaN", "never improved"],
)
def test_or_else_the_last_ones_stay(restore, others, values, step):
    model = make_model(keras.optimizers.Adam(0.01))
    stopping = StepEarlyStopping(patience=2, restore_best_weights=restore)
    fit(model, [stopping, Results(3, values), *others], epochs=2)
    assert ks.global_step(model) == step
    assert_equal(model.get_weights(), weights_after(step))


def test_those_of_an_epochs_end_too():
    """On data where the untrained model is right, the first epoch's end is the best."""
    model = make_model(keras.optimizers.Adam(0.01))
    x = VALIDATION[0]
    validation = (x, model.predict(x, verbose=0))
    stopping = StepEarlyStopping(patience=2, restore_best_weights=True)
    history = fit(model, [stopping], epochs=9, validation_data=validation)
    assert history.history["val_loss"] == sorted(history.history["val_loss"])
    assert (ks.stop_reason(model), ks.global_step(model)) == ("early", 30)
    assert_equal(model.get_weights(), weights_after(10))


@pytest.mark.skipif(not ON_TENSORFLOW, reason="a strategy of TensorFlow")
def test_under_mirrored():
    found = []
    for callbacks in ([], [StepEarlyStopping(patience=2, restore_best_weights=True)]):
        with mirrored_scope():
            model = make_model()
        target = [] if callbacks else [ks.StopAtStep(BEST_AT)]
        fit(model, [*callbacks, Results(3, VALUES, uses_model=False), *target], epochs=2)
        found.append(model.get_weights())
    assert ks.global_step(model) == 15
    assert_equal(*found)


def test_the_fit_after_it_goes_on_from_them():
    model = make_model()
    stopping = StepEarlyStopping(patience=2, restore_best_weights=True)
    fit(model, [stopping, Results(3, VALUES)], epochs=2)
    other = make_model()
    other.set_weights(weights := model.get_weights())
    fit(model, [])
    fit(other, [])
    assert (model.get_weights()[0] != weights[0]).any()
    assert_equal(model.get_weights(), other.get_weights())


def test_after_an_error_it_keeps_none():
    stopping = StepEarlyStopping(patience=9, restore_best_weights=True)
    seen = []

    def fails(step, logs):
        seen.append(stopping.get_state()["best_weights"])
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fit(make_model(), [stopping, Results(3, VALUES), ks.OnStep(7, fails)])
    assert len(seen[0]) == 4
    assert stopping.get_state()["best_weights"] is None


# ---------------------------------------------------------------- fits, copies, resumes


def test_a_second_fit_and_a_copy_start_afresh():
    stopping = StepEarlyStopping(patience=2, restore_best_weights=True)
    for each in (stopping, stopping, copy.deepcopy(stopping)):
        model = make_model()
        fit(model, [each, Results(3, VALUES)], epochs=2)
        assert ks.global_step(model) == 15
    model = make_model()
    fit(model, [stopping, Results(3, [9, 8, 9, 9])], epochs=2)
    assert ks.global_step(model) == 12


def through_a_file(state):
    """The state as it comes out of a file of plain values and one of arrays."""
    arrays_of_it = state.pop("best_weights") or []
    file = io.BytesIO()
    np.savez(file, *arrays_of_it)
    file.seek(0)
    read = np.load(file)
    plain = json.loads(json.dumps(state))
    return plain | {"best_weights": [read[f"arr_{n}"] for n in range(len(arrays_of_it))] or None}


@pytest.mark.parametrize(
    ("killed_at", "restore"),
    [(1, True), (8, True), (9, True), (10, True), (12, False), (14, True)],
)
def test_what_was_killed_stops_at_the_same_step(killed_at, restore):
    x, y = arrays(20)
    model = make_model()
    first = StepEarlyStopping(patience=2, restore_best_weights=restore)
    done = Results(3, VALUES)
    data = {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    fit(model, [first, done, Stops(killed_at, "nan")], **data)
    assert ks.global_step(model) == killed_at

    second = StepEarlyStopping(patience=2, restore_best_weights=restore)
    rest = Results(3, VALUES[len(done.made) :])
    resumes = Resumes(second, through_a_file(first.get_state()))
    data |= {"x": x[killed_at * BATCH :], "y": y[killed_at * BATCH :]}
    fit(model, [resumes, second, rest], **data)
    assert (ks.global_step(model), ks.stop_reason(model)) == (15, "early")

    whole = make_model()
    alone = StepEarlyStopping(patience=2, restore_best_weights=restore)
    fit(whole, [alone, Results(3, VALUES)], x=x, y=y, batch_size=BATCH, shuffle=False)
    assert_equal(model.get_weights(), whole.get_weights())


def test_an_evaluation_of_the_step_it_was_killed_at_does_not_count_again():
    first, model = StepEarlyStopping(patience=2), make_model()
    fit(model, [first, Results(3, VALUES), Stops(12, "time")], epochs=2)
    second = StepEarlyStopping(patience=2)
    again = Results(3, [9, 1], uses_model=False)
    again.before_first_update = lambda run: run.evaluated({"val_loss": 9})
    fit(model, [again, second, Resumes(second, first.get_state())], epochs=2)
    assert (ks.global_step(model), ks.stop_reason(model)) == (15, "early")


def test_the_state_of_another_monitor_is_left():
    first, model = StepEarlyStopping(patience=9), make_model()
    fit(model, [first, Results(3, VALUES)])
    second = StepEarlyStopping("val_mae", patience=2)
    results = Results(3, [20, 19, 20, 20], name="val_mae")
    fit(make_model(), [second, results, Resumes(second, first.get_state())], epochs=2)
    assert results.made == [3, 6, 9, 12]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ({"patience": 0}, ValueError, "StepEarlyStopping.patience. must be at least 1; received 0"),
        ({"patience": 1.5}, TypeError, "must be an integer; received 1.5"),
        ({"mode": "least"}, ValueError, r"StepEarlyStopping.mode. must be one of"),
        ({"min_delta": -1}, ValueError, "StepEarlyStopping.min_delta. must be finite and at least"),
        ({"monitor": None}, TypeError, "StepEarlyStopping.monitor. must be the name"),
        ({"restore_best_weights": "yes"}, TypeError, "True or False; received 'yes'"),
    ],
)
def test_bad_arguments(args, error, text):
    with pytest.raises(error, match=text):
        StepEarlyStopping(**args)


@pytest.mark.parametrize(
    ("name", "fit_args", "text"),
    [
        ("val_loss", {}, "this run makes no evaluation that could bring it"),
        ("loss", {}, "this run makes no evaluation"),
        ("loss", {"validation_data": VALIDATION}, "A metric of training .* monitor 'val_loss'"),
        ("val_skill", {"validation_data": VALIDATION}, "Give mode='min' or mode='max'"),
    ],
)
def test_what_can_be_known_at_train_begin(name, fit_args, text):
    model = make_model()
    with pytest.raises(ValueError, match=rf"StepEarlyStopping.monitor='{name}'.: .*{text}"):
        fit(model, [StepEarlyStopping(name)], **fit_args)
    assert ks.global_step(model) == 0


def test_a_wrong_name_at_the_first_evaluation():
    model = make_model()
    stopping = StepEarlyStopping("val_los", mode="min")
    with pytest.raises(ValueError, match="no result of that name. It has .*val_loss"):
        fit(model, [stopping, EvaluateEveryN(VALIDATION, 4)], epochs=2)
    assert ks.global_step(model) == 4


class Unknown(StepCallback):
    """Makes the run one of which it can't be known which evaluations it makes."""

    order = Order.NAN

    def begin(self, run):
        run.evaluations.are_known = False


def test_what_could_not_be_known_is_known_after_an_epoch():
    model = make_model()
    with pytest.raises(ValueError, match="no evaluation has brought it by the end of the epoch"):
        fit(model, [StepEarlyStopping(), Unknown()], epochs=2)
    assert ks.global_step(model) == 10
    fit(model, [StepEarlyStopping(), Unknown()], epochs=2, validation_data=VALIDATION)
    late = Results(15, [1.0])
    fit(make_model(), [StepEarlyStopping(), Unknown(), late], epochs=2)
    assert late.made == [15]
