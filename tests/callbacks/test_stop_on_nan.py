"""StopOnNaN: sees a NaN that was in any batch, and stops, raises or goes back."""

import copy
import math
import warnings

import numpy as np
import pandas
import pytest
from curves import curve, losses, passing_losses, warnings_of_nan
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    arrays,
    fit,
    keras,
    loss_scaled,
    make_model,
    mirrored_scope,
    no_scope,
    state_of,
)

import keras_steps as ks
from keras_steps.callbacks.evaluate_every_n import EvaluateEveryN
from keras_steps.callbacks.stop_on_nan import StopOnNaN
from keras_steps.step_callback import Order
from keras_steps.testing import FakeClock, Recorder

nan, inf = math.nan, math.inf
OTHERS = [order for order in Order if order != Order.NAN]
not_on_torch = pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses spe > 1")


class AtEnd(Recorder):
    at_end = True

    def __init__(self, every, order=Order.REPORT):
        super().__init__(every)
        self.order = order


def spe_of(model, batches):
    model.compile(keras.optimizers.SGD(0.0), "mae", steps_per_execution=batches)
    return model


def with_nan(batch, batches=20):
    """Data whose batch of this number, counted from 1, is not finite."""
    x, y = arrays(batches)
    x[(batch - 1) * BATCH : batch * BATCH] = nan
    return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}


# ------------------------------------------------------------ seeing it, and stopping


@pytest.mark.parametrize(
    ("values", "every", "epochs", "seen_at", "line"),
    [
        ([1, 2, nan, 4, 5, 6], 1, 1, 3, "nan in steps 3 to 3"),
        ([1, 2, nan, 4, 5, 6], 5, 1, 5, "nan in steps 1 to 5"),
        ([1, 2, 3, 4, 5, 6, 7, inf, 9, 10], 4, 1, 8, "inf in steps 5 to 8"),
        ([4e37, 4e37, 1, 1, 1, 1], 3, 1, 3, "inf in steps 1 to 3"),  # the sum overflows
        ([4e37, 1, 1, 1, 1, 1], 3, 1, None, ""),
        ([1, 2, 3, 4, 5, 6, nan], 5, 1, 7, "nan in steps 6 to 7"),  # at the end
        ([1, 2, 3, 4, 5, 6, nan], 5, 3, 10, "nan in steps 6 to 10"),  # in the epoch before
        ([1, nan, 3], 100, 3, 9, "nan in steps 1 to 9"),
        ([nan, 2, 3, 4], ks.AtSteps(3, 4), 1, 3, "nan in steps 1 to 3"),
        ([1, 2, 3, 4, nan], 5, 1, 5, "nan in steps 1 to 5"),
        ([1, 2, 3, 4], 2, 2, None, ""),
    ],
)
def test_sees_what_any_batch_had_since_the_last_look(values, every, epochs, seen_at, line, capsys):
    model, data = losses(values)
    fit(model, [StopOnNaN(every)], epochs=epochs, **data)
    assert ks.global_step(model) == (seen_at or len(values) * epochs)
    assert ks.stop_reason(model) == ("nan" if seen_at else None)
    out = capsys.readouterr().out
    assert out == (f"the loss was {line}: the run stops\n" if line else "")


@pytest.mark.parametrize(("epochs", "seen_at"), [(3, 10), (1, 7)])
def test_a_nan_of_the_epoch_before_is_seen_in_an_epoch_that_goes_well(epochs, seen_at):
    """The metrics of an epoch begin anew: the window keeps what it had of the one before."""
    model, data = passing_losses([1, 2, 3, 4, 5, 6, nan])
    history = ks.StepHistory(5)
    fit(model, [StopOnNaN(5), history], epochs=epochs, **data)
    assert (ks.global_step(model), ks.stop_reason(model)) == (seen_at, "nan")
    assert (history.steps, history.scalars["loss"]) == ([5], [3.0])


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1e39])
def test_what_counts_as_none(bad):
    with np.errstate(over="ignore"):
        model, data = passing_losses([1, 2, 3, bad, 5, 6])
    fit(model, [StopOnNaN(6)], **data)
    assert ks.stop_reason(model) == "nan"


