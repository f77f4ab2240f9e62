"""All callbacks in one fit: what they do to each other, and how it ends."""

import copy
import random

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
    make_model,
    mirrored_scope,
    no_scope,
    state_of,
)

import keras_steps as ks
from keras_steps.run import Run
from keras_steps.step_callback import Order
from keras_steps.testing import FakeClock, Recorder

NAN = float("nan")
VALIDATION, OTHER = arrays(2, seed=7), arrays(3, seed=8)


class InOrder(ks.StepCallback):
    """Notes where in the order it fires, and which results it is given."""

    at_end = True

    def __init__(self, order, seen, every=5):
        super().__init__(every)
        self.order = order
        self.seen = seen

    def on_step(self, step, logs):
        self.seen.append((step, self.order.name, {n for n in logs if n.startswith("val_")}))


def everything(place):
    """One of each, at steps that do not fit together."""
    callbacks = [
        ks.EvaluateEveryN({"val_": VALIDATION, "val_b_": OTHER}, 3, at_start=True),
        ks.StepEarlyStopping("val_b_loss", patience=100),
        ks.StepCheckpoint(place / "checkpoints", 5, monitor="val_b_mae", overwrite=True),
        ks.StepTensorBoard(place / "logs", 4, histograms_every=6),
        ks.StepCSVLogger(place / "metrics.csv", 4),
        ks.StopOnNaN(3, action="rollback"),
        ks.StepHistory(4),
        ks.LogEveryN(4),
        ks.StepBackupAndRestore(place / "backup", 5, on_signal=()),
    ]
    if FLAVOUR != "torch":  # refused there
        callbacks.append(ks.StepProfiler(place / "traces", 7, duration=4))
    return callbacks


# ---------------------------------------------------------------- law 5, law 8

quiet = pytest.mark.filterwarnings(
    "ignore:.*(no multiple of|Two evaluations at step|is left out|will not be reached)"
)


def settings():
    sgd = keras.optimizers.SGD
    yield "plain", no_scope, lambda: sgd(0.01), {}
    if FLAVOUR != "torch":
        yield "spe 4", no_scope, lambda: sgd(0.01), {"steps_per_execution": 4}
    if not IS_TF_KERAS:
        yield "accumulation", no_scope, lambda: sgd(0.01, gradient_accumulation_steps=2), {}
    if ON_TENSORFLOW:
        yield "mirrored", mirrored_scope, lambda: sgd(0.01), {}


@quiet
@pytest.mark.parametrize(
    ("scope", "optimizer", "compile_args"),
    [pytest.param(*s, marks=pytest.mark.slow if n == "mirrored" else ()) for n, *s in settings()],
    ids=[s[0] for s in settings()],
)
def test_5_two_fits_are_the_same_with_and_without_all_of_them(
    scope, optimizer, compile_args, tmp_path, capsys
):
    results = []
    for callbacks in ([], everything(tmp_path)):
        random.Random(3).shuffle(callbacks)
        with scope():
            model = make_model(optimizer(), **compile_args)
        histories = [
            fit(model, callbacks, batches=13, epochs=2, validation_data=VALIDATION).history
            for _ in range(2)
        ]
        results.append((histories, state_of(model)))
    np.testing.assert_equal(results[1], results[0])


