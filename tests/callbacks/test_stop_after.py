"""StopAfter: the first execution after the time is up is the last."""

import copy

import numpy as np
import pytest
from flavours import BATCH, FLAVOUR, Ticking, arrays, fit, keras, make_model, state_of

import keras_steps as ks
from keras_steps.callbacks.stop_after import StopAfter
from keras_steps.testing import FakeClock, Recorder

not_on_torch = pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses spe > 1")


class Backup(Recorder):
    """Stands for what comes after a stop at a step."""

    order = ks.step_callback.Order.BACKUP


def run_of(budget, *, callbacks=(), model=None, **fit_args):
    """The model after a fit with ten seconds from an execution to the next."""
    model = model or make_model()
    with FakeClock() as time:
        fit(model, [*callbacks, budget, Ticking(time, 10)], **fit_args)
    return model


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"seconds": 1}, 1),
        ({"seconds": 30}, 3),
        ({"seconds": 31}, 4),
        ({"seconds": 39.5}, 4),
        ({"minutes": 1.5}, 9),
        ({"minutes": 1, "seconds": 41}, 11),
        ({"hours": 0.05}, 18),
        ({"hours": 1}, 20),
    ],
)
def test_the_run_ends_with_the_first_execution_after_the_time_is_up(budget, expected):
    model = run_of(StopAfter(**budget), epochs=2)
    assert ks.global_step(model) == expected
    assert ks.stop_reason(model) == ("time" if expected < 20 else None)


@not_on_torch
@pytest.mark.parametrize(("seconds", "expected"), [(10, 4), (11, 8), (40, 16), (41, 20)])
def test_of_several_batches(seconds, expected):
    model = make_model(steps_per_execution=4)
    run_of(StopAfter(seconds=seconds), model=model, batches=20)
    assert ks.global_step(model) == expected


class Slow(keras.Sequential):
    """Takes ten seconds for a batch, in the midst of it."""

    def train_step(self, *args):
        self.time.advance(10)
        return super().train_step(*args)


@pytest.mark.parametrize(("seconds", "expected"), [(15, 3), (20, 3), (21, 4)])
def test_an_execution_that_is_under_way_is_not_yet_the_last(seconds, expected):
    model = Slow([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    with FakeClock() as model.time:
        fit(model, [StopAfter(seconds=seconds)])
    assert ks.global_step(model) == expected


def test_other_actions_of_the_step_are_done_before_and_after_it():
    recorder, backup, validated = Recorder(5), Backup(5), Recorder(100)
    x, y = arrays(2)
    run_of(
        StopAfter(seconds=50),
        callbacks=[backup, recorder, validated],
        epochs=2,
        validation_data=(x, y),
    )
    assert recorder.steps == backup.steps == [5]
    assert [step for step, _ in validated.evaluations] == [5]


def test_a_target_reached_in_the_same_execution_is_the_reason():
    model = run_of(StopAfter(seconds=50), callbacks=[ks.StopAtStep(5)])
    assert (ks.global_step(model), ks.stop_reason(model)) == (5, "reached")


def test_each_fit_has_the_whole_budget():
    model, budget = make_model(), StopAfter(seconds=40)
    with FakeClock() as time:
        for expected in (4, 8, 12):
            time.advance(1000)
            fit(model, [budget, Ticking(time, 10)])
            assert ks.global_step(model) == expected
        fit(model, [copy.deepcopy(budget), Ticking(time, 10)])
    assert ks.global_step(model) == 16


def test_a_fit_that_was_broken_off_leaves_no_budget_behind():
    class BreaksOff(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError("broken off")

    model, budget = make_model(), StopAfter(seconds=1000)
    with FakeClock() as time:
        with pytest.raises(RuntimeError, match="broken off"):
            fit(model, [budget, Ticking(time, 10), BreaksOff()])
        time.advance(1000)
        fit(model, [budget, Ticking(time, 10)])
    assert (ks.global_step(model), ks.stop_reason(model)) == (20, None)


def test_a_counter_that_is_restored_after_train_begin_gives_no_new_budget():
    class Restores(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            ks.set_global_step(self.model, 100)
            time.advance(25)

    model = make_model()
    with FakeClock() as time:
        fit(model, [StopAfter(seconds=40), Ticking(time, 10), Restores()])
    assert ks.global_step(model) == 102


def test_the_time_between_train_begin_and_the_first_step_counts():
    class Restores(keras.callbacks.Callback):
        """Takes its time, after the run has begun."""

        def on_train_begin(self, logs=None):
            time.advance(25)

    model = make_model()
    with FakeClock() as time:
        fit(model, [StopAfter(seconds=40), Ticking(time, 10), Restores()])
    assert ks.global_step(model) == 2


def test_a_budget_that_is_used_up_before_the_first_step_leaves_one():
    class Restores(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            time.advance(100)

    model = make_model()
    with FakeClock() as time:
        fit(model, [StopAfter(seconds=40), Restores()])
    assert (ks.global_step(model), ks.stop_reason(model)) == (1, "time")


def test_c29_what_was_stopped_goes_on_from_there():
    x, y = arrays(10)
    whole = make_model(keras.optimizers.Adam(0.01))
    fit(whole, [], x=x, y=y, batch_size=BATCH, shuffle=False)
    model = make_model(keras.optimizers.Adam(0.01))
    run_of(StopAfter(seconds=60), model=model, x=x, y=y, batch_size=BATCH, shuffle=False)
    assert (ks.global_step(model), ks.stop_reason(model)) == (6, "time")
    rest = {"x": x[6 * BATCH :], "y": y[6 * BATCH :]}
    run_of(StopAfter(seconds=60), model=model, **rest, batch_size=BATCH, shuffle=False)
    assert (ks.global_step(model), ks.stop_reason(model)) == (10, None)
    for one, other in zip(state_of(model), state_of(whole), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ({}, ValueError, "received no time; give seconds, minutes or hours"),
        ({"seconds": 0, "hours": 0.0}, ValueError, "received no time"),
        ({"seconds": -1}, ValueError, "StopAfter.seconds. must be finite and .*; received -1"),
        ({"minutes": float("nan")}, ValueError, "StopAfter.minutes. must be .*; received nan"),
        ({"hours": float("inf")}, ValueError, "StopAfter.hours. must be finite"),
        ({"hours": 2, "minutes": -30}, ValueError, "received -30"),
        ({"hours": "2"}, TypeError, "StopAfter.hours. must be a number; received '2'"),
        ({"seconds": True}, TypeError, "must be a number; received True"),
    ],
)
def test_bad_arguments(args, error, text):
    with pytest.raises(error, match=text):
        StopAfter(**args)


def test_a_budget_that_is_refused_as_a_trigger_has_not_begun():
    """Asked for a time it would begin to run; the profiler doesn't ask either."""
    budget = ks.StopAfter(seconds=60)
    for wants_steps in (
        lambda: ks.StepScheduledLR(float, every=budget.trigger),
        lambda: ks.StepProfiler("logs", budget.trigger),
    ):
        with pytest.raises(ValueError, match="must be (a matter of )?steps"):
            wants_steps()
    with FakeClock(1000) as time:
        model = make_model()
        fit(model, [budget, Ticking(time, 10)], batches=20)
        assert (ks.global_step(model), ks.stop_reason(model)) == (6, "time")