def test_inf_and_minus_inf_in_one_window():
    model, data = passing_losses([1, inf, -inf, 4, 5, 6])
    fit(model, [StopOnNaN(6)], **data)
    assert ks.stop_reason(model) == "nan"


@not_on_torch
@pytest.mark.parametrize(
    ("every", "spe", "seen_at"), [(5, 5, 5), (1, 5, 5), (4, 5, 5), (2, 2, 4), (7, 4, 8)]
)
@pytest.mark.filterwarnings("ignore:.*(no multiple of|once an execution)")
def test_c27_nan_at_batch_3_within_an_execution(every, spe, seen_at):
    model, data = losses([1, 2, nan, *range(4, 21)])
    fit(spe_of(model, spe), [StopOnNaN(every)], **data)
    assert (ks.global_step(model), ks.stop_reason(model)) == (seen_at, "nan")


def test_c28_c43_nothing_else_fires_at_that_step_nor_at_the_end():
    model, data = losses([1, 2, 3, 4, 5, 6, 7, nan, 9, 10, 11, 12])
    others = [AtEnd(5, order) for order in reversed(OTHERS)]
    fit(model, [*others, StopOnNaN(10)], **data)
    assert ks.global_step(model) == 10
    assert [other.steps for other in others] == [[5]] * len(OTHERS)


def test_at_the_end_nothing_else_fires_after_it():
    model, data = losses([1, 2, 3, 4, 5, 6, 7, nan])
    others = [AtEnd(5, order) for order in OTHERS]
    fit(model, [*others, StopOnNaN(5)], **data)
    assert ks.stop_reason(model) == "nan"
    assert [other.steps for other in others] == [[5]] * len(OTHERS)


def test_nor_does_what_a_clock_makes_due_later_in_the_epochs_end():
    model, data = losses([1, nan, 3, 4])
    with FakeClock() as time:
        late = Recorder(ks.EverySecs(10))
        passing = keras.callbacks.LambdaCallback(on_test_begin=lambda logs: time.advance(20))
        validation = (data["x"][:BATCH], data["y"][:BATCH])
        # The validation's begin is told to ours after the time has passed.
        fit(model, [passing, late, StopOnNaN(3)], validation_data=validation, **data)
    assert (ks.global_step(model), late.steps, late.evaluations) == (3, [], [])


def test_an_epochs_last_step_is_looked_at_before_its_validation():
    model, data = losses([1, 2, nan, 4])
    recorder, history = Recorder(2), ks.StepHistory(2)
    validation = (data["x"][:BATCH], data["y"][:BATCH])
    fit(model, [StopOnNaN(4), recorder, history], epochs=3, validation_data=validation, **data)
    assert (ks.global_step(model), ks.stop_reason(model)) == (4, "nan")
    assert (recorder.steps, recorder.evaluations, history.steps) == ([2], [], [2])


def test_the_step_to_stop_at_is_looked_at():
    model, data = losses([1, 2, 3, 4, 5, 6, nan, 8])
    last = AtEnd(100)
    fit(model, [StopOnNaN(5), ks.StopAtStep(7), last], **data)
    assert (ks.global_step(model), ks.stop_reason(model), last.steps) == (7, "nan", [])


def test_looks_cost_nothing_in_between_and_read_the_sums_only(monkeypatch):
    from keras_steps.readings import Readings

    taken = []
    snapshot = Readings.snapshot
    monkeypatch.setattr(
        Readings, "snapshot", lambda self, given: taken.append(1) or snapshot(self, given)
    )
    fit(make_model(), [StopOnNaN(5)], batches=20)
    assert len(taken) == 4 + 1  # and at the epoch's end


# ------------------------------------------------------------ raising


@pytest.mark.parametrize(
    ("values", "every", "text"),
    [
        ([1, 2, 3, 4, 5, 6, nan, 8, 9, 10], 4, r"nan in steps 5 to 8 .StopOnNaN."),
        ([1, 2, inf], 100, r"inf in steps 1 to 3 .StopOnNaN."),  # at the end
    ],
)
def test_raise_names_the_steps(values, every, text):
    model, data = losses(values)
    with pytest.raises(FloatingPointError, match=text):
        fit(model, [StopOnNaN(every, action="raise")], **data)