BOTH = {"val_loss", "val_mae", "val_b_loss", "val_b_mae"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:Two evaluations")
def test_8_c39_the_order_at_each_step_and_what_is_known_there(seed, tmp_path, capsys):
    seen = []
    callbacks = [*everything(tmp_path), *(InOrder(order, seen) for order in Order)]
    callbacks = [c for c in callbacks if not isinstance(c, ks.StepProfiler)]
    random.Random(seed).shuffle(callbacks)
    fit(make_model(), callbacks, batches=11, epochs=2, validation_data=VALIDATION)
    names = [order.name for order in Order]
    steps = [5, 10, 15, 20, 22]
    assert [(step, name) for step, name, _ in seen] == [(s, n) for s in steps for n in names]
    after_evaluation = {step: known for step, name, known in seen if name == "REPORT"}
    assert after_evaluation == {5: set(), 10: set(), 15: BOTH, 20: set(), 22: BOTH}


def ends(batches):
    """Ways in which a fit of 10 batches ends at step 10."""
    target = ks.StopAtStep(10)
    yield "reached in mid-epoch", [target], {"batches": batches}
    yield "reached at an epoch's end", [target], {"epochs": 3}
    yield "epochs over", [], {}
    yield "another callback", [StopsAtEpochsEnd()], {"epochs": 3}


class StopsAtEpochsEnd(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


@pytest.mark.parametrize(
    ("others", "fit_args"), [e[1:] for e in ends(14)], ids=[e[0] for e in ends(14)]
)
def test_8_what_fires_at_the_end_has_its_place_in_the_order(others, fit_args, tmp_path):
    seen = []
    evaluate = ks.EvaluateEveryN(VALIDATION, 4)  # not due at step 10
    checkpoint = ks.StepCheckpoint(tmp_path, 5, monitor="val_loss")
    history = ks.StepHistory(5)
    callbacks = [*others, InOrder(Order.BACKUP, seen), history, checkpoint, evaluate]
    fit(make_model(), callbacks, **fit_args)
    assert [(step, known) for step, _, known in seen] == [(5, set()), (10, {"val_loss", "val_mae"})]
    at_10 = ks.list_checkpoints(tmp_path)[-1]
    assert (at_10.step, set(at_10.scores)) == (10, {"val_loss", "val_mae"})
    assert history.steps == [4, 5, 8, 10]


def test_8_a_line_at_the_last_step_has_the_evaluation_made_there(capsys):
    log = ks.LogEveryN(5, start=0, message="{step} {val_loss}")
    fit(make_model(), [log, ks.EvaluateEveryN(VALIDATION, 4)], batches=5)
    assert capsys.readouterr().out.startswith("5 ")


def test_8_a_nan_is_looked_for_before_all_else_at_the_last_step(tmp_path):
    seen = []
    x, y = arrays(10)
    y[9 * BATCH :] = NAN
    callbacks = [InOrder(Order.REPORT, seen), ks.StopOnNaN(4)]
    model = make_model()
    fit(model, callbacks, x=x, y=y, batch_size=BATCH, shuffle=False)
    assert [step for step, *_ in seen] == [5]
    assert ks.stop_reason(model) == "nan"


def test_a_rollback_at_the_last_step_goes_nowhere(capsys):
    x, y = arrays(10)
    y[9 * BATCH :] = NAN
    model = make_model()
    fit(model, [ks.StopOnNaN(4, action="rollback")], x=x, y=y, batch_size=BATCH, shuffle=False)
    assert ks.global_step(model) == 8
    assert "back to step 8, where the run ends" in capsys.readouterr().out


# ---------------------------------------------------------------- why it ended


class Raises(keras.callbacks.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_epoch_end(self, epoch, logs=None):
        raise self.error


class Breaks(ks.StepCallback):
    """Raises, or stops, within the training."""

    def __init__(self, act):
        super().__init__(6)
        self.act = act

    def on_step(self, step, logs):
        self.act(self.model)


def _interrupt(model):
    raise KeyboardInterrupt


def _stop(model):
    model.stop_training = True


def _late():
    """A StopAfter whose time is up after step 6, on a clock that stands still else."""
    time = FakeClock()

    class Advances(ks.StepCallback):
        def on_step(self, step, logs):
            time.advance(10)

    return time, [Advances(6), ks.StopAfter(seconds=5)]


def run_to_its_end(others, *, epochs=2, nan_from=None, time=None, error=None):
    """The steps at which something fired that fires at the end too, and the reason."""
    last = Recorder(4)
    last.at_end = True
    x, y = arrays(10)
    if nan_from is not None:
        y[nan_from * BATCH :] = NAN
    model = make_model()
    data = {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    with time or no_scope(), pytest.raises(error) if error else no_scope():
        fit(model, [last, *others], epochs=epochs, **data)
    return last.steps, ks.stop_reason(model)


def _backup(place):
    return ks.StepBackupAndRestore(place / "backup", 100, on_signal=())


@pytest.mark.parametrize(
    ("others", "args", "steps", "reason"),
    [
        (lambda place: [], {}, [4, 8, 12, 16, 20], None),
        (lambda place: [], {"epochs": 1}, [4, 8, 10], None),
        (lambda place: [ks.StopAtStep(6)], {}, [4, 6], "reached"),
        (lambda place: [ks.StopAtStep(10)], {}, [4, 8, 10], "reached"),
        (lambda place: [ks.StopAtStep(8)], {}, [4, 8], "reached"),
        (lambda place: [_backup(place), ks.StopAtStep(6)], {}, [4, 6], "reached"),
        (lambda place: [Breaks(_stop)], {}, [4, 6], None),
        (lambda place: [StopsAtEpochsEnd()], {}, [4, 8, 10], None),
        (lambda place: [ks.StopOnNaN(3)], {"nan_from": 4}, [4], "nan"),
        (lambda place: [ks.StopOnNaN(3)], {"nan_from": 9, "epochs": 1}, [4, 8], "nan"),
        (lambda place: [_backup(place), ks.StopOnNaN(3)], {"nan_from": 4}, [4], "nan"),
        (
            lambda place: [ks.StopOnNaN(3, action="raise")],
            {"nan_from": 4, "error": FloatingPointError},
            [4],
            "nan",
        ),
        (lambda place: [Breaks(_interrupt)], {"error": KeyboardInterrupt}, [4], None),
        (lambda place: [Raises(OSError("x"))], {"error": OSError}, [4, 8], None),
    ],
)
def test_what_fires_at_the_end_and_why_it_came(others, args, steps, reason, tmp_path):
    assert run_to_its_end(others(tmp_path), **args) == (steps, reason)


@pytest.mark.parametrize(("is_backed_up", "steps"), [(False, [4, 7]), (True, [4])])
def test_a_time_stop_ends_the_run_unless_a_backup_continues_it(is_backed_up, steps, tmp_path):
    time, others = _late()
    backup = [_backup(tmp_path)] if is_backed_up else []
    assert run_to_its_end([*others, *backup], time=time) == (steps, "time")


def test_patience_that_is_used_up_ends_it_before_the_target():
    data = VALIDATION[0], VALIDATION[1] * NAN
    others = [ks.EvaluateEveryN(data, 3), ks.StepEarlyStopping(patience=2), ks.StopAtStep(10)]
    assert run_to_its_end(others) == ([4, 6], "early")


def test_the_reason_of_an_earlier_fit_does_not_stay():
    model = make_model()
    fit(model, [ks.StopAtStep(5)])
    assert ks.stop_reason(model) == "reached"
    with pytest.raises(KeyboardInterrupt):
        fit(model, [Breaks(_interrupt)])
    assert ks.stop_reason(model) is None


# ---------------------------------------------------------------- names


def two_outputs(**compile_args):
    keras.utils.set_random_seed(1)
    inputs = keras.layers.Input((4,))
    hidden = keras.layers.Dense(3, activation="tanh")(inputs)
    outputs = [keras.layers.Dense(1, name=name)(hidden) for name in ("out", "b")]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]], **compile_args)
    return model


def test_a_model_with_several_outputs(tmp_path):
    x, y = arrays(10)
    data = (x[:24], [y[:24], -y[:24]])
    model, history = two_outputs(), ks.StepHistory(5)
    callbacks = [
        ks.EvaluateEveryN(data, 5, prefix="test_"),
        ks.StepCheckpoint(tmp_path, 100, monitor="test_out_loss", at_end=False),
        ks.StepEarlyStopping("test_b_mae"),
        history,
    ]
    fit(model, callbacks, x=x, y=[y, -y], batch_size=BATCH, shuffle=False)
    names = ["b_loss", "b_mae", "loss", "out_loss", "out_mae"]
    results = [n for n in history.scalars if n.startswith("test_")]
    assert sorted(results) == [f"test_{name}" for name in names]
    assert sorted(n for n in history.scalars if n in names) == names
    best = ks.best_checkpoint(tmp_path)
    loaded = keras.models.load_model(best)
    step = min((5, 10), key=lambda s: history.scalars["test_out_loss"][history.steps.index(s)])
    assert ks.global_step(loaded) == step


def curves(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for run in sorted(p for p in directory.iterdir() if p.is_dir()):
        events = EventAccumulator(str(run)).Reload()
        found[run.name] = {t: [e.step for e in events.Scalars(t)] for t in events.Tags()["scalars"]}
    return found


@pytest.mark.parametrize("turned", [False, True])
def test_prefixes_that_contain_one_another(turned, tmp_path):
    sets = [("val_", VALIDATION), ("val_b_", OTHER)]
    evaluate = ks.EvaluateEveryN(dict(sets[::-1] if turned else sets), 5)
    board = ks.StepTensorBoard(tmp_path, 5)
    stop = ks.StepEarlyStopping("val_b_mae", patience=1, mode="max")
    fit(make_model(), [board, evaluate, stop], batches=20)
    steps = {"loss": [5, 10], "mae": [5, 10]}
    found = curves(tmp_path)
    assert (found["validation"], found["val_b"]) == (steps, steps)


@pytest.mark.filterwarnings("ignore:Two evaluations at step 5 have results named 'val_b_loss'")
def test_an_outputs_results_that_bear_another_sets_names_stay_what_they_are():
    x, y = arrays(5)
    first, second = (x[:8], [y[:8], y[:8]]), (x[8:], [y[8:], y[8:]])
    model, recorder = two_outputs(), Recorder(5)
    evaluate = ks.EvaluateEveryN({"val_": first, "val_b_": second}, 5)
    fit(model, [evaluate, recorder], x=x, y=[y, y], batch_size=BATCH, shuffle=False)
    of_first = model.evaluate(*first, verbose=0, return_dict=True)
    of_second = model.evaluate(*second, verbose=0, return_dict=True)
    logs = recorder.logs[0]
    assert logs["val_b_loss"] == pytest.approx(of_first["b_loss"])
    assert logs["val_b_out_loss"] == pytest.approx(of_second["out_loss"])


def test_lines_show_results_of_any_evaluation_where_there_are_some(capsys):
    log = ks.LogEveryN(2, start=0, metrics=["loss", "test_loss"])
    fit(make_model(), [log, ks.EvaluateEveryN(VALIDATION, 4, prefix="test_")], batches=4)
    lines = capsys.readouterr().out.splitlines()
    assert ["test_loss=" in line for line in lines] == [False, True]


@pytest.mark.parametrize("name", ["f1/score", 'a,b"c', "acc:0", "größe %", "{loss}", "a b"])
def test_names_of_metrics_with_odd_characters(name, tmp_path, capsys):
    model = make_model(metrics=[keras.metrics.MeanAbsoluteError(name=name)])
    history = ks.StepHistory(2)
    callbacks = [
        ks.StepCheckpoint(tmp_path / "checkpoints", 2, monitor=f"val_{name}"),
        ks.StepEarlyStopping(f"val_{name}"),
        ks.StepTensorBoard(tmp_path / "logs", 2),
        ks.StepCSVLogger(tmp_path / "metrics.csv", 2),
        ks.LogEveryN(2),
        ks.EvaluateEveryN(VALIDATION, 2),
        history,
    ]
    fit(model, callbacks, batches=4)
    assert name in capsys.readouterr().out
    assert [v is None for v in history.scalars[f"val_{name}"]] == [False, False]
    assert curves(tmp_path / "logs")["validation"][name] == [2, 4]
    saved = ks.list_checkpoints(tmp_path / "checkpoints")
    assert [c.scores[f"val_{name}"] for c in saved] == history.scalars[f"val_{name}"]
    pandas = pytest.importorskip("pandas")
    assert list(pandas.read_csv(tmp_path / "metrics.csv")[f"val_{name}"]) == pytest.approx(
        history.scalars[f"val_{name}"]
    )


# ---------------------------------------------------------------- models


def without_metrics():
    return make_model(metrics=())


def with_add_loss():
    class Penalty(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.1 * (inputs * inputs)[0, 0])
            return inputs

        def get_config(self):
            return {}

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1), Penalty()]
    )
    model.compile("sgd", loss=None)
    return model


