"""StepLoop: what it yields, when it ends, and how it is left."""

import copy
import shutil
import signal

import numpy as np
import pytest
from flavours import FLAVOUR, arrays, fit, keras, keras_to_numpy, make_model, mirrored_scope
from loops import batches_of, by_own_step, by_train_on_batch, loop

import keras_steps as ks
from keras_steps.run import Run
from keras_steps.step_callback import Order
from keras_steps.testing import FakeClock, Recorder


class Writer:
    """Keeps what it is told, and whether it was closed."""

    def __init__(self):
        self.told = []

    def write(self, step, scalars):
        self.told.append((step, scalars["loss"]))

    def flush(self):
        pass

    def close(self):
        self.told.append("closed")


def count_to(last, callbacks, *, epochs=1, **loop_args):
    """Loops over `range(last)` and logs the numbers; returns those that came, and the loop."""
    came = []
    with ks.StepLoop(callbacks, **loop_args) as the_loop:
        for _ in range(epochs):
            for number in the_loop.over(range(last)):
                came.append(number)
                the_loop.log(loss=float(number))
    return came, the_loop


def test_yields_the_data_and_averages_over_each_callbacks_window():
    two, three = Recorder(2), Recorder(3)
    came, _ = count_to(7, [two, three])
    assert came == list(range(7))
    assert two.steps == [2, 4, 6]
    assert [logs["loss"] for logs in two.logs] == [0.5, 2.5, 4.5]
    assert three.steps == [3, 6]
    assert [logs["loss"] for logs in three.logs] == [1.0, 4.0]


def test_goes_on_over_epochs_and_ends_at_the_stop_in_later_ones_too():
    recorder = Recorder(4)
    came, the_loop = count_to(5, [recorder, ks.StopAtStep(12)], epochs=5)
    assert came == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert recorder.steps == [4, 8, 12]
    assert [logs["epoch"] for logs in recorder.logs] == [0.0, 1.0, 2.0]
    assert the_loop.stop_reason == "reached"
    assert int(np.asarray(the_loop.global_step)) == 12


def test_draws_no_batch_that_it_does_not_yield():
    data = iter(range(100))
    for _ in ks.StepLoop([ks.StopAtStep(3)]).over(data):
        pass
    assert next(data) == 3


def test_a_schedule_is_set_before_each_update():
    rates = []
    seen = []
    with ks.StepLoop([ks.StepScheduled(rates.append, lambda step: 10.0 * step)]) as the_loop:
        for _ in the_loop.over(range(3)):
            seen.append(rates[-1])
    assert seen == [0.0, 10.0, 20.0]


def test_a_run_that_is_there_already_makes_no_iteration(capsys):
    model = make_model()
    loop(model, [ks.StopAtStep(4)])
    loop(model, [ks.StopAtStep(4), recorder := Recorder(1)])
    assert ks.global_step(model) == 4
    assert recorder.steps == []
    assert "already at step 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("ends", [(2, 0.5), (4, 2.5), (5, 4.0), "closed"]),
        ("breaks", [(2, 0.5), (3, 2.0), "closed"]),
        ("raises", [(2, 0.5), "closed"]),
        ("is interrupted", [(2, 0.5), "closed"]),
    ],
)
def test_what_fires_when_the_with_is_left(how, expected):
    writer, errors = Writer(), {"raises": ValueError, "is interrupted": KeyboardInterrupt}
    try:
        with ks.StepLoop([ks.ReportEveryN(writer, 2)]) as the_loop:
            for number in the_loop.over(range(5)):
                the_loop.log(loss=number)
                if number == 2 and how == "breaks":
                    break
                if number == 2 and how in errors:
                    raise errors[how]
    except tuple(errors.values()):
        pass
    assert writer.told == expected
    with pytest.raises(RuntimeError, match="outside of an iteration"):
        the_loop.log(loss=1.0)


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [(False, [(2, 0.5), (3, 2.0), "closed"]), (True, [(2, 0.5), "closed"])],
)
def test_without_with_each_over_is_a_run_and_a_break_an_error(breaks, expected):
    writer = Writer()
    the_loop = ks.StepLoop([ks.ReportEveryN(writer, 2)])
    for number in the_loop.over(range(3)):
        the_loop.log(loss=number)
        if number == 2 and breaks:
            break
    assert writer.told == expected


