"""Loops of one's own over several processes, on loopback."""

import signal

import numpy as np
import pytest
from distributed.cluster import run_cluster
from flavours import FLAVOUR, IS_TF_KERAS, arrays, make_model
from loops import batches_of

import keras_steps as ks

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(300)]


def lines_of(result):
    return [line for line in result["output"].splitlines() if line.startswith("step ")]


@pytest.mark.skipif(FLAVOUR != "torch", reason="DistributedDataParallel is torch's")
def test_torch_distributed_data_parallel(tmp_path):
    results = run_cluster(
        "torch_loop.py", {"worker": 2}, limit=240, report_from=["worker"], FOLDER=str(tmp_path)
    )
    first, second = results["worker", 0], results["worker", 1]
    for result in (first, second):
        assert (result["step"], result["reason"]) == (15, "reached")
        assert result["fired"] == [4, 8, 12]
        assert (result["restored"], result["restored_step"]) == (result["weights"], 15)
    assert first["weights"] == second["weights"]
    assert first["losses"] == second["losses"]
    assert [line.split(":")[0] for line in lines_of(first)] == [f"step {n}/15" for n in (5, 10, 15)]
    assert (first["files"], first["checkpoints"]) == (["metrics-0.csv"], 2)
    assert lines_of(second) == []
    assert (second["files"], second["checkpoints"]) == ([], 0)

    import torch

    model = make_model()  # whole batches, in one process
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = batches_of(*arrays(8))
    with ks.StepLoop([ks.StopAtStep(15)], model=model, optimizer=optimizer) as loop:
        for number in loop.over(range(100)):
            x, y = map(torch.from_numpy, batches[number % 8])
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
    for weight, there in zip(model.get_weights(), first["weights"], strict=True):
        np.testing.assert_allclose(weight, there, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(FLAVOUR == "tensorflow", reason="the same as with tf_keras")
def test_a_loop_without_a_model_knows_the_other_workers(tmp_path):
    """They go by the chief's clock, one second a step, and it alone writes."""
    results = run_cluster(
        "loop_without_model.py",
        {"worker": 2},
        limit=150,
        report_from=["worker"],
        FOLDER=str(tmp_path),
        JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo",
    )
    for result in results.values():
        assert (result["step"], result["reason"]) == (24, "time")
        assert (result["timed"], result["losses"]) == ([10, 20], [5.0, 15.0])
        assert result["untimed"] is None
        if IS_TF_KERAS:  # else nothing leads to the strategy
            assert "TF_CONFIG names 2 workers" in result["outside"]
    lines = [line.split(":")[0] for line in lines_of(results["worker", 0])]
    assert lines == ["step 10", "step 20", "step 24"]
    assert lines_of(results["worker", 1]) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "metrics.csv"]
    assert len(list(tmp_path.rglob("events*"))) == 1


def loop_that_is_backed_up(folder, ends_with=0, workers=2, **settings):
    return run_cluster(
        "loop_backup.py",
        {"worker": workers},
        limit=150,
        report_from=["worker"],
        ends_with=ends_with,
        FOLDER=str(folder),
        **settings,
    )


@pytest.mark.skipif(FLAVOUR not in ("tf_keras", "torch"), reason="for these two strategies")
def test_a_loop_one_of_whose_workers_is_killed_resumes(tmp_path):
    """All go on from one step, and end as if nothing had happened, bit for bit."""
    whole = loop_that_is_backed_up(tmp_path / "whole")
    struck = {"WHO": "1", "SIGNAL": "SIGKILL", "AT": "17"}
    codes = {("worker", 0): 1, ("worker", 1): -signal.SIGKILL}
    results = loop_that_is_backed_up(tmp_path / "again", codes, **struck)
    told = {"tf_keras": "Collective ops is aborted", "torch": "by peer"}  # closed, or reset
    assert told[FLAVOUR] in results["worker", 0]["output"]
    again = loop_that_is_backed_up(tmp_path / "again")
    for worker, result in again.items():
        assert (result["step"], result["reason"]) == (30, "reached")
        assert result["fired"] == [16, 20, 24, 28]
        for part in ("history", "state"):
            assert result[part] == whole[worker][part]
    assert again["worker", 0]["state"] == again["worker", 1]["state"]
    assert "going on from step 15:" in again["worker", 0]["output"]
    assert "going on" not in again["worker", 1]["output"]
    tables = [(tmp_path / run / "metrics.csv").read_text() for run in ("whole", "again")]
    steps = [[line.split(",")[0] for line in table.splitlines()[1:]] for table in tables]
    assert steps == [["4", "8", "12", "16", "20", "24", "28", "30"]] * 2


@pytest.mark.skipif(FLAVOUR != "torch", reason="each worker shuffles its own share elsewhere")
def test_a_loop_of_other_numbers_of_workers(tmp_path):
    """Two, then one, then two: refused unless that is meant, and equal then, but for rounding."""
    whole = loop_that_is_backed_up(tmp_path / "whole")["worker", 0]
    folder = tmp_path / "again"
    loop_that_is_backed_up(folder, LAST="9")
    refused = loop_that_is_backed_up(folder, ends_with=1, workers=1)["worker", 0]["output"]
    assert "was made under torch.distributed over 2 processes, and this fit is under one" in refused
    alone = loop_that_is_backed_up(folder, workers=1, LAST="17", ON_CHANGE="warn")["worker", 0]
    assert (alone["step"], alone["fired"]) == (17, [12, 16])
    for result in loop_that_is_backed_up(folder, ON_CHANGE="warn").values():
        assert (result["step"], result["fired"]) == (30, [20, 24, 28])
        assert result["rates"] == whole["rates"][4:]
        (steps, losses), (_, expected) = result["history"], whole["history"]
        assert steps == [4, 8, 9, 12, 16, 17, 20, 24, 28, 30]  # each end is a point
        assert losses[-3:] == pytest.approx(expected[-3:], rel=1e-4)
        for value, expected in zip(result["state"], whole["state"], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 loses updates there: its count is not atomic")
def test_cluster_coordinator():
    jobs = {"chief": 1, "worker": 2, "ps": 1}
    results = run_cluster("coordinator_loop.py", jobs, limit=240, report_from=["chief"])
    result = results["chief", 0]
    assert result["step"] == 31
    assert result["fired"] == [10, 20, 30]
    assert all(np.isfinite(result["losses"]))
    assert result["losses"][0] > result["losses"][-1]
    schedule = ks.schedules.linear(0.1, 0.0, 40)
    assert result["rates"] == pytest.approx([schedule(step) for step in (0, 10, 20)], rel=1e-6)
    ends = [f"step {n}/31" for n in (10, 20, 30, 31)]
    assert [line.split(":")[0] for line in lines_of(result)] == ends
