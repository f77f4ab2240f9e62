"""StepBackupAndRestore: a run that was broken off and started again is the run that was not."""

import numpy as np
import pytest
from flavours import BATCH, FLAVOUR, IS_TF_KERAS, arrays, fit, keras, state_of

import keras_steps as ks
from keras_steps.callbacks.step_backup_and_restore import StepBackupAndRestore
from keras_steps.testing import Recorder

BATCHES = 10


class Dies(Exception):
    pass


class Killer(ks.StepCallback):
    """Breaks the fit off at a step, as a kill does: nothing is told of it."""

    def __init__(self, at):
        super().__init__(ks.AtSteps(at))

    def on_step(self, step, logs):
        raise Dies


def script(directory, killed_at=None, *, shuffle=True, epochs=3, more=(), data=None, **fit_args):
    """What a user's script does, from seeding to fit, each time it is started."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    if IS_TF_KERAS:
        keras.backend.experimental.enable_tf_random_generator()
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    recorder = Recorder(3)
    callbacks = [StepBackupAndRestore(directory, every=4, on_signal=()), recorder, *more]
    if killed_at is not None:
        callbacks.append(Killer(killed_at))
    x, y = arrays(BATCHES)
    given = data() if data else {"x": x, "y": y, "batch_size": BATCH, "shuffle": shuffle}
    history = None
    try:
        history = fit(
            model,
            callbacks,
            epochs=epochs,
            validation_data=arrays(2, seed=5),
            **given,
            **fit_args,
        ).history
    except Dies:
        assert killed_at is not None
    return model, recorder, history


def assert_same(one, other):
    (model, recorder, history), (model_2, recorder_2, history_2) = one, other
    for array, array_2 in zip(state_of(model), state_of(model_2), strict=True):
        np.testing.assert_array_equal(array, array_2)
    assert history == history_2
    logs = {step: without_time(log) for step, log in zip(recorder.steps, recorder.logs)}
    for step, log in zip(recorder_2.steps, recorder_2.logs):
        assert without_time(log) == logs[step], step


def without_time(log):
    return {name: value for name, value in log.items() if not name.endswith("per_second")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return script(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("killed_at", [2, 5, 9, 10, 11, 20, 21])
def test_killed_and_started_again_it_is_the_run_that_was_not(tmp_path, whole, killed_at):
    script(tmp_path / "killed", killed_at)
    again = script(tmp_path / "killed")
    assert_same(whole, again)
    from_step = (killed_at - 1) // 4 * 4
    assert again[1].steps == [step for step in range(3, 31, 3) if step > from_step]
