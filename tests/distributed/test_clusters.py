"""The callbacks under strategies of several processes, on loopback."""

import pytest
from distributed.cluster import run_cluster
from flavours import IS_TF_KERAS

import keras_steps as ks

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 can't by itself: keras#20585"),
]

SPE = pytest.mark.parametrize("spe", [1, 4])


def lines_of(result):
    return [line for line in result["output"].splitlines() if line.startswith("step ")]


@SPE
def test_multi_worker_mirrored(spe):
    results = run_cluster(
        "multi_worker.py", {"worker": 2}, limit=240, report_from=["worker"], SPE=str(spe)
    )
    first, second = results["worker", 0], results["worker", 1]
    for result in (first, second):
        assert result["step"] == 30
        assert result["fired"] == [4, 8, 12, 16, 20, 24, 28]
        assert result["validated"] == [20, 30]
    schedule = ks.schedules.linear(0.1, 0.0, 40)
    rates = [schedule(step - spe) for step in first["fired"]]
    assert first["rates"] == pytest.approx(rates, rel=1e-6)
    assert first["state"] == second["state"]
    assert first["losses"] == second["losses"]
    assert (first["is_chief"], second["is_chief"]) == (True, False)
    assert (first["is_chief_by_model"], second["is_chief_by_model"]) == (True, False)
    ends = [10, 20, 30] if spe == 1 else [12, 20, 30]
    assert [line.split(":")[0] for line in lines_of(first)] == [f"step {n}/30" for n in ends]
    assert lines_of(second) == []


def test_workers_agree_on_a_nan_that_one_of_them_has_met():
    results = run_cluster("multi_worker_nan.py", {"worker": 2}, limit=240, report_from=["worker"])
    first, second = results["worker", 0], results["worker", 1]
    for action, reason, reported in (("rollback", None, [2, 4, 6, 8]), ("stop", "nan", [2, 4, 6])):
        assert first[action] == second[action]
        assert (first[action]["step"], first[action]["reason"]) == (8, reason)
        assert first[action]["reported"] == reported
        assert ("nan" in str(first[action]["state"])) == (action == "stop")


@SPE
def test_parameter_server(spe):
    result = run_cluster(
        "parameter_server.py",
        {"chief": 1, "worker": 2, "ps": 1},
        limit=240,
        report_from=["chief"],
        SPE=str(spe),
    )["chief", 0]
    assert result["step"] == result["after"] == 31
    assert result["fired"] == [8, 16, 24]
    assert result["finite"]
    assert "steps_per_second" in result["names"]
    assert result["is_chief"]
    ends = ["10", "20", "30", "31"] if spe == 1 else ["12", "20", "31"]
    assert [line.split("/")[0] for line in lines_of(result)] == [f"step {n}" for n in ends]
    assert "already at step 31" in result["output"]


def test_every_callback_on_parameter_servers(tmp_path):
    """Each works, or raises before the first step and says why."""
    result = run_cluster(
        "parameter_server_callbacks.py",
        {"chief": 1, "worker": 2, "ps": 2},
        limit=280,
        report_from=["chief"],
        FOLDER=str(tmp_path),
    )["chief", 0]
    output, reported = result.pop("output"), result.pop("reported")
    kinds = {n for n in ks.__all__ if isinstance(getattr(ks, n), type)}
    callbacks = {n for n in kinds if issubclass(getattr(ks, n), ks.StepCallback)}
    bases = {"StepCallback"}
    assert {name.partition(",")[0] for name in result} == callbacks - bases

    refused = {name: row for name, row in result.items() if row[0] == "ValueError"}
    assert {name: row[2] for name, row in refused.items()} == {
        "EvaluateEveryN, to the end": 0,
        "StepBackupAndRestore": 0,
    }
    assert "comes to an end" in refused["EvaluateEveryN, to the end"][1]
    assert "nobody knows which batches" in refused["StepBackupAndRestore"][1]
    reasons = {
        "StepEarlyStopping": ["early", 40, True],
        "StopOnNaN": ["nan", 24, False],
        "StopOnNaN, rollback": [None, 24, True],  # 40 batches, of which 16 were called off
    }
    for name in result.keys() - refused.keys():
        assert result[name] == reasons.get(name, ["reached", 31, True]), name

    assert reported == [8, 16, 24, 31]
    assert "norm=" in output and "back to step 8" in output
    assert [each.step for each in ks.list_checkpoints(tmp_path / "checkpoints")] == [8, 16, 24, 31]
    with open(tmp_path / "metrics.csv") as file:
        assert [line.split(",")[0] for line in file] == ["step", "8", "16", "24", "31"]
    assert len(list((tmp_path / "logs/train").iterdir())) == 1
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
