"""StepCheckpoint: which steps are saved, which stay, and what the training notices of it."""

import contextlib
import copy
import math
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from disks import FILLER, small_disk
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    Subclassed,
    arrays,
    fit,
    keras,
    make_model,
    mirrored_scope,
    state_of,
)

import keras_steps as ks
from keras_steps.callbacks.evaluate_every_n import EvaluateEveryN
from keras_steps.callbacks.step_backup_and_restore import StepBackupAndRestore
from keras_steps.callbacks.step_checkpoint import StepCheckpoint
from keras_steps.callbacks.stop_after import StopAfter
from keras_steps.callbacks.stop_on_nan import StopOnNaN
from keras_steps.checkpoints import (
    best_checkpoint,
    end_of_run,
    latest_checkpoint,
    list_checkpoints,
)
from keras_steps.step_callback import Order, StepCallback
from keras_steps.testing import FakeClock, Recorder
from keras_steps.workers import Workers

NAN = math.nan
INDEX = "checkpoints.json"
VALIDATION = arrays(2, seed=3)
not_on_torch = pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses spe > 1")
on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="written in TensorFlow")


def steps_in(path):
    return [checkpoint.step for checkpoint in list_checkpoints(path)]


def names_in(path):
    return sorted(file.name for file in path.iterdir())


def name(step, suffix=".keras"):
    return f"step_{step:08d}{suffix}"


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def scores_in(path):
    return {checkpoint.step: checkpoint.scores for checkpoint in list_checkpoints(path)}


def saves(path, every=10, **args):
    return StepCheckpoint(path, every, **{"max_to_keep": None, **args})


def assert_same(one, other):
    np.testing.assert_equal(state_of(one), state_of(other))


class Results(StepCallback):
    """Makes evaluations whose results are given, one after the other."""

    order = Order.EVALUATE

    def __init__(self, every, values, name="val_loss", at_start=False):
        super().__init__(every)
        self.values, self.name, self.at_start = values, name, at_start
        self.uses_model = False

    def begin(self, run):
        self.run, self.left = run, list(self.values)
        run.evaluations.prefixes.append("val_")

    def on_step(self, step, logs):
        if self.left:
            self.run.evaluated({self.name: self.left.pop(0)})


class Raises(StepCallback):
    """Breaks the fit off at a step."""

    order = Order.BACKUP

    def __init__(self, step, error=KeyboardInterrupt):
        super().__init__(ks.AtSteps(step))
        self.error = error

    def on_step(self, step, logs):
        raise self.error


class Listener:
    """Keeps what it is told, in a list that several can share."""

    def __init__(self, told, label="", fails_at=None):
        self.told, self.label, self.fails_at = told, label, fails_at

    def before_save(self, step, path):
        self.told.append((self.label + "before", step, path.name, path.exists(), self.is_main()))

    def after_save(self, step, path):
        self.told.append((self.label + "after", step, path.name, path.exists(), self.is_main()))
        if step == self.fails_at:
            raise RuntimeError("the bucket is gone")

    @staticmethod
    def is_main():
        return threading.current_thread() is threading.main_thread()


# ---------------------------------------------------------------- which steps


@not_on_torch
@pytest.mark.filterwarnings("ignore:StepCheckpoint. its interval of 7 steps is no multiple")
def test_c05_within_executions_of_several_batches(tmp_path):
    fit(make_model(steps_per_execution=5), [saves(tmp_path, 7)], batches=30)
    assert steps_in(tmp_path) == [10, 15, 25, 30]


def test_c06_a_run_that_goes_on_from_the_newest(tmp_path):
    x, y = arrays(45)
    data = {"batch_size": BATCH, "shuffle": False}
    first, rest = slice(25 * BATCH), slice(25 * BATCH, None)
    model = make_model(keras.optimizers.Adam(0.01))
    fit(model, [saves(tmp_path)], x=x[first], y=y[first], **data)
    assert steps_in(tmp_path) == [10, 20, 25]
    model = keras.models.load_model(latest_checkpoint(tmp_path))
    assert ks.global_step(model) == 25
    fit(model, [saves(tmp_path)], x=x[rest], y=y[rest], **data)
    assert steps_in(tmp_path) == [10, 20, 25, 30, 40, 45]

    whole = make_model(keras.optimizers.Adam(0.01))
    fit(whole, [], x=x, y=y, **data)
    assert_same(model, whole)


def test_c16_names_carry_the_global_step_over_epochs(tmp_path):
    fit(make_model(), [saves(tmp_path, 4)], epochs=2)
    assert names_in(tmp_path) == [INDEX, *map(name, [4, 8, 12, 16, 20])]


def test_c34_the_last_step_of_a_resume_that_ends_off_the_grid_is_saved_once(tmp_path):
    fit(make_model(), [saves(tmp_path)], batches=25)
    told, reports = [], Recorder(10)
    reports.at_end = True

    def goes_on():
        model = keras.models.load_model(latest_checkpoint(tmp_path))
        evaluates = EvaluateEveryN(VALIDATION, 10)
        target = ks.StopAtStep(33)
        fit(model, [saves(tmp_path, listeners=[Listener(told)]), evaluates, reports, target])

    goes_on()
    assert [(what, step) for what, step, *_ in told] == [
        ("before", 30),
        ("after", 30),
        ("before", 33),
        ("after", 33),
    ]
    assert reports.steps == [30, 33]
    assert [step for step, _ in reports.evaluations] == [30, 33]
    before = contents(tmp_path)
    goes_on()
    assert contents(tmp_path) == before
    assert len(told) == 4