class WithConfig(Subclassed):
    def get_config(self):
        return {}


def subclassed():
    keras.utils.set_random_seed(1)
    model = Subclassed()
    model.compile("sgd", "mse")
    return model


def halved(y_true, y_pred):
    return (y_true - y_pred) ** 2 / 2


class Halved(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return halved(y_true, y_pred)


def with_a_loss_function():
    model = make_model()
    model.compile("sgd", halved)
    return model


def with_a_loss_object():
    model = make_model()
    model.compile("sgd", Halved())
    return model


CUSTOM = {
    "Penalty": None,
    "Subclassed": Subclassed,
    "halved": halved,
    "Halved": Halved,
}


@pytest.mark.parametrize(
    "make",
    [without_metrics, with_add_loss, subclassed, with_a_loss_function, with_a_loss_object],
)
def test_every_callback_on_a_model_of_another_kind(make, tmp_path, capsys):
    model, history = make(), ks.StepHistory(3)
    callbacks = [*everything(tmp_path), history]
    callbacks = [c for c in callbacks if not isinstance(c, (ks.StepCheckpoint, ks.StepProfiler))]
    checkpoint = ks.StepCheckpoint(tmp_path / "checkpoints", 3, monitor="val_loss")
    fit(model, [*callbacks, checkpoint], batches=6)
    assert history.steps == [0, 3, 6]
    assert None not in history.scalars["val_b_loss"] and None not in history.scalars["val_loss"]
    newest = ks.latest_checkpoint(tmp_path / "checkpoints")
    custom = CUSTOM | {"Penalty": type(model.layers[-1])}
    loaded = keras.models.load_model(newest, custom_objects=custom)
    np.testing.assert_equal(loaded.get_weights(), model.get_weights())
    assert ks.global_step(loaded) == 6
    both = [each.evaluate(*VALIDATION, verbose=0, return_dict=True) for each in (loaded, model)]
    assert both[0]["loss"] == pytest.approx(both[1]["loss"])


def test_evaluation_data_of_another_size_and_with_weights():
    class Mean(keras.layers.Layer):
        def call(self, inputs):
            return keras.backend.mean(inputs, 1) if IS_TF_KERAS else keras.ops.mean(inputs, 1)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((None, 4)), Mean(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", weighted_metrics=["mae"])
    x, y = arrays(7)
    train, test = x.reshape(28, 2, 4), x[:50].reshape(10, 5, 4)
    weights = np.arange(10, dtype="float32")
    recorder = Recorder(3)
    evaluate = ks.EvaluateEveryN((test, y[:10], weights), 3, prefix="test_")
    data = {"x": train, "y": y[:28], "sample_weight": np.ones(28), "batch_size": 4}
    fit(model, [evaluate, recorder, ks.StopAtStep(6)], **data)
    expected = model.evaluate(test, y[:10], sample_weight=weights, verbose=0, return_dict=True)
    assert recorder.evaluations[-1] == (
        6,
        {f"test_{name}": pytest.approx(value) for name, value in expected.items()},
    )


# ---------------------------------------------------------------- errors in mid-fit


class Fails(ks.StepCallback):
    def on_step(self, step, logs):
        raise RuntimeError("no")


class FailsOnEvaluation(ks.StepCallback):
    def on_evaluation(self, step, logs):
        raise RuntimeError("no")


def with_a_run(callbacks):
    """Those that keep a run, and with it the model and all that is trained."""
    return [
        type(c).__name__ for c in callbacks if any(isinstance(v, Run) for v in vars(c).values())
    ]


def batches_that_fail():
    """Evaluation data that raise in the second evaluation."""
    times = []

    class Batches(keras.utils.PyDataset if not IS_TF_KERAS else keras.utils.Sequence):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            times.append(index)
            if len(times) > 3:
                raise RuntimeError("no")
            x, y = VALIDATION
            return x[index * BATCH : (index + 1) * BATCH], y[index * BATCH : (index + 1) * BATCH]

    return Batches()


@pytest.mark.filterwarnings("ignore:Two evaluations")
@pytest.mark.parametrize(
    "fails",
    [
        lambda: [Fails(6)],
        lambda: [FailsOnEvaluation()],
        lambda: [ks.OnStep(6, lambda step, logs: 1 / 0)],
        lambda: [ks.StepTensorBoard("logs", 6, extra=lambda model: 1 / 0)],
    ],
)
def test_after_an_error_in_mid_fit_everything_goes_on(fails, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    callbacks = everything(tmp_path / "all")
    callbacks = [c for c in callbacks if not isinstance(c, ks.StepBackupAndRestore)]
    model = make_model()
    with pytest.raises((RuntimeError, ZeroDivisionError)):
        fit(model, [*fails(), *callbacks], validation_data=VALIDATION, epochs=2)
    step = ks.global_step(model)
    assert with_a_run(callbacks) == []
    assert all(np.isfinite(array).all() for array in model.get_weights())
    model.evaluate(*VALIDATION, verbose=0)
    fit(model, callbacks, batches=12, validation_data=VALIDATION)
    assert ks.global_step(model) == step + 12
    assert with_a_run(callbacks) == []
    history = next(c for c in callbacks if isinstance(c, ks.StepHistory))
    assert history.steps == sorted(set(history.steps)) and history.steps[-1] == step + 12
    saved = [c.step for c in ks.list_checkpoints(tmp_path / "all" / "checkpoints")]
    assert saved == sorted(set(saved)) and saved[-1] == step + 12
    copies = copy.deepcopy(callbacks)
    fit(model, copies, batches=3)
    assert ks.global_step(model) == step + 15


def test_a_model_is_usable_after_evaluation_data_have_raised():
    model = make_model()
    evaluate = ks.EvaluateEveryN(batches_that_fail(), 3)
    with pytest.raises(Exception, match="no"):
        fit(model, [evaluate])
    step = ks.global_step(model)
    assert step in (3, 6)  # on some a batch is read ahead
    fit(model, [], batches=4)
    assert ks.global_step(model) == step + 4


def test_a_listener_may_load_what_was_saved(tmp_path, capsys):
    loaded = []

    class Loads:
        def before_save(self, step, path):
            pass

        def after_save(self, step, path):
            assert ks.latest_checkpoint(tmp_path / "checkpoints") == path
            loaded.append((step, ks.global_step(keras.models.load_model(path))))

    callbacks = everything(tmp_path)
    checkpoint = next(c for c in callbacks if isinstance(c, ks.StepCheckpoint))
    checkpoint.listeners, checkpoint.monitor.min_delta = [Loads()], 1e9
    model = make_model()
    fit(model, callbacks, batches=12)
    assert loaded == [(0, 0), (5, 5), (10, 10), (12, 12)]
    assert ks.global_step(model) == 12


@pytest.mark.parametrize(
    "make",
    [
        lambda every: ks.EvaluateEveryN(OTHER, every),
        lambda every: ks.LogEveryN(every),
        lambda every: ks.OnStep(every, print),
        lambda every: ks.ReportEveryN(print, every),
        lambda every: ks.StepBackupAndRestore("backup", every),
        lambda every: ks.StepCheckpoint("checkpoints", every),
        lambda every: ks.StepCSVLogger("log.csv", every),
        lambda every: ks.StepHistory(every),
        lambda every: ks.StepProfiler("logs", every),
        lambda every: ks.StepScheduled("rate", lambda step: 1.0, every=every),
        lambda every: ks.StepTensorBoard("logs", every),
        lambda every: ks.StopOnNaN(every),
        lambda every: Recorder(every),
    ],
)
def test_one_that_would_never_fire_is_refused(make):
    with pytest.raises(TypeError, match=r"a trigger.*received None"):
        make(None)


def test_one_without_an_action_needs_no_steps():
    seen = []

    class OnlyEvaluations(ks.StepCallback):
        def on_evaluation(self, step, logs):
            seen.append(step)

    fit(make_model(), [OnlyEvaluations(), ks.EvaluateEveryN(OTHER, 4)])
    assert seen == [4, 8, 10]