def test_a_model_stays_usable_after_the_error():
    model = make_model()
    ks.set_global_step(model, 40)
    callback = StopOnNaN(5, action="raise")
    with pytest.raises(FloatingPointError, match="in steps 46 to 50"):
        fit(model, [callback], **with_nan(7))
    assert ks.global_step(model) == 50
    model.set_weights(make_model().get_weights())
    if IS_TF_KERAS:  # its SGD has momenta, which are NaN by now
        model.compile("sgd", "mse")
        ks.set_global_step(model, 50)
    fit(model, [callback], batches=10)
    assert ks.global_step(model) == 60
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


# ------------------------------------------------------------ rolling back

SPANS = {  # batches 1 to 18, six an epoch; StepHistory's every; what it has; Keras's History
    "back within an epoch": (
        9, ks.EverySteps(2), 3,
        [3, 6, 9, 12, 15, 16], [2, 5, (7 + 8 + 11) / 3, 13, 16, 18], [3.5, 9.5, 15.5],
    ),
    "back into the epoch before, from the midst of the next": (
        7, ks.EverySteps(4), 3,
        [3, 6, 9, 12, 14], [2, (4 + 9 + 10) / 3, 12, 15, 17.5], [3.5, 10.5, 15.5],
    ),
    "back to the end of the epoch before, from the midst of the next": (
        8, ks.AtSteps(6, 9), 4,
        [4, 8, 12, 15], [2.5, (5 + 6 + 10 + 11) / 4, 13.5, 17], [3.5, 11, 15.5],
    ),
    "back to the end of the epoch before, from the end of the next": (
        8, ks.EverySteps(6), 4,
        [4, 8, 12], [2.5, (5 + 6 + 13 + 14) / 4, 16.5], [3.5, nan, 15.5],
    ),
    "back into the epoch before, from the end of the next": (
        8, ks.AtSteps(4, 12), 4,
        [4, 8, 10], [2.5, 14.5, 17.5], [3.5, 2.5, 15.5],
    ),
    "back to train begin, in the epoch": (
        3, ks.EverySteps(5), 4,
        [4, 8, 12, 13], [(6 + 7 + 8 + 9) / 4, 11.5, 15.5, 18], [6, 9.5, 15.5],
    ),
    "back to train begin, from the next epoch": (
        3, ks.EverySteps(8), 4,
        [4, 8, 10], [10.5, 14.5, 17.5], [nan, 10.5, 15.5],
    ),
    "back at the end of fit": (
        16, ks.EverySteps(14), 4,
        [4, 8, 12], [2.5, 6.5, 10.5], [3.5, 9.5, nan],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "looks", "every", "steps", "values", "means"), SPANS.values(), ids=SPANS
)
def test_later_means_hold_only_what_counts(batch, looks, every, steps, values, means):
    model, data = losses([nan if n == batch else n for n in range(1, 19)])
    history = ks.StepHistory(every)
    with warnings_of_nan():
        result = fit(
            model,
            [history, StopOnNaN(looks, action="rollback")],
            steps_per_epoch=6,
            epochs=3,
            **data,
        )
    assert history.steps == steps
    np.testing.assert_allclose(history.scalars["loss"], values, rtol=1e-6)
    np.testing.assert_allclose(result.history["loss"], means, rtol=1e-6)


@not_on_torch
def test_c27_back_from_within_an_execution():
    model, data = losses([1, 2, 3, 4, 5, 6, nan, 8, *range(9, 17)])
    history = ks.StepHistory(4)
    fit(spe_of(model, 4), [StopOnNaN(4, action="rollback"), history], **data)
    assert history.steps == [4, 8, 12]
    assert history.scalars["loss"] == [2.5, 10.5, 14.5]
    assert ks.global_step(model) == 12


def adam(**args):
    return keras.optimizers.Adam(0.01, **args)


# How a model is compiled, and the steps between two looks: one is after batches 4 and 8.
SETTINGS = {"adam": (adam, 4, {}, no_scope), "sgd": (lambda: None, 4, {}, no_scope)}
SETTINGS["loss scale"] = (lambda: loss_scaled(adam()), 4, {}, no_scope)
if not IS_TF_KERAS:
    SETTINGS["accumulation"] = (lambda: adam(gradient_accumulation_steps=2), 2, {}, no_scope)