@pytest.mark.parametrize(
    ("args", "others", "steps", "ended"),
    [
        ({}, [], [4, 8, 10], "epochs"),
        ({"at_end": False}, [], [4, 8], "epochs"),
        ({}, [ks.StopAtStep(8)], [4, 8], "reached"),
        ({}, [ks.StopAtStep(7)], [4, 7], "reached"),
        ({"at_end": False}, [ks.StopAtStep(7)], [4], "reached"),
        ({"every": ks.AtSteps(1, 3)}, [], [1, 3, 10], "epochs"),
        ({"every": ks.GeometricSteps()}, [], [1, 2, 4, 8, 10], "epochs"),
        ({"every": 100}, [], [10], "epochs"),
    ],
)
def test_at_the_end_and_its_mark(tmp_path, args, others, steps, ended):
    fit(make_model(), [saves(tmp_path, **{"every": 4, **args}), *others])
    assert (steps_in(tmp_path), end_of_run(tmp_path)) == (steps, ended)


def test_a_time_stop_that_no_backup_continues_ends_the_run(tmp_path):
    with FakeClock() as time:
        tick = ks.OnStep(1, lambda step, logs: time.advance(1))
        fit(make_model(), [saves(tmp_path, 4), tick, StopAfter(seconds=6)])
    assert (steps_in(tmp_path), end_of_run(tmp_path)) == ([4, 7], "time")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_an_error_breaks_off_is_not_marked_as_ended(tmp_path, error):
    callback, model = saves(tmp_path, 4), make_model()
    with pytest.raises(error):
        fit(model, [callback, Raises(7, error)])
    assert end_of_run(tmp_path) is None
    fit(model, [callback])
    assert (steps_in(tmp_path), end_of_run(tmp_path)) == ([4, 8, 12, 16, 17], "epochs")


def test_files_hold_the_model_as_of_their_step(tmp_path):
    model = make_model(keras.optimizers.Adam(0.01))
    fit(model, [saves(tmp_path, 4)])
    for checkpoint in list_checkpoints(tmp_path):
        loaded = keras.models.load_model(checkpoint.path)
        there = make_model(keras.optimizers.Adam(0.01))
        fit(there, [ks.StopAtStep(checkpoint.step)])
        assert ks.global_step(loaded) == checkpoint.step
        np.testing.assert_equal(loaded.get_weights(), there.get_weights())
    assert_same(loaded, model)


def test_5_training_is_bit_for_bit_as_without(tmp_path):
    found = []
    watches = [
        saves(tmp_path / "a", 3, monitor="val_loss", max_to_keep=1),
        saves(tmp_path / "b", 2, save_weights_only=True),
    ]
    for callbacks in ([], watches):
        model = make_model(keras.optimizers.Adam(0.01))
        history = fit(model, callbacks, epochs=2, validation_data=VALIDATION).history
        found.append((history, state_of(model)))
    np.testing.assert_equal(*found)


# ---------------------------------------------------------------- the best


@pytest.mark.parametrize(
    ("values", "args", "steps", "best"),
    [
        ([5, 4, 6, 3, 7, 2], {}, [3, 6, 12, 18, 20], 18),
        ([5, 4, 6, 4, 7, 4], {}, [3, 6, 20], 6),
        ([5, 6, 6, 7, 7, 7], {}, [3, 20], 3),
        ([5, 4, 6, 3, 7, 2], {"mode": "max"}, [3, 9, 15, 20], 15),
        ([NAN, 5, NAN, 4, math.inf, 6], {}, [6, 12, 20], 12),
        ([5, 4, 6, 3, 7, 9], {"max_to_keep": 1}, [12, 20], 12),
        ([5, 4, 6, 3, 7, 9], {"max_to_keep": 2, "every": 8}, [12, 16, 20], 12),
        ([5, 4, 6, 3, 7, 9], {"max_to_keep": 1, "keep_every": 8}, [9, 12, 16, 20], 12),
        ([2, 4, 6, 3, 7, 9], {"max_to_keep": 1, "keep_every": 9, "every": 5}, [3, 10, 20], 3),
        ([2, 4, 6, 3, 7, 9], {"max_to_keep": 1, "every": 3, "at_end": False}, [3, 18], 3),
    ],
)
def test_c15_each_improvement_is_saved_and_the_best_stays(tmp_path, values, args, steps, best):
    args = {"every": 1000, **args}
    if "keep_every" in args and args["every"] == 1000:
        args["every"] = ks.AtSteps(4, 9, 16)
    fit(make_model(), [saves(tmp_path, monitor="val_loss", **args), Results(3, values)], epochs=2)
    assert steps_in(tmp_path) == steps
    assert best_checkpoint(tmp_path) == tmp_path / name(best)


