"""Several workers: they do the same at the same steps, and one of them writes."""

import csv
import time
from pathlib import Path

import numpy as np
import pytest
from distributed.cluster import run_cluster
from flavours import IS_TF_KERAS
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import keras_steps as ks

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 can't by itself: keras#20585"),
]


ROWS = (
    "callbacks_of_all_kinds",
    "clocks_that_differ",
    "budgets_that_differ",
    "one_that_is_slow",
    "early_stopping",
    "a_scheduled_rate",
    "nothing_to_agree_on",
    "objects",
    "a_chief_that_fails",
    "a_writer_that_fails",
)


def rows_of(folder, *rows, devices=1):
    """The rows of multi_worker_agreement.py, from both workers."""
    settings = {"FOLDER": str(folder), "DEVICES": str(devices), "ROWS": " ".join(rows)}
    results = run_cluster(
        "multi_worker_agreement.py", {"worker": 2}, limit=250, report_from=["worker"], **settings
    )
    first, second = results["worker", 0], results["worker", 1]
    assert first["replicas"] == second["replicas"] == 2 * devices
    return first, second


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """The rows from both workers, and the folder that they wrote to."""
    folder = tmp_path_factory.mktemp("workers")
    return *rows_of(folder, *ROWS), folder


def of_both(workers, row):
    """A row that both workers report alike: weights, History and steps included."""
    first, second, _ = workers
    assert first[row] == second[row]
    return first[row]


def test_c30_evaluations_and_saves_at_the_same_steps(workers):
    row = of_both(workers, "callbacks_of_all_kinds")
    assert row["fired"] == [5, 10, 15, 20, 25, 30, 35]
    evaluated = [step for step, results in row["evaluations"] if "test_loss" in results]
    assert evaluated == [0, 5, 10, 15, 20, 25, 30, 35, 36]
    validated = [step for step, results in row["evaluations"] if "val_loss" in results]
    assert validated == [12, 24, 36]


def test_c30_one_set_of_files(workers):
    first, second, folder = workers
    losses = {
        step: results["test_loss"]
        for step, results in first["callbacks_of_all_kinds"]["evaluations"]
        if "test_loss" in results
    }
    saved = ks.list_checkpoints(folder / "checkpoints")
    steps = [checkpoint.step for checkpoint in saved]
    assert steps == [0, 5, 10, 20, 25, 30, 36]  # every 10th, the best ones, and the last
    best = ks.best_checkpoint(folder / "checkpoints")
    assert best.name == f"step_{min(losses, key=losses.get):08d}.keras"
    assert len(list((folder / "checkpoints").iterdir())) == len(steps) + 1

    with open(folder / "metrics.csv") as file:
        rows = [int(row["step"]) for row in csv.DictReader(file)]
    assert rows == [0, 5, 10, 12, 15, 20, 24, 25, 30, 35, 36]
    runs = {path.name: list(path.iterdir()) for path in (folder / "logs").iterdir()}
    assert {name: len(files) for name, files in runs.items()} == {
        "test": 1,
        "train": 1,
        "validation": 1,
    }
    (events,) = runs["train"]
    tags = {v.tag for event in EventFileLoader(str(events)).Load() for v in event.summary.value}
    assert {"loss", "learning_rate", "dense/kernel"} <= tags
    traces = sorted(path.name for path in (folder / "profile").rglob("step_*"))
    assert traces == ["step_00000010", "step_00000020", "step_00000030"]
    lines = [line.split(":")[0] for line in first["output"].splitlines() if "/36:" in line]
    assert lines == [f"step {n}/36" for n in (10, 20, 30, 36)]
    assert "step 10" not in second["output"]
    siblings = sorted(path.name for path in folder.iterdir())
    assert siblings == ["a_file", "checkpoints", "logs", "metrics.csv", "objects", "profile"]