if FLAVOUR != "torch":
    SETTINGS["spe 4"] = (adam, 4, {"steps_per_execution": 4}, no_scope)
if ON_TENSORFLOW:
    SETTINGS["mirrored"] = (adam, 4, {}, mirrored_scope)
if IS_TF_KERAS:
    SETTINGS["eager"] = (adam, 4, {"run_eagerly": True}, no_scope)
    SETTINGS["legacy"] = (lambda: keras.optimizers.legacy.Adam(0.01), 4, {}, no_scope)


def model_of(setting):
    optimizer, _, compile_args, scope = SETTINGS[setting]
    with scope():
        return make_model(optimizer(), **compile_args)


@pytest.mark.parametrize("batch", [3, 7])
@pytest.mark.parametrize("setting", SETTINGS)
def test_goes_on_as_if_what_was_past_the_step_had_not_been(setting, batch):
    every = SETTINGS[setting][1]
    model, data = model_of(setting), with_nan(batch)
    fit(model, [StopOnNaN(every, action="rollback")], **data)

    uncounted = setting == "loss scale" and not IS_TF_KERAS  # the bad batch itself
    begin = 0 if batch == 3 else 4
    lost = slice(begin * BATCH, (begin + 4 + uncounted) * BATCH)
    rest = {name: np.delete(data[name], lost, axis=0) for name in "xy"}
    other = model_of(setting)
    fit(other, [], **{**data, **rest})
    assert ks.global_step(model) == ks.global_step(other) == (16 - uncounted) * every // 4
    np.testing.assert_equal(state_of(model), state_of(other))


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_state_is_that_of_a_run_which_had_stopped_at_the_good_step(setting):
    every = SETTINGS[setting][1]
    model, data = model_of(setting), with_nan(7, batches=8)
    data |= {name: data[name][: 7 * BATCH] for name in "xy"} if every == 4 else {}
    fit(model, [StopOnNaN(ks.AtSteps(every), action="rollback")], **data)
    other = model_of(setting)
    fit(other, [ks.StopAtStep(every)], **data)
    assert (ks.stop_reason(model), ks.stop_reason(other)) == ("nan", "reached")
    np.testing.assert_equal(state_of(model), state_of(other))


@pytest.mark.skipif(IS_TF_KERAS, reason="its dropout draws from states that none can set")
@pytest.mark.skipif(FLAVOUR == "torch", reason="its dropout draws from the global random state")
def test_seed_generators_go_back():
    def model_with_dropout():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(adam(), "mse")
        return model

    model, data = model_with_dropout(), with_nan(7)
    fit(model, [StopOnNaN(4, action="rollback")], **data)
    other = model_with_dropout()
    rest = {name: np.delete(data[name], slice(4 * BATCH, 8 * BATCH), axis=0) for name in "xy"}
    fit(other, [], **{**data, **rest})
    np.testing.assert_equal(state_of(model), state_of(other))


def test_data_of_unknown_size():
    def batches():
        for n in range(1, 13):
            value = nan if n in (4, 12) else n
            yield np.full((BATCH, 1), value, "float32"), np.zeros((BATCH, 1), "float32")

    model, _ = losses()
    history = ks.StepHistory(3)
    result = model.fit(batches(), verbose=0, callbacks=[history, StopOnNaN(3, action="rollback")])
    # 1 2 3 | back | 7 8 9 | back from the last batch
    assert (history.steps, history.scalars["loss"]) == ([3, 6], [2.0, 8.0])
    assert result.history["loss"] == [5.0]
    assert (ks.global_step(model), ks.stop_reason(model)) == (6, None)


def test_the_run_goes_on_to_its_target():
    model, data = losses([1, 2, 3, 4, nan, *range(6, 21)])
    last = AtEnd(100)
    fit(model, [StopOnNaN(3, action="rollback"), ks.StopAtStep(5), last], **data)
    assert (ks.global_step(model), ks.stop_reason(model), last.steps) == (5, "reached", [5])
    assert last.logs[0]["loss"] == (1 + 2 + 3 + 6 + 7) / 5