@pytest.mark.filterwarnings("ignore:Two evaluations at step")
@pytest.mark.parametrize(
    ("every", "batches", "at"),
    [
        (7, 10, [7, 10, 14, 20, 21, 28, 30]),
        (1000, 10, [10, 20, 30]),
        (5, 7, [5, 7, 10, 14, 15, 20, 21]),
    ],
)
def test_c15_the_best_is_the_argmin_over_both_kinds_of_evaluation(tmp_path, every, batches, at):
    model = make_model(keras.optimizers.SGD(0.6))  # too much: the loss goes up and down
    recorder = Recorder(10**6)
    callback = saves(tmp_path, 1000, monitor="val_loss", max_to_keep=1)
    callbacks = [callback, EvaluateEveryN(VALIDATION, every, at_end=False), recorder]
    fit(model, callbacks, batches=batches, epochs=3, validation_data=VALIDATION)
    losses = {step: logs["val_loss"] for step, logs in recorder.evaluations if "val_loss" in logs}
    assert list(losses) == at
    best = min(losses, key=losses.get)
    assert best_checkpoint(tmp_path) == tmp_path / name(best)
    assert scores_in(tmp_path)[best]["val_loss"] == losses[best]
    loaded = keras.models.load_model(best_checkpoint(tmp_path))
    found = loaded.evaluate(*VALIDATION, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(losses[best], rel=1e-6)


def test_the_untrained_model_may_be_the_best(tmp_path):
    results = Results(5, [1, 2, 3], at_start=True)
    fit(make_model(), [saves(tmp_path, 1000, monitor="val_loss"), results])
    assert steps_in(tmp_path) == [0, 10]
    assert best_checkpoint(tmp_path) == tmp_path / name(0)
    loaded = keras.models.load_model(tmp_path / name(0))
    np.testing.assert_equal(loaded.get_weights(), make_model().get_weights())


def test_the_best_so_far_survives_a_restart(tmp_path):
    fit(make_model(), [saves(tmp_path, 1000, monitor="val_loss"), Results(5, [3, 5])])
    assert steps_in(tmp_path) == [5, 10]
    model = keras.models.load_model(latest_checkpoint(tmp_path))
    fit(model, [saves(tmp_path, 1000, monitor="val_loss"), Results(2, [4, 3, 2, 5])])
    assert steps_in(tmp_path) == [5, 10, 16, 20]
    assert best_checkpoint(tmp_path) == tmp_path / name(16)


@pytest.mark.parametrize("lost", [False, True])
def test_a_backup_goes_on_where_the_file_of_its_step_may_have_been_lost(tmp_path, lost):
    """A kill may come when the backup is whole and the checkpoint of its step is not."""
    told, written = [], threading.Event()

    class Tells(Listener):
        def after_save(self, step, path):
            if step == 8:
                written.set()

    def breaks_off(step, logs):
        assert written.wait(60)
        raise ZeroDivisionError

    def run(*others):
        args = {"monitor": "val_loss", "listeners": [Tells(told)]}
        results = Results(8, [3, 5])
        backup = StepBackupAndRestore(tmp_path / "b", 4, on_signal=())
        fit(make_model(), [saves(tmp_path / "c", 4, **args), results, backup, *others], batches=18)

    with pytest.raises(ZeroDivisionError):
        run(ks.OnStep(ks.AtSteps(9), breaks_off))
    assert scores_in(tmp_path / "c") == {4: {}, 8: {"val_loss": 3.0}}
    before = contents(tmp_path / "c")
    if lost:
        (tmp_path / "c" / name(8)).unlink()
    run()
    assert scores_in(tmp_path / "c") == {
        4: {},
        8: {"val_loss": 3.0},
        12: {},
        16: {"val_loss": 3.0},
        18: {},
    }
    assert best_checkpoint(tmp_path / "c") == tmp_path / "c" / name(8)
    assert (contents(tmp_path / "c")[name(8)] == before[name(8)]) is not lost
    again = [8] if lost else []
    assert [step for what, step, *_ in told if what == "before"] == [4, 8, *again, 12, 16, 18]
    loaded = keras.models.load_model(tmp_path / "c" / name(8))
    there = make_model()
    fit(there, [ks.StopAtStep(8)], batches=18)
    np.testing.assert_equal(loaded.get_weights(), there.get_weights())


def test_the_best_so_far_is_what_is_on_the_disk(tmp_path):
    """Its file may be lost: then the next that is better than the rest is saved."""
    fit(make_model(), [saves(tmp_path, 1000, monitor="val_loss"), Results(5, [1, 4])])
    assert steps_in(tmp_path) == [5, 10]
    model = keras.models.load_model(latest_checkpoint(tmp_path))
    (tmp_path / name(5)).unlink()
    fit(model, [saves(tmp_path, 1000, monitor="val_loss"), Results(3, [5, 3, 2])])
    assert steps_in(tmp_path) == [10, 15, 18, 20]


@pytest.mark.parametrize(
    ("monitor", "fit_args", "text"),
    [
        ("val_loss", {}, "this run makes no evaluation that could bring it"),
        ("loss", {"validation_data": VALIDATION}, "A metric of training .* monitor 'val_loss'"),
        ("val_skill", {"validation_data": VALIDATION}, "Give mode='min' or mode='max'"),
    ],
)
def test_c15_without_a_source_at_train_begin(tmp_path, monitor, fit_args, text):
    model = make_model()
    callback = saves(tmp_path / "c", monitor=monitor)
    with pytest.raises(ValueError, match=rf"StepCheckpoint.monitor='{monitor}'.: .*{text}"):
        fit(model, [callback], **fit_args)
    assert ks.global_step(model) == 0
    assert not (tmp_path / "c").exists()


def test_c15_a_wrong_name_at_the_first_evaluation(tmp_path):
    model = make_model()
    callbacks = [saves(tmp_path, 2, monitor="val_los", mode="min"), EvaluateEveryN(VALIDATION, 4)]
    with pytest.raises(ValueError, match="no result of that name. It has val_loss, val_mae"):
        fit(model, callbacks, epochs=2)
    assert ks.global_step(model) == 4


class Unknown(StepCallback):
    """Makes the run one of which it can't be known which evaluations it makes."""

    order = Order.NAN

    def begin(self, run):
        run.evaluations.are_known = False


def test_c15_what_could_not_be_known_is_known_after_an_epoch(tmp_path):
    model = make_model()
    with pytest.raises(ValueError, match="no evaluation has brought it by the end of the epoch"):
        fit(model, [saves(tmp_path, monitor="val_loss"), Unknown()], epochs=2)
    assert ks.global_step(model) == 10


# ---------------------------------------------------------------- scores


def test_c39_validation_on_the_step_where_a_checkpoint_is_due(tmp_path):
    for monitor in ("val_loss", None):
        place = tmp_path / str(monitor)
        callback = saves(place, 5, monitor=monitor)
        history = fit(make_model(), [callback], epochs=2, validation_data=VALIDATION).history
        found = [{f"val_{n}": history[f"val_{n}"][e] for n in ("loss", "mae")} for e in (0, 1)]
        assert scores_in(place) == {5: {}, 10: found[0], 15: {}, 20: found[1]}


def test_c39_evaluations_on_several_data(tmp_path):
    data = {"val_": VALIDATION, "test_": arrays(1, seed=5)}
    fit(make_model(), [saves(tmp_path, 5), EvaluateEveryN(data, 5)])
    names = {"val_loss", "val_mae", "test_loss", "test_mae"}
    assert [set(scores) for scores in scores_in(tmp_path).values()] == [names, names]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("monitor", ["val_loss", None])
def test_c39_validation_that_comes_after_the_checkpoint(tmp_path, monitor):
    """Of data of unknown size nobody knows that an epoch ends at the step that is saved."""
    x, y = arrays(8)

    def batches():
        for start in range(0, 8 * BATCH, BATCH):
            yield x[start : start + BATCH], y[start : start + BATCH]

    callback = saves(tmp_path, 4, monitor=monitor, max_to_keep=1)
    history = fit(make_model(), [callback], x=batches(), validation_data=VALIDATION).history
    scores = {name: history[name][0] for name in ("val_loss", "val_mae")}
    assert scores_in(tmp_path) == {8: scores}
    if monitor:
        assert best_checkpoint(tmp_path) == tmp_path / name(8)


# ---------------------------------------------------------------- not finite


@contextlib.contextmanager
def refusals():
    """What is warned of the checkpoints that are left out, at the line that calls fit."""
    messages = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    found = [w for w in caught if "There is no checkpoint" in str(w.message)]
    messages.extend(str(warning.message) for warning in found)
    assert all(os.path.basename(w.filename) == "flavours.py" for w in found)


def with_nan(batch, batches=10):
    """Data whose batch of this number, counted from 1, is not finite."""
    x, y = arrays(batches)
    x[(batch - 1) * BATCH : batch * BATCH] = NAN
    return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}


