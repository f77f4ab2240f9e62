"""StopAtStep lands on its step, wherever that lies."""

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    arrays,
    fit,
    keras,
    loss_scaled,
    make_model,
)

import keras_steps as ks
from keras_steps.testing import Recorder

not_on_torch = pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses spe > 1")


@pytest.mark.parametrize("last_step", [1, 9, 10, 11, 20])
def test_in_mid_epoch_and_on_an_epochs_last_batch(last_step):
    model = make_model()
    history = fit(model, [ks.StopAtStep(last_step)], epochs=3)
    assert ks.global_step(model) == last_step
    assert len(history.history["loss"]) == -(-last_step // 10)


@not_on_torch
@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("last_step", [3, 4, 5, 10, 11, 13])
def test_c11_within_an_execution(last_step):
    model = make_model(steps_per_execution=4)
    fit(model, [ks.StopAtStep(last_step)], epochs=3)
    assert ks.global_step(model) == last_step


@not_on_torch
def test_after_a_cut_execution_the_model_can_be_fitted_on():
    model = make_model(steps_per_execution=4)
    fit(model, [ks.StopAtStep(10)], batches=16)
    recorder = Recorder(4)
    fit(model, [recorder], batches=16)
    assert ks.global_step(model) == 26
    assert recorder.steps == [14, 18, 22, 26]


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="counts traces of a tf.function")
def test_a_cut_execution_traces_nothing_anew():
    traces = []

    class Model(keras.Sequential):
        def train_step(self, data):
            traces.append(1)
            return super().train_step(data)

    model = Model([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=4)
    fit(model, [], batches=8)
    before = len(traces)
    fit(model, [ks.StopAtStep(num_steps=6)], batches=8)
    assert len(traces) == before


def _endless():
    x, y = arrays(5)
    while True:
        for n in range(5):
            yield x[n * BATCH : (n + 1) * BATCH], y[n * BATCH : (n + 1) * BATCH]


def test_c12_on_endless_data_without_steps_per_epoch():
    model = make_model()
    fit(model, [ks.StopAtStep(17)], x=_endless())
    assert ks.global_step(model) == 17


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="tf_keras asks for steps_per_epoch there")
def test_c12_on_an_endless_dataset():
    import tensorflow as tf

    model = make_model()
    dataset = tf.data.Dataset.from_tensor_slices(arrays(5)).batch(BATCH).repeat()
    fit(model, [ks.StopAtStep(17)], x=dataset)
    assert ks.global_step(model) == 17


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras has no gradient accumulation")
def test_c07_under_gradient_accumulation():
    recorder = Recorder(5)
    model = make_model(keras.optimizers.SGD(0.01, gradient_accumulation_steps=4))
    fit(model, [recorder, ks.StopAtStep(10)], batches=50, epochs=2)
    assert ks.global_step(model) == 10
    assert int(keras.ops.convert_to_numpy(model.optimizer._iterations)) == 40
    assert recorder.steps == [5, 10]


def test_c08_with_a_batch_whose_gradients_overflow():
    x, y = arrays(10)
    x[2 * BATCH : 3 * BATCH] = np.inf
    whole = make_model(loss_scaled(keras.optimizers.SGD(0.01)))
    fit(whole, [], x=x, y=y, batch_size=BATCH, shuffle=False)
    assert ks.global_step(whole) == (10 if IS_TF_KERAS else 9)
    model = make_model(loss_scaled(keras.optimizers.SGD(0.01)))
    fit(model, [ks.StopAtStep(9)], x=x, y=y, batch_size=BATCH, shuffle=False, epochs=3)
    assert ks.global_step(model) == 9


def test_c10_already_there(capsys):
    model = make_model()
    fit(model, [ks.StopAtStep(40)], epochs=5)
    validated = Recorder(1)
    x, y = arrays(2)
    for last_step in (40, 30):
        history = fit(
            model, [ks.StopAtStep(last_step), validated], epochs=5, validation_data=(x, y)
        )
        assert history.history == {}
    assert capsys.readouterr().out.splitlines() == ["already at step 40"] * 2
    assert ks.global_step(model) == 40
    assert validated.evaluations == validated.steps == []
    fit(model, [], epochs=1)
    assert ks.global_step(model) == 50


def test_c10_num_steps_counts_from_train_begin():
    model = make_model()
    ks.set_global_step(model, 40)
    fit(model, [ks.StopAtStep(num_steps=40)], epochs=5)
    assert ks.global_step(model) == 80


def test_the_nearest_of_two_counts():
    model = make_model()
    fit(model, [ks.StopAtStep(8), ks.StopAtStep(num_steps=5), ks.StopAtStep(7)])
    assert ks.global_step(model) == 5


def test_validation_of_the_epoch_that_is_cut_short_runs():
    recorder = Recorder(7)
    x, y = arrays(2)
    history = fit(make_model(), [ks.StopAtStep(7), recorder], epochs=2, validation_data=(x, y))
    assert recorder.evaluations[0][0] == 7
    assert recorder.logs[0]["val_loss"] == history.history["val_loss"][0]
    assert len(history.history["val_loss"]) == 1


@not_on_torch
@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras refuses spe > 1 with data of unknown size")
@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize(("batches", "spe", "last_step"), [(6, 3, 7), (5, 4, 6), (9, 4, 10)])
def test_data_that_end_shortly_before_the_target(batches, spe, last_step):
    x, y = arrays(batches)
    pairs = ((x[n * BATCH :][:BATCH], y[n * BATCH :][:BATCH]) for n in range(batches))
    model = make_model(steps_per_execution=spe)
    fit(model, [ks.StopAtStep(last_step)], x=pairs)
    assert ks.global_step(model) == batches