def test_actions_of_the_good_step_itself_are_not_forgotten():
    class Counting(Recorder):
        def get_state(self):
            return {"count": len(self.steps), "evaluations": len(self.evaluations)}

        def set_state(self, state):
            del self.steps[state["count"] :], self.evaluations[state["evaluations"] :]

    model, data = losses([1, 2, 3, 4, 5, 6, 7, nan, *range(9, 16)])
    counting = Counting(5)
    evaluating = EvaluateEveryN((data["x"][:BATCH], data["y"][:BATCH]), 5, at_start=True)
    csv_history = ks.StepHistory(5)
    fit(model, [StopOnNaN(5, action="rollback"), counting, evaluating, csv_history], **data)
    assert counting.steps == csv_history.steps[1:] == [5, 10]
    assert [step for step, _ in counting.evaluations] == csv_history.steps == [0, 5, 10]
    assert csv_history.scalars == {
        **csv_history.scalars,
        "loss": [None, 3.0, 13.0],
        "val_loss": [1.0, 1.0, 1.0],
    }


def test_a_state_that_is_a_callbacks_own_list_stays_what_it_was():
    class Lists(ks.StepCallback):
        steps: list

        def begin(self, run):
            self.steps = []

        def on_step(self, step, logs):
            self.steps.append(step)

        def get_state(self):
            return {"steps": self.steps}

        def set_state(self, state):
            self.steps = state["steps"]

    model, data = losses([nan if n in (5, 9) else n for n in range(1, 19)])
    lists = Lists(1)
    fit(model, [StopOnNaN(4, action="rollback"), lists], **data)  # from step 8 to 4, twice
    assert lists.steps == list(range(1, 11))


def test_the_rate_is_that_of_the_step_again():
    rates = []
    schedule = ks.schedules.linear(1.0, 0.0, 100)
    model, data = losses([1, 2, 3, 4, 5, nan, *range(7, 17)])
    model.compile(keras.optimizers.SGD(1.0), "mae")
    data["x"][np.isfinite(data["x"])] = 0.0
    watching = ks.OnStep(1, lambda step, logs: rates.append((step, logs["learning_rate"])))
    scheduled = ks.StepScheduledLR(schedule)
    fit(model, [StopOnNaN(4, action="rollback"), scheduled, watching], **data)
    rate = [1 - n / 100 for n in range(12)]
    expected = [*range(1, 8), *range(5, 13)]
    assert rates == [(step, pytest.approx(rate[step - 1])) for step in expected]


def test_rolls_back_again_and_counts_those_in_a_row(capsys):
    bad = {6, 12, 13, 14, 20, 28, 31, 35}
    model, data = losses([nan if n in bad else n for n in range(1, 41)])
    callback = StopOnNaN(5, action="rollback", max_rollbacks=2)
    fit(model, [callback], **data)
    assert capsys.readouterr().out.splitlines() == [
        "the loss was nan in steps 6 to 10: back to step 5",  # batches 6 to 10
        "the loss was nan in steps 6 to 10: back to step 5, 2 of 2 in a row",  # 11 to 15
        "the loss was nan in steps 6 to 10: back to step 5, where the run stops "
        "(max_rollbacks=2)",  # 16 to 20
    ]
    assert (ks.global_step(model), ks.stop_reason(model)) == (5, "nan")


def test_a_good_look_at_the_step_of_the_last_bad_one_ends_the_row(capsys):
    bad = {6, 12, 22, 27, 37}
    model, data = losses([nan if n in bad else n for n in range(1, 51)])
    fit(model, [StopOnNaN(5, action="rollback", max_rollbacks=2)], **data)
    again = "the loss was nan in steps {} to {}: back to step {}"
    assert capsys.readouterr().out.splitlines() == [
        again.format(6, 10, 5),  # 6 to 10
        again.format(6, 10, 5) + ", 2 of 2 in a row",  # 11 to 15
        again.format(11, 15, 10),  # 16 to 20 went well, 21 to 25 did not
        again.format(11, 15, 10) + ", 2 of 2 in a row",  # 26 to 30
        again.format(16, 20, 15),  # 31 to 35 went well, 36 to 40 did not
    ]
    assert (ks.global_step(model), ks.stop_reason(model)) == (25, None)


