"""StepBackupAndRestore: a run that was broken off and started again is the run that was not."""

import warnings

import numpy as np
import pytest
from flavours import BATCH, FLAVOUR, IS_TF_KERAS, arrays, clear_session, fit, keras, state_of

import keras_steps as ks
from keras_steps import StepBackupAndRestore
from keras_steps.background import let_all_finish
from keras_steps.step_callback import Order
from keras_steps.testing import Recorder

BATCHES = 10


class Dies(Exception):
    pass


class Killer(ks.StepCallback):
    """Breaks the fit off at a step, as a kill does: nothing is told of it."""

    def __init__(self, at, order=Order.REPORT):
        super().__init__(ks.AtSteps(at))
        self.order = order

    def on_step(self, step, logs):
        raise Dies


def script(
    directory, killed_at=None, *, shuffle=True, epochs=3, every=4, more=(), data=None, spe=1, **args
):
    """What a user's script does, from seeding to fit, each time it is started."""
    let_all_finish()  # clear_session breaks a save that is under way
    clear_session()
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
    compiled = {} if spe == 1 else {"steps_per_execution": spe}
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **compiled)
    recorder = Recorder(3)
    callbacks = [StepBackupAndRestore(directory, every=every, on_signal=()), recorder, *more]
    if killed_at is not None:
        killer = killed_at if isinstance(killed_at, Killer) else Killer(killed_at)
        callbacks.append(killer)
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
            **args,
        ).history
    except Dies:
        assert killed_at is not None
    return model, recorder, history


def assert_same(one, other):
    (model, recorder, history), (model_2, recorder_2, history_2) = one, other
    for array, array_2 in zip(state_of(model), state_of(model_2), strict=True):
        np.testing.assert_array_equal(array, array_2)
    assert history == history_2
    assert_reports_of(recorder, recorder_2)


def assert_reports_of(whole, part):
    logs = {step: without_time(log) for step, log in zip(whole.steps, whole.logs, strict=True)}
    for step, log in zip(part.steps, part.logs, strict=True):
        assert without_time(log) == logs[step], step


