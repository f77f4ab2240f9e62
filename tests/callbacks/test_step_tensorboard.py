"""StepTensorBoard: what TensorBoard's own readers find in its files."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from unittest import mock

import numpy as np
import pytest
from curves import contents, curve, losses, steps, tags
from flavours import BATCH, FLAVOUR, ON_TENSORFLOW, arrays, fit, keras, loss_scaled, make_model
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

import keras_steps as ks
from keras_steps.callbacks.step_tensorboard import _weights_by_name
from keras_steps.tensorboard_writer import TensorBoardWriter
from keras_steps.testing import Recorder


def model_at(step):
    model = make_model()
    ks.set_global_step(model, step)
    return model


def test_c01_a_resumed_fit_goes_on_in_one_rising_curve(tmp_path):
    validation = arrays(2)
    for begin, batches in ((0, 63), (40, 60)):
        board = ks.StepTensorBoard(tmp_path / "logs", 10)
        model = model_at(begin)
        fit(model, [board], batches=batches, validation_data=validation)
    train = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    for tag in ("loss", "learning_rate", "epoch"):
        assert steps(tmp_path / "logs/train", tag) == train
    assert steps(tmp_path / "logs/validation", "loss") == [100]
    assert ks.global_step(model) == 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs"]


def test_c02_training_and_validation_lie_over_each_other(tmp_path):
    model, data = losses(range(1, 11))
    validation = (np.full((BATCH, 1), 9.0, "float32"), np.zeros((BATCH, 1), "float32"))
    board = ks.StepTensorBoard(tmp_path, 5)
    fit(model, [board], epochs=2, validation_data=validation, **data)
    assert curve(tmp_path / "train", "loss") == [(5, 3.0), (10, 8.0), (15, 3.0), (20, 8.0)]
    assert curve(tmp_path / "validation", "loss") == [(10, 9.0), (20, 9.0)]
    assert tags(tmp_path / "validation") == {"loss"}
    rates = {"learning_rate", "steps_per_second", "examples_per_second"}
    assert tags(tmp_path / "train") == {"loss", "epoch"} | rates
    for tag in rates:
        assert steps(tmp_path / "train", tag) == [5, 10, 15, 20]


def test_c03_no_restart_at_an_epoch(tmp_path):
    fit(make_model(), [ks.StepTensorBoard(tmp_path, 7)], batches=10, epochs=3)
    assert steps(tmp_path / "train", "loss") == [7, 14, 21, 28, 30]


@pytest.mark.skipif(not ON_TENSORFLOW, reason="tf.summary is TensorFlow's")
def test_c04_a_users_own_summaries_are_written_too(tmp_path):
    import tensorflow as tf

    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            tf.summary.scalar("own", 1.0, step=epoch)

    with tf.summary.create_file_writer(str(tmp_path / "logs/own")).as_default():
        board = ks.StepTensorBoard(tmp_path / "logs", 5)
        fit(make_model(), [board, Own()], batches=11, epochs=2)
        assert tf.summary.experimental.get_step() is None
    own = EventAccumulator(str(tmp_path / "logs/own")).Reload()
    assert [event.step for event in own.Tensors("own")] == [0, 1]
    assert steps(tmp_path / "logs/train", "loss") == [5, 10, 15, 20, 22]


def _variable_rate():
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.learning_rate = 0.25
    return optimizer


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (lambda: keras.optimizers.SGD(0.5), [0.5, 0.5]),
        (_variable_rate, [0.25, 0.25]),
        (
            lambda: keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(1.0, 10, 0.0)),
            [0.8, 0.3],  # updates 3 and 8 use the schedule at 2 and at 7
        ),
        (lambda: loss_scaled(keras.optimizers.SGD(0.5), initial_scale=2.0), [0.5, 0.5]),
    ],
    ids=["float", "variable", "schedule", "loss scale"],
)
def test_c22_the_learning_rate_that_the_update_used(tmp_path, optimizer, expected):
    board = ks.StepTensorBoard(tmp_path, ks.AtSteps(3, 8))
    board.at_end = False
    fit(make_model(optimizer()), [board], batches=10)
    points = curve(tmp_path / "train", "learning_rate")
    assert [step for step, _ in points] == [3, 8]
    np.testing.assert_allclose([value for _, value in points], expected, rtol=1e-6)


def test_c22_a_scheduled_rate(tmp_path):
    board = ks.StepTensorBoard(tmp_path, 5)
    rate = ks.StepScheduledLR(lambda step: 0.5 / (1 + step))
    fit(make_model(), [board, rate], batches=10)
    values = [value for _, value in curve(tmp_path / "train", "learning_rate")]
    np.testing.assert_allclose(values, [0.5 / 5, 0.5 / 10], rtol=1e-6)


def test_c37_a_fresh_run_leaves_the_earlier_curves_alone(tmp_path, capsys):
    before = {}
    for name in ("logs", "logs_2", "logs_3"):
        capsys.readouterr()
        fit(make_model(), [ks.StepTensorBoard(tmp_path / "logs", 5)], batches=10)
        out = capsys.readouterr().out
        line = f"{tmp_path / 'logs'} holds an earlier run: this one writes to {tmp_path / name}\n"
        assert out == ("" if name == "logs" else line)
        after = contents(tmp_path)
        assert {path: after[path] for path in before} == before
        assert steps(tmp_path / name / "train", "loss") == [5, 10]
        before = after
    # A run that goes on takes the newest.
    fit(model_at(10), [ks.StepTensorBoard(tmp_path / "logs", 5)], batches=10)
    assert steps(tmp_path / "logs_3/train", "loss") == [5, 10, 15, 20]
    assert steps(tmp_path / "logs/train", "loss") == [5, 10]


def test_validation_past_the_step_is_dropped_before_there_is_a_new_one(tmp_path):
    fit(make_model(), [ks.StepTensorBoard(tmp_path, 5)], epochs=2, validation_data=arrays(1))
    assert steps(tmp_path / "validation", "loss") == [10, 20]
    fit(model_at(12), [ks.StepTensorBoard(tmp_path, 5)], batches=5)
    assert steps(tmp_path / "validation", "loss") == [10]
    assert steps(tmp_path / "train", "loss") == [5, 10, 15, 17]


def test_a_model_restored_by_another_callback_goes_on(tmp_path):
    class Restores(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            ks.set_global_step(self.model, 10)

    fit(make_model(), [ks.StepTensorBoard(tmp_path / "logs", 5)], batches=15)
    board = ks.StepTensorBoard(tmp_path / "logs", 5)
    fit(make_model(), [board, Restores()], batches=10)
    assert steps(tmp_path / "logs/train", "loss") == [5, 10, 15, 20]
    assert not (tmp_path / "logs_2").exists()


def test_two_in_one_fit(tmp_path):
    boards = [ks.StepTensorBoard(tmp_path / name, n) for name, n in (("a", 5), ("b", 3))]
    fit(make_model(), boards, batches=10)
    assert steps(tmp_path / "a/train", "loss") == [5, 10]
    assert steps(tmp_path / "b/train", "loss") == [3, 6, 9, 10]


def test_two_of_one_directory_are_refused(tmp_path):
    boards = [ks.StepTensorBoard(tmp_path / "logs", n) for n in (5, 3)]
    with pytest.raises(ValueError, match="two callbacks of one fit write to the same pl"):
        fit(make_model(), boards)


def test_other_prefixes_have_runs_of_their_own(tmp_path):
    class Evaluates(ks.StepCallback):
        def begin(self, run):
            self.run = run
            run.evaluations.prefixes += ["test_", "train_"]

        def on_step(self, step, logs):
            self.run.evaluated({"test_loss": 1.0, "train_loss": 2.0})

    fit(make_model(), [ks.StepTensorBoard(tmp_path, 5), Evaluates(3)], batches=10)
    assert curve(tmp_path / "test", "loss") == [(3, 1.0), (6, 1.0), (9, 1.0)]
    assert steps(tmp_path / "evaluation_train", "loss") == [3, 6, 9]
    assert steps(tmp_path / "train", "loss") == [5, 10]


def test_histograms_at_steps_of_their_own(tmp_path):
    recorder = Recorder(5)
    board = ks.StepTensorBoard(tmp_path, 5, histograms_every=4)
    model = make_model()
    fit(model, [board, recorder], batches=10)
    assert curve(tmp_path / "train", "loss") == [
        (step, pytest.approx(logs["loss"]))
        for step, logs in zip(recorder.steps, recorder.logs, strict=True)
    ]
    read = EventAccumulator(str(tmp_path / "train"), size_guidance={"tensors": 0}).Reload()
    names = [tag for tag in read.Tags()["tensors"] if "kernel" in tag or "bias" in tag]
    assert len(names) == 4
    assert read.SummaryMetadata(names[0]).plugin_data.plugin_name == "histograms"
    for tag, weight in zip(names, model.get_weights(), strict=True):
        events = read.Tensors(tag)
        assert [event.step for event in events] == [4, 8, 10]
        left, right, count = make_ndarray(events[-1].tensor_proto).T
        assert count.sum() == weight.size
        assert left[0] == weight.min()
        assert right[-1] == weight.max()


def test_histograms_change_nothing(tmp_path):
    plain, watched = make_model(), make_model()
    bare = fit(plain, [], epochs=2).history
    history = fit(watched, [ks.StepTensorBoard(tmp_path, 5, histograms_every=3)], epochs=2).history
    np.testing.assert_equal(history, bare)
    np.testing.assert_equal(watched.get_weights(), plain.get_weights())


def test_names_with_odd_characters(tmp_path):
    names = ["a b", "λ/ß", "x:0", 'say "hi", all', "new\nline"]
    board = ks.StepTensorBoard(tmp_path, 5, extra=lambda model: dict.fromkeys(names, 1.0))
    fit(make_model(), [board])
    assert set(names) <= tags(tmp_path / "train")
    assert curve(tmp_path / "train", "λ/ß") == [(5, 1.0), (10, 1.0)]


def test_what_a_broken_off_fit_has_reported_is_there(tmp_path):
    def fail(step, logs):
        raise KeyboardInterrupt

    model, board = make_model(), ks.StepTensorBoard(tmp_path, 3)
    with pytest.raises(KeyboardInterrupt):
        fit(model, [board, ks.OnStep(7, fail)])
    assert steps(tmp_path / "train", "loss") == [3, 6]
    fit(model, [board], batches=5)
    assert steps(tmp_path / "train", "loss") == [3, 6, 9, 12]


def test_a_directory_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    model = make_model()
    with pytest.raises(OSError, match="StepTensorBoard: cannot write to the directory .*file"):
        fit(model, [ks.StepTensorBoard(tmp_path / "file/logs")])
    assert ks.global_step(model) == 0


def test_a_record_that_a_kill_has_cut_short_is_passed_over(tmp_path):
    """Wherever it was cut, by both readers; the run that goes on writes behind it."""
    fit(make_model(), [ks.StepTensorBoard(tmp_path, 5)], batches=10)
    (file,) = (tmp_path / "train").iterdir()
    whole = file.read_bytes()
    for cut in (1, 4, 5, 60, 100, len(whole)):
        file.write_bytes(whole[: len(whole) - cut])
        TensorBoardWriter(tmp_path, 10, []).write(15, {"loss": 1.0})
        assert steps(tmp_path / "train", "loss") == ([15] if cut == len(whole) else [5, 15])
        for later in set((tmp_path / "train").iterdir()) - {file}:
            later.unlink()


def test_a_log_directory_that_is_taken_away(tmp_path):
    """What is written to a file without a name is lost: no success."""
    remove = ks.OnStep(7, lambda step, logs: shutil.rmtree(tmp_path / "logs"))
    with pytest.raises(FileNotFoundError, match="was removed while it was written to") as caught:
        fit(make_model(), [ks.StepTensorBoard(tmp_path / "logs", 5), remove])
    assert caught.value.__notes__ == ["The writer of StepTensorBoard raised this, closed."]


def test_weights_of_one_name(tmp_path):
    Weight = namedtuple("Weight", "path")
    model = mock.Mock(weights=[Weight(path) for path in ("a__2", "a", "a", "a")])
    model.get_weights.return_value = [1, 2, 3, 4]
    assert _weights_by_name(model) == {"a__2": 1, "a": 2, "a__3": 3, "a__4": 4}


def test_a_fit_without_a_step_makes_no_directory(tmp_path):
    model = model_at(10)
    fit(model, [ks.StepTensorBoard(tmp_path / "logs"), ks.StopAtStep(10)])
    assert not (tmp_path / "logs").exists()


WITHOUT_TENSORFLOW = """
import sys
if sys.argv[1] == "blocked":
    sys.modules["tensorflow"] = None
import keras, numpy as np
from keras_steps import StepTensorBoard
model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
board = StepTensorBoard(sys.argv[2], 2, histograms_every=2)
model.fit(np.ones((5, 1)), np.ones((5, 1)), batch_size=1, verbose=0, callbacks=[board])
print(sys.modules.get("tensorflow"))
"""


@pytest.mark.skipif(FLAVOUR not in ("jax", "torch"), reason="Keras itself imports TensorFlow")
@pytest.mark.parametrize("tensorflow", ["blocked", "as it is"])
def test_without_tensorflow(tmp_path, tensorflow):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, tensorflow, str(tmp_path / "logs")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ)
    assert ran.stdout.strip() == "None", ran.stderr
    assert steps(tmp_path / "logs/train", "loss") == [2, 4, 5]
