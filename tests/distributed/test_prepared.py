"""distribution.prepare: Keras 3 under MultiWorkerMirroredStrategy, on loopback."""

import keras
import numpy as np
import pytest
from distributed.cluster import run_cluster
from flavours import BATCH, FLAVOUR, arrays

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(300),
    pytest.mark.skipif(FLAVOUR != "tensorflow", reason="for Keras 3 on TensorFlow"),
]

REFUSED = {
    "several": "train under MultiWorkerMirroredStrategy with steps_per_execution > 1",
    "accumulating": "train under MultiWorkerMirroredStrategy with gradient accumulation",
    "later": "train under MultiWorkerMirroredStrategy with steps_per_execution > 1",
    "outside": "was made outside of the scope of MultiWorkerMirroredStrategy",
}


@pytest.mark.parametrize(
    "devices, kinds", [(1, "sequential unbuilt functional own mixed eager"), (2, "unbuilt mixed")]
)
def test_models_of_every_kind_train_alike_on_both_workers(devices, kinds):
    settings = {"DEVICES": str(devices), "KINDS": kinds}
    results = run_cluster(
        "prepared.py", {"worker": 2}, limit=280, report_from=["worker"], **settings
    )
    first, second = results["worker", 0], results["worker", 1]
    assert first["replicas"] == 2 * devices
    assert sorted(first["trained"]) == sorted(kinds.split())
    for kind, model in first["trained"].items():
        assert model == second["trained"][kind]
        assert model["history"]["loss"][1] < model["history"]["loss"][0]
        assert model["history"]["val_loss"][-1] == model["evaluated"]["loss"]
        assert model["predicted"] == [5 * BATCH, 1]
        assert model["finite"]
        assert model["kept"] == model["weights"]
        assert not model["is_prepared"]
    loaded = {kind: model["loaded"] for kind, model in first["trained"].items()}
    own_classes = {"functional": "Functional", "own": "Own"}
    assert loaded == {kind: own_classes.get(kind, "Sequential") for kind in loaded}
    history, weights = _in_one_process()
    for kind in {"sequential", "unbuilt", "eager"} & loaded.keys():
        model = first["trained"][kind]
        for name, values in history.items():
            assert model["history"][name] == pytest.approx(values, rel=1e-5), (kind, name)
        for here, there in zip(weights, model["weights"], strict=True):
            np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-6)
    if devices == 1:
        own = first["trained"]["own"]["history"]
        assert (own["two"], own["vector"]) == ([2.0, 2.0], [1.0, 1.0])
    for result in (first, second):
        if devices == 1:
            assert result["bare"] is not None, "Keras no longer needs distribution.prepare"
            assert "PerReplica" in result["bare"]
        for name, message in REFUSED.items():
            assert message in result["refused"][name]


def test_workers_agree_on_a_nan_that_one_of_them_has_met():
    results = run_cluster("multi_worker_nan.py", {"worker": 2}, limit=240, report_from=["worker"])
    first, second = results["worker", 0], results["worker", 1]
    for action, reason, reported in (("rollback", None, [2, 4, 6, 8]), ("stop", "nan", [2, 4, 6])):
        assert first[action] == second[action]
        assert (first[action]["step"], first[action]["reason"]) == (8, reason)
        assert first[action]["reported"] == reported
        assert ("nan" in str(first[action]["state"])) == (action == "stop")


def _in_one_process():
    """The history and the weights of the same fit without a strategy."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    x, y = arrays(5)
    data = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, epochs=2, validation_data=(x, y), **data)
    return history.history, model.get_weights()