LEFT_OUT = "Others are left out without a further warning in this fit, as long as it is so."


@pytest.mark.parametrize("at", [5, 8])
def test_c43_a_step_whose_loss_is_nan(tmp_path, at):
    with refusals() as messages:
        fit(make_model(), [saves(tmp_path, 4)], **with_nan(at, 20))
    assert messages == [f"There is no checkpoint of step 8: the loss is nan. {LEFT_OUT}"]
    assert (steps_in(tmp_path), end_of_run(tmp_path)) == ([4], "epochs")


def test_c43_a_run_that_a_nan_ends(tmp_path):
    model = make_model()
    fit(model, [saves(tmp_path, 4), StopOnNaN(every=2)], **with_nan(5))
    assert (ks.global_step(model), ks.stop_reason(model)) == (6, "nan")
    assert (steps_in(tmp_path), end_of_run(tmp_path)) == ([4], None)


def breaks(step, value):
    """Writes to a weight at a step: the loss there is of before."""

    def write(now, logs):
        weights = breaks.model.get_weights()
        weights[0][0, 0] = value
        breaks.model.set_weights(weights)

    return ks.OnStep(ks.AtSteps(step), write)


@pytest.mark.parametrize(
    ("at", "others", "steps"), [(8, [], [4]), (10, [], [4, 8]), (10, [ks.StopAtStep(10)], [4, 8])]
)
@pytest.mark.parametrize("value", [NAN, math.inf])
def test_c43_a_step_whose_weights_are_not_finite(tmp_path, at, others, steps, value):
    breaks.model = make_model()
    with refusals() as messages:
        fit(breaks.model, [saves(tmp_path, 4), breaks(at, value), *others])
    (message,) = messages
    assert re.match(rf"There is no checkpoint of step {at}: \S*dense\S* is not finite", message)
    assert names_in(tmp_path) == [INDEX, *map(name, steps)]


def test_scores_of_a_step_that_was_refused_go_nowhere(tmp_path):
    """They come when its weights have been found not to be finite."""
    x, y = arrays(8)
    batches = ((x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, 8 * BATCH, BATCH))
    breaks.model = make_model()
    callbacks = [saves(tmp_path, 4), breaks(8, NAN)]
    with refusals() as messages:
        fit(breaks.model, callbacks, x=batches, validation_data=VALIDATION)
    assert len(messages) == 1
    assert scores_in(tmp_path) == {4: {}}