def test_a_good_look_before_the_step_of_the_bad_one_does_not_end_the_row(capsys):
    model, data = losses([nan if n in (6, 10) else n for n in range(1, 21)])
    with FakeClock() as time:
        passing = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: time.advance(10 * (batch == 7)),
            on_train_batch_end=lambda batch, logs: None,
        )
        looks = ks.EverySteps(6) | ks.EverySecs(10)
        fit(model, [StopOnNaN(looks, action="rollback", max_rollbacks=1), passing], **data)
    assert capsys.readouterr().out.splitlines() == [
        "the loss was nan in steps 1 to 6: back to step 0",  # batches 1 to 6; then 8 is looked at
        "the loss was nan in steps 3 to 6: back to step 2, where the run stops (max_rollbacks=1)",
    ]


class WithAnUnusedWeight(keras.layers.Dense):
    def build(self, shape):
        super().build(shape)
        self.unused = self.add_weight(
            name="unused", shape=(1,), initializer="zeros", trainable=False
        )


def test_a_state_with_a_weight_that_is_not_finite_is_not_kept(capsys):
    class Breaks(ks.StepCallback):
        def on_step(self, step, logs):
            self.model.layers[-1].unused.assign([inf])

    _, data = losses([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, nan, *range(13, 18)])
    model = keras.Sequential([keras.layers.Input((1,)), WithAnUnusedWeight(1)])
    model.compile("sgd", "mae")
    fit(model, [Breaks(ks.AtSteps(10)), StopOnNaN(5, action="rollback")], **data)
    assert capsys.readouterr().out == "the loss was nan in steps 11 to 15: back to step 5\n"
    assert ks.global_step(model) == 7
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_state_goes_through_get_state_and_set_state():
    callback = StopOnNaN(5, action="rollback")
    assert callback.get_state() == {"rollbacks": 0, "seen_at": None, "looked_at": None}
    state = {"rollbacks": 2, "seen_at": 40, "looked_at": 35}
    callback.set_state(state)
    assert callback.get_state() == state


def test_a_second_fit_and_a_copy_begin_afresh(capsys):
    callback = StopOnNaN(5, action="rollback", max_rollbacks=1)
    expected = [
        "the loss was nan in steps {} to {}: back to step {}",
        "the loss was nan in steps {} to {}: back to step {}, where the run stops "
        "(max_rollbacks=1)",
    ]
    model, data = losses([1, 2, nan, 4, 5, nan, 7, 8, 9, 10])
    for one, begin in ((callback, 0), (callback, 0), (copy.deepcopy(callback), 0)):
        fit(model, [one], **data)
        assert ks.stop_reason(model) == "nan"
        lines = [line.format(begin + 1, begin + 5, begin) for line in expected]
        assert capsys.readouterr().out.splitlines() == lines
    model, data = losses([1, 2, 3, 4, 5, nan, 7, 8, 9, 10, 11, 12])
    fit(model, [callback], **data)
    assert ks.global_step(model) == 7
    fit(model, [copy.deepcopy(callback)], **data)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "the loss was nan in steps 11 to 15: back to step 10"


def test_a_fit_that_is_broken_off_leaves_no_state_in_memory():
    class BreaksOff(ks.StepCallback):
        def on_step(self, step, logs):
            raise RuntimeError("broken off")

    callback = StopOnNaN(2, action="rollback")
    with pytest.raises(RuntimeError, match="broken off"):
        fit(make_model(), [callback, BreaksOff(3)])
    assert callback.companions[0]._good is None


def test_patience_goes_back_too():
    model, data = losses([nan if n == 7 else n for n in range(1, 25)])
    evaluating = EvaluateEveryN((data["x"][:BATCH], data["y"][:BATCH]), 2)
    patience = ks.StepEarlyStopping(patience=4)  # the best at 2; counted at 4, 6, 8 and 10
    fit(model, [evaluating, patience, StopOnNaN(4, action="rollback")], **data)
    assert (ks.global_step(model), ks.stop_reason(model)) == (10, "early")


