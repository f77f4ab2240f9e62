"""evaluate_checkpoints: each checkpoint once, in order, until the run beside it has ended."""

import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flavours import arrays, fit, keras, make_model
from notes import Notes

from keras_steps import clock
from keras_steps.callbacks.step_checkpoint import StepCheckpoint
from keras_steps.checkpoint_directory import CheckpointDirectory
from keras_steps.checkpoints import list_checkpoints
from keras_steps.evaluate_checkpoints import evaluate_checkpoints
from keras_steps.testing import FakeClock

DATA = arrays(3, seed=5)
OTHER = arrays(2, seed=6)


class Scripted(FakeClock):
    """Each wait is the time of the next act of the run beside."""

    def __init__(self, *acts):
        super().__init__()
        self.acts = list(acts)

    def advance(self, seconds):
        super().advance(seconds)
        if self.acts:
            act = self.acts.pop(0)
            if act is not None:
                act()


class Beside:
    """The run beside, one act at a time; the weights at a step are those of its number as seed."""

    def __init__(self, path, *steps, ending=".keras", max_to_keep=None):
        self.ending = ending
        self.directory = CheckpointDirectory(path, max_to_keep=max_to_keep, keep_every=None)
        self.directory.begin(0, False)
        for step in steps:
            self.save(step)

    def save(self, step, seed=None, scores=()):
        model = make_model(keras.optimizers.Adam(0.01), seed=seed or step)
        write = model.save_weights if self.ending == ".weights.h5" else model.save
        self.directory.save(step, self.ending, write, dict(scores))

    def end(self):
        self.directory.end("reached")

    def saves(self, step, **args):
        return lambda: self.save(step, **args)


def results(seed, data=DATA, prefix="val_"):
    found = make_model(seed=seed).evaluate(*data, verbose=0, return_dict=True)
    return {prefix + name: pytest.approx(value, rel=1e-6) for name, value in found.items()}


class Writer(Notes):
    """Calls back at a step."""

    def __init__(self, at=(), act=None):
        super().__init__()
        self.at, self.act = at, act

    def write(self, step, scalars):
        super().write(step, scalars)
        if step in self.at:
            self.act()


def evaluated(path, writer=None, *, timeout=0, model=None, data=DATA):
    """The steps that were evaluated."""
    model = model or make_model(seed=99)
    found = evaluate_checkpoints(model, path, data, writer or Writer(), timeout=timeout)
    return [checkpoint.step for checkpoint in found]


# ---------------------------------------------------------------- what is evaluated


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_each_in_order_with_its_results(tmp_path, ending, caplog):
    Beside(tmp_path, 10, 20, 35, ending=ending).end()
    writer, model = Writer(), make_model(keras.optimizers.Adam(0.01), seed=99)
    with caplog.at_level(logging.WARNING):
        found = evaluate_checkpoints(model, tmp_path, DATA, writer, timeout=math.inf)
    assert writer.calls == [
        (10, results(10)),
        "flush",
        (20, results(20)),
        "flush",
        (35, results(35)),
        "flush",
        "close",
    ]
    assert found == [
        (tmp_path / f"step_{step:08d}{ending}", step, results(step)) for step in (10, 20, 35)
    ]
    np.testing.assert_equal(model.get_weights(), make_model(seed=35).get_weights())
    assert [record for record in caplog.records if record.name == "absl"] == []


def test_a_function_as_writer(tmp_path):
    Beside(tmp_path, 10, 20)
    calls = []
    assert evaluated(tmp_path, lambda step, scalars: calls.append((step, scalars))) == [10, 20]
    assert calls == [(10, results(10)), (20, results(20))]


def test_several_data(tmp_path):
    Beside(tmp_path, 10)
    writer = Writer()
    assert evaluated(tmp_path, writer, data={"val_": DATA, "test_": OTHER}) == [10]
    assert writer.calls[0] == (10, results(10) | results(10, OTHER, "test_"))


