"""What several workers tell each other before a run, so that none waits for another for ever."""

import json

import numpy as np
import pytest
from flavours import FLAVOUR

import keras_steps as ks
from keras_steps import roll_call
from keras_steps.distribution import Seat
from keras_steps.keras_internals import KeyValues

pytestmark = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="no matter of the backend")


class Others(KeyValues):
    """The store of worker 0, in which the others' plans are as they come to be asked for."""

    def __init__(self, *plans):
        self.plans = plans
        self.put_keys = []

    def put(self, key, value):
        self.put_keys.append(key.rpartition("/")[2])

    def get(self, key, seconds):
        worker = key.split("/")[3]
        plan = self.plans[int(worker) - 1]
        return None if plan is None else json.dumps(plan)


def hold(monkeypatch, plan, *others):
    store = Others(*others)
    monkeypatch.setattr(roll_call, "key_values_of", lambda backend: store)
    roll_call.hold("tensorflow", Seat(0, 1 + len(others)), plan)
    return store


PLAN = {"callbacks": ["StopAtStep(last_step=9)"], "batches an epoch": 12, "the step": [0]}


def test_those_that_are_to_do_the_same_go_on(monkeypatch):
    """A number that one of them can't know beforehand fits to every other."""
    assert hold(monkeypatch, PLAN, PLAN, PLAN).put_keys == ["0"]
    assert hold(monkeypatch, PLAN, {**PLAN, "batches an epoch": None}).put_keys == ["0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"callbacks": []}, "callbacks: worker 0 has StopAtStep.last_step=9., worker 2 none"),
        ({"batches an epoch": 11}, "batches an epoch: worker 0 has 12, worker 2 11"),
        ({"the step": [5]}, "the step: worker 0 has 0, worker 2 5"),
    ],
)
def test_what_differs_is_said(monkeypatch, change, message):
    with pytest.raises(RuntimeError, match=f"have to do the same, and differ in {message}"):
        hold(monkeypatch, PLAN, PLAN, {**PLAN, **change})


def test_one_that_can_not_know_sees_that_the_others_differ(monkeypatch):
    plans = [{**PLAN, "batches an epoch": number} for number in (None, 5, 7)]
    with pytest.raises(RuntimeError, match="batches an epoch: worker 1 has 5, worker 2 7"):
        hold(monkeypatch, *plans)


def test_a_loop_and_a_fit_are_told_apart(monkeypatch):
    fit, loop = ({**PLAN, "what comes next": what} for what in ("fit", "a StepLoop"))
    del loop["batches an epoch"]
    for mine, theirs, message in [
        (fit, loop, "fit, worker 1 a StepL"),
        (loop, fit, "a StepLoop, "),
    ]:
        with pytest.raises(RuntimeError, match=f"what comes next: worker 0 has {message}"):
            hold(monkeypatch, mine, theirs)


def test_one_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(roll_call, "WARNED_AFTER", 0.0)
    monkeypatch.setattr(roll_call, "WAITED_FOR", 1e-3)
    with (
        pytest.warns(UserWarning, match="worker 0 waits for worker 2, which has not begun"),
        pytest.raises(RuntimeError, match="worker 2 has not begun this run, for which worker 0"),
    ):
        hold(monkeypatch, PLAN, PLAN, None)


class Own(ks.StepCallback):
    def __init__(self, rank):
        super().__init__(5)
        self.rank = rank

    def on_step(self, step, logs):
        pass


class OwnTrigger(ks.Trigger):
    def next_step(self, step):
        return step + 1

    def latest_step(self, step):
        return step

    def __repr__(self):
        return f"OwnTrigger({OwnTrigger.next_step!r})"  # with where it lies, in each process


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        (ks.StopAtStep(10), "StopAtStep(last_step=10)"),
        (ks.StopAfter(hours=1), "StopAfter()"),  # what is left of the job's time
        (ks.OnStep(ks.EverySecs(9), print), "OnStep(EverySecs(9))"),
        (
            ks.StepEarlyStopping(patience=3, optimizer="g_optimizer"),
            "StepEarlyStopping(g_optimizer, monitor=Monitor('val_loss', 'auto'), patience=3, "
            "restore_best_weights=False)",
        ),
        (
            ks.StepCheckpoint("here", np.int64(5), monitor="acc", mode="max", at_end=False),
            "StepCheckpoint(EverySteps(5), max_to_keep=5, monitor=Monitor('acc', 'max'), "
            "save_weights_only=False, at_end=False, overwrite=False)",
        ),
        (ks.StopOnNaN(9), "StopOnNaN(EverySteps(9), action=stop, max_rollbacks=3)"),
        (ks.StepScheduledLR(abs, every=9), "StepScheduledLR(every=EverySteps(9))"),
        (
            ks.StepBackupAndRestore("here", 5, on_signal=["SIGUSR1", "SIGTERM"]),
            "StepBackupAndRestore(EverySteps(5), keep=2, on_change=raise, "
            "on_signal=SIGTERM+SIGUSR1)",
        ),
        (
            ks.LogEveryN(5, message="on worker 1", metrics=["loss"], extra=lambda model: {}),
            "LogEveryN(EverySteps(5, start=1))",
        ),
        (ks.StepTensorBoard("on_worker_1", 5), "StepTensorBoard(EverySteps(5))"),
        (ks.StepCSVLogger("worker_1.csv", np.int32(5)), "StepCSVLogger(EverySteps(5))"),
        (
            ks.OnStep(OwnTrigger() | ks.EverySteps(5), print),
            "OnStep(OwnTrigger(<function OwnTrigger.next_step>) | EverySteps(5))",
        ),
        (Own(rank=1), "Own(EverySteps(5))"),
    ],
)
def test_what_is_told_of_a_callback(callback, expected):
    assert roll_call.described([callback], reading_is_collective=True) == [expected]


def test_one_that_only_reports_may_be_on_one_worker_alone():
    """Unless all of them are needed to read what it reports."""
    log, stop = ks.LogEveryN(5), ks.StopAtStep(10)
    for is_collective, expected in ((False, ["StopAtStep(last_step=10)"]), (True, 2)):
        told = roll_call.described([log, stop], reading_is_collective=is_collective)
        assert told == expected or len(told) == expected


@pytest.mark.parametrize(
    ("callbacks", "where_shared", "where_not"),
    [
        ([ks.LogEveryN(5), ks.StepHistory()], False, False),
        ([ks.StopAtStep(5)], True, False),
        ([ks.StepScheduledLR(lambda step: 0.1)], True, False),
        ([ks.StopOnNaN()], True, True),
        ([ks.StepEarlyStopping()], True, True),
        ([ks.StopAfter(hours=1)], True, True),
        ([ks.LogEveryN(ks.EverySecs(5) | ks.AtSteps(1))], True, True),
        ([ks.StepCheckpoint("checkpoints")], True, True),
        ([ks.StepBackupAndRestore("backup", on_signal=())], True, True),
    ],
)
def test_when_workers_wait_for_each_other(callbacks, where_shared, where_not):
    for is_shared, expected in ((True, where_shared), (False, where_not)):
        needed = roll_call.is_needed(
            callbacks, reading_is_collective=False, results_are_shared=is_shared
        )
        assert needed is expected


@pytest.mark.parametrize("callbacks", [[], [ks.LogEveryN(5)], [ks.StopAtStep(5)]])
def test_they_do_for_any_where_reading_is_collective(callbacks):
    needed = roll_call.is_needed(callbacks, reading_is_collective=True, results_are_shared=True)
    assert needed is bool(callbacks)
