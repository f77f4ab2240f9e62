"""In one list with Keras's own callbacks: each does what it does alone."""

import os

import numpy as np
import pytest
from flavours import FLAVOUR, IS_TF_KERAS, arrays, fit, keras, make_model, state_of

import keras_steps as ks
from keras_steps.testing import Recorder

with_validation = {"validation_data": arrays(2, seed=5), "epochs": 6}


def stack():
    return [ks.StopAtStep(55), ks.LogEveryN(10**6), Recorder(7), ks.OnStep(5, lambda *_: None)]


def alone_and_together(make_neighbour, **fit_args):
    """(neighbour, model, history) of a run with the neighbour alone, and with our stack."""
    for ours in ([ks.StopAtStep(55)], stack()):
        model, neighbour = make_model(keras.optimizers.SGD(0.1)), make_neighbour()
        history = fit(model, [*ours[:2], neighbour, *ours[2:]], **{**with_validation, **fit_args})
        yield neighbour, model, history.history


def assert_same_run(alone, together):
    np.testing.assert_equal(together[2], alone[2])
    np.testing.assert_equal(state_of(together[1]), state_of(alone[1]))


def test_early_stopping():
    alone, together = alone_and_together(
        lambda: keras.callbacks.EarlyStopping("loss", min_delta=0.4, patience=1)
    )
    assert_same_run(alone, together)
    assert alone[0].stopped_epoch == together[0].stopped_epoch > 0
    assert ks.global_step(together[1]) < 55


def test_reduce_lr_on_plateau():
    alone, together = alone_and_together(
        lambda: keras.callbacks.ReduceLROnPlateau("loss", min_delta=10.0, patience=1)
    )
    assert_same_run(alone, together)
    assert len(set(together[2]["learning_rate" if not IS_TF_KERAS else "lr"])) > 1


@pytest.mark.skipif(IS_TF_KERAS, reason="Keras 3 only")
def test_swap_ema_weights():
    def with_ema():
        return make_model(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))

    results = []
    for ours in ([], [Recorder(7), ks.LogEveryN(10**6)]):
        model = with_ema()
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        history = fit(model, [swap, *ours], epochs=2, validation_data=arrays(2, seed=5))
        results.append((history.history, state_of(model)))
    np.testing.assert_equal(results[1], results[0])


def test_model_checkpoint(tmp_path):
    alone, together = alone_and_together(
        lambda: keras.callbacks.ModelCheckpoint(
            str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True
        )
    )
    assert_same_run(alone, together)
    assert sorted(os.listdir(tmp_path)) == [f"{n}.weights.h5" for n in range(1, 7)]


@pytest.mark.skipif(FLAVOUR in ("jax", "torch"), reason="Keras's TensorBoard needs TensorFlow")
def test_tensorboard_with_its_graph(tmp_path):
    folders = iter((tmp_path / "alone", tmp_path / "together"))
    alone, together = alone_and_together(
        lambda: keras.callbacks.TensorBoard(str(next(folders)), write_graph=True, update_freq=5)
    )
    assert_same_run(alone, together)
    assert _tags(tmp_path / "alone") == _tags(tmp_path / "together")


def _tags(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for run in ("train", "validation"):
        events = EventAccumulator(str(folder / run)).Reload()
        tags = events.Tags()
        counts = {tag: len(events.Tensors(tag)) for tag in tags["tensors"]}
        found[run] = (tags["graph"], tags["scalars"], counts)
    return found


def test_backup_and_restore(tmp_path):
    folder = str(tmp_path / "backup")

    class Dies(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    whole = make_model()
    fit(whole, [], epochs=4)
    model = make_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, [Recorder(7), keras.callbacks.BackupAndRestore(folder), Dies()], epochs=4)
    model, recorder = make_model(seed=2), Recorder(7)
    fit(model, [recorder, keras.callbacks.BackupAndRestore(folder)], epochs=4)
    assert recorder.steps == [21, 28, 35]
    assert ks.global_step(model) == 40
    np.testing.assert_equal(model.get_weights(), whole.get_weights())


def test_lambda_callback():
    seen = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    recorder = Recorder(5)
    fit(make_model(), [recorder, callback], epochs=2)
    assert seen == [*range(10), *range(10)]
    assert recorder.steps == [5, 10, 15, 20]


def test_a_neighbour_that_reads_the_model_at_each_batch_sees_it_change():
    weights = []

    class Reads(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights.append(float(np.asarray(self.model.get_weights()[0]).sum()))

    fit(make_model(), [Recorder(3), Reads(), ks.OnStep(3, lambda *_: None)])
    assert len(set(weights)) == 10


class OwnTrainFunction(keras.Sequential):
    made = 0

    def make_train_function(self, force=False):
        type(self).made += 1
        return super().make_train_function(force)


@pytest.mark.parametrize(
    "compile_args", [{}, {"run_eagerly": True}, {"jit_compile": False}], ids=str
)
def test_a_model_with_its_own_make_train_function(compile_args):
    model = OwnTrainFunction([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compile_args)
    recorder = Recorder(4)
    fit(model, [recorder, ks.StopAtStep(10)], epochs=3)
    assert recorder.steps == [4, 8]
    assert ks.global_step(model) == 10
    assert model.made >= 1


@pytest.mark.skipif(FLAVOUR == "torch", reason="torch.compile needs a compiler and minutes")
def test_a_model_compiled_with_jit():
    recorder = Recorder(4)
    model = make_model(jit_compile=True)
    fit(model, [recorder, ks.StopAtStep(10)], epochs=3)
    assert recorder.steps == [4, 8]
    assert ks.global_step(model) == 10


@pytest.mark.slow
@pytest.mark.skipif(IS_TF_KERAS, reason="KerasTuner is for Keras 3")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_keras_tuners_search(tmp_path, capsys):
    keras_tuner = pytest.importorskip("keras_tuner")

    def build(choices):
        return make_model(keras.optimizers.SGD(choices.Choice("rate", [0.1, 0.01, 0.001])))

    tuner = keras_tuner.RandomSearch(
        build, objective="val_loss", max_trials=3, directory=str(tmp_path), seed=1
    )
    x, y = arrays(10)
    tuner.search(
        x,
        y,
        epochs=3,
        batch_size=8,
        validation_data=arrays(2),
        verbose=0,
        callbacks=[ks.StopAtStep(15), ks.LogEveryN(10)],
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert [line.split("/")[0] for line in lines] == ["step 1", "step 11", "step 15"] * 3