def test_a_best_one_that_is_refused_is_not_the_best(tmp_path):
    """The next that is better than what is on the disk is saved."""

    class Mends(StepCallback):
        order = Order.NAN

        def on_step(self, step, logs):
            self.model.set_weights(make_model().get_weights())

    callback = saves(tmp_path, 1000, monitor="val_loss")
    results = Results(4, [5, 4, 1, 6, 3, 2, 9])  # at 4, 8, 12 …
    with refusals() as messages:
        callbacks = [callback, results, Mends(ks.AtSteps(10, 24))]
        x, y = arrays(14)
        y[9 * BATCH : 10 * BATCH] = 1e30  # so that of step 10 the loss alone is infinite
        fit(make_model(), callbacks, x=x, y=y, batch_size=BATCH, shuffle=False, epochs=2)
    assert len(messages) == 1
    assert messages[0].startswith("There is no checkpoint of step 12: the loss is inf.")
    assert steps_in(tmp_path) == [4, 8, 20]


def test_a_rollback_drops_what_lies_past_it(tmp_path):
    """Back from 20 to 10: 12 and 16 are saved a second time, with new scores."""
    told, model = [], make_model()
    callback = saves(tmp_path, 4, monitor="val_loss", listeners=[Listener(told)])
    results = Results(6, [5, 4, 6, 7, 3, 8])  # at 6, 12, 18, then at 12, 18, 24
    nan = StopOnNaN(every=10, action="rollback")
    fit(model, [callback, nan, results], **with_nan(19, 40))
    assert ks.global_step(model) == 30
    before = [step for what, step, *_ in told if what == "before"]
    assert before == [4, 6, 8, 12, 16, 12, 16, 18, 20, 24, 28, 30]
    assert {step: scores.get("val_loss") for step, scores in scores_in(tmp_path).items()} == {
        4: None,
        6: 5.0,
        8: None,
        12: 7.0,
        16: None,
        18: 3.0,
        20: None,
        24: 8.0,
        28: None,
        30: None,
    }
    assert best_checkpoint(tmp_path) == tmp_path / name(18)


# ---------------------------------------------------------------- directories


def test_c37_a_second_fresh_run_raises_before_any_step(tmp_path):
    fit(make_model(), [saves(tmp_path, 4)])
    before, model = contents(tmp_path), make_model()
    with pytest.raises(FileExistsError, match=rf"{tmp_path} holds 3 checkpoints.*overwrite=True"):
        fit(model, [saves(tmp_path, 3)])
    assert ks.global_step(model) == 0
    assert contents(tmp_path) == before
    fit(model, [])
    assert ks.global_step(model) == 10


def test_c37_overwriting_is_asked_for(tmp_path):
    fit(make_model(), [saves(tmp_path, 4)])
    fit(make_model(), [saves(tmp_path, 3, overwrite=True)])
    assert names_in(tmp_path) == [INDEX, *map(name, [3, 6, 9, 10])]


def test_c37_a_run_that_goes_on_appends_though_it_may_overwrite(tmp_path):
    model = make_model()
    fit(model, [saves(tmp_path, 4)])
    fit(model, [saves(tmp_path, 4, overwrite=True)])
    assert steps_in(tmp_path) == [4, 8, 10, 12, 16, 20]


def test_a_run_that_goes_on_from_an_earlier_step_drops_what_lies_past_it(tmp_path):
    fit(make_model(), [saves(tmp_path, 4)])
    fit(keras.models.load_model(tmp_path / name(4)), [saves(tmp_path, 5)], batches=2)
    assert names_in(tmp_path) == [INDEX, *map(name, [4, 5, 6])]


def test_foreign_files_stay(tmp_path):
    foreign = ["notes.txt", "model.keras", "step_4.keras"]
    for file in foreign:
        (tmp_path / file).write_text("foreign")
    fit(make_model(), [saves(tmp_path, 4, max_to_keep=1)])
    fit(make_model(), [saves(tmp_path, 4, max_to_keep=1, overwrite=True)])
    assert names_in(tmp_path) == sorted([INDEX, name(10), *foreign])
    assert {(tmp_path / file).read_text() for file in foreign} == {"foreign"}


def test_a_foreign_file_with_a_name_to_come_is_told_before_any_step(tmp_path):
    (tmp_path / name(8)).write_text("foreign")
    model = make_model()
    with pytest.raises(FileNotFoundError, match=rf"{name(8)}, but not checkpoints.json"):
        fit(model, [saves(tmp_path, 4)])
    assert ks.global_step(model) == 0
    (tmp_path / name(8)).unlink()
    fit(model, [saves(tmp_path, 4)])
    (tmp_path / name(16)).write_text("foreign")
    with pytest.raises(FileExistsError, match=f"{name(16)} has the name of a checkpoint to come"):
        fit(model, [saves(tmp_path, 4)])
    assert ks.global_step(model) == 10


def test_two_that_save_to_one_directory(tmp_path):
    model = make_model()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for other in (tmp_path / "a", f"{tmp_path}/b/../a", tmp_path / "link"):
        with pytest.raises(ValueError, match="two callbacks of one fit save to .*of its own"):
            fit(model, [saves(tmp_path / "a"), saves(other, 3)])
    assert ks.global_step(model) == 0
    fit(model, [saves(tmp_path / "a"), saves(tmp_path / "a" / "b", 3)])
    assert (steps_in(tmp_path / "a"), steps_in(tmp_path / "a" / "b")) == ([10], [3, 6, 9, 10])


