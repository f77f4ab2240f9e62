"""Evaluating in private: what of Keras the package relies on, and what is put back."""

import random

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    Subclassed,
    arrays,
    fit,
    keras,
    keras_to_numpy,
    make_model,
    mirrored_scope,
)

from keras_steps import keras_internals as internals
from keras_steps import testing
from keras_steps.keras_internals import prepared_data

on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="about TensorFlow")
on_torch = pytest.mark.skipif(FLAVOUR != "torch", reason="about torch")
on_jax = pytest.mark.skipif(FLAVOUR != "jax", reason="about JAX")
CACHE = "_eval_data_handler" if IS_TF_KERAS else "_eval_epoch_iterator"


def evaluator(model, batches=4, steps=None, batch_size=BATCH):
    x, y = arrays(batches, seed=3)
    return internals.Evaluator(model, x, y, None, batch_size=batch_size, steps=steps)


def bare(model, batches=4):
    x, y = arrays(batches, seed=3)
    return model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)


# ---------------------------------------------------------------- prepared data


def test_keras_takes_prepared_data():
    assert internals.takes_prepared_data(make_model())


def test_a_model_with_an_evaluate_of_its_own_does_not():
    class Own(keras.Model):
        def evaluate(self, x=None, _use_cached_eval_dataset=True):
            return {}

    assert not internals.takes_prepared_data(Own())


def test_the_prepared_data_are_evaluated_on_again_and_again():
    model = make_model()
    prepared = evaluator(model)
    assert prepared.is_prepared
    assert [prepared.evaluate() for _ in range(3)] == [(bare(model), 4)] * 3


