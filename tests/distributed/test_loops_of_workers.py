"""Loops of one's own over several processes, on loopback."""

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
def test_torch_distributed_data_parallel():
    results = run_cluster("torch_loop.py", {"worker": 2}, limit=240, report_from=["worker"])
    first, second = results["worker", 0], results["worker", 1]
    for result in (first, second):
        assert (result["step"], result["reason"]) == (15, "reached")
        assert result["fired"] == [4, 8, 12]
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