def test_reports_may_be_written_beside_checkpoints(tmp_path):
    model = make_model()
    place = tmp_path / "a"
    for _ in range(2):
        csv = ks.StepCSVLogger(place / "a.csv", 5)
        fit(model, [saves(place, 5), ks.StepTensorBoard(place, 5), csv])
    assert steps_in(place) == [5, 10, 15, 20]
    assert names_in(tmp_path) == ["a"]
    assert names_in(place) == ["a.csv", INDEX, *map(name, [5, 10, 15, 20]), "train"]
    assert len((place / "a.csv").read_text().splitlines()) == 5


# ---------------------------------------------------------------- errors of the system


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", kib=256) as disk:
        yield disk


def test_c17_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("foreign")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        model = make_model()
        with pytest.raises(OSError, match=f"StepCheckpoint: cannot write to .*{place}"):
            fit(model, [saves(place)])
        assert ks.global_step(model) == 0
        fit(model, [])


def test_c17_a_directory_that_cannot_be_written_to(disk):
    disk.make_read_only()
    model = make_model()
    with pytest.raises(OSError, match=f"StepCheckpoint: cannot write to .*{disk.path}: Read-only"):
        fit(model, [saves(disk.path)])
    assert ks.global_step(model) == 0
    fit(model, [])


class Fills(Listener):
    """Fills the disk once a step is saved, or before it is."""

    def __init__(self, disk, before=None, after=None):
        super().__init__([])
        self.disk, self.before, self.after = disk, before, after

    def before_save(self, step, path):
        if step == self.before:
            self.disk.fill()

    def after_save(self, step, path):
        if step == self.after:
            self.disk.fill()


@pytest.mark.parametrize(
    ("every", "full", "steps", "raised_at"),
    [
        (4, {"before": 4}, [], 8),
        (4, {"after": 4}, [4], 12),
        (4, {"after": 8}, [4, 8], 16),
        (10, {"after": 10}, [10], 20),
        (15, {"before": 15}, [], 20),
        (15, {"after": 15}, [15], 20),
    ],
)
def test_c17_a_disk_that_is_full_is_told_at_the_next_firing_or_at_the_end(
    disk, every, full, steps, raised_at
):
    path = disk.path
    model = make_model(keras.optimizers.Adam(0.01))
    callback = saves(path, every, listeners=[Fills(disk, **full)])
    with pytest.raises(OSError, match=f"Cannot write {path}.*: No space left on device"):
        fit(model, [callback], batches=20)
    assert ks.global_step(model) == raised_at
    assert names_in(path) == sorted([INDEX, FILLER, *map(name, steps)])
    assert steps_in(path) == steps
    bare = make_model(keras.optimizers.Adam(0.01))
    fit(bare, [ks.StopAtStep(raised_at)], batches=20)
    assert_same(model, bare)

    disk.make_room()
    fit(model, [callback])
    fit(bare, [])
    assert_same(model, bare)
    assert steps_in(path)[-1] == raised_at + 10


def test_a_failure_is_told_once(tmp_path):
    callback, model = saves(tmp_path, 4, listeners=[Listener([], fails_at=4)]), make_model()
    with pytest.raises(RuntimeError, match="the bucket is gone"):
        fit(model, [callback])
    assert ks.global_step(model) == 8
    fit(model, [callback])
    assert steps_in(tmp_path) == [4, 12, 16, 18]


def test_a_fit_that_is_broken_off_waits_for_no_other_worker(tmp_path, monkeypatch):
    """The others may not know of the error, and be waiting in a batch."""
    asked, by_chief = [], Workers.by_chief

    def counted(workers, action):
        asked.append(action)
        return by_chief(workers, action)

    def fails(step, logs):
        asked.clear()
        raise OSError("full")

    monkeypatch.setattr(Workers, "by_chief", counted)
    model = make_model()
    with pytest.raises(OSError, match="full"):
        fit(model, [saves(tmp_path, 4), ks.OnStep(ks.AtSteps(6), fails)])
    assert asked == []
    assert [c.step for c in ks.list_checkpoints(tmp_path)] == [4]


def test_a_failure_in_a_fit_that_is_broken_off_is_told_at_once(tmp_path):
    broken_off = saves(tmp_path, 4, listeners=[Listener([], fails_at=4)])
    model = make_model()
    message = "StepCheckpoint, broken off: RuntimeError.*the bucket is gone"
    with pytest.warns(UserWarning, match=message), pytest.raises(KeyboardInterrupt):
        fit(model, [broken_off, Raises(6)])
    assert ks.global_step(model) == 6
    fit(model, [saves(tmp_path, 4)])
    assert steps_in(tmp_path) == [4, 8, 12, 16]


def test_c18_a_newest_one_that_is_truncated(tmp_path):
    fit(make_model(), [saves(tmp_path, 4)])
    os.truncate(tmp_path / name(10), 1000)
    with pytest.warns(UserWarning, match=rf"{name(10)} is damaged.*{name(8)} is taken instead"):
        model = keras.models.load_model(latest_checkpoint(tmp_path))
    assert ks.global_step(model) == 8
    fit(model, [saves(tmp_path, 4)], batches=2)
    assert steps_in(tmp_path) == [4, 8, 10]
    assert latest_checkpoint(tmp_path) == tmp_path / name(10)


