"""Fits of several processes of JAX and torch that go on from a backup."""

import numpy as np
import pytest
from distributed.cluster import run_cluster
from flavours import FLAVOUR

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(200),
    pytest.mark.skipif(FLAVOUR not in ("jax", "torch"), reason="see test_workers_agree.py"),
]


def train(folder, workers=2, ends_with=0, **settings):
    """What each process reports of a run of 30 steps, backed up every 5."""
    return run_cluster(
        "fit_backup.py",
        {"worker": workers},
        limit=90,
        report_from=["worker"],
        ends_with=ends_with,
        FOLDER=str(folder),
        JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo",
        **settings,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"))


def test_each_goes_on_with_what_is_its_own(whole, tmp_path):
    """On torch that is what its metrics have summed up, of its own examples."""
    train(tmp_path, LAST="16")
    for worker, result in train(tmp_path).items():
        assert (result["step"], result["fired"]) == (30, [20, 24, 28])
        for part in ("state", "history"):
            assert result[part] == whole[worker][part]
        assert result["losses"] == whole[worker]["losses"][4:]
    losses = [result["history"]["loss"] for result in whole.values()]
    assert (losses[0] == losses[1]) is (FLAVOUR == "jax")


def test_other_numbers_of_workers(whole, tmp_path):
    """Two, then one, then two: refused unless that is meant, and equal then, but for rounding."""
    train(tmp_path, LAST="9")
    refused = train(tmp_path, workers=1, ends_with=1)["worker", 0]["output"]
    assert f"over 2 {'devices' if FLAVOUR == 'jax' else 'processes'}, and this fit" in refused
    alone = train(tmp_path, workers=1, LAST="16", ON_CHANGE="warn")["worker", 0]
    assert (alone["step"], alone["fired"]) == (16, [12, 16])
    for worker, result in train(tmp_path, ON_CHANGE="warn").items():
        assert (result["step"], result["fired"]) == (30, [20, 24, 28])
        assert result["rates"] == whole[worker]["rates"][4:]
        assert result["losses"] == pytest.approx(whole[worker]["losses"][4:], rel=1e-4)
        for value, expected in zip(result["state"], whole[worker]["state"], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