def test_a_break_leaves_the_epoch_and_the_next_goes_on():
    recorder = Recorder(2)
    with ks.StepLoop([recorder]) as the_loop:
        for _ in range(3):
            for number in the_loop.over(range(5)):
                the_loop.log(loss=number)
                if number == 1:
                    break
    assert recorder.steps == [2, 4, 6]


def test_can_be_used_again_and_goes_on_from_its_own_count():
    recorder = Recorder(2)
    the_loop = ks.StepLoop([recorder, ks.StopAtStep(num_steps=3)])
    for _ in range(2):
        with the_loop:
            for number in the_loop.over(range(10)):
                the_loop.log(loss=number)
    assert recorder.steps == [2, 4, 6]


def test_time_ends_it_after_the_iteration():
    came = []
    with FakeClock() as time, ks.StepLoop([ks.StopAfter(seconds=3)]) as the_loop:
        for number in the_loop.over(range(10)):
            time.advance(1)
            came.append(number)
    assert came == [0, 1, 2]
    assert the_loop.stop_reason == "time"


def test_nan_ends_it_and_marks_one_window_only(capsys):
    with ks.StepLoop([recorder := Recorder(2), ks.StopOnNaN(6)]) as the_loop:
        for number in the_loop.over(range(10)):
            the_loop.log(loss=float("nan") if number == 2 else 1.0)
    assert [logs["loss"] for logs in recorder.logs] == pytest.approx([1.0, np.nan], nan_ok=True)
    assert the_loop.stop_reason == "nan"
    assert "the loss was nan in steps 2 to 6" in capsys.readouterr().out
    with ks.StepLoop([recorder := Recorder(2)]) as the_loop:
        for number in the_loop.over(range(6)):
            the_loop.log(loss=float("nan") if number == 2 else 1.0)
    losses = [logs["loss"] for logs in recorder.logs]
    assert losses == pytest.approx([1.0, np.nan, 1.0], nan_ok=True)


def test_a_rollback_puts_model_and_windows_back(capsys):
    model = make_model(keras.optimizers.Adam(0.01))
    step = by_train_on_batch(model)
    losses = []
    with ks.StepLoop(
        [ks.StopOnNaN(2, action="rollback"), recorder := Recorder(2)], model=model
    ) as the_loop:
        for number, (x, y) in enumerate(the_loop.over(batches_of(*arrays(7)))):
            losses.append(np.nan if number == 5 else float(step(x, y)[0]))
            if number == 5:
                step(x, y)
            the_loop.log(loss=losses[-1])
    assert recorder.steps == [2, 4]
    assert ks.global_step(model) == 5
    assert "back to step 4" in capsys.readouterr().out
    assert [logs["loss"] for logs in recorder.logs] == pytest.approx(
        [np.mean(losses[:2]), np.mean(losses[2:4])]
    )


def test_evaluates_with_a_function_and_stops_early():
    results = iter([3.0, 2.0, 2.5, 2.5])
    recorder = Recorder(100)
    callbacks = [
        recorder,
        ks.EvaluateEveryN(lambda: {"loss": next(results)}, 2),
        ks.StepEarlyStopping(patience=2),
    ]
    came, the_loop = count_to(20, callbacks)
    assert recorder.evaluations == [
        (2, {"val_loss": 3.0}),
        (4, {"val_loss": 2.0}),
        (6, {"val_loss": 2.5}),
        (8, {"val_loss": 2.5}),
    ]
    assert len(came) == 8
    assert the_loop.stop_reason == "early"


@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (3.0, TypeError, "must return a dict from names to scalars; it returned 3.0"),
        ({"loss": [1.0]}, TypeError, "must return scalars; 'loss' is"),
    ],
)
def test_a_function_that_evaluates_returns_scalars_by_names(returned, error, text):
    with pytest.raises(error, match=text):
        count_to(3, [ks.EvaluateEveryN(lambda: returned, 1)])


