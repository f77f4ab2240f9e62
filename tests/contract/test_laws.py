"""The laws of docs/design.md, each over the whole table of callbacks and settings."""

import copy

import numpy as np
import pytest
from contract.rows import GRID, ROWS, SETTINGS, Events, InOrder, rows_for
from flavours import FLAVOUR, IS_TF_KERAS, fit, keras, make_model, state_of

import keras_steps as ks
from keras_steps import fit_adapter, keras_internals, reports
from keras_steps.backing_up import BackingUp
from keras_steps.checkpoint_session import CheckpointSession
from keras_steps.clock import Clock
from keras_steps.fit_adapter import FitAdapter
from keras_steps.fit_position import FitPosition
from keras_steps.run import Run
from keras_steps.step_callback import Order
from keras_steps.testing import Recorder

every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
quiet = pytest.mark.filterwarnings(
    "ignore:.*(no multiple of|once an execution|NaN at step|no checkpoint of step)"
)


@quiet
@every_setting
def test_1_2_3_each_fires_once_where_its_grid_is_crossed_in_a_second_fit_too(setting):
    rows = rows_for(setting)
    events = {name: Events() for name in rows}
    callbacks = [row.make(events[name]) for name, row in rows.items()]
    model = setting.model()

    setting.fit(model, callbacks)
    first = {name: row.expected(setting.steps) for name, row in rows.items()}
    assert {name: seen.steps for name, seen in events.items()} == first
    assert ks.global_step(model) == setting.steps[-1]

    for seen in events.values():
        seen.steps.clear()
    setting.fit(model, callbacks)
    whole = {name: row.expected(setting.steps_of_two_fits()) for name, row in rows.items()}
    begin = setting.steps[-1]
    for name, row in rows.items():
        rest = [step for step in whole[name] if step > begin]
        if row.before_updates:  # it sets its value again where the second fit begins
            rest = [GRID.latest_step(begin), *rest]
        assert events[name].steps == rest, name
    assert ks.global_step(model) == setting.steps_of_two_fits()[-1]


def no_companions(callback):
    return not getattr(callback, "companions", ())


@quiet
@every_setting
def test_4_reads_the_counter_and_converts_logs_at_firings_only(setting, monkeypatch):
    reads, conversions = [], []
    read, scalars = Clock._read, reports.scalars
    monkeypatch.setattr(Clock, "_read", lambda self: reads.append(1) or read(self))
    monkeypatch.setattr(
        "keras_steps.reports.scalars", lambda logs: conversions.append(1) or scalars(logs)
    )
    recorder = Recorder(ks.AtSteps(10))
    watchers = [row.make(Events()) for row in rows_for(setting).values() if not row.before_updates]
    watchers = [w for w in watchers if not isinstance(w, ks.EvaluateEveryN) and no_companions(w)]
    for watcher in watchers:
        watcher.trigger = ks.AtSteps(10)
        watcher.at_end = False
    epochs = 3
    setting.fit(setting.model(), [recorder, *watchers], epochs=epochs)
    assert recorder.steps == [next(step for step in setting.steps if step >= 10)]
    assert len(conversions) == 1 + len(watchers)
    assert len(reads) <= 1 + epochs + 3 + setting.overflows * epochs


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras has no asynchronous dispatch")
@every_row
def test_4_leaves_asynchronous_dispatch_on(row):
    callbacks = keras.callbacks.CallbackList([row.make(Events()), ks.StopAtStep(5)])
    assert callbacks._async_train == (FLAVOUR in ("jax", "torch"))