TRAINS = """
import sys

sys.path.insert(0, sys.argv[1])
import conftest
from flavours import keras, fit, make_model

import keras_steps as ks
from keras_steps.checkpoints import latest_checkpoint
from keras_steps.callbacks.step_checkpoint import StepCheckpoint


class Tells:
    def before_save(self, step, path):
        print(step, flush=True)

    def after_save(self, step, path):
        pass


newest = latest_checkpoint(sys.argv[2])
if newest is None:
    model = make_model(keras.optimizers.Adam(0.01))
else:
    model = keras.models.load_model(newest)
callback = StepCheckpoint(sys.argv[2], 2, max_to_keep=3, keep_every=500, listeners=[Tells()])
fit(model, [callback, ks.StopAtStep(int(sys.argv[3]))], batches=2000)
"""


def trains(place, last_step):
    """A process that trains to a step and prints when it begins to save."""
    tests = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", TRAINS, tests, str(place), str(last_step)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_kills_leave_whole_files_only(tmp_path):
    """Every file under the name of a step can be loaded, and the same script goes on."""
    step = 0
    for kill_at in (3, 20, 60):
        with trains(tmp_path, 10_000) as process:
            told = [int(next(process.stdout)) for _ in range(kill_at)]
            process.kill()
        assert told == list(range(step + 2, step + 2 * kill_at + 2, 2))
        assert steps_in(tmp_path)[-1] >= told[-1] - 2
        files = {int(file.stem[5:]): file for file in tmp_path.glob("step_*.keras")}
        assert set(steps_in(tmp_path)) <= set(files)
        for step, file in sorted(files.items()):
            assert ks.global_step(keras.models.load_model(file)) == step
        step = steps_in(tmp_path)[-1]
        assert latest_checkpoint(tmp_path) == tmp_path / name(step)
        assert end_of_run(tmp_path) is None
    with trains(tmp_path, 601) as process:
        process.communicate(timeout=100)
    assert process.returncode == 0
    assert (steps_in(tmp_path), end_of_run(tmp_path)) == ([500, 598, 600, 601], "reached")
    assert names_in(tmp_path) == [INDEX, *map(name, [500, 598, 600, 601])]


# ---------------------------------------------------------------- listeners


def test_listeners_are_told_in_order_before_and_after(tmp_path):
    told = []
    listeners = (Listener(told, label) for label in ("a ", "b "))
    fit(make_model(), [saves(tmp_path, 5, listeners=listeners)])
    assert told == [
        (f"{label} {when}", step, name(step), when == "after", when == "before")
        for step in (5, 10)
        for when in ("before", "after")
        for label in ("a", "b")
    ]


def test_an_error_of_before_save_comes_at_once(tmp_path):
    class Refuses(Listener):
        def before_save(self, step, path):
            raise RuntimeError("not now")

    model = make_model()
    with pytest.raises(RuntimeError, match="not now") as caught:
        fit(model, [saves(tmp_path, 4, listeners=[Refuses([])])])
    assert caught.value.__notes__ == [
        "Refuses.before_save, one of StepCheckpoint's listeners, raised this at step 4."
    ]
    assert (ks.global_step(model), steps_in(tmp_path)) == (4, [])


def test_the_training_goes_on_while_a_file_is_written(tmp_path):
    """`after_save` of step 4 waits for step 6."""
    reached = threading.Event()

    class Waits(Listener):
        def after_save(self, step, path):
            assert step != 4 or reached.wait(60)

    goes_on = ks.OnStep(ks.AtSteps(6), lambda step, logs: reached.set())
    fit(make_model(), [saves(tmp_path, 4, listeners=[Waits([])]), goes_on])
    assert steps_in(tmp_path) == [4, 8, 10]


# ---------------------------------------------------------------- kinds of models and fits


def test_weights_only(tmp_path):
    model = make_model(keras.optimizers.Adam(0.01))
    fit(model, [saves(tmp_path, 5, save_weights_only=True)])
    assert names_in(tmp_path) == [INDEX, name(5, ".weights.h5"), name(10, ".weights.h5")]
    other = make_model(keras.optimizers.Adam(0.01), seed=2)
    fit(other, [])
    other.load_weights(latest_checkpoint(tmp_path))
    assert_same(other, model)


def test_a_second_fit_and_copies(tmp_path):
    callback = saves(tmp_path / "a", 4)
    other = copy.deepcopy(callback)
    model = make_model()
    fit(model, [callback])
    fit(model, [callback])
    assert steps_in(tmp_path / "a") == [4, 8, 10, 12, 16, 20]
    again = copy.deepcopy(callback)
    with pytest.raises(FileExistsError, match="holds 6 checkpoints"):
        fit(make_model(), [other])
    fit(model, [again])
    assert steps_in(tmp_path / "a")[-3:] == [24, 28, 30]


def test_a_copy_of_one_whose_fit_was_broken_off(tmp_path):
    callback, model = saves(tmp_path, 4), make_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, [callback, Raises(6)])
    fit(model, [copy.deepcopy(callback)])
    assert steps_in(tmp_path) == [4, 8, 12, 16]


