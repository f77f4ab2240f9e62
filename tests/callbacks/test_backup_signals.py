"""Signals and time limits: the run ends in good order, and goes on from there."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest
from flavours import BATCH, IS_TF_KERAS, arrays, clear_session, fit, keras, make_model, state_of

import keras_steps as ks
from keras_steps import backup_contents, backups
from keras_steps.backups import BackupDirectory
from keras_steps.step_callback import Order
from keras_steps.testing import FakeClock, Recorder

BATCHES = 10
TIMED = ["steps_per_second", "examples_per_second"]
"""Columns that go by the clock."""


class Sends(ks.StepCallback):
    """Sends this process a signal at a step."""

    order = Order.REPORT

    def __init__(self, at, number=signal.SIGTERM):
        super().__init__(ks.AtSteps(at))
        self.number = number

    def on_step(self, step, logs):
        os.kill(os.getpid(), self.number)


class CountsEpochs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.validated = []

    def on_epoch_end(self, epoch, logs=None):
        self.validated.append((epoch, "val_loss" in logs))

    def get_state(self):
        return {"validated": self.validated}

    def set_state(self, state):
        self.validated = [tuple(each) for each in state["validated"]]


def script(directory, *more, epochs=3, **backup_args):
    clear_session()
    model = make_model(keras.optimizers.Adam(0.01))
    recorder, counts = Recorder(3), CountsEpochs()
    backup = ks.StepBackupAndRestore(directory, 100, **backup_args)
    callbacks = [*more, recorder, counts, backup]
    fit(model, callbacks, batches=BATCHES, epochs=epochs, validation_data=arrays(2, seed=5))
    return model, recorder, counts


def step_of(directory):
    return BackupDirectory(Path(directory), 2).newest().state["step"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return script(tmp_path_factory.mktemp("whole"))


def assert_same(one, other):
    for array, array_2 in zip(state_of(one[0]), state_of(other[0]), strict=True):
        np.testing.assert_array_equal(array, array_2)


@pytest.mark.parametrize(
    ("at", "stops_at", "validated", "fired"),
    [
        (7, 7, [(0, False)], [3, 6]),
        (10, 10, [(0, True)], [3, 6, 9]),  # the epoch is done with the execution in flight
        (12, 12, [(0, True), (1, False)], [3, 6, 9, 12]),
    ],
)
def test_a_signal_ends_the_run_after_the_execution_in_flight(
    tmp_path, whole, at, stops_at, validated, fired
):
    before = signal.getsignal(signal.SIGTERM)
    model, recorder, counts = script(tmp_path, Sends(at))
    assert ks.stop_reason(model) == "signal"
    assert ks.global_step(model) == stops_at == step_of(tmp_path)
    assert (recorder.steps, counts.validated) == (fired, validated)
    assert signal.getsignal(signal.SIGTERM) is before

    again = script(tmp_path)
    assert ks.stop_reason(again[0]) is None
    assert_same(whole, again)
    assert again[1].steps == [step for step in range(3, 31, 3) if step > stops_at]
    assert again[2].validated == [(0, True), (1, True), (2, True)]


def test_the_backup_has_the_step_also_where_nothing_was_due(tmp_path):
    class SendsUnseen(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 7:
                os.kill(os.getpid(), signal.SIGTERM)

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # it has no state
        model, _, _ = script(tmp_path, SendsUnseen())
    assert ks.global_step(model) == step_of(tmp_path)
    assert step_of(tmp_path) in (7, 8)  # on JAX and torch threads call such hooks


@pytest.mark.parametrize("function", ["copied", "sha256_of"], ids=["copy", "write"])
def test_a_signal_while_a_backup_is_made(tmp_path, monkeypatch, function):
    module = backup_contents if function == "copied" else backups
    inner, calls = getattr(module, function), []

    def sending(*args):
        calls.append(args)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return inner(*args)

    def train(place):
        clear_session()
        model = make_model(keras.optimizers.Adam(0.01))
        fit(model, [ks.StepBackupAndRestore(place, 4)], batches=BATCHES, epochs=3)
        return (model,)

    with monkeypatch.context() as patched:
        patched.setattr(module, function, sending)
        (model,) = train(tmp_path / "stopped")
    assert ks.stop_reason(model) == "signal"
    assert 8 <= ks.global_step(model) == step_of(tmp_path / "stopped") <= 12
    assert_same(train(tmp_path / "whole"), train(tmp_path / "stopped"))


class SendsWhenRead(keras.utils.Sequence if IS_TF_KERAS else keras.utils.PyDataset):
    """Data during whose evaluation a signal comes."""

    sends = False

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if self.sends:
            self.sends = False
            os.kill(os.getpid(), signal.SIGTERM)
        return arrays(1, seed=index)


@pytest.mark.parametrize(("by", "at"), [("EvaluateEveryN", 4), ("validation_data", 10)])
def test_a_signal_during_an_evaluation_that_is_then_done_to_its_end(tmp_path, by, at):
    def train(place, *, sends=False, **fit_args):
        data = SendsWhenRead()
        arm = ks.OnStep(ks.AtSteps(2), lambda step, logs: setattr(data, "sends", sends))
        clear_session()
        model, recorder = make_model(keras.optimizers.Adam(0.01)), Recorder(100)
        callbacks = [ks.StepBackupAndRestore(place, 100), recorder, arm]
        if by == "EvaluateEveryN":
            callbacks.append(ks.EvaluateEveryN(data, 4))
        else:
            fit_args["validation_data"] = data
        fit(model, callbacks, batches=BATCHES, epochs=2, **fit_args)
        return model, [step for step, _ in recorder.evaluations]

    whole = train(tmp_path / "whole")
    first = train(tmp_path / "stopped", sends=True)
    assert (ks.stop_reason(first[0]), step_of(tmp_path / "stopped")) == ("signal", at)
    assert first[1] == [at]
    again = train(tmp_path / "stopped")
    assert first[1] + again[1] == whole[1]
    assert_same(whole, again)


def test_another_signal_by_name(tmp_path):
    model, _, _ = script(tmp_path, Sends(7, signal.SIGUSR1), on_signal=("SIGUSR1", "SIGTERM"))
    assert (ks.stop_reason(model), step_of(tmp_path)) == ("signal", 7)


def test_exit_code(tmp_path):
    with pytest.raises(SystemExit) as ended:
        script(tmp_path, Sends(7), exit_code=75)
    assert ended.value.code == 75
    assert step_of(tmp_path) == 7


def test_without_a_signal_there_is_no_exit(tmp_path):
    script(tmp_path, epochs=1, exit_code=75)


def test_c29_a_time_stop_is_backed_up_and_goes_on(tmp_path, whole):
    class Advances(ks.StepCallback):
        def __init__(self, clock):
            super().__init__(1)
            self.clock = clock

        def on_step(self, step, logs):
            self.clock.advance(10)

    with FakeClock() as clock:
        model, _, counts = script(tmp_path, ks.StopAfter(seconds=65), Advances(clock))
    assert ks.stop_reason(model) == "time"
    stopped_at = ks.global_step(model)
    assert stopped_at in (7, 8)
    assert step_of(tmp_path) == stopped_at
    assert counts.validated == [(0, False)]
    again = script(tmp_path)
    assert_same(whole, again)


@pytest.mark.parametrize(("reason", "saved"), [("time", []), ("signal", [30])])
def test_a_stop_at_the_last_step_leaves_to_the_next_start_what_fires_at_the_end(
    tmp_path, reason, saved
):
    class IsLate(ks.StepCallback):
        def __init__(self, clock):
            super().__init__(ks.AtSteps(29))
            self.clock = clock

        def on_step(self, step, logs):
            self.clock.advance(60)

    def train(place, *more):
        checkpoints = ks.StepCheckpoint(place / "checkpoints", 100)
        writers = [ks.StepCSVLogger(place / "log.csv", 7), checkpoints]
        model, _, _ = script(place / "backup", *writers, *more)
        rows = pandas.read_csv(place / "log.csv").drop(columns=TIMED, errors="ignore")
        saved = [checkpoint.step for checkpoint in ks.list_checkpoints(checkpoints.place)]
        return ks.stop_reason(model), saved, rows

    whole = train(tmp_path / "whole")
    with FakeClock() as clock:
        stops = {"time": [ks.StopAfter(seconds=60), IsLate(clock)], "signal": [Sends(30)]}
        first = train(tmp_path / "stopped", *stops[reason])
    assert first[:2] == (reason, saved)
    again = train(tmp_path / "stopped")
    assert again[:2] == whole[:2] == (None, [30])
    pandas.testing.assert_frame_equal(again[2], whole[2])


def test_c28_after_a_nan_the_last_good_backup_stays(tmp_path):
    x, y = arrays(BATCHES)
    x[7 * BATCH] = np.nan

    def train(*more):
        model = make_model()
        backup = ks.StepBackupAndRestore(tmp_path, 5, on_signal=())
        fit(model, [backup, *more], x=x, y=y, batch_size=BATCH, shuffle=False)
        return model

    model = train(ks.StopOnNaN(2))
    assert ks.stop_reason(model) == "nan"
    assert step_of(tmp_path) == 5


def test_outside_the_main_thread_it_says_what_to_do(tmp_path):
    errors = []

    def train():
        try:
            script(tmp_path, epochs=1)
        except Exception as error:
            errors.append(repr(error))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(120)
    assert len(errors) == 1
    assert "on_signal=()" in errors[0]


def test_a_keyboard_interrupt_leaves_model_and_backup_usable(tmp_path, whole):
    class Interrupts(ks.StepCallback):
        def __init__(self):
            super().__init__(ks.AtSteps(17))

        def on_step(self, step, logs):
            raise KeyboardInterrupt

    clear_session()
    model = make_model(keras.optimizers.Adam(0.01))
    before = signal.getsignal(signal.SIGTERM)
    backup = ks.StepBackupAndRestore(tmp_path, 5)
    data = {"batches": BATCHES, "epochs": 3, "validation_data": arrays(2, seed=5)}
    with pytest.raises(KeyboardInterrupt):
        fit(model, [backup, Interrupts()], **data)
    assert signal.getsignal(signal.SIGTERM) is before
    assert (ks.global_step(model), step_of(tmp_path)) == (17, 15)
    model.evaluate(*arrays(1), verbose=0)
    fit(model, [backup], **data)  # the same cell once more, with the same objects
    assert ks.global_step(model) == 30
    assert_same(whole, (model,))


CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from flavours import arrays, fit, make_model
import keras_steps as ks

class Busy(ks.StepCallback):
    def on_step(self, step, logs):
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            print("not reached", flush=True)

fit(make_model(), [Busy(1), ks.StepBackupAndRestore(sys.argv[1], 2)], batches=10)
"""


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parents[1])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, "not reached" in ran.stdout) == (-signal.SIGTERM, False), ran.stderr
    assert step_of(tmp_path) in (2, 4)