def without_time(log):
    return {name: value for name, value in log.items() if not name.endswith("per_second")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return script(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("killed_at", [2, 5, 11, 20, 21])
def test_killed_and_started_again_it_is_the_run_that_was_not(tmp_path, whole, killed_at):
    script(tmp_path / "killed", killed_at)
    again = script(tmp_path / "killed")
    assert_same(whole, again)
    from_step = (killed_at - 1) // 4 * 4
    assert again[1].steps == [step for step in range(3, 31, 3) if step > from_step]


def test_killed_before_its_first_backup_it_begins_again_in_the_same_places(tmp_path):
    """A run that is only started anew leaves what it finds alone: law 9."""
    for killed_at in (3, 2, None):
        writers = [
            ks.StepCSVLogger(tmp_path / "log.csv", 1),
            ks.StepCheckpoint(tmp_path / "checkpoints", 1, max_to_keep=None),
        ]
        script(tmp_path / "backup", killed_at, epochs=1, every=100, more=writers)
    rows = (tmp_path / "log.csv").read_text().split("\n")[1:-1]
    assert [int(row.partition(",")[0]) for row in rows] == list(range(1, 11))
    assert [c.step for c in ks.list_checkpoints(tmp_path / "checkpoints")] == list(range(1, 11))
    assert not (tmp_path / "log_2.csv").exists()


def of_unknown_size():
    x, y = arrays(BATCHES)

    def generate():
        for at in range(0, len(x), BATCH):
            yield x[at : at + BATCH], y[at : at + BATCH]

    if FLAVOUR == "torch":
        import torch

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return generate()

        return {"x": torch.utils.data.DataLoader(Stream(), batch_size=None)}
    if FLAVOUR == "jax":
        pytest.importorskip("tensorflow", reason="unknown size on JAX: tf.data only")
    import tensorflow as tf

    kinds = (tf.TensorSpec((BATCH, 4)), tf.TensorSpec((BATCH, 1)))
    return {"x": tf.data.Dataset.from_generator(generate, output_signature=kinds)}


@pytest.fixture(scope="module")
def whole_of_unknown_size(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*ran out of data")
        return script(tmp_path_factory.mktemp("whole"), data=of_unknown_size, every=5)


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("killed_at", [5, 10, 11, 20])
def test_data_of_unknown_size(tmp_path, whole_of_unknown_size, killed_at):
    script(tmp_path, Killer(killed_at, Order.BACKUP), data=of_unknown_size, every=5)
    assert_same(whole_of_unknown_size, script(tmp_path, data=of_unknown_size, every=5))


@pytest.fixture(scope="module")
def whole_of_executions(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*no multiple of steps_per_execution")
        return script(tmp_path_factory.mktemp("whole"), spe=4)


@pytest.mark.skipif(FLAVOUR == "torch", reason="refuses steps_per_execution > 1")
@pytest.mark.filterwarnings("ignore:.*no multiple of steps_per_execution")
@pytest.mark.parametrize("killed_at", [4, 10, 18])
def test_steps_per_execution(tmp_path, whole_of_executions, killed_at):
    script(tmp_path, Killer(killed_at, Order.BACKUP), spe=4)
    assert_same(whole_of_executions, script(tmp_path, spe=4))


def test_a_done_run_makes_no_step_and_a_larger_target_goes_on(tmp_path, whole, capsys):
    first = script(tmp_path, more=[ks.StopAtStep(12)])
    assert ks.stop_reason(first[0]) == "reached"
    again = script(tmp_path, more=[ks.StopAtStep(12)])
    assert again[1].steps == []
    assert "already at step 12" in capsys.readouterr().out
    for array, array_2 in zip(state_of(first[0]), state_of(again[0]), strict=True):
        np.testing.assert_array_equal(array, array_2)
    more = script(tmp_path, more=[ks.StopAtStep(25)])
    assert ks.global_step(more[0]) == 25
    assert more[1].steps == [15, 18, 21, 24]
    assert_reports_of(whole[1], more[1])


class AtEnd(Recorder):
    at_end = True


def test_what_reported_at_the_end_goes_on_behind_it(tmp_path):
    """It reports steps 13 to 16, as one does that has reported at 12 in a run of one piece."""
    whole = AtEnd(ks.AtSteps(8, 12, 16))
    script(tmp_path / "whole", more=[whole, ks.StopAtStep(16)])
    first, further = AtEnd(8), AtEnd(8)
    script(tmp_path / "parts", more=[first, ks.StopAtStep(12)])
    script(tmp_path / "parts", more=[further, ks.StopAtStep(16)])
    assert (first.steps, further.steps) == ([8, 12], [16])
    assert without_time(further.logs[0]) == without_time(whole.logs[2])


def test_c38_tomorrow_the_same_with_200(tmp_path):
    data = {"shuffle": False, "epochs": 30}
    assert ks.global_step(script(tmp_path, more=[ks.StopAtStep(100)], **data)[0]) == 100
    assert ks.global_step(script(tmp_path, more=[ks.StopAtStep(200)], **data)[0]) == 200
    model, recorder, _ = script(tmp_path, more=[ks.StopAtStep(150)], **data)
    assert (ks.global_step(model), recorder.steps) == (200, [])


def test_c36_num_steps_is_not_counted_anew(tmp_path):
    for killed_at in (12, 25):
        script(tmp_path, killed_at, epochs=10, more=[ks.StopAtStep(num_steps=40)])
    model, _, _ = script(tmp_path, epochs=10, more=[ks.StopAtStep(num_steps=40)])
    assert ks.global_step(model) == 40
    model, recorder, _ = script(tmp_path, epochs=10, more=[ks.StopAtStep(num_steps=40)])
    assert (ks.global_step(model), recorder.steps) == (40, [])
    model, _, _ = script(tmp_path, epochs=10, more=[ks.StopAtStep(num_steps=60)])
    assert ks.global_step(model) == 60


@pytest.mark.filterwarnings("ignore:.*no multiple of steps_per_execution")
@pytest.mark.parametrize("spe", [1, 4])
@pytest.mark.parametrize(("end", "killed_at"), [(25, 23), (20, 13)])
def test_c34_a_resume_that_ends_off_the_grid(tmp_path, spe, end, killed_at):
    """Its last step is saved, evaluated and reported once; also where it is an epoch's last."""
    if FLAVOUR == "torch" and spe > 1:
        pytest.skip("torch refuses steps_per_execution > 1")

    def train(place, killed_at=None):
        evaluations = Recorder(1000)
        more = [
            ks.EvaluateEveryN(arrays(2, seed=4), 6, prefix="test_"),
            ks.StepCheckpoint(place / "checkpoints", 6, max_to_keep=None),
            ks.StepCSVLogger(place / "log.csv", 6),
            ks.StopAtStep(end),
            evaluations,
        ]
        script(place / "backup", killed_at, every=5, more=more, spe=spe)
        rows = (place / "log.csv").read_text().split("\n")[1:-1]
        reported = [int(row.partition(",")[0]) for row in rows]
        saved = [checkpoint.step for checkpoint in ks.list_checkpoints(place / "checkpoints")]
        made = [step for step, logs in evaluations.evaluations if "test_loss" in logs]
        return reported, saved, made

    whole = train(tmp_path / "whole")
    before = train(tmp_path / "killed", killed_at)[2]
    *written, after = train(tmp_path / "killed")
    assert written == list(whole[:2])
    assert sorted({*before, *after}) == whole[2]
    for steps in (*written, after):
        assert steps.count(end) == 1
        assert steps == sorted(set(steps))
    assert train(tmp_path / "killed") == (*written, [])


def test_epochs_that_are_done_and_more_epochs(tmp_path, whole):
    script(tmp_path, epochs=2)
    assert script(tmp_path, epochs=2)[1].steps == []
    assert_same(whole, script(tmp_path, epochs=3))