def test_evaluates_with_a_function_in_fit_too():
    recorder = Recorder(100)
    fit(make_model(), [recorder, ks.EvaluateEveryN(lambda: {"score": 1}, 5, prefix="my_")])
    assert recorder.evaluations == [(5, {"my_score": 1.0}), (10, {"my_score": 1.0})]


# What says the step.


def test_a_function_says_the_step_which_may_stand_still_or_jump():
    steps = {0: 0, 1: 0, 2: 1, 3: 4, 4: 7, 5: 8}
    done = [0]
    with ks.StepLoop([recorder := Recorder(3)], optimizer=lambda: done[0]) as the_loop:
        for number in the_loop.over(range(6)):
            done[0] = steps[number]
    assert recorder.steps == [4, 7]
    assert the_loop.global_step is None


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ([5, 3], ValueError, "the function <lambda> returned 3, and before that 5"),
        ([0, 1.5], TypeError, "must return the step, a whole number; it returned 1.5"),
        ([-1], ValueError, "returned -1, and before that 0"),
        ([True], TypeError, "it returned True"),
    ],
)
def test_a_function_that_says_no_step_raises(values, error, text):
    given = iter(values)
    with pytest.raises(error, match=text):
        count_to(20, [Recorder(1)], optimizer=lambda: next(given))


def test_an_optimizer_without_a_model():
    optimizer = keras.optimizers.SGD(0.1)
    variable = make_model().trainable_variables[0]
    optimizer.build([variable])
    with ks.StepLoop([recorder := Recorder(2), ks.StopAtStep(3)], optimizer=optimizer) as the_loop:
        for _ in the_loop.over(range(10)):
            ks.set_global_step(optimizer, ks.global_step(optimizer) + 1)
    assert recorder.steps == [2]
    assert recorder.logs[0]["learning_rate"] == pytest.approx(0.1)
    assert ks.global_step(optimizer) == 3


def test_a_counter_restored_within_the_with_is_gone_on_from():
    model = make_model()
    with ks.StepLoop([recorder := Recorder(5)], model=model) as the_loop:
        ks.set_global_step(model, 8)
        for x, y in the_loop.over(batches_of(*arrays(4))):
            model.train_on_batch(x, y)
    assert recorder.steps == [10]


def test_its_own_count_is_a_variable_that_is_always_up_to_date():
    the_loop = ks.StepLoop([ks.StopAtStep(5)])
    the_loop.global_step.assign(2)
    seen = []
    with the_loop:
        for _ in the_loop.over(range(10)):
            seen.append(int(np.asarray(the_loop.global_step)))
    assert seen == [2, 3, 4]
    assert int(np.asarray(the_loop.global_step)) == 5


def test_c24_two_optimizers_have_a_clock_each():
    class Both(keras.Sequential):
        pass

    model = Both([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, name="spare"), "mse")
    model.g_optimizer, model.d_optimizer = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.2)
    seen = {name: Recorder(2, optimizer=f"{name}_optimizer") for name in "gd"}
    rates = [
        ks.StepScheduledLR(lambda step: 0.1 / (1 + step), optimizer="g_optimizer"),
        ks.StepScheduledLR(lambda step: 1.0 + step, optimizer="d_optimizer"),
    ]
    stop = ks.StopAtStep(3, optimizer="g_optimizer")
    with ks.StepLoop([*seen.values(), *rates, stop], model=model) as the_loop:
        for _ in the_loop.over(range(100)):
            for optimizer, updates in ((model.d_optimizer, 5), (model.g_optimizer, 1)):
                ks.set_global_step(optimizer, ks.global_step(optimizer) + updates)
            the_loop.log(loss=0.0)
    assert seen["g"].steps == [2]
    assert seen["d"].steps == [5, 10, 15]  # once for each execution that crossed its grid
    assert [logs["learning_rate"] for logs in seen["g"].logs] == pytest.approx([0.05])
    assert [logs["learning_rate"] for logs in seen["d"].logs] == pytest.approx([1.0, 6.0, 11.0])
    with (
        pytest.warns(UserWarning, match="has not moved in 10 executions.*name the one that counts"),
        ks.StepLoop([Recorder(5)], model=model) as the_loop,
    ):
        for _ in the_loop.over(range(11)):
            ks.set_global_step(model.g_optimizer, ks.global_step(model.g_optimizer) + 1)