def test_c31_a_time_trigger_goes_by_the_chiefs_clock(workers):
    """One second a step on the chief's clock, three on the other's."""
    row = of_both(workers, "clocks_that_differ")
    assert row["timed"] == [11, 21, 31]
    assert row["both"] == [7, 20, 33]


def test_c32_a_schedule_leaves_the_weights_identical_on_both(workers):
    """Bit for bit, though each worker sets the rate by itself."""
    first, second, _ = workers
    assert first["a_scheduled_rate"]["state"] == second["a_scheduled_rate"]["state"]
    row = of_both(workers, "a_scheduled_rate")
    exact = [0.08125, 0.05625, 0.03125]  # of updates 3, 7 and 11
    assert row["rates"] == [float(np.float32(rate)) for rate in exact]
    assert row["state"] != row["unscheduled"]


def test_two_devices_a_worker(tmp_path):
    first, second = rows_of(tmp_path, "clocks_that_differ", "early_stopping", devices=2)
    for row in ("clocks_that_differ", "early_stopping"):
        assert first[row] == second[row]
    assert first["clocks_that_differ"]["timed"] == [11, 21, 31]
    assert first["early_stopping"]["reason"] == "early"


def test_c31_a_time_budget_ends_all_at_one_step(workers):
    row = of_both(workers, "budgets_that_differ")
    assert (row["step"], row["reason"]) == (15, "time")


def test_c31_a_worker_that_is_ten_times_slower(workers):
    row = of_both(workers, "one_that_is_slow")
    assert row["step"] == 40
    assert 2 <= len(row["timed"]) < 40


def test_early_stopping_restores_the_same_weights(workers):
    row = of_both(workers, "early_stopping")
    best = min(range(len(row["losses"])), key=row["losses"].__getitem__)
    assert (row["reason"], row["step"]) == ("early", 3 * (best + 3))
    assert row["loss"] == pytest.approx(row["losses"][best], rel=1e-6)


def test_collectives_are_for_meetings_alone(workers):
    """None where there is nothing to agree on, and one a meeting."""
    row = of_both(workers, "nothing_to_agree_on")
    assert (row["collectives"], row["meetings"], row["step"]) == (0, 0, 20)
    for name in ("clocks_that_differ", "budgets_that_differ", "one_that_is_slow"):
        row = of_both(workers, name)
        assert row["collectives"] == row["meetings"] > 0
        assert row["meetings"] < row["step"]


def test_a_checkpoint_of_objects_is_written_by_the_chief_and_restored_by_all(workers):
    row = of_both(workers, "objects")
    assert row["restored_step"] == row["step"] == 12
    assert row["restored"] == row["state"][: len(row["restored"])]
    saved = ks.list_checkpoints(workers[2] / "objects")
    assert [checkpoint.step for checkpoint in saved] == [5, 10, 12]


def test_an_error_of_the_chief_ends_all(workers):
    first, second, folder = workers
    told = f"StepCheckpoint: cannot write to the directory {folder}/a_file/checkpoints"
    assert first["a_chief_that_fails"]["error"].startswith("NotADirectoryError")
    assert told in first["a_chief_that_fails"]["error"]
    assert second["a_chief_that_fails"]["error"].startswith("RuntimeError: the run ends on all")
    assert told in second["a_chief_that_fails"]["error"]


def test_a_writer_that_fails_on_the_chief_ends_all_at_the_next_meeting(workers):
    first, second = (each["a_writer_that_fails"] for each in workers[:2])
    full = "OSError: [Errno 28] No space left on device"
    assert first["error"] == full
    assert first["notes"] == [
        "The writer of ReportEveryN, a_writer_that_fails.<locals>.write, raised this, called at "
        "step 5.",
        "That was on worker 0 of 2.",
    ]
    told = f"the run ends on all of its workers, as one has failed: worker 0: {full}"
    assert second["error"] == f"RuntimeError: {told}"
    assert (first["written"], second["written"]) == ([1, 2, 3, 4, 5], [])
    assert first["last"] == second["last"] == 7  # they meet after the executions 1, 2, 4 and 8


