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
    state_of,
)

import keras_steps as ks
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
