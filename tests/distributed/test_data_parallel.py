"""The callbacks on JAX over several devices."""

import pytest
from distributed.cluster import run_cluster
from flavours import FLAVOUR, fit, keras, make_model

import keras_steps as ks
from keras_steps.testing import Recorder

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(FLAVOUR != "jax", reason="keras.distribution is for JAX"),
]


def test_data_parallel_over_eight_devices():
    flags = "--xla_force_host_platform_device_count=8"
    jobs = {"worker": 1}
    result = run_cluster(
        "data_parallel.py", jobs, limit=100, report_from=["worker"], XLA_FLAGS=flags
    )["worker", 0]
    assert result["devices"] == result["spread"] == 8
    assert result["strategy"] == "DataParallel over 8 devices"
    assert result["step"] == 15
    assert result["fired"] == [4, 8, 12]
    schedule = ks.schedules.linear(0.1, 0.0, 40)
    assert result["rates"] == pytest.approx([schedule(step - 1) for step in (4, 8, 12)], rel=1e-6)
    assert [line for line in result["output"].splitlines() if line.startswith("step ")]

    recorder = Recorder(4)
    model = make_model(keras.optimizers.SGD(0.1))
    fit(model, [recorder, ks.StopAtStep(15), ks.StepScheduledLR(schedule)], epochs=3)
    assert result["losses"] == pytest.approx([logs["loss"] for logs in recorder.logs], rel=1e-5)
