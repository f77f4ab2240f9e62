"""The laws hold in a loop of one's own as in fit: the same run, written both ways."""

import numpy as np
import pytest
from contract.rows import BATCHES, ROWS, SETTINGS, Events, InOrder
from flavours import fit, make_model, state_of
from loops import by_own_step, loop, weights_of

import keras_steps as ks
from keras_steps import logged
from keras_steps.clock import Clock
from keras_steps.step_callback import Order
from keras_steps.testing import Recorder

quiet = pytest.mark.filterwarnings("ignore:.*(NaN at step|no checkpoint of step)")
TIMES = ("steps_per_second", "examples_per_second")


def reports(recorder):
    return [{n: v for n, v in logs.items() if n not in TIMES} for logs in recorder.logs]


def assert_same_reports(one, other):
    assert one.steps == other.steps
    for here, there in zip(reports(one), reports(other), strict=True):
        assert here == pytest.approx(there, rel=2e-5)


@quiet
def test_1_2_the_same_run_both_ways_fires_at_the_same_steps_with_the_same_reports():
    seen = []
    for train in (fit, loop):
        events = {name: Events() for name in ROWS}
        callbacks = [row.make(events[name]) for name, row in ROWS.items()]
        recorder, model = Recorder(7), make_model()
        for _ in range(2):
            stop = ks.StopAtStep(num_steps=30)
            train(model, [*callbacks, recorder, stop], batches=BATCHES, epochs=2)
        seen.append(({n: e.steps for n, e in events.items()}, recorder, weights_of(model)))
    (fit_events, of_fit, fit_weights), (loop_events, of_loop, loop_weights) = seen
    looks = fit_events["StopOnNaN"]  # after a step of one's own it sees whether there is a loss
    assert loop_events == fit_events | {"StopOnNaN": sorted([*looks, 1, 31])}
    assert of_loop.steps == [7, 14, 21, 28, 35, 42, 49, 56]
    assert_same_reports(of_loop, of_fit)
    assert of_loop.evaluations == of_fit.evaluations
    np.testing.assert_equal(loop_weights, fit_weights)


def test_1_2_a_step_of_ones_own_is_followed_as_fits_is():
    of_fit, of_loop = Recorder(7), Recorder(7)
    model = make_model()
    fit(model, [of_fit, ks.StopAtStep(40)], batches=BATCHES, epochs=2)
    own = make_model()
    step, loop_args = by_own_step(own)
    loop(own, [of_loop, ks.StopAtStep(40)], batches=BATCHES, epochs=2, step=step, **loop_args)
    assert of_loop.steps == [7, 14, 21, 28, 35]
    if not loop_args:  # else a function says the step, and nobody knows of a learning rate
        assert_same_reports(of_loop, of_fit)
    assert ks.global_step(own) == 40
    for here, there in zip(weights_of(own), weights_of(model), strict=True):
        np.testing.assert_allclose(here, there, rtol=2e-5, atol=1e-6)


def test_4_reads_the_counter_and_what_was_logged_at_firings_only(monkeypatch):
    reads, sums = [], []
    read, summed = Clock._read, logged.Logged.sums
    monkeypatch.setattr(Clock, "_read", lambda self: reads.append(1) or read(self))
    monkeypatch.setattr(logged.Logged, "sums", lambda self: sums.append(1) or summed(self))
    recorder = Recorder(ks.AtSteps(10))
    model = make_model()
    step, loop_args = by_own_step(model)
    loop(model, [recorder], batches=BATCHES, epochs=3, step=step, **loop_args)
    assert recorder.steps == [10]
    assert len(sums) == 1
    assert len(reads) <= 6  # begin, first iteration, is it moving, firing, end


def test_8_order_at_a_step_is_not_that_of_the_list():
    names = []
    callbacks = [InOrder(order, names) for order in reversed(Order)]
    loop(make_model(), [*callbacks, ks.StopAtStep(5)])
    assert names == [(5, order.name) for order in Order]


def test_7_a_wrong_optimizer_raises_at_construction():
    for row in ROWS.values():
        callback = row.make(Events())
        callback.optimizer = "g_optimizer"
        with pytest.raises(ValueError, match="has no attribute 'g_optimizer'"):
            ks.StepLoop([callback], model=make_model())


@quiet
def test_5_watching_changes_nothing():
    states = []
    for with_them in (False, True):
        rows = [row for row in ROWS.values() if not row.before_updates and with_them]
        model = SETTINGS["plain"].model()
        loop(model, [row.make(Events()) for row in rows], batches=BATCHES, epochs=2)
        states.append(state_of(model))
    np.testing.assert_equal(states[1], states[0])