def test_fit_keeps_its_validation_data_where_ours_are_put():
    kept = []

    class Look(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            kept.append(vars(self.model)[CACHE])

    model = make_model()
    fit(model, [Look()], batches=2, epochs=2, validation_data=arrays(2))
    assert kept[0] is kept[1]
    assert kept[0].__class__ is evaluator(model)._iterator.__class__
    assert CACHE not in vars(model)


@pytest.mark.parametrize("before", [None, "fit's own", "absent"])
def test_what_was_in_its_place_is_put_back(before):
    model = make_model()
    vars(model).pop(CACHE, None)
    if before != "absent":
        setattr(model, CACHE, before)
    evaluator(model).evaluate()
    assert vars(model).get(CACHE, "absent") == before


def test_the_test_function_is_the_models_own_again():
    model = make_model()
    bare(model)
    before = model.test_function
    evaluator(model).evaluate()
    assert model.test_function is before


@pytest.mark.skipif(FLAVOUR == "torch", reason="Keras refuses steps_per_execution on torch")
@pytest.mark.parametrize(("steps", "batches"), [(4, 4), (6, 8), (8, 8), (None, 12)])
def test_steps_are_exact_within_executions_of_four(steps, batches):
    model = make_model(steps_per_execution=4)
    prepared = evaluator(model, batches=10, steps=steps)
    results, counted = prepared.evaluate()
    assert counted == batches
    x, y = (array[: (steps or 10) * BATCH] for array in arrays(10, seed=3))
    alone = make_model().evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
    assert results == pytest.approx(alone, rel=1e-6)


@pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 has the number as a constant")
def test_tf_keras_cuts_the_variable_in_an_epochs_last_execution():
    """An evaluation there would make its test_function for one batch an execution, for good."""
    model = make_model(steps_per_execution=4)
    prepared = evaluator(model, batches=8)
    with internals.batches_set_to(model, 1):
        within = prepared.evaluate()
        assert internals.steps_per_execution(model) == 1
    assert [within, prepared.evaluate()] == [(bare(model, 8), 8)] * 2


@on_tensorflow
@pytest.mark.parametrize("kind", ["float64", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("parts", [2, 3])
def test_arrays_of_any_type_give_what_evaluate_gives(kind, parts):
    x, y = (10 * array for array in arrays(5, seed=3))
    weights = np.arange(len(x)) / 10
    data = {"x": x.astype(kind), "y": y.astype(kind), "sample_weight": None}
    if parts == 3:
        data["sample_weight"] = weights
    model = make_model()
    prepared = internals.Evaluator(model, *data.values(), batch_size=BATCH, steps=None)
    expected = model.evaluate(**data, batch_size=BATCH, verbose=0, return_dict=True)
    assert prepared.evaluate() == (expected, 5)


def test_inputs_by_name_and_in_lists():
    keras.utils.set_random_seed(1)
    inputs = [keras.layers.Input((4,), name=name) for name in "ab"]
    both = keras.layers.Concatenate()(inputs)
    model = keras.Model(inputs, [keras.layers.Dense(1)(both), keras.layers.Dense(1)(both)])
    model.compile("sgd", ["mse", "mse"])
    x, y = arrays(3)
    fit(model, [], x=[x, x], y=[y, y])
    expected = model.evaluate([x, x], [y, y], batch_size=BATCH, verbose=0, return_dict=True)
    for given in ([x, x], {"a": x, "b": x}):
        prepared = internals.Evaluator(model, given, [y, y], None, batch_size=BATCH, steps=None)
        assert prepared.evaluate() == (expected, 3)


def test_arrays_of_different_lengths_are_refused_with_keras_own_words():
    x, y = arrays(3)
    with pytest.raises(ValueError, match="cardinality"):
        internals.Evaluator(make_model(), x, y[:-1], None, batch_size=BATCH, steps=None)


@on_tensorflow
def test_no_warning_of_the_end_of_data_of_unknown_size(caplog):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays(3, seed=3)).batch(BATCH)
    dataset = dataset.filter(lambda x, y: True)
    model = make_model()
    for steps in (None, 5):
        prepared = internals.Evaluator(model, dataset, None, None, batch_size=None, steps=steps)
        assert prepared.evaluate() == (bare(model, 3), 3)
    assert "ran out" not in caplog.text


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras changes no more")
@pytest.mark.parametrize("kinds", [{}, {FLAVOUR: "Renamed"}])
def test_without_keras_private_names_the_data_are_prepared_each_time(monkeypatch, kinds):
    monkeypatch.setattr(prepared_data, "_ITERATORS", kinds)
    model = make_model()
    prepared = evaluator(model)
    assert not prepared.is_prepared
    assert [prepared.evaluate() for _ in range(2)] == [(bare(model), 4)] * 2


def test_batches_that_can_not_be_counted():
    class Anew(Subclassed):
        """Has its test_function made at each evaluation."""

        def make_test_function(self, force=False):
            self.test_function = None
            return super().make_test_function()

    keras.utils.set_random_seed(1)
    model = Anew()
    model.compile("sgd", "mse")
    fit(model, [], batches=1)
    assert evaluator(model).evaluate() == (bare(model), None)


# ---------------------------------------------------------------- what is put back


def metrics_of(model):
    if IS_TF_KERAS:
        return [keras_to_numpy(v) for metric in model.metrics for v in metric.variables]
    return [keras_to_numpy(v) for v in model.metrics_variables]


def test_metrics_are_put_back():
    model = make_model()
    fit(model, [], batches=3)
    before = metrics_of(model)
    with internals.training_kept(model):
        bare(model)
        assert metrics_of(model) != before
    assert metrics_of(model) == before


def test_metrics_that_are_built_meanwhile_are_reset():
    model = make_model()
    with internals.training_kept(model):
        bare(model)
    assert metrics_of(model)
    assert not np.any(metrics_of(model))


@on_tensorflow
def test_metrics_are_put_back_on_each_replica():
    """They hold partial sums, which are other ones once their sum has been split evenly."""
    with mirrored_scope():
        model = make_model()
    fit(model, [], batches=3)

    def partial_sums():
        if IS_TF_KERAS:
            variables = [v for metric in model.metrics for v in metric.variables]
        else:
            variables = [v.value for v in model.metrics_variables]
        return [part.numpy() for variable in variables for part in variable.values]

    before = partial_sums()
    assert before[0] != before[1]
    with internals.training_kept(model):
        bare(model)
    assert partial_sums() == before


def test_random_states_are_put_back():
    def draw():
        return random.random(), np.random.rand()

    random.seed(3)
    np.random.seed(3)
    with internals.random_states_kept():
        inside = draw()
    assert draw() == inside
    assert draw() != inside
    failed = []
    with pytest.raises(OSError), internals.random_states_kept():
        failed.append(draw())
        raise OSError
    assert [draw()] == failed


@on_torch
def test_torchs_random_state_is_put_back():
    import torch

    with internals.random_states_kept():
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), inside)


