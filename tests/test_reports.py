"""What callbacks get as logs."""

import numpy as np
import pytest
from curves import passing_losses
from flavours import BATCH, arrays, fit, keras, make_model

import keras_steps as ks
from keras_steps import reports
from keras_steps.testing import FakeClock, Recorder


def _losses_1_2_3(batches):
    """A model and data whose loss in batch n, from 1, is n, whatever it has learned."""
    x = np.repeat(np.arange(1, batches + 1, dtype="float32"), BATCH)[:, None]
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    metrics = ["mse", keras.metrics.RootMeanSquaredError(name="rmse")]
    model.compile(keras.optimizers.SGD(0.0), "mae", metrics=metrics)
    return model, {"x": x, "y": np.zeros_like(x), "batch_size": BATCH, "shuffle": False}


def test_c13_means_over_the_window():
    model, data = _losses_1_2_3(10)
    recorder = Recorder(5)
    fit(model, [recorder], **data)
    assert [logs["loss"] for logs in recorder.logs] == [3.0, 8.0]
    assert [logs["mse"] for logs in recorder.logs] == [11.0, 66.0]


def test_a_metric_that_is_no_mean_is_as_keras_has_it():
    model, data = _losses_1_2_3(10)
    recorder = Recorder(5)
    fit(model, [recorder], **data)
    rmse = [logs["rmse"] for logs in recorder.logs]
    assert rmse == pytest.approx([np.sqrt(11), np.sqrt(38.5)], rel=1e-6)


def test_a_window_over_an_epochs_end():
    model, data = _losses_1_2_3(10)
    recorder = Recorder(7)
    fit(model, [recorder], epochs=2, **data)
    assert recorder.steps == [7, 14]
    assert [logs["loss"] for logs in recorder.logs] == [4.0, (8 + 9 + 10 + 1 + 2 + 3 + 4) / 7]


def test_a_window_over_an_epochs_end_with_validation():
    model, data = _losses_1_2_3(10)
    recorder = Recorder(7)
    big = np.full((BATCH, 1), 1000.0, "float32")
    fit(model, [recorder], epochs=2, validation_data=(big, 0 * big), **data)
    assert [logs["loss"] for logs in recorder.logs] == [4.0, (8 + 9 + 10 + 1 + 2 + 3 + 4) / 7]
    assert [results["val_loss"] for _, results in recorder.evaluations] == [1000.0, 1000.0]


def test_windows_of_several_callbacks_are_their_own():
    model, data = _losses_1_2_3(12)
    threes, fours = Recorder(3), Recorder(4)
    fit(model, [threes, fours], **data)
    assert [logs["loss"] for logs in threes.logs] == [2.0, 5.0, 8.0, 11.0]
    assert [logs["loss"] for logs in fours.logs] == [2.5, 6.5, 10.5]


def test_names_and_order():
    recorder = Recorder(10)
    fit(make_model(), [recorder])
    names = ["loss", "mae", "learning_rate", "steps_per_second", "examples_per_second", "epoch"]
    assert list(recorder.logs[0]) == names


def test_logs_are_a_dict_of_ones_own():
    seen = []

    def clear(step, logs):
        seen.append(dict(logs))
        logs.clear()

    recorder = Recorder(5)
    history = fit(make_model(), [ks.OnStep(5, clear), recorder])
    assert set(recorder.logs[0]) == set(seen[0])
    assert set(history.history) == {"loss", "mae"}


def test_rates_leave_out_the_time_of_actions_and_validation():
    with FakeClock() as time:
        recorder = Recorder(5)

        class Validation(keras.callbacks.Callback):
            def on_test_begin(self, logs=None):
                time.advance(100)

        class Slow(ks.StepCallback):
            def on_step(self, step, logs):
                time.advance(50)

        class Training(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                time.advance(2)

        callbacks = [Slow(1), recorder, Validation(), Training()]
        fit(make_model(), callbacks, epochs=2, validation_data=arrays(2))
    assert [logs["steps_per_second"] for logs in recorder.logs] == [0.5] * 4
    assert [logs["examples_per_second"] for logs in recorder.logs] == [4.0] * 4


def test_a_custom_train_steps_own_logs():
    class Mine(keras.Sequential):
        def train_step(self, *args):
            out = super().train_step(*args)
            logs = out[0] if isinstance(out, tuple) else out
            logs = {"distance": logs["loss"]}
            return (logs, *out[1:]) if isinstance(out, tuple) else logs

    model = Mine([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    recorder = Recorder(5)
    fit(model, [recorder])
    assert [next(iter(logs)) for logs in recorder.logs] == ["distance", "distance"]


@pytest.mark.parametrize(
    ("logs", "found"),
    [
        ({"a": 1, "b": 2.5}, {"a": 1.0, "b": 2.5}),
        ({"a": np.float32(0.5), "b": np.zeros(2), "c": "text", "d": None}, {"a": 0.5}),
        (None, {}),
    ],
)
def test_scalars(logs, found):
    assert reports.scalars(logs) == found


def test_after_an_outlier_a_window_that_cannot_be_told_is_keras_own_mean():
    model, data = _losses_1_2_3(10)
    data["x"][:BATCH] = 1e9
    recorder = Recorder(5)
    fit(model, [recorder], **data)
    assert [logs["loss"] for logs in recorder.logs] == pytest.approx([2e8, 1e8])


def test_a_nan_of_the_epoch_before_is_in_the_mean_of_the_window_that_had_it():
    nan = float("nan")
    model, data = passing_losses([1, 2, nan, 4])
    had_it, began_later, within = Recorder(ks.AtSteps(6)), Recorder(ks.AtSteps(3, 6)), Recorder(2)
    fit(model, [had_it, began_later, within], epochs=2, **data)
    losses = [[logs["loss"] for logs in r.logs] for r in (had_it, began_later, within)]
    # What began after it can't tell what came in the first epoch: Keras's mean of the second.
    np.testing.assert_equal(losses, [[nan], [nan, 1.5], [1.5, nan, 1.5, nan]])


def test_a_window_given_back_knows_what_it_can_tell():
    nan = float("nan")
    window = reports.Window(0, 0.0)
    window.restart(3, reports.Snapshot({"loss": reports.Sum(nan, 24.0)}, 0.0, {}))
    window.close_epoch(reports.Snapshot({"loss": reports.Sum(nan, 32.0)}, 0.0, {}))
    other = reports.Window(0, 0.0)
    other.set_state(window.get_state(1.0), 1.0)
    now = reports.Snapshot({"loss": reports.Sum(24.0, 16.0)}, 2.0, {None: None})
    for each in (window, other):
        assert each.report(6, {"loss": 1.5}, now, None)["loss"] == 1.5
