"""What a backup holds beside the variables, and what it waits for."""

import threading

import numpy as np
import pytest
from flavours import (
    IS_TF_KERAS,
    ON_TENSORFLOW,
    fit,
    keras,
    make_model,
    mirrored_scope,
    no_scope,
    state_of,
)

import keras_steps as ks
from keras_steps import restoring
from keras_steps.background import BackgroundWriter, let_all_finish
from keras_steps.backups import BackupDirectory


def train(directory, *more, every=4, epochs=3):
    keras.backend.clear_session()
    if IS_TF_KERAS:
        keras.backend.experimental.enable_tf_random_generator()
    callbacks = [*more, ks.StepBackupAndRestore(directory, every=every, on_signal=())]
    return fit(make_model(), callbacks, epochs=epochs).history


@pytest.mark.parametrize("last_step", [20, 25])
def test_a_done_run_that_is_started_again_has_its_history(tmp_path, last_step):
    first = train(tmp_path, ks.StopAtStep(last_step))
    assert len(first["loss"]) == {20: 2, 25: 3}[last_step]
    assert train(tmp_path, ks.StopAtStep(last_step)) == first
    assert train(tmp_path, ks.StopAtStep(last_step)) == first
    assert train(tmp_path) == train(tmp_path / "whole")


def test_a_done_run_of_a_script_with_two_fits_has_its_own_history(tmp_path):
    def script():
        model, histories = make_model(), []
        for epochs in (2, 3):
            backup = ks.StepBackupAndRestore(tmp_path, every=4, on_signal=())
            histories.append(fit(model, [backup], epochs=epochs).history)
        return histories

    first = script()
    again = script()
    assert again == [{}, first[1]]  # the backups of the first fit are gone


class Slow(ks.StepCallback):
    """Writes in the background from step 4 to step 6, as StepCheckpoint does."""

    def __init__(self, directory, error):
        super().__init__(ks.AtSteps(4, 6))
        self.directory, self.error = directory, error
        self.writer, self.go_on, self.seen = BackgroundWriter(), threading.Event(), []

    def on_step(self, step, logs):
        if step == 4:
            self.writer.submit(self.write)
        else:
            self.go_on.set()
            let_all_finish()
            self.look()

    def write(self):
        assert self.go_on.wait(60)
        self.look()
        if self.error is not None:
            raise self.error

    def look(self):
        self.seen.append(BackupDirectory(self.directory, 2).newest().state["step"])


@pytest.mark.parametrize(("error", "seen"), [(None, [0, 4]), (OSError("full"), [0, 0])])
def test_a_backup_comes_after_what_others_write_at_its_step(tmp_path, error, seen):
    slow = Slow(tmp_path, error)
    train(tmp_path, slow, epochs=1)
    assert slow.seen == seen


class Dies(Exception):
    pass


def dies(step, logs):
    raise Dies


@pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow's strategies")
def test_under_mirrored_a_fit_outside_its_scope_goes_on_with_divided_batches(tmp_path):
    def script(directory, *more):
        with mirrored_scope():
            model = make_model(keras.optimizers.Adam(0.01))
        callbacks = [ks.StepBackupAndRestore(directory, every=4, on_signal=()), *more]
        fit(model, callbacks, shuffle=True)
        return state_of(model)

    whole = script(tmp_path / "whole")
    with pytest.raises(Dies):
        script(tmp_path / "killed", ks.OnStep(ks.AtSteps(6), dies))
    for array, array_2 in zip(whole, script(tmp_path / "killed"), strict=True):
        np.testing.assert_array_equal(array, array_2)


def of_sums(whole, again):
    """What is left of a difference is the order in which replicas are added up."""
    for array, array_2 in zip(whole[0], again[0], strict=True):
        np.testing.assert_allclose(array, array_2, rtol=1e-4, atol=1e-6)
    for name, values in whole[1].items():
        np.testing.assert_allclose(values, again[1][name], rtol=1e-4)


def test_a_backup_with_the_name_that_tensorflow_has_for_a_strategy_is_accepted(
    tmp_path, monkeypatch
):
    def script(strategy, last_step):
        name = f"{strategy} over 2 devices"
        monkeypatch.setattr(restoring, "strategy_name", lambda model: name)
        model = make_model()
        backup = ks.StepBackupAndRestore(tmp_path, 4, on_signal=())
        fit(model, [backup, ks.StopAtStep(last_step)])
        return ks.global_step(model)

    assert script("CollectiveAllReduceStrategy", 2) == 2
    assert script("MultiWorkerMirroredStrategy", 3) == 3
    with pytest.raises(ValueError, match="made under MultiWorkerMirroredStrategy over 2"):
        script("MirroredStrategy", 4)


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow's strategies")
@pytest.mark.parametrize("killed_at", [6, 10])
@pytest.mark.parametrize("killed_under", ["mirrored", "none"])
def test_another_strategy(tmp_path, killed_under, killed_at):
    """Refused, or with on_change="warn" gone on with what each replica is to have."""
    scopes = {"mirrored": mirrored_scope, "none": no_scope}

    def script(directory, under, *more, on_change="raise"):
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        with scopes[under]():
            model = keras.Sequential(
                [
                    keras.layers.Dense(3, activation="tanh"),
                    keras.layers.LayerNormalization(),
                    keras.layers.Dense(1),
                ]
            )
            optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
            model.compile(optimizer, "mse", metrics=["mae", keras.metrics.RootMeanSquaredError()])
        backup = ks.StepBackupAndRestore(directory, 4, on_signal=(), on_change=on_change)
        history = fit(model, [backup, *more], epochs=2)
        return state_of(model), history.history

    then = "none" if killed_under == "mirrored" else "mirrored"
    whole = script(tmp_path / "whole", then)
    with pytest.raises(Dies):
        script(tmp_path / "killed", killed_under, ks.OnStep(ks.AtSteps(killed_at), dies))
    both = [r"Mirrored\w* over 2 devices", "one replica"]
    first, second = both if killed_under == "mirrored" else reversed(both)
    with pytest.raises(ValueError, match=f"under {first}, and this fit is under {second}.*warn"):
        script(tmp_path / "killed", then)
    with pytest.warns(UserWarning, match="does not add up in the same order"):
        again = script(tmp_path / "killed", then, on_change="warn")
    of_sums(whole, again)
