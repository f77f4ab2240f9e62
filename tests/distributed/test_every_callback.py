"""All callbacks in one fit of Keras 3 on two workers; then killed, and started again."""

import csv
import signal

import keras
import numpy as np
import pytest
from curves import curve
from distributed.cluster import run_cluster
from flavours import FLAVOUR

import keras_steps as ks

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(600),
    pytest.mark.skipif(FLAVOUR != "tensorflow", reason="for Keras 3 on TensorFlow"),
]

GRID = [5, 10, 15, 20, 25, 30]


def run(folder, workers, ends_with=0, **settings):
    """What the workers have reported, in their order, and what they have printed."""
    folder.mkdir(exist_ok=True)
    results = run_cluster(
        "every_callback.py",
        {"worker": workers},
        limit=200,
        report_from=["worker"],
        ends_with=ends_with,
        FOLDER=str(folder),
        **settings,
    )
    printed = [result.pop("output") for result in results.values()]
    return list(results.values()), printed


def rows_of(path):
    """Of the table, without how fast it went."""
    with path.open() as file:
        return [
            {name: value for name, value in row.items() if not name.endswith("_per_second")}
            for row in csv.DictReader(file)
        ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, *run(folder, 2)


def test_two_workers_do_the_same_at_the_same_steps_and_one_of_them_writes(undisturbed):
    folder, (first, second), (lines, others) = undisturbed
    assert first == second
    assert (first["step"], first["reason"]) == (30, "reached")
    assert first["fired"] == [4, 8, 12, 16, 20, 24, 28]
    assert first["history"][0] == GRID
    assert [step for step, _ in first["norms"]] == [15, 30]
    evaluated = [(step, *sorted(logs)) for step, logs in first["evaluations"]]
    tests = [(step, "test_loss", "test_mae") for step in GRID]
    assert [each for each in evaluated if each in tests] == tests
    validated = [each for each in evaluated if each not in tests]
    assert validated == [(20, "val_loss", "val_mae"), (30, "val_loss", "val_mae")]
    schedule = ks.schedules.linear(0.01, 0.0, 40)
    rates = [schedule(step - 1) for step in first["fired"]]
    assert first["rates"] == pytest.approx(rates, rel=1e-6)

    written = [line.split(":")[0] for line in lines.splitlines() if line.startswith("step ")]
    assert written == ["step 10/30", "step 20/30", "step 30/30"]
    assert "step " not in others
    assert [int(row["step"]) for row in rows_of(folder / "metrics.csv")] == GRID
    points = curve(folder / "logs/train", "loss")
    assert points == list(zip(GRID, np.float32(first["history"][1]), strict=True))
    checkpoints = ks.list_checkpoints(folder / "checkpoints")
    assert [each.step for each in checkpoints] == [25, 30]
    loaded = keras.saving.load_model(checkpoints[-1].path)
    for there, here in zip(loaded.get_weights(), first["weights"], strict=True):
        np.testing.assert_array_equal(there, np.array(here, "float32"))
    assert type(loaded) is keras.Sequential


def test_they_report_what_one_process_reports(undisturbed, tmp_path):
    """The one has a strategy of the same kind, which Keras 3 can use as it is."""
    _, (first, _), _ = undisturbed
    ((alone,), _) = run(tmp_path, 1)
    assert alone["fired"] == first["fired"]
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert first["history"][1] == pytest.approx(alone["history"][1], rel=1e-4)
    for (step, logs), (step_alone, logs_alone) in zip(
        first["evaluations"], alone["evaluations"], strict=True
    ):
        assert (step, logs) == (step_alone, pytest.approx(logs_alone, rel=1e-4))


def test_one_killed_and_all_started_again_they_end_with_the_same_bits(undisturbed, tmp_path):
    """The other hears of it within the run's time limit, and ends with an error."""
    folder, (first, _), _ = undisturbed
    codes = {("worker", 0): 1, ("worker", 1): -signal.SIGKILL}
    _, (told, _) = run(tmp_path, 2, codes, KILL_AT="17")
    assert "Collective ops is aborted" in told
    again, printed = run(tmp_path, 2)
    assert "going on from step " in printed[0]
    for result in again:
        assert result["state"] == first["state"]
        assert result["fired"] == [step for step in first["fired"] if step >= result["fired"][0]]
        assert result["losses"] == first["losses"][-len(result["losses"]) :]
        assert result["history"] == first["history"]
    assert rows_of(tmp_path / "metrics.csv") == rows_of(folder / "metrics.csv")
    assert curve(tmp_path / "logs/train", "loss") == curve(folder / "logs/train", "loss")
    steps = [each.step for each in ks.list_checkpoints(tmp_path / "checkpoints")]
    assert steps == [25, 30]