@on_tensorflow
def test_under_mirrored(tmp_path):
    found = []
    for callbacks in ([], [saves(tmp_path, 4, monitor="val_loss"), EvaluateEveryN(VALIDATION, 6)]):
        with mirrored_scope():
            model = make_model(keras.optimizers.Adam(0.01))
        fit(model, callbacks)
        found.append(model.get_weights())
    np.testing.assert_equal(*found)
    assert steps_in(tmp_path) == [4, 6, 8, 10]
    loaded = keras.models.load_model(latest_checkpoint(tmp_path))
    assert ks.global_step(loaded) == 10
    np.testing.assert_equal(loaded.get_weights(), found[0])


@pytest.mark.skipif(IS_TF_KERAS, reason="Keras 3 only")
def test_under_gradient_accumulation(tmp_path):
    model = make_model(keras.optimizers.SGD(0.01, gradient_accumulation_steps=4))
    fit(model, [saves(tmp_path, 3)], batches=32)
    assert steps_in(tmp_path) == [3, 6, 8]


class Gan(keras.Model):
    """Five updates of the critic to one of the generator."""

    def __init__(self):
        super().__init__()
        self.generator, self.critic = keras.layers.Dense(4), keras.layers.Dense(1)
        self.distance = keras.metrics.Mean(name="distance")

    def build(self, shape):
        self.generator.build(shape)
        self.critic.build(shape)
        self.built = True

    def call(self, x):
        return self.critic(self.generator(x))

    @property
    def metrics(self):
        return [self.distance]

    def train_step(self, data):
        import tensorflow as tf

        turns = [*[(self.critic, self.c_optimizer)] * 5, (self.generator, self.g_optimizer)]
        for layer, optimizer in turns:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(data[0]) ** 2)
            variables = layer.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.distance.update_state(loss)
        return {"distance": self.distance.result()}


@on_tensorflow
def test_c24_a_gan_is_saved_by_the_steps_of_its_generator(tmp_path):
    model = Gan()
    model.compile()
    model.g_optimizer, model.c_optimizer = keras.optimizers.SGD(0.01), keras.optimizers.Adam(0.01)
    model.build((None, 4))
    callback = saves(tmp_path, 4, optimizer="g_optimizer", save_weights_only=True)
    other = saves(tmp_path / "c", 20, optimizer=lambda m: m.c_optimizer, save_weights_only=True)
    fit(model, [callback, other])
    assert steps_in(tmp_path) == [4, 8, 10]
    assert steps_in(tmp_path / "c") == [20, 40, 50]
    weights = model.get_weights()
    model.set_weights([0 * weight for weight in weights])
    model.load_weights(latest_checkpoint(tmp_path))
    np.testing.assert_equal(model.get_weights(), weights)


@(
    keras.utils.register_keras_serializable("tests")
    if IS_TF_KERAS
    else (keras.saving.register_keras_serializable("tests"))
)
class Registered(Subclassed):
    def get_config(self):
        return {"name": self.name}


@pytest.mark.parametrize("subclassed", [True, False])
def test_a_model_that_fit_builds(tmp_path, subclassed):
    model = Registered() if subclassed else keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    fit(model, [saves(tmp_path, 5)])
    loaded = keras.models.load_model(latest_checkpoint(tmp_path))
    np.testing.assert_equal(loaded.get_weights(), model.get_weights())
    assert ks.global_step(loaded) == 10


class WithoutConfig(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


def test_a_model_that_cannot_be_saved_is_told_at_train_begin(tmp_path):
    layers = [keras.layers.Input((4,)), WithoutConfig(abs), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"(?s)can't be saved: .*WithoutConfig.*weights_only=True"):
        fit(model, [saves(tmp_path / "a", 5)])
    assert ks.global_step(model) == 0
    assert not (tmp_path / "a").exists()
    fit(model, [saves(tmp_path / "a", 5, save_weights_only=True)])
    assert steps_in(tmp_path / "a") == [5, 10]


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ({"directory": 3}, TypeError, "StepCheckpoint.directory. must be a path; received 3"),
        ({"directory": ""}, ValueError, "must be a path; received ''"),
        ({"directory": "gs://b"}, ValueError, "on this machine; received 'gs://b'"),
        ({"every": 0}, ValueError, "StepCheckpoint.every. must be at least 1; received 0"),
        ({"every": None}, TypeError, "StepCheckpoint.every. must be .*; received None"),
        ({"max_to_keep": 0}, ValueError, "StepCheckpoint.max_to_keep. must be at least 1"),
        ({"keep_every": 2.5}, TypeError, "StepCheckpoint.keep_every. must be an integer"),
        ({"monitor": 3}, TypeError, "StepCheckpoint.monitor. must be the name"),
        ({"mode": "least"}, ValueError, "StepCheckpoint.mode. must be one of"),
        ({"save_weights_only": 1}, TypeError, "save_weights_only. must be True or False"),
        ({"at_end": "no"}, TypeError, "at_end. must be True or False; received 'no'"),
        ({"overwrite": "no"}, TypeError, "overwrite. must be True or False; received 'no'"),
        ({"listeners": [print]}, TypeError, "has no before_save and no after_save"),
        ({"listeners": Listener([])}, TypeError, "StepCheckpoint.listeners. must be a list"),
        ({"listeners": [Listener]}, TypeError, "received the class Listener"),
    ],
)
def test_bad_arguments(args, error, text):
    with pytest.raises(error, match=text):
        StepCheckpoint(**{"directory": "c", **args})