def test_a_run_that_goes_on_can_go_back_to_its_begin(capsys):
    model = make_model(adam())
    fit(model, [], batches=5)
    before = state_of(model)
    fit(model, [StopOnNaN(5, action="rollback")], **with_nan(2, batches=5))
    assert capsys.readouterr().out == "the loss was nan in steps 6 to 10: back to step 5\n"
    assert ks.global_step(model) == 5
    arrays_of = [[array for array in state if array.ndim] for state in (state_of(model), before)]
    np.testing.assert_equal(*arrays_of)  # what metrics hold at the end of a fit is no matter


def test_a_model_that_was_not_built_has_nothing_to_go_back_to(capsys):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    fit(model, [StopOnNaN(5, action="rollback")], **with_nan(2))
    out = capsys.readouterr().out
    if ON_TENSORFLOW:
        assert "no good state to go back to: the model or an optimizer was not built" in out
        assert (ks.global_step(model), ks.stop_reason(model)) == (5, "nan")
    else:  # built at train begin
        assert out == "the loss was nan in steps 1 to 5: back to step 0\n"


# ------------------------------------------------------------ what was reported


def rolled_back(callbacks):
    """A fit of 18 batches that goes back from step 8 to 4; the model."""
    model, data = losses([nan if n == 7 else n for n in range(1, 19)])
    with warnings_of_nan():
        fit(model, [StopOnNaN(4, action="rollback"), *callbacks], **data)
    return model


EXPECTED = [
    *[(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)],
    *[(5, 9.0), (6, 10.0), (7, 11.0), (8, 12.0), (9, 13.0), (10, 14.0)],
    *[(11, 15.0), (12, 16.0), (13, 17.0), (14, 18.0)],
]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_table_has_one_row_a_step(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    rolled_back([ks.StepCSVLogger(path, 1)])
    table = pandas.read_csv(path) if suffix == "csv" else pandas.read_json(path, lines=True)
    assert list(zip(table["step"], table["loss"], strict=True)) == EXPECTED
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_tensorboard_has_one_value_a_step(tmp_path):
    rolled_back([ks.StepTensorBoard(tmp_path / "logs", 1)])
    assert curve(tmp_path / "logs/train", "loss") == EXPECTED
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]


def test_a_fresh_run_that_goes_back_to_step_0_stays_in_its_place(tmp_path):
    model, data = losses([1, 2, nan, 4, 5, 6])
    test = (data["x"][:BATCH], data["y"][:BATCH])
    history = ks.StepHistory(1)
    callbacks = [
        StopOnNaN(4, action="rollback"),
        EvaluateEveryN(test, 100, prefix="test_", at_start=True, at_end=False),
        ks.StepCSVLogger(tmp_path / "m.csv", 1),
        ks.StepTensorBoard(tmp_path / "logs", 1),
        history,
    ]
    with warnings_of_nan():
        fit(model, callbacks, **data)
    table = pandas.read_csv(tmp_path / "m.csv")
    np.testing.assert_equal(list(table["step"]), [0, 1, 2])
    np.testing.assert_equal(list(table["loss"]), [nan, 5.0, 6.0])
    np.testing.assert_equal(list(table["test_loss"]), [1.0, nan, nan])
    assert curve(tmp_path / "logs/train", "loss") == [(1, 5.0), (2, 6.0)]
    assert curve(tmp_path / "logs/test", "loss") == [(0, 1.0)]
    assert history.steps == [0, 1, 2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "m.csv"]


def test_a_writer_of_ones_own_is_told_if_it_can_take_back():
    class Keeps:
        def __init__(self):
            self.calls = []

        def write(self, step, scalars):
            self.calls.append((step, scalars["loss"]))

        def drop_past(self, step):
            self.calls.append(f"past {step}")

        def flush(self):
            pass

        def close(self):
            self.calls.append("closed")

    keeps, calls = Keeps(), []
    function = ks.ReportEveryN(lambda step, scalars: calls.append((step, scalars["loss"])), 3)
    rolled_back([ks.ReportEveryN(keeps, 3), function])
    rest = [(6, (4 + 9 + 10) / 3), (9, 12.0), (12, 15.0), (14, 17.5)]
    assert keeps.calls == [(3, 2.0), (6, 5.0), "past 4", *rest, "closed"]
    assert calls == [(3, 2.0), (6, 5.0), *rest]


