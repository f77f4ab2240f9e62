"""Every callback on JAX under keras.distribution: one process with eight devices, two with four."""

import signal

import numpy as np
import pytest
from distributed.cluster import run_cluster
from flavours import FLAVOUR, keras

import keras_steps as ks

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(500),
    pytest.mark.skipif(FLAVOUR != "jax", reason="keras.distribution is for JAX"),
]

GRID = [5, 10, 15, 20, 25, 30]
KINDS = [("DataParallel", 1), ("ModelParallel", 1), ("DataParallel", 2), ("ModelParallel", 2)]


def run(folder, distribution, processes, ends_with=0, **settings):
    folder.mkdir(exist_ok=True)
    results = run_cluster(
        "jax_callbacks.py",
        {"worker": processes},
        limit=150,
        report_from=["worker"],
        ends_with=ends_with,
        FOLDER=str(folder),
        DISTRIBUTION=distribution,
        XLA_FLAGS=f"--xla_force_host_platform_device_count={8 // processes}",
        JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo",
        **settings,
    )
    return list(results.values())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Each kind is run once."""
    done = {}

    def of(kind):
        if kind not in done:
            folder = tmp_path_factory.mktemp("undisturbed")
            done[kind] = folder, run(folder, *kind)
        return done[kind]

    return of


@pytest.mark.parametrize("kind", KINDS)
def test_every_callback_fires_at_its_steps_and_variables_stay_where_they_are(kind, undisturbed):
    distribution, processes = kind
    folder, results = undisturbed(kind)
    assert [result["is_chief"] for result in results] == [True, False][:processes]
    for result in results:
        assert (result["devices"], result["processes"]) == (8, processes)
        for part in ("everything", "rolled_back", "best_restored"):
            assert result[part] == results[0][part]
            assert result[part]["placed"]
    everything = results[0]["everything"]
    assert (everything["step"], everything["reason"]) == (30, "reached")
    assert everything["fired"] == [4, 8, 12, 16, 20, 24, 28]
    rates = [ks.schedules.linear(0.01, 0.0, 40)(step - 1) for step in everything["fired"]]
    assert everything["rates"] == pytest.approx(rates, rel=1e-6)
    evaluated = [(step, min(logs)) for step, logs in everything["evaluations"]]
    tests = [(step, "test_loss") for step in GRID]
    assert [each for each in evaluated if each in tests] == tests
    assert [each for each in evaluated if each not in tests] == [(20, "val_loss"), (30, "val_loss")]
    assert [step for step, _ in everything["norms"]] == [15, 30]
    assert everything["spread"] == [8]
    sharded = [spec for spec in everything["slots"] if "model" in spec]
    assert len(sharded) == (4 if distribution == "ModelParallel" else 0)

    assert (results[0]["rolled_back"]["step"], results[0]["rolled_back"]["reported"]) == (
        8,
        [2, 4, 6, 8],
    )
    assert "nan" not in str(results[0]["rolled_back"]["state"]).lower()
    assert results[0]["best_restored"] == {
        "step": 8,
        "reason": "early",
        "is_first": True,
        "placed": True,
    }

    checkpoints = ks.list_checkpoints(folder / "checkpoints")
    assert [each.step for each in checkpoints] == [25, 30]
    weights = keras.saving.load_model(checkpoints[-1].path).get_weights()
    for there, here in zip(weights, everything["weights"], strict=True):
        np.testing.assert_array_equal(there, np.array(here, "float32"))
    assert len(list((folder / "logs").glob("train/events*"))) == 1
    lines = [line.split(":")[0] for line in results[0]["output"].splitlines() if "loss=" in line]
    assert lines == ["step 10/30", "step 20/30", "step 30/30"]
    assert all("loss=" not in result["output"] for result in results[1:])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_all_ways_to_divide_the_work_come_to_the_same(kind, undisturbed):
    reference, other = (undisturbed(each)[1][0]["everything"] for each in (KINDS[0], kind))
    assert other["losses"] == pytest.approx(reference["losses"], rel=1e-5)
    assert other["history"][1] == pytest.approx(reference["history"][1], rel=1e-5)
    for there, here in zip(other["state"], reference["state"], strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS[1:3])  # half a minute each
def test_one_killed_and_all_started_again_they_end_with_the_same_bits(kind, undisturbed, tmp_path):
    """Others end when they miss its heartbeats, or have waited for it at their exit."""
    first = undisturbed(kind)[1][0]["everything"]
    codes = {("worker", 0): -signal.SIGABRT, ("worker", kind[1] - 1): -signal.SIGKILL}
    results = run(tmp_path, *kind, codes, STRIKE_AT="17")
    told = "JAX distributed service detected fatal errors"
    assert all(told in result["output"] for result in results[:-1])
    for number, result in enumerate(run(tmp_path, *kind)):
        again = result["everything"]
        assert again["state"] == first["state"]
        assert again["losses"] == first["losses"][-len(again["losses"]) :]
        assert again["history"] == first["history"]
        assert again["placed"]
        assert again["slots"] == first["slots"]
        assert ("going on from step" in result["output"]) == (number == 0)


def test_an_error_in_one_process_ends_both_within_the_time_for_the_exit(tmp_path):
    aborted = -signal.SIGABRT
    results = run(tmp_path, "DataParallel", 2, aborted, STRIKE_AT="17", RAISES="1")
    assert "OSError: no space left" in results[1]["output"]


def test_a_model_that_no_process_holds_whole_is_refused(tmp_path):
    for result in run(tmp_path, "ModelParallel", 2, BATCH_AXIS="1", ends_with=1):
        assert "is divided among several processes" in result["output"]
