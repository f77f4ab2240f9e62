"""ReportEveryN: what a writer is handed, when, and what comes of its errors."""

import copy
import math
import types
from unittest import mock

import numpy as np
import pandas
import pytest
from curves import losses, steps, warnings_of_nan
from flavours import BATCH, FLAVOUR, Ticking, fit, keras, make_model
from notes import Notes

import keras_steps as ks
from keras_steps.keras_internals import counter_of
from keras_steps.testing import FakeClock, Recorder


class Fails(Notes):
    def __init__(self, at):
        super().__init__()
        self.at = at

    def write(self, step, scalars):
        if step == self.at:
            raise OSError("the disk is full")
        super().write(step, scalars)


def test_c03_no_restart_at_an_epoch():
    notes = Notes()
    fit(make_model(), [ks.ReportEveryN(notes, every=7)], batches=10, epochs=3)
    assert notes.steps == [7, 14, 21, 28, 30]


def test_c13_means_over_the_window():
    seen = {}
    model, data = losses(range(1, 11))
    fit(model, [ks.ReportEveryN(lambda step, s: seen.update({step: s["loss"]}), 5)], **data)
    assert seen == {5: 3.0, 10: 8.0}


def test_the_names_of_a_report():
    notes = Notes()
    fit(make_model(), [ks.ReportEveryN(notes, every=10, extra=lambda model: {"norm": 3})])
    names = ["loss", "mae", "learning_rate", "steps_per_second", "examples_per_second", "epoch"]
    assert list(notes.calls[0][1]) == [*names, "norm"]
    assert notes.calls[0][1]["norm"] == 3.0


def test_an_evaluation_is_written_at_its_step_and_the_report_has_the_rest():
    notes = Notes()
    model, data = losses(range(1, 11))
    validation = (np.full((BATCH, 1), 100.0, "float32"), np.zeros((BATCH, 1), "float32"))
    fit(model, [ks.ReportEveryN(notes, 4)], epochs=2, validation_data=validation, **data)
    written = [(step, set(scalars) & {"loss", "val_loss"}) for step, scalars in notes.calls[:-2]]
    assert written == [
        (4, {"loss"}),
        (8, {"loss"}),
        (10, {"val_loss"}),
        (12, {"loss"}),
        (16, {"loss"}),
        (20, {"val_loss"}),
        (20, {"loss"}),
    ]
    assert notes.calls[5] == (20, {"val_loss": 100.0})


def test_the_writer_is_flushed_and_closed_at_the_end_of_each_fit():
    notes = Notes()
    model = make_model()
    report = ks.ReportEveryN(notes, 10)
    for _ in range(2):
        fit(model, [report], batches=10)
        assert notes.calls[-2:] == ["flush", "close"]
    assert notes.steps == [10, 20]


def test_the_writer_is_flushed_every_ten_seconds_of_training():
    notes = Notes()
    with FakeClock() as time:
        fit(make_model(), [ks.ReportEveryN(notes, 4), Ticking(time, 1)], batches=30)
    calls = [call if call in ("flush", "close") else call[0] for call in notes.calls]
    assert calls == [4, 8, 12, "flush", 16, 20, 24, "flush", 28, 30, "flush", "close"]


@pytest.mark.parametrize("given", ["object", "function"])
def test_an_error_of_the_writer_comes_out_with_its_name(given):
    notes = Fails(at=6)
    report = ks.ReportEveryN(notes if given == "object" else notes.write, 3)
    model = make_model()
    with pytest.raises(OSError, match="the disk is full") as caught:
        fit(model, [report], batches=10)
    name = "Fails" if given == "object" else "Fails.write"
    assert caught.value.__notes__ == [
        f"The writer of ReportEveryN, {name}, raised this, called at step 6."
    ]
    assert notes.steps == [3]
    notes.at = None
    fit(make_model(), [report], batches=10)  # the fit after it is whole
    assert notes.steps == [3, 3, 6, 9, 10]