def test_a_function_that_evaluates_a_model_which_was_not_compiled(tmp_path):
    Beside(tmp_path, 10, 20)
    model = uncompiled(3, 1)
    data = {"own/": lambda: {"weight": model.get_weights()[0][0, 0]}}
    found = evaluate_checkpoints(model, tmp_path, data, print, timeout=0)
    weights = [make_model(seed=seed).get_weights()[0][0, 0] for seed in (10, 20)]
    assert [one.scores for one in found] == [{"own/weight": weight} for weight in weights]


def test_scores_of_the_training_stay_and_those_of_the_evaluation_win(tmp_path):
    Beside(tmp_path).save(10, scores={"val_loss": 7.0, "test_loss": 8.0})
    (found,) = evaluate_checkpoints(make_model(), tmp_path, DATA, print, timeout=0)
    assert found.scores == {**results(10), "test_loss": 8.0}
    assert list_checkpoints(tmp_path)[0].scores == {"val_loss": 7.0, "test_loss": 8.0}


# ---------------------------------------------------------------- waiting


def test_it_waits_for_those_that_come_until_the_run_has_ended(tmp_path):
    run = Beside(tmp_path, 10)
    with Scripted(run.saves(20), None, run.saves(30), run.end, run.saves(40)) as time:
        assert evaluated(tmp_path, timeout=math.inf) == [10, 20, 30]
    assert time.seconds == 4


def test_the_last_one_is_evaluated_though_the_run_has_ended(tmp_path):
    run = Beside(tmp_path, 10)
    with Scripted(lambda: (run.save(20), run.save(30), run.end())):
        assert evaluated(tmp_path, timeout=math.inf) == [10, 20, 30]


@pytest.mark.parametrize(
    ("timeout", "acts", "steps", "seconds"),
    [
        (0, 0, [10], 0),
        (3, 0, [10], 3),
        (2.5, 0, [10], 2.5),
        (2.5, 1, [10, 20], 3.5),
        (2.5, 2, [10, 20, 30], 4.5),
    ],
)
def test_the_timeout_counts_from_the_last_one(tmp_path, timeout, acts, steps, seconds):
    run = Beside(tmp_path, 10)
    with Scripted(*[run.saves(20), run.saves(30)][:acts]) as time:
        assert evaluated(tmp_path, timeout=timeout) == steps
    assert time.seconds == seconds


def test_the_time_of_an_evaluation_does_not_count(tmp_path):
    run = Beside(tmp_path, 10)
    with Scripted(None, run.saves(20)) as time:
        writer = Writer([10, 20], lambda: FakeClock.advance(time, 100))
        assert evaluated(tmp_path, writer, timeout=3) == [10, 20]
    assert time.seconds == 100 + 2 + 100 + 3


def test_a_directory_that_is_not_there_yet(tmp_path):
    place = tmp_path / "a" / "b"
    with Scripted(None, lambda: Beside(place, 10).end()) as time:
        assert evaluated(place, timeout=5) == [10]
    assert time.seconds == 2
    with FakeClock() as time:
        assert evaluated(tmp_path / "c", timeout=5) == []
    assert time.seconds == 5


def test_a_fake_clock_waits_at_once():
    with FakeClock(5) as time:
        clock.wait(1000)
        assert (clock.now(), time.seconds) == (1005, 1005)
    clock.wait(0)


# ---------------------------------------------------------------- what the run does meanwhile


def test_those_that_retention_drops_before_their_turn_are_left_out(tmp_path):
    run = Beside(tmp_path, 10, max_to_keep=1)
    writer = Writer([10], lambda: (run.save(20), run.save(30)))
    with Scripted(run.end):
        assert evaluated(tmp_path, writer, timeout=math.inf) == [10, 30]