@pytest.mark.skipif(FLAVOUR != "jax", reason="JAX gives arrays away")
def test_an_evaluation_leaves_the_loop_the_arrays_that_the_model_has_too():
    model, recorder = make_model(), Recorder(100)
    step, loop_args = by_own_step(model)
    loop(model, [recorder, ks.EvaluateEveryN(arrays(2), 3)], batches=7, step=step, **loop_args)
    assert [at for at, _ in recorder.evaluations] == [3, 6, 7]
    assert ks.global_step(model) == 7


def test_what_is_scheduled_is_of_the_loops_optimizer():
    """Of a model that was not compiled, and of one that has another."""
    for model in (uncompiled(), make_model()):
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        optimizer.strength = keras.optimizers.SGD(0.1).learning_rate  # any variable
        rate = ks.StepScheduledLR(lambda step: 1.0 + step)
        strength = ks.StepScheduled("strength", lambda step: 5.0 + step)
        callbacks = [rate, strength, ks.StopAtStep(3)]
        with ks.StepLoop(callbacks, model=model, optimizer=optimizer) as the_loop:
            for _ in the_loop.over(range(10)):
                ks.set_global_step(optimizer, ks.global_step(optimizer) + 1)
        assert float(keras_to_numpy(optimizer.learning_rate)) == 3.0
        assert float(keras_to_numpy(optimizer.strength)) == 7.0


def test_a_callback_may_follow_what_a_loop_may_count_by():
    """A function that says the step, or anything with `iterations`: one clock for each."""

    class Trainer:
        def __init__(self):
            self.g = self.d = self.iterations = 0

        def d_step(self):
            return self.d

    def train():
        with the_loop:
            for _ in the_loop.over(range(100)):
                trainer.g, trainer.d = trainer.g + 1, trainer.d + 3
                trainer.iterations += 2

    trainer, other = Trainer(), Recorder(4, optimizer=lambda model: trainer)
    by_d = {"optimizer": lambda model: trainer.d_step}
    g, d, stop = Recorder(2), Recorder(2, **by_d), ks.StopAtStep(12, **by_d)
    the_loop = ks.StepLoop([g, d, other, stop], optimizer=lambda: trainer.g)
    train()
    assert (g.steps, d.steps, other.steps) == ([2, 4], [3, 6, 9, 12], [4, 8])
    trainer.d = 6  # between two runs it may go back
    train()
    assert (g.steps[2:], d.steps[4:], other.steps[2:]) == ([6], [9, 12], [12])
    rates = [ks.StepScheduled(float, float, optimizer=lambda model: trainer.d_step)] * 2
    with pytest.raises(ValueError, match="Two callbacks set float of the same optimizer"):
        count_to(1, [copy.copy(rate) for rate in rates])


class Counts:
    """Anything with `iterations`: it has nothing else, no name either."""

    def __init__(self):
        self.iterations = keras.optimizers.SGD(0.1).iterations


# What is refused.


def a_model():
    return make_model()


