"""What may be meant but looks wrong is one warning at train begin."""

import warnings

import pytest
from flavours import FLAVOUR, IS_TF_KERAS, fit, keras, make_model

import keras_steps as ks

not_on_torch = pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses spe > 1")


def warned_by(model, callbacks, **fit_args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, callbacks, **fit_args)
    return [str(w.message) for w in caught if w.category is UserWarning], caught


@not_on_torch
def test_an_interval_that_is_no_multiple_of_steps_per_execution():
    model = make_model(steps_per_execution=4)
    messages, _ = warned_by(model, [ks.OnStep(10, print), ks.OnStep(8, print)], batches=4)
    assert messages == [
        "OnStep: its interval of 10 steps is no multiple of steps_per_execution=4. It fires at "
        "the end of the execution in which a grid point lies, at uneven intervals."
    ]


@not_on_torch
@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras has no gradient accumulation")
def test_an_interval_in_updates_may_be_a_multiple_in_batches():
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    model = make_model(optimizer, steps_per_execution=4)
    messages, _ = warned_by(model, [ks.OnStep(6, print)], batches=4)
    assert messages == []


@not_on_torch
def test_a_schedule_that_is_evaluated_once_an_execution():
    callback = ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 100))
    messages, _ = warned_by(make_model(steps_per_execution=4), [callback], batches=4)
    assert len(messages) == 1
    assert "once an execution, of 4 batches" in messages[0]
    assert "Adam(learning_rate=schedule)" in messages[0]


def test_a_target_that_the_epochs_do_not_reach():
    messages, _ = warned_by(make_model(), [ks.StopAtStep(21)], epochs=2)
    assert messages == [
        "StopAtStep will not be reached: epochs=2 of 10 batches end at step 20 at the latest, "
        "before last_step=21. Pass more epochs; the run stops by itself."
    ]


def test_a_target_that_the_epochs_just_reach():
    assert warned_by(make_model(), [ks.StopAtStep(20)], epochs=2)[0] == []


def test_a_target_beyond_the_end_of_a_schedule():
    schedule = ks.StepScheduledLR(ks.schedules.cosine(0.1, 15))
    messages, _ = warned_by(make_model(), [ks.StopAtStep(20), schedule], epochs=2)
    assert messages == [
        "StopAtStep(last_step=20) lies beyond the end of the schedule of StepScheduledLR, step "
        "15: from there on its value stays as it is."
    ]
    assert warned_by(make_model(), [ks.StopAtStep(num_steps=20), schedule], epochs=2)[0] == []


def test_a_warning_points_at_the_line_that_called_fit():
    _, caught = warned_by(make_model(), [ks.StopAtStep(21)], epochs=2)
    ours = [w for w in caught if "StopAtStep" in str(w.message)]
    assert [w.filename.rpartition("/")[2] for w in ours] == ["flavours.py"]


def test_nothing_to_warn_of():
    callbacks = [
        ks.StopAtStep(20),
        ks.LogEveryN(5),
        ks.StepScheduledLR(ks.schedules.cosine(0.1, 20)),
    ]
    assert warned_by(make_model(), callbacks, epochs=3)[0] == []