def test_the_model_is_whole_after_an_error_of_the_writer():
    model = make_model()
    with pytest.raises(OSError, match="the disk is full"):
        fit(model, [ks.ReportEveryN(Fails(at=6), 3)], batches=10)
    assert ks.global_step(model) == 6
    fit(model, [], batches=10)
    assert ks.global_step(model) == 16


def test_a_nan_is_written_as_nan_and_warned_of_once():
    notes = Notes()
    model, data = losses([1, 2, math.nan, math.nan, 5, 6])
    with warnings_of_nan() as messages:
        fit(model, [ks.ReportEveryN(notes, 1)], **data)
    (message,) = messages
    assert message.startswith("loss: NaN at step 3. It is written as NaN")
    written = [call[1]["loss"] for call in notes.calls[:3]]
    np.testing.assert_equal(written, [1.0, 2.0, math.nan])


@pytest.mark.parametrize(
    ("extra", "error", "text"),
    [
        (lambda model: {"loss": 1.0}, ValueError, "'loss', which is in the report already"),
        (lambda model: {"x": "text"}, TypeError, "must return scalars; 'x' is 'text'"),
        (lambda model: None, TypeError, "must return a dict of scalars; it returned None"),
    ],
)
def test_bad_extra(extra, error, text):
    notes = Notes()
    with pytest.raises(error, match=text):
        fit(make_model(), [ks.ReportEveryN(notes, 5, extra=extra)])
    assert notes.steps == []


def test_extra_sees_the_model_as_of_the_step():
    seen = []
    report = ks.ReportEveryN(
        lambda step, scalars: seen.append((step, scalars["count"])),
        every=4,
        extra=lambda model: {"count": ks.global_step(model)},
    )
    fit(make_model(), [report], batches=10)
    assert seen == [(4, 4.0), (8, 8.0), (10, 10.0)]


def test_every_writer_has_the_same_names_and_values():
    notes, recorder, history = Notes(), Recorder(5), ks.StepHistory(5)
    fit(make_model(), [ks.ReportEveryN(notes, 5), recorder, history], batches=10)
    assert [call[1] for call in notes.calls[:2]] == recorder.logs
    assert [{n: v[i] for n, v in history.scalars.items()} for i in (0, 1)] == recorder.logs


def test_only_the_chief_writes(monkeypatch, tmp_path):
    monkeypatch.setattr("keras_steps.agreement.is_chief", lambda model: False)
    notes, history = Notes(), ks.StepHistory(5)
    callbacks = [
        ks.ReportEveryN(notes, 5),
        ks.StepTensorBoard(tmp_path / "logs", 5, histograms_every=5),
        ks.StepCSVLogger(tmp_path / "metrics.csv", 5),
        history,
    ]
    fit(make_model(), callbacks, batches=10)
    assert notes.calls == []
    assert list(tmp_path.iterdir()) == []
    assert history.steps == [5, 10]


async def later(step, scalars):
    pass


@pytest.mark.parametrize(
    "writer",
    [
        None,
        3,
        Notes,
        object(),
        lambda step: None,
        lambda step, scalars, more: None,
        later,
        types.SimpleNamespace(write=print),
        types.SimpleNamespace(write=lambda step: None, flush=print, close=print),
    ],
)
def test_what_is_no_writer(writer):
    with pytest.raises(
        TypeError, match=r"^ReportEveryN\(writer\) must be a function of \(step, sc"
    ):
        ks.ReportEveryN(writer)


@pytest.mark.parametrize("writer", [print, {}.setdefault, mock.Mock(), lambda *given: None])
def test_what_is_a_writer(writer):
    assert ks.ReportEveryN(writer).given is writer