@pytest.mark.parametrize("when", ["checksum", "load"])
def test_one_that_retention_drops_under_its_hands_is_left_out(tmp_path, monkeypatch, when):
    run = Beside(tmp_path, 10, 20, max_to_keep=2)
    model = make_model()
    module = sys.modules["keras_steps.evaluate_checkpoints"]
    place, name = (module, "sha256_of") if when == "checksum" else (model, "load_weights")
    real = getattr(place, name)

    def drops(path):
        if path.name == "step_00000010.keras":
            run.save(30)
        return real(path)

    monkeypatch.setattr(place, name, drops)
    assert evaluated(tmp_path, model=model) == [20, 30]


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_one_that_is_damaged_is_left_out_with_a_warning(tmp_path):
    Beside(tmp_path, 10, 20, 30)
    os.truncate(tmp_path / "step_00000020.keras", 100)
    with pytest.warns(UserWarning, match=r"step_00000020\.keras is damaged, and is not evalua"):
        assert evaluated(tmp_path) == [10, 30]


@pytest.mark.parametrize(("back_to", "again"), [(10, [20]), (0, [10, 20])])
def test_a_run_that_goes_back_is_followed(tmp_path, back_to, again):
    """A step that is saved again is evaluated again; a writer that can is told before."""
    run = Beside(tmp_path, 10, 20, 30)
    writer = Writer()
    writer.drop_past = lambda step: writer.calls.append((f"drop past {step}",))

    def goes_back():
        run.directory.drop_past(back_to)
        for step in again:
            run.save(step, seed=7)

    with Scripted(goes_back, run.saves(40), run.end):
        assert evaluated(tmp_path, writer, timeout=math.inf) == [10, 20, 40]
    assert writer.steps == [10, 20, 30, f"drop past {back_to}", *again, 40]
    assert writer.calls[7] == (again[0], results(7))


