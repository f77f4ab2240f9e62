"""Results of evaluations at a step, and how a run hands them on."""

import pytest
from flavours import arrays, fit, keras, make_model

import keras_steps as ks
from keras_steps.evaluations import Evaluations
from keras_steps.step_callback import Order
from keras_steps.testing import Recorder


def test_the_first_value_of_a_name_is_kept_and_another_warned_of_once():
    evaluations = Evaluations()
    assert evaluations.add(3, 30, {"val_loss": 1.0}) == {"val_loss": 1.0}
    with pytest.warns(UserWarning, match="at step 30 have results named 'val_loss'") as caught:
        assert evaluations.add(3, 30, {"val_loss": 2.0, "val_mae": 3.0}) == {"val_mae": 3.0}
        assert evaluations.add(3, 30, {"val_loss": 4.0}) == {}
    assert len(caught) == 1
    assert evaluations.after(3) == {"val_loss": 1.0, "val_mae": 3.0}
    assert evaluations.after(4) == {}


class Evaluates(ks.StepCallback):
    order = Order.EVALUATE

    def begin(self, run):
        self._run = run

    def on_step(self, step, logs):
        self._run.evaluated({"val_loss": -float(step)})


class Requests(Recorder):
    """Asks to fire whenever there is an evaluation."""

    order = Order.CHECKPOINT

    def begin(self, run):
        self._run = run

    def on_evaluation(self, step, logs):
        self._run.request(self)


def test_an_evaluation_can_make_another_callback_due_at_its_step():
    requests, late = Requests(7), Recorder(4)
    fit(make_model(), [late, requests, Evaluates(4)], batches=10)
    assert requests.steps == [4, 7, 8]
    assert [logs.get("val_loss") for logs in requests.logs] == [-4.0, None, -8.0]
    assert [logs["val_loss"] for logs in late.logs] == [-4.0, -8.0]


def test_fits_validation_makes_it_due_once_though_its_trigger_does_too():
    requests = Requests(5)
    fit(make_model(), [requests], batches=10, epochs=2, validation_data=arrays(2))
    assert requests.steps == [5, 10, 15, 20]


@pytest.mark.filterwarnings("ignore:Two evaluations at step 10 have results named 'val_loss'")
def test_fits_validation_is_the_first_at_its_step():
    evaluated = Recorder(100)
    fit(make_model(), [evaluated, Evaluates(5)], batches=10, validation_data=arrays(2))
    assert [step for step, _ in evaluated.evaluations] == [5, 10]
    assert evaluated.evaluations[0][1] == {"val_loss": -5.0}
    assert evaluated.evaluations[1][1]["val_loss"] >= 0


class _Starts(Recorder):
    at_start = True


def test_at_start_is_before_the_first_update_of_a_fresh_run_only():
    model, recorder = make_model(), _Starts(6)
    fit(model, [recorder], batches=10)
    assert recorder.steps == [0, 6]
    fit(model, [recorder], batches=10)
    assert recorder.steps == [0, 6, 12, 18]


def test_stop_reason():
    class Stops(ks.StepCallback):
        def begin(self, run):
            self._run = run

        def on_step(self, step, logs):
            self._run.stop("early")

    model = make_model()
    assert ks.stop_reason(model) is None
    fit(model, [ks.StopAtStep(10)], batches=20)
    assert ks.stop_reason(model) == "reached"
    fit(model, [ks.StopAtStep(10)], batches=20)
    assert ks.stop_reason(model) == "reached"
    fit(model, [Recorder(5)], batches=20)
    assert ks.stop_reason(model) is None
    fit(model, [Stops(5)], batches=20)
    assert ks.stop_reason(model) == "early"
    with pytest.raises(TypeError, match="takes a Keras model; received <class"):
        ks.stop_reason(keras.Model)


def test_a_fit_tells_whether_it_validates():
    seen = []

    class Looks(ks.StepCallback):
        def begin(self, run):
            seen.append((run.evaluations.are_known, list(run.evaluations.prefixes)))

    fit(make_model(), [Looks(1)], batches=2)
    fit(make_model(), [Looks(1)], batches=2, validation_data=arrays(1))
    fit(make_model(), [Looks(1)], batches=2, validation_split=0.5)
    assert seen == [(True, []), (True, ["val_"]), (True, ["val_"])]


@pytest.mark.filterwarnings("ignore:Two evaluations at step 8 have results named 'val_loss'")
def test_a_second_evaluation_at_a_step_may_have_other_names(tmp_path):
    best = ks.StepCheckpoint(tmp_path, 1000, monitor="val_loss", at_end=False)
    stops = ks.StepEarlyStopping("val_loss", patience=2)
    own = ks.EvaluateEveryN(lambda: {"loss": -1.0, "bleu": 2.0}, 8)
    at_8 = Requests(8)
    fit(make_model(), [best, stops, own, at_8], batches=8, validation_data=arrays(2))
    (checkpoint,) = ks.list_checkpoints(tmp_path)
    assert checkpoint.step == 8
    assert at_8.logs[-1]["val_bleu"] == 2.0
    assert stops.monitor.best == at_8.logs[-1]["val_loss"] > 0