@pytest.mark.parametrize("extra", [{}, "norm", lambda: {}, lambda model, step: {}, later])
@pytest.mark.parametrize(
    "make",
    [
        lambda extra: ks.ReportEveryN(print, extra=extra),
        lambda extra: ks.StepTensorBoard(extra=extra),
        lambda extra: ks.LogEveryN(extra=extra),
    ],
)
def test_what_is_no_extra(make, extra):
    with pytest.raises(
        TypeError, match=r"\(extra\) must be a function from the model to a dict; r"
    ):
        make(extra)


class Interrupts(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 7:
            raise KeyboardInterrupt


def test_c40_copies_after_an_interrupt_go_on(tmp_path):
    """Open files and a drawn bar stay with the fit that was broken off."""
    model = make_model()
    callbacks = [
        ks.StepTensorBoard(tmp_path / "logs", 3, histograms_every=4),
        ks.StepCSVLogger(tmp_path / "m.csv", 3),
        ks.StepCSVLogger(tmp_path / "m.jsonl", 3),
        ks.StepHistory(3),
        ks.StepProgressBar(),
        ks.LogEveryN(3),
        ks.ReportEveryN(print, 3),
    ]
    with pytest.raises(KeyboardInterrupt):
        fit(model, [*callbacks, Interrupts()])
    copies = copy.deepcopy(callbacks)
    fit(model, copies, batches=5)
    expected = [3, 6, 9, 12]
    assert steps(tmp_path / "logs/train", "loss") == expected
    assert list(pandas.read_csv(tmp_path / "m.csv")["step"]) == expected
    assert list(pandas.read_json(tmp_path / "m.jsonl", lines=True)["step"]) == expected
    assert copies[3].steps == expected
    assert callbacks[3].steps == [3, 6]
    assert sorted(place.name for place in tmp_path.iterdir()) == ["logs", "m.csv", "m.jsonl"]


def test_a_writer_whose_flush_raises_is_closed():
    notes = Notes()
    notes.flush = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError) as caught:
        fit(make_model(), [ks.ReportEveryN(notes, 5)])
    assert caught.value.__notes__ == ["The writer of ReportEveryN, Notes, raised this, closed."]
    assert notes.calls[-1] == "close"


def test_a_rollback_drops_what_was_written_past_its_step(tmp_path):
    class RollsBack(ks.StepCallback):
        """Once, from step 10 to step 4, as after a NaN."""

        def begin(self, run):
            self.run = run

        def on_step(self, step, logs):
            if step == 4:
                self.states = copy.deepcopy(self.run.get_state()), self.run.summed_epoch
            elif step == 10 and self.states is not None:
                self.run.variables.assign(counter_of(self.model.optimizer)[0], 4)
                self.run.rewind(*self.states)
                self.states = None

    notes, history = Notes(), ks.StepHistory(3)
    callbacks = [
        ks.ReportEveryN(notes, 3),
        ks.StepTensorBoard(tmp_path / "logs", 3),
        ks.StepCSVLogger(tmp_path / "m.csv", 3),
        ks.StepCSVLogger(tmp_path / "m.jsonl", 3),
        history,
        RollsBack(ks.AtSteps(4, 10)),
    ]
    fit(make_model(), callbacks, batches=18)
    assert notes.steps == [3, 6, 9, 6, 9, 12]  # a writer of one's own sees both
    expected = [3, 6, 9, 12]
    assert steps(tmp_path / "logs/train", "loss") == expected
    assert list(pandas.read_csv(tmp_path / "m.csv")["step"]) == expected
    assert list(pandas.read_json(tmp_path / "m.jsonl", lines=True)["step"]) == expected
    assert history.steps == expected


@pytest.mark.skipif(FLAVOUR == "torch", reason="Keras refuses steps_per_execution on torch")
@pytest.mark.filterwarnings("ignore:.*(no multiple of|once an execution)")
def test_within_executions_of_several_steps():
    notes = Notes()
    fit(make_model(steps_per_execution=5), [ks.ReportEveryN(notes, 7)], batches=30)
    assert notes.steps == [10, 15, 25, 30]
