"""distribution.prepare in one process: what it relies on in Keras, and what it leaves alone."""

import keras
import numpy as np
import pytest
from flavours import BATCH, FLAVOUR, arrays, fit, make_model, mirrored_scope, no_scope

from keras_steps import distribution
from keras_steps import keras_internals as internals

on_tensorflow = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="Keras 3 on TensorFlow only")
SCOPES = [no_scope, mirrored_scope] if FLAVOUR in ("tensorflow", "tf_keras") else [no_scope]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_script_in_one_process_is_left_as_it_is(scope):
    with scope():
        model = make_model()
        before = set(vars(model))
        assert distribution.prepare(model) is model
    assert distribution.prepare(model) is model
    assert set(vars(model)) == before
    fit(model, [])


@pytest.mark.parametrize("given", [None, keras.Sequential, keras.layers.Dense(1)])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(TypeError, match="prepare takes a Keras model, and returns it; received"):
        distribution.prepare(given)


@on_tensorflow
def test_a_version_that_it_was_not_tried_with_is_refused(monkeypatch):
    model = make_model()
    monkeypatch.setattr(keras, "__version__", "4.0.1")
    with pytest.raises(RuntimeError, match=r"tried with Keras 3\.12 to 3\.15, not with 4\.0\.1"):
        internals.cure(model)
    assert "_make_function" not in vars(model)


@on_tensorflow
def test_keras_calls_what_the_cure_replaces(monkeypatch):
    """That needs no cluster: results get an axis, which one process leaves there.

    Nightly versions take part, so that a change shows before there is a release.
    """
    version = ".".join(keras.__version__.split(".")[:2])
    monkeypatch.setattr(internals.multi_worker, "CURED_VERSIONS", (version,))
    model = make_model()
    fit(model, [])
    internals.cure(model)
    internals.cure(model)
    assert model.train_function is model.test_function is None  # to be compiled anew
    built = []
    theirs = model._symbolic_build
    model._symbolic_build = lambda **data: [built.append(data), theirs(**data)]
    for method in (model.train_on_batch, model.test_on_batch):
        logs = method(*arrays(1), return_dict=True)
        assert {name: np.shape(value) for name, value in logs.items()} == {
            "loss": (1,),
            "mae": (1,),
        }
    fit(model, [])
    model.evaluate(*arrays(1), verbose=0)
    x, *_ = built[2]["data_batch"]
    assert (len(built), x.shape) == (4, (BATCH, 4))
    assert type(keras.models.clone_model(model)) is keras.Sequential
    assert "_make_function" not in vars(keras.models.clone_model(model))


@on_tensorflow
def test_keras_3_cannot_train_on_parameter_servers(monkeypatch):
    import tensorflow as tf

    model = make_model()
    strategy = object.__new__(tf.distribute.ParameterServerStrategy)
    monkeypatch.setattr(model, "_distribute_strategy", strategy)
    with pytest.raises(ValueError, match="itself can't train under ParameterServerStrategy"):
        distribution.prepare(model)