@on_torch
def test_modes_of_modules_are_put_back():

    class Two(keras.Model):  # torch does not know the layers of a Sequential
        def __init__(self):
            super().__init__()
            self.one, self.two = keras.layers.Dense(3), keras.layers.Dense(1)

        def call(self, x):
            return self.two(self.one(x))

    model = Two()
    model.compile("sgd", "mse")
    bare(model)
    model.train()
    model.two.eval()
    before = [module.training for module in model.modules()]
    assert set(before) == {True, False}
    with internals.training_kept(model):
        bare(model)
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


@pytest.mark.skipif(IS_TF_KERAS, reason="of Keras 3")
def test_seed_generators_are_put_back():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dropout(0.5, seed=1)])
    state = model.layers[0].seed_generator.state
    model.compile("sgd", "mse")
    with internals.training_kept(model):
        before = keras_to_numpy(state).tolist()
        model(np.ones((2, 4)), training=True)
        assert keras_to_numpy(state).tolist() != before
    assert keras_to_numpy(state).tolist() == before


@pytest.mark.skipif(not IS_TF_KERAS, reason="of tf_keras")
def test_random_generators_of_layers_are_put_back():
    keras.backend.experimental.enable_tf_random_generator()
    try:
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dropout(0.5, seed=1)])
        model.compile("sgd", "mse")
        model(np.ones((2, 4)), training=True)
        state = model.layers[0]._random_generator._generator.state
        before = state.numpy().tolist()
        with internals.training_kept(model):
            model(np.ones((2, 4)), training=True)
            assert state.numpy().tolist() != before
        assert state.numpy().tolist() == before
    finally:
        keras.backend.experimental.disable_tf_random_generator()


def test_the_history_of_fit_is_put_back():
    """tf_keras's evaluate replaces it, and fit returns what is there at its end."""
    model = make_model()
    history = fit(model, [], batches=1)
    with internals.training_kept(model):
        bare(model)
        assert (model.history is history) is not IS_TF_KERAS
    assert model.history is history


@on_jax
@pytest.mark.parametrize("fails_at", [0, 2])
def test_values_come_back_after_an_evaluation_that_failed(fails_at):
    """evaluate has handed them to its state, whose arrays each execution uses up."""
    model = make_model()
    fit(model, [], batches=2)
    before = [keras_to_numpy(v).tolist() for v in model.variables], metrics_of(model)

    class Lazy(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index == fails_at:
                raise OSError("the disk is gone")
            return arrays(1)

    prepared = internals.Evaluator(model, Lazy(), None, None, batch_size=None, steps=None)
    with pytest.raises(OSError, match="the disk is gone"), internals.training_kept(model):
        prepared.evaluate()
    assert ([keras_to_numpy(v).tolist() for v in model.variables], metrics_of(model)) == before
    fit(model, [testing.Recorder(1)], batches=2)


@on_jax
def test_without_values_they_stay_without_being_kept():
    """Guards the test above: this is what evaluate leaves behind."""
    model = make_model()
    fit(model, [], batches=1)

    class Fails(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        model.evaluate(Fails(), verbose=0)
    assert all(internals.is_purged(v) for v in model.weights)