def train(folder, workers=2, ends_with=0, **settings):
    """A cluster of multi_worker_backup.py, which backs up every 5 steps of 30."""
    return run_cluster(
        "multi_worker_backup.py",
        {"worker": workers},
        limit=150,
        report_from=["worker"],
        ends_with=ends_with,
        FOLDER=str(folder),
        **settings,
    )


def backups_in(folder):
    """The steps of the backups that are there."""
    return sorted(int(path.stem.split("_")[-1]) for path in Path(folder, "backup").glob("*.json"))


def table_in(folder):
    """What the CSV file holds, but for rates."""
    with open(folder / "metrics.csv") as file:
        return [{k: row[k] for k in ("step", "loss", "mae")} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("never_stopped")
    results = train(folder)
    assert results["worker", 0]["state"] == results["worker", 1]["state"]
    return folder, results


def test_a_signal_to_one_and_then_a_kill_of_one(tmp_path, never_stopped):
    """SIGTERM to a worker that is no chief; started again, SIGKILL to it; and once more."""
    struck = {"WHO": "1", "SIGNAL": "SIGTERM", "AT": "9"}
    results = train(tmp_path, **struck)
    for result in results.values():  # heard at the epoch's end, before the next meeting
        assert (result["step"], result["reason"]) == (12, "signal")
    assert backups_in(tmp_path) == [10, 12]

    codes = {("worker", 0): 1, ("worker", 1): -9}
    results = train(tmp_path, ends_with=codes, WHO="1", SIGNAL="SIGKILL", AT="17")
    assert "Collective ops is aborted" in results["worker", 0]["output"]
    assert time.time() - (tmp_path / "struck").stat().st_mtime < 60
    assert backups_in(tmp_path) == [12, 15]

    results, (folder, whole) = train(tmp_path), never_stopped
    for worker, result in results.items():
        assert (result["step"], result["reason"]) == (30, "reached")
        assert result["fired"] == [16, 20, 24, 28]
        assert result["state"] == whole[worker]["state"]
        assert result["history"] == whole[worker]["history"]
    told = [line for line in results["worker", 0]["output"].splitlines() if "going on" in line]
    assert len(told) == 1 and "from step 15:" in told[0]
    assert "going on" not in results["worker", 1]["output"]
    assert table_in(tmp_path) == table_in(folder)


def test_other_numbers_of_workers(tmp_path):
    """Two, then one, then two: equal to one that was never stopped, but for rounding."""
    settings = {"SYNCHRONIZED": "1", "ON_CHANGE": "warn"}
    whole = train(tmp_path / "whole", workers=1, **settings)["worker", 0]
    train(tmp_path, LAST="9", **settings)
    alone = train(tmp_path, workers=1, LAST="17", **settings)["worker", 0]
    both = train(tmp_path, **settings)
    assert "was made under MultiWorkerMirroredStrategy over 2 devices" in alone["output"]
    assert (alone["step"], alone["fired"]) == (17, [12, 16])
    for result in both.values():
        assert (result["step"], result["fired"]) == (30, [20, 24, 28])
        assert result["rates"] == whole["rates"][4:]
        assert result["state"] == both["worker", 0]["state"]
        for value, expected in zip(result["state"], whole["state"], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
        for name, values in result["history"].items():
            assert values == pytest.approx(whole["history"][name], rel=1e-4)


def test_a_backup_that_one_worker_does_not_see(never_stopped):
    """All raise at train begin, and say which worker and which path."""
    folder, _ = never_stopped
    results = train(folder, ends_with=1, APART="1")
    path = f"{folder}/apart/backup/backup_000007_step_00000030.json is not there"
    assert f"FileNotFoundError: {path}" in results["worker", 1]["output"]
    assert (
        f"as one has failed: worker 1: FileNotFoundError: {path}" in results["worker", 0]["output"]
    )
