"""StepProgressBar: what it draws, and how seldom."""

import re
import sys

import numpy as np
import pytest
from curves import losses
from flavours import FLAVOUR, Ticking, fit, keras, make_model

import keras_steps as ks
from keras_steps.testing import FakeClock


def drawn(capsys, callbacks, *, seconds=0.125, model=None, **fit_args):
    """What the bar has drawn, one line a drawing."""
    model = model or make_model()
    capsys.readouterr()
    with FakeClock() as time:
        fit(model, [*callbacks, Ticking(time, seconds)], **fit_args)
    return [line for line in re.split(r"[\r\n]+", capsys.readouterr().err) if line.strip()]


def positions(lines):
    """(step, last step) of each drawing, repetitions left out."""
    found = [re.search(r"(\d+)/(\d+)", line) for line in lines]
    return list(dict.fromkeys((int(m[1]), int(m[2])) for m in found if m))


def test_over_the_whole_run_and_not_an_epoch(capsys):
    lines = drawn(capsys, [ks.StepProgressBar()], batches=10, epochs=3)
    assert positions(lines) == [(n, 30) for n in (0, 4, 8, 12, 16, 20, 24, 28, 30)]


def test_the_end_is_that_of_stop_at_step(capsys):
    bar = ks.StepProgressBar()
    lines = drawn(capsys, [bar, ks.StopAtStep(13)], batches=10, epochs=99)
    assert positions(lines) == [(0, 13), (4, 13), (8, 13), (12, 13), (13, 13)]


def test_the_end_is_that_of_the_argument(capsys):
    lines = drawn(capsys, [ks.StepProgressBar(last_step=40)], batches=10)
    assert positions(lines) == [(0, 40), (4, 40), (8, 40), (10, 40)]


def test_a_run_that_goes_on_starts_at_its_step(capsys):
    model = make_model()
    ks.set_global_step(model, 40)
    bar = ks.StepProgressBar()
    lines = drawn(capsys, [bar, ks.StopAtStep(50)], model=model, epochs=9)
    assert positions(lines) == [(40, 50), (44, 50), (48, 50), (50, 50)]


def test_a_run_that_goes_on_to_the_end_of_its_epochs_shows_no_negative_rate(capsys):
    model = make_model()
    ks.set_global_step(model, 40)
    lines = drawn(capsys, [ks.StepProgressBar()], model=model, batches=10)
    assert positions(lines)[-2:] == [(48, 50), (50, 50)]
    assert not [line for line in lines if re.search(r"-\d", line)]


def test_a_run_that_is_done_shows_so(capsys):
    model = make_model()
    ks.set_global_step(model, 40)
    lines = drawn(capsys, [ks.StepProgressBar(), ks.StopAtStep(40)], model=model)
    assert positions(lines) == [(40, 40)]


def test_it_shows_the_loss(capsys):
    model, data = losses(range(1, 11))
    lines = drawn(capsys, [ks.StepProgressBar()], model=model, **data)
    assert "loss=2.5000" in "".join(lines)  # of steps 1 to 4
    assert "loss=9.5000" in lines[-1]  # of steps 9 and 10


def test_an_endless_run_shows_a_rate(capsys):
    def endless():
        while True:
            yield np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32")

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch >= 11

    lines = drawn(capsys, [ks.StepProgressBar(), Stop()], x=endless())
    assert re.search(r"12step \[.*step/s", lines[-1])
    assert positions(lines) == []


@pytest.mark.skipif(FLAVOUR == "torch", reason="Keras refuses steps_per_execution on torch")
def test_within_executions_of_several_steps(capsys):
    model = make_model(steps_per_execution=4)
    callbacks = [ks.StepProgressBar(), ks.StopAtStep(18)]
    lines = drawn(capsys, callbacks, seconds=0.5, model=model, epochs=9)
    # An epoch of 10 batches has executions of 4, 4 and 2.
    assert positions(lines) == [(n, 18) for n in (0, 4, 8, 10, 14, 18)]


def test_c25_a_bounded_number_of_writes_over_10_000_steps(capsys, monkeypatch):
    writes = []
    write = sys.stderr.write
    monkeypatch.setattr(sys.stderr, "write", lambda text: writes.append(text) or write(text))
    with FakeClock() as time:
        tick = Ticking(time, 0.001)  # 10,000 steps in 10 seconds
        fit(make_model(), [ks.StepProgressBar(), tick], batches=1000, epochs=10)
    assert len([text for text in writes if text.strip()]) <= 40
    assert (10_000, 10_000) in positions(writes)


def test_lines_come_out_whole_beside_it(capsys):
    log = ks.LogEveryN(5, start=0, message="line {step}")
    with FakeClock() as time:
        fit(make_model(), [ks.StepProgressBar(), log, Ticking(time, 0.1)], batches=10)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["line 5", "line 10"]
    assert "10/10" in err


def test_a_fit_that_breaks_off_leaves_no_bar_behind(capsys):
    def fail(step, logs):
        raise KeyboardInterrupt

    model, bar = make_model(), ks.StepProgressBar()
    with pytest.raises(KeyboardInterrupt):
        fit(model, [bar, ks.OnStep(7, fail)])
    lines = drawn(capsys, [bar], model=model, batches=10)
    assert positions(lines)[-1] == (17, 17)


def test_without_tqdm_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"pip install keras-steps\[progress\]"):
        ks.StepProgressBar()