def test_a_bar_goes_back():
    pytest.importorskip("tqdm")
    bar, shown = ks.StepProgressBar(), []

    class Looks(ks.StepCallback):
        order = Order.BACKUP

        def rewound(self, run):
            shown.append((bar._bar.n, bar._bar.total))

    rolled_back([bar, Looks(100)])
    assert shown == [(4, 14)]


# ------------------------------------------------------------ what has no loss, and bad arguments


class Own(keras.Model):
    """A train_step of its own, which returns the loss under a name, or a running mean of it."""

    def __init__(self, named):
        super().__init__()
        self.named = named
        self.dense = keras.layers.Dense(1, name="d")
        self.mean = keras.metrics.Mean(name="loss")

    def build(self, shape):
        self.dense.build(shape)
        self.built = True

    def call(self, x):
        return self.dense(x)

    @property
    def metrics(self):
        return [self.mean]

    def train_step(self, *args):
        if FLAVOUR == "jax":
            return self._stateless(*args)
        data = args[0]
        loss = keras.backend.mean(data[0]) if IS_TF_KERAS else keras.ops.mean(data[0])
        self.optimizer.iterations.assign(self.optimizer.iterations + 1)
        if self.named == "mean":
            self.mean.update_state(loss)
            return {"loss": self.mean.result()}
        return {self.named: loss}

    def _stateless(self, state, data):
        trainable, others, optimizer, metrics = state
        loss = keras.ops.mean(data[0])
        optimizer = [optimizer[0] + 1, *optimizer[1:]]
        results = {self.named: loss}
        if self.named == "mean":
            metrics = self.mean.stateless_update_state(metrics, loss)
            results = {"loss": self.mean.stateless_result(metrics)}
        return results, (trainable, others, optimizer, metrics)


def own_model(named):
    model = Own(named)
    model.compile("sgd")
    model.build((None, 1))
    return model


def test_a_train_step_without_a_loss_is_told_at_the_first_step():
    _, data = losses([1, 2, 3])
    model = own_model("d_loss")
    with pytest.raises(ValueError, match="train_step of Own returns none of this name; its metr"):
        fit(model, [StopOnNaN(100)], **data)
    assert ks.global_step(model) == 1


def test_a_train_step_whose_loss_is_no_running_mean_is_warned_of():
    _, data = losses([1, nan, 3, 4])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(own_model("loss"), [StopOnNaN(2)], **data)
    text = "StopOnNaN sees the loss of the last batch before each look only: 'loss'"
    assert len([w for w in caught if str(w.message).startswith(text)]) == 1


@pytest.mark.parametrize(("every", "seen_at"), [(2, 4), (3, 3)])
def test_a_running_mean_of_ones_own_is_seen(every, seen_at):
    _, data = losses([1, 2, nan, 4, 5, 6])
    model = own_model("mean")
    fit(model, [StopOnNaN(every)], **data)
    assert (ks.global_step(model), ks.stop_reason(model)) == (seen_at, "nan")


def test_bad_arguments():
    for args, error, text in [
        ({"every": 0}, ValueError, "StopOnNaN.every. must be at least 1; received 0"),
        ({"every": 2.5}, TypeError, "must be an integer; received 2.5"),
        ({"action": "halt"}, ValueError, "'stop', 'raise' or 'rollback'; received 'halt'"),
        ({"action": None}, ValueError, "'rollback'; received None"),
        ({"max_rollbacks": 0}, ValueError, "max_rollbacks. must be at least 1; received 0"),
        ({"max_rollbacks": 1.5}, TypeError, "must be an integer; received 1.5"),
        ({"optimizer": 3}, TypeError, "name of the model's attribute"),
    ]:
        with pytest.raises(error, match=text):
            StopOnNaN(**args)


def test_asynchronous_dispatch_stays_on():
    callbacks = [StopOnNaN(5), StopOnNaN(5, action="rollback")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = keras.callbacks.CallbackList(callbacks)
    assert getattr(made, "_async_train", False) == (FLAVOUR in ("jax", "torch"))