@pytest.mark.slow
def test_a_real_training_in_another_process(tmp_path):
    """Each wait lasts until that process has saved again, or is over."""
    tests = str(Path(__file__).parent)
    command = [sys.executable, "-c", TRAINS, tests, str(tmp_path / "a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        class Waits(FakeClock):
            def advance(self, seconds):
                process.stdout.readline()
                if process.poll() is not None:
                    super().advance(10**6)

        writer, model = Writer(), make_model()
        with Waits():
            found = evaluate_checkpoints(model, tmp_path / "a", DATA, writer, timeout=10**5)
        process.stdout.read()
        assert process.wait(60) == 0
    there = list_checkpoints(tmp_path / "a")
    assert writer.steps == [one.step for one in found] == [5, 10, 15, 20, 23]
    assert [one.path for one in found] == [one.path for one in there]
    for one in found:
        loaded = keras.models.load_model(one.path)
        expected = loaded.evaluate(*DATA, verbose=0, return_dict=True)
        assert one.scores["val_loss"] == pytest.approx(expected["loss"], rel=1e-6)


TRAINS = """
import sys

sys.path.insert(0, sys.argv[1])
import conftest
from flavours import fit, make_model

import keras_steps as ks
from keras_steps.callbacks.step_checkpoint import StepCheckpoint


class Tells:
    def before_save(self, step, path):
        pass

    def after_save(self, step, path):
        print(step, flush=True)


callback = StepCheckpoint(sys.argv[2], 5, max_to_keep=None, listeners=[Tells()])
fit(make_model(), [callback, ks.StopAtStep(23)], batches=30)
"""


def test_what_step_checkpoint_writes(tmp_path):
    for weights_only in (False, True):
        place = tmp_path / str(weights_only)
        callback = StepCheckpoint(place, 4, save_weights_only=weights_only)
        model = make_model(keras.optimizers.Adam(0.01))
        fit(model, [callback])
        other = make_model()
        assert evaluated(place, model=other, timeout=math.inf) == [4, 8, 10]
        np.testing.assert_equal(other.get_weights(), model.get_weights())


@pytest.mark.parametrize("metrics", [(), ("mse", "mae"), ("mse",)])
@pytest.mark.parametrize("weights_only", [False, True])
def test_the_model_may_have_other_metrics_and_another_optimizer(tmp_path, metrics, weights_only):
    trained = make_model(keras.optimizers.Adam(0.01), metrics=["mae"])
    fit(trained, [StepCheckpoint(tmp_path, 4, save_weights_only=weights_only)])
    model = make_model(keras.optimizers.RMSprop(0.1), metrics=metrics)
    fit(model, [])
    found = evaluate_checkpoints(model, tmp_path, DATA, print, timeout=0)
    names = {"val_loss", *(f"val_{metric}" for metric in metrics)}
    assert [set(one.scores) for one in found] == [names] * 3
    np.testing.assert_equal(model.get_weights(), trained.get_weights())
    fit(model, [])


# ---------------------------------------------------------------- what is refused


def dense(*units):
    model = uncompiled(*units)
    model.compile("sgd", "mse")
    return model


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("units", [(5, 1), (3, 1, 1)])
@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_a_model_that_does_not_fit(tmp_path, units, ending):
    Beside(tmp_path, 10, ending=ending)
    writer = Writer()
    match = rf"(?s)step_00000010\{ending} can't be loaded into the model .*Build the model that was"
    with pytest.raises(ValueError, match=match):
        evaluated(tmp_path, writer, model=dense(*units))
    assert writer.calls == ["close"]


def test_an_error_of_the_writer_comes_out(tmp_path):
    Beside(tmp_path, 10)

    def fails():
        raise RuntimeError("no network")

    writer = Writer([10], fails)
    with pytest.raises(RuntimeError, match="no network"):
        evaluated(tmp_path, writer)
    assert writer.calls == [(10, results(10)), "close"]


def unbuilt():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def uncompiled(*units):
    layers = [keras.layers.Dense(n) for n in units or [1]]
    return keras.Sequential([keras.layers.Input((4,)), *layers])


class OnlyWrites:
    def write(self, step):
        pass


class Unflushed:
    def write(self, step, scalars):
        pass


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ({"directory": 3}, TypeError, "directory. must be a path; received 3"),
        ({"timeout": "1"}, TypeError, "timeout. must be a number; received '1'"),
        ({"timeout": True}, TypeError, "timeout. must be a number; received True"),
        ({"timeout": -1}, ValueError, "timeout. must be at least 0; received -1"),
        ({"timeout": math.nan}, ValueError, "timeout. must be at least 0; received nan"),
        ({"writer": 3}, TypeError, "writer. must be a function of .step, scalars.*received 3"),
        ({"writer": Writer}, TypeError, "writer. must be a function of"),
        ({"writer": OnlyWrites()}, TypeError, "writer. must be a function of"),
        ({"writer": lambda: 3}, TypeError, "writer. must be a function of"),
        ({"writer": Unflushed()}, TypeError, "writer. must be .* which has no flush and no close"),
        ({"model": None}, TypeError, "model. must be a Keras model; received None"),
        ({"model": keras.Model}, TypeError, "model. must be a Keras model; received <class"),
        ({"model": unbuilt()}, ValueError, "is not built.*Begin it with an Input"),
        ({"model": uncompiled()}, ValueError, "is not compiled. Compile it with loss"),
        ({"data": 3}, TypeError, "evaluate_checkpoints.data. must be what model.evaluate takes"),
        ({"data": (x for x in [DATA])}, ValueError, "a generator, which is used up"),
        ({"data": (DATA[0][:0], DATA[1][:0])}, ValueError, "data. is empty"),
        ({"data": {"val": DATA}}, ValueError, "a key stands before.* apart.*received 'val'"),
        ({"data": {"_": DATA}}, ValueError, "a key stands before the names.*received '_'"),
        ({"data": {3: DATA}}, TypeError, "a key must be a string such as 'test_'; received 3"),
        ({"data": {"a_": lambda x: {}}}, TypeError, "data.'a_'.. must be a function without arg"),
        ({"data": {}}, ValueError, "received an empty dict"),
    ],
)
def test_bad_arguments(tmp_path, args, error, text):
    good = {"model": make_model(), "directory": tmp_path, "data": DATA, "writer": print}
    given = {**good, "timeout": 0, **args}
    with pytest.raises(error, match=text):
        evaluate_checkpoints(**given)


def test_data_without_an_end(tmp_path):
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices(DATA).batch(8).repeat()
    with pytest.raises(ValueError, match=r"has no end. Pass a part of it, such as data.take\(100"):
        evaluated(tmp_path, data=data)
    assert evaluated(tmp_path, data=data.take(3)) == []