@quiet
@every_setting
def test_5_watching_changes_nothing(setting):
    rows = rows_for(setting).values()
    watchers = [row.make(Events()) for row in rows if not row.before_updates]
    results = []
    for callbacks in ([], watchers):
        model = setting.model()
        history = setting.fit(model, callbacks, epochs=2, validation_data=setting.data())
        results.append((history.history, state_of(model)))
    (bare, bare_state), (watched, watched_state) = results
    np.testing.assert_equal(watched, bare)
    np.testing.assert_equal(watched_state, bare_state)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [bad for row in ROWS.values() for bad in row.bad]
    + [
        (lambda: ks.StopAtStep(), ValueError, "exactly one of last_step"),
        (
            lambda: ks.StopAtStep(10, num_steps=10),
            ValueError,
            "received last_step=10, num_steps=10",
        ),
        (lambda: ks.StopAtStep(0), ValueError, "at least 1; received 0"),
        (lambda: ks.StopAtStep(num_steps=0), ValueError, "at least 1; received 0"),
        (lambda: ks.StopAtStep(True), TypeError, "must be an integer; received True"),
        (lambda: ks.StopAtStep(10.0), TypeError, "must be an integer; received 10.0"),
        (lambda: ks.StopAfter(), ValueError, "StopAfter"),
        (lambda: ks.StopAfter(seconds=-1), ValueError, "received"),
        (lambda: ks.StepEarlyStopping(patience=0), ValueError, "at least 1; received 0"),
        (lambda: ks.StepEarlyStopping(mode="least"), ValueError, "received 'least'"),
    ],
)
def test_7_a_bad_argument_raises_at_construction(call, error, text):
    with pytest.raises(error, match=text):
        call()


@every_row
def test_7_a_wrong_optimizer_raises_at_train_begin(row):
    model = make_model()
    callback = row.make(Events())
    callback.optimizer = "g_optimizer"
    with pytest.raises(ValueError, match="has no attribute 'g_optimizer'"):
        fit(model, [callback])
    assert ks.global_step(model) == 0
    assert not isinstance(model.train_function, fit_adapter.FitAdapter)


def test_8_order_at_a_step_is_not_that_of_the_list():
    names = []
    callbacks = [InOrder(order, names) for order in reversed(Order)]
    fit(make_model(), [*callbacks, ks.StopAtStep(5)], batches=10)
    order = ["NAN", "EVALUATE", "REPORT", "EARLY_STOP", "CHECKPOINT", "STOP", "BACKUP"]
    assert names == [(5, name) for name in order]


def test_8_a_step_stays_open_for_the_validation_at_an_epochs_end():
    recorder = Recorder(5)
    setting = SETTINGS["plain"]
    others = [row.make(Events()) for row in ROWS.values()]
    callbacks = [*others, recorder]
    fit(setting.model(), callbacks, batches=10, epochs=2, validation_data=setting.data())
    evaluations = [step for step, results in recorder.evaluations if "val_loss" in results]
    assert evaluations == [10, 20]
    assert ["val_loss" in logs for logs in recorder.logs] == [False, True, False, True]


@quiet
@every_setting
def test_lands_exactly_on_the_last_step(setting):
    model = setting.model()
    setting.fit(model, [ks.StopAtStep(10)], epochs=3)
    assert ks.global_step(model) == 10
    if setting.overflows == 0:
        assert keras_internals.read_number(keras_internals.counter_of(model.optimizer)[0]) in (
            10,
            20,
        )


@quiet
@every_setting
def test_c40_copied_by_deepcopy_and_used_in_two_fits(setting):
    recorder, stop = copy.deepcopy([Recorder(5), ks.StopAtStep(num_steps=10)])
    copies = copy.deepcopy([row.make(Events()) for row in ROWS.values()])
    model = setting.model()
    for last_step in (10, 20):
        setting.fit(model, [*copies, recorder, stop], epochs=3)
        assert ks.global_step(model) == last_step
    assert recorder.steps[-1] == 20


@quiet
def test_c40_a_copy_made_within_a_fit_belongs_to_none():
    copies = []
    callbacks = [row.make(Events()) for row in ROWS.values()]
    take = ks.OnStep(4, lambda *_: copies.extend(copy.deepcopy(callbacks)))
    fit(make_model(), [*callbacks, take, ks.StopAtStep(5)])
    copies += [each for c in copies for each in vars(c).get("companions", ())]
    assert len(copies) > len(callbacks)
    of_the_fit = (Run, FitAdapter, FitPosition, BackingUp, CheckpointSession, keras.Model)
    held = {
        type(c).__name__: [v for v in vars(c).values() if isinstance(v, of_the_fit)] for c in copies
    }
    assert {name: values for name, values in held.items() if values} == {}