def uncompiled():
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ks.StepLoop(ks.StopAtStep(3)), TypeError, "must be a list of callbacks"),
        (lambda: ks.StepLoop([print]), TypeError, "takes callbacks of keras_steps; received"),
        (lambda: ks.StepLoop([[]]), TypeError, r"takes callbacks of keras_steps; received \[\]"),
        (lambda: ks.StepLoop([ks.StopAtStep]), TypeError, "received <class .*StopAtStep"),
        (
            lambda: ks.StepLoop([keras.callbacks.CSVLogger("x")]),
            TypeError,
            "CSVLogger is a callback",
        ),
        (lambda: ks.StepLoop([], model=3), TypeError, "must be a Keras model or None; received 3"),
        (lambda: ks.StepLoop([], model=uncompiled()), ValueError, "has no optimizer whose updates"),
        (lambda: ks.StepLoop([], optimizer="sgd"), ValueError, "'sgd'.* and the loop has none"),
        (lambda: ks.StepLoop([], optimizer=make_model()), TypeError, "torch optimizer, or a funct"),
        (
            lambda: ks.StepLoop([], optimizer=lambda model: model.optimizer),
            TypeError,
            "without arguments that returns the step; received <function",
        ),
        (lambda: ks.StepLoop([], optimizer=3), TypeError, "counts its `iterations`.*received 3"),
        (lambda: ks.StepLoop([], optimizer=keras.optimizers.SGD), TypeError, "received the class"),
        (
            lambda: ks.StepLoop([Recorder(1, optimizer="g_optimizer")]),
            ValueError,
            "names an attribute of the model, and the loop has none",
        ),
        (
            lambda: ks.StepLoop([Recorder(1, optimizer=lambda model: 3)]),
            TypeError,
            r"Recorder: what <lambda>\(model\) returns must be an optimizer.*received 3",
        ),
        (lambda: ks.StepLoop([ks.StepCheckpoint("c")]), ValueError, "the loop has none"),
        (lambda: ks.StepLoop([ks.EvaluateEveryN(arrays(1))]), ValueError, "the loop has no model"),
        (
            lambda: ks.StepLoop(
                [ks.EvaluateEveryN(arrays(1))], model=uncompiled(), optimizer=lambda: 0
            ),
            ValueError,
            "it is not compiled. Pass a function",
        ),
        (
            lambda: ks.StepLoop([ks.StopOnNaN(action="rollback")]),
            ValueError,
            "puts back the model and its optimizers, and the loop has no model",
        ),
        (
            lambda: ks.StepLoop(
                [ks.StopOnNaN(action="rollback")], model=make_model(), optimizer=lambda: 0
            ),
            ValueError,
            "the function <lambda> counts the steps of this loop",
        ),
        (
            lambda: ks.StepLoop(
                [ks.StopOnNaN(action="rollback")], model=make_model(), optimizer=Counts()
            ),
            ValueError,
            "Counts counts the steps of this loop",
        ),
        (
            lambda: ks.StepLoop([ks.StepScheduledLR(float)], optimizer=Counts()),
            ValueError,
            "what counts the steps of this loop is Counts. Use StepScheduled",
        ),
        (
            lambda: ks.StepLoop([ks.StepEarlyStopping(restore_best_weights=True)]),
            ValueError,
            "puts weights back",
        ),
        (
            lambda: ks.StepLoop([ks.StepTensorBoard("x", histograms_every=5)]),
            ValueError,
            "writes the weights of the model, and the loop has none",
        ),
        (
            lambda: ks.StepLoop([ks.LogEveryN(extra=lambda model: {})]),
            ValueError,
            "is a function of the model, and the loop has none",
        ),
        (lambda: ks.StepLoop([ks.StepScheduledLR(float)]), ValueError, "what counts.* is the loop"),
        (
            lambda: ks.StepLoop([ks.StepScheduled("momentum", float)], model=make_model()),
            ValueError,
            "has no variable of this name",
        ),
        (lambda: ks.StepLoop([]).over(3), TypeError, "can be iterated over.*received 3"),
    ],
)
def test_what_makes_no_sense_raises_at_once(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_second_loop_on_a_model_is_refused_and_the_first_goes_on():
    model = make_model()
    with ks.StepLoop([recorder := Recorder(2)], model=model) as the_loop:
        for x, y in the_loop.over(batches_of(*arrays(4))):
            model.train_on_batch(x, y)
            with pytest.raises(RuntimeError, match="a StepLoop is under way on the model"):
                ks.StepLoop([], model=model).__enter__()
        with pytest.raises(RuntimeError, match="under way already"):
            the_loop.__enter__()
    assert recorder.steps == [2, 4]
    with ks.StepLoop([], model=model):
        pass


def test_an_over_within_an_over_is_refused():
    the_loop = ks.StepLoop([])
    for _ in the_loop.over(range(2)):
        with pytest.raises(RuntimeError, match="iterator of an earlier over.. is not used up"):
            next(the_loop.over(range(2)))


def test_a_begin_that_fails_leaves_nothing_open(tmp_path):
    class Refuses(ks.StepCallback):
        order = Order.CHECKPOINT

        def begin(self, run):
            raise ValueError("no")

    model, writer = make_model(), Writer()
    callbacks = [
        ks.ReportEveryN(writer, 1),
        ks.StepProgressBar(),
        Refuses(),
        ks.StepBackupAndRestore(tmp_path, on_signal=("SIGUSR1",)),
    ]
    with pytest.raises(ValueError, match="no"), ks.StepLoop(callbacks, model=model):
        pass
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    with ks.StepLoop([], model=model):
        pass


def test_a_writer_that_fails_keeps_no_other_from_being_closed():
    class Fails(Writer):
        def close(self):
            raise OSError("disk full")

    writer = Writer()
    callbacks = [ks.ReportEveryN(Fails(), 1), ks.ReportEveryN(writer, 1)]
    with (
        pytest.warns(UserWarning, match="ReportEveryN, broken off: OSError"),
        pytest.raises(ValueError, match="of the script"),
        ks.StepLoop(callbacks) as the_loop,
    ):
        for number in the_loop.over(range(3)):
            the_loop.log(loss=number)
            if number == 1:
                raise ValueError("of the script")
    assert writer.told == [(1, 0.0), "closed"]


def test_a_loop_within_a_fit_that_is_followed_is_refused():
    model = make_model()

    def begin(step, logs):
        with pytest.raises(RuntimeError, match="fit of the model .* is under way"):
            ks.StepLoop([], model=model).__enter__()

    fit(model, [ks.OnStep(5, begin)])
    assert ks.global_step(model) == 10


def test_warns_of_a_counter_that_rests():
    with pytest.warns(UserWarning, match="has not moved in 10 executions"):
        count_to(12, [Recorder(5)], model=make_model())
    with pytest.warns(UserWarning, match="The counter of 'Counts' has not moved in 10 executions"):
        count_to(12, [Recorder(5)], optimizer=Counts())


# One run at a time.


class StopsAtEpoch0(keras.callbacks.Callback):
    """As EarlyStopping does."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


def test_a_callback_that_sets_stop_training_ends_the_loop():
    model = make_model()
    set_it = ks.OnStep(3, lambda step, logs: setattr(model, "stop_training", True))
    the_loop = loop(model, [set_it], epochs=2)
    assert ks.global_step(model) == 3
    assert (the_loop.stop_reason, model.stop_training) == (None, True)


def test_a_fit_within_a_loop_on_its_model_is_refused_if_callbacks_follow_it():
    model = make_model()
    with ks.StepLoop([recorder := Recorder(5)], model=model) as the_loop:
        for _ in the_loop.over(range(2)):
            with pytest.raises(RuntimeError, match="a fit of it that keras_steps callbacks follow"):
                fit(model, [ks.StopAtStep(num_steps=2)])
            fit(model, [StopsAtEpoch0()], batches=5, epochs=3)
    assert recorder.steps == [5, 10]
    fit(model, [recorder], batches=5)
    assert recorder.steps == [5, 10, 15]


@pytest.mark.parametrize("outer", ["loop", "fit"])
@pytest.mark.parametrize("inner", ["loop", "fit"])
def test_a_callback_is_in_one_run_at_a_time(outer, inner, tmp_path):
    runs = {"loop": loop, "fit": fit}
    shared = [recorder := Recorder(2), ks.StepBackupAndRestore(tmp_path, 100)]

    def within(step, logs):
        with pytest.raises(RuntimeError, match="was passed to a fit or loop within it"):
            runs[inner](make_model(), shared)
        runs[inner](make_model(), [Recorder(2)], batches=2)

    runs[outer](make_model(), [*shared, ks.OnStep(3, within)], batches=6)
    assert recorder.steps == [2, 4, 6]


def test_callbacks_of_a_backed_up_loop_can_go_into_a_fit_and_back(tmp_path):
    callbacks = [recorder := Recorder(5), ks.StepBackupAndRestore(tmp_path / "backup", 5)]
    for run in (loop, fit, loop):
        run(make_model(), callbacks)
        shutil.rmtree(tmp_path / "backup")
    assert recorder.steps == [5, 10] * 3


def test_what_an_interrupted_fit_has_left_is_closed_before_a_loop_begins():
    class Interrupts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    model, writer = make_model(), Writer()
    callbacks = [ks.ReportEveryN(writer, 5)]
    with pytest.raises(KeyboardInterrupt):
        fit(model, [*callbacks, Interrupts()])
    loop(model, callbacks, batches=5)
    assert [told if told == "closed" else told[0] for told in writer.told] == [
        *[5, 10, "closed"],
        *[15, "closed"],
    ]


@pytest.mark.skipif(FLAVOUR not in ("tensorflow", "tf_keras"), reason="of TensorFlow's")
def test_a_loop_within_a_compiled_function_is_refused():
    import tensorflow as tf

    model = make_model()

    @tf.function(autograph=False)
    def train():
        loop(model, [ks.StopAtStep(3)])

    with pytest.raises(RuntimeError, match="begun within a tf.function.*Decorate"):
        train()
    loop(model, [ks.StopAtStep(3)])
    assert ks.global_step(model) == 3


# Iterators, and what a script makes of them.


def test_an_iterator_that_is_kept_ends_with_the_run():
    the_loop = ks.StepLoop([recorder := Recorder(1)])
    with the_loop:
        batches = the_loop.over(range(5))
        next(batches)
    assert list(batches) == []
    assert recorder.steps == [1]
    assert int(np.asarray(the_loop.global_step)) == 1


def test_an_over_in_a_callback_of_the_loop_is_refused():
    loops = []
    callback = ks.OnStep(2, lambda step, logs: next(loops[0].over(range(2))))
    loops.append(ks.StepLoop([callback]))
    with pytest.raises(RuntimeError, match="is not used up"), loops[0]:
        for _ in loops[0].over(range(3)):
            pass


def test_an_iterator_that_an_error_was_thrown_into_is_left():
    with ks.StepLoop([recorder := Recorder(1)]) as the_loop:
        batches = the_loop.over(range(3))
        next(batches)
        with pytest.raises(ValueError, match="thrown"):
            batches.throw(ValueError("thrown"))
        assert list(the_loop.over(range(2))) == [0, 1]
    assert recorder.steps == [1, 2, 3]


def test_data_that_fail_leave_no_iteration_behind():
    def bad():
        yield from range(2)
        raise OSError("unreadable")

    came, rates = [], []
    callbacks = [ks.StepScheduled(rates.append, lambda step: float(step // 3)), ks.StopAtStep(7)]
    with ks.StepLoop(callbacks) as the_loop:
        for _ in range(5):
            try:
                for number in the_loop.over(bad()):
                    came.append((number, rates[-1]))
            except OSError:
                assert the_loop._run.executions == len(came)
    assert came == [(0, 0), (1, 0), (0, 0), (1, 1), (0, 1), (1, 1), (0, 2)]
    assert the_loop.stop_reason == "reached"


@pytest.mark.skipif(FLAVOUR not in ("tensorflow", "tf_keras"), reason="a strategy of TensorFlow's")
def test_its_own_count_may_be_made_in_the_scope_of_a_strategy():
    with mirrored_scope():
        the_loop = ks.StepLoop([recorder := Recorder(2), ks.StopAtStep(5)])
        with the_loop:
            for _ in the_loop.over(range(3)):
                pass
    with the_loop:
        for _ in the_loop.over(range(9)):
            pass
    assert recorder.steps == [2, 4]
    assert the_loop.stop_reason == "reached"


def test_4_an_idle_iteration_asks_the_run_nothing(monkeypatch):
    asked = []
    after = Run.after

    def noted(self, logs, *, epoch_ends):
        asked.append(self.executions)
        after(self, logs, epoch_ends=epoch_ends)

    monkeypatch.setattr(Run, "after", noted)
    with ks.StepLoop([Recorder(40)]) as loop:
        for _ in loop.over(range(100)):
            pass
    assert asked == [1, 10, 40, 80]  # at 10, whether the counter moves at all
