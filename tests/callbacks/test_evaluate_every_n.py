"""EvaluateEveryN: when it evaluates, on what, and that training does not notice."""

import copy
import random
import warnings

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
    make_model,
    mirrored_scope,
    no_scope,
    state_of,
)

import keras_steps as ks
from keras_steps.callbacks.evaluate_every_n import EvaluateEveryN
from keras_steps.keras_internals import Evaluator
from keras_steps.testing import Recorder

on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="about TensorFlow")
needs_executions = pytest.mark.skipif(FLAVOUR == "torch", reason="Keras refuses them on torch")
of_several_steps = pytest.mark.filterwarnings("ignore:.*no multiple of")
Dataset = keras.utils.Sequence if IS_TF_KERAS else keras.utils.PyDataset


def far_off(examples=60):
    """Data whose loss is some 10⁶ times larger; their last batch of 32 is smaller."""
    x, y = arrays(8, seed=3)
    return x[:examples], 1000 * y[:examples]


def dropout_model(**compile_args):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **compile_args)
    return model


def constant_model(**compile_args):
    """A model that training does not change."""
    return make_model(keras.optimizers.SGD(0.0), **compile_args)


def assert_same(one, other):
    assert one[0] == other[0]
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(a, b)


class Batches(Dataset):
    """Batches by number; `fails_at` names one that can't be had, None as size means no end."""

    def __init__(self, batches, fails_at=None):
        super().__init__()
        self.x, self.y = arrays(batches, seed=3)
        self.size = batches
        self.fails_at = fails_at

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index == self.fails_at:
            raise OSError("the disk is gone")
        part = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[part], self.y[part]


def batches_of(count, seed=3):
    """A generator of batches."""
    x, y = arrays(count, seed=seed)
    for start in range(0, len(x), BATCH):
        yield x[start : start + BATCH], y[start : start + BATCH]


# ---------------------------------------------------------------- training does not notice


def trained(callbacks, scope=no_scope, **compile_args):
    with scope():
        model = dropout_model(**compile_args)
    validation = arrays(3, seed=5)
    history = fit(model, callbacks, epochs=2, validation_data=validation).history
    return history, state_of(model)


@of_several_steps
@pytest.mark.parametrize(
    ("executions_of", "steps"),
    [
        (1, [3, 6, 9, 12, 15, 18, 20]),
        pytest.param(4, [4, 8, 10, 14, 18, 20], marks=needs_executions),
    ],
)
def test_c14_training_is_the_same_with_and_without(executions_of, steps):
    recorder = Recorder(100)
    evaluate = EvaluateEveryN(far_off(), every=3, prefix="test_")
    compiled = {"steps_per_execution": executions_of}
    assert_same(trained([evaluate, recorder], **compiled), trained([], **compiled))
    losses = {name: {} for name in ("test_loss", "val_loss")}
    for step, results in recorder.evaluations:
        for name in losses.keys() & results.keys():
            losses[name][step] = results[name]
    assert list(losses["test_loss"]) == steps
    assert list(losses["val_loss"]) == [10, 20]
    assert losses["test_loss"][20] > 10_000 * losses["val_loss"][20]


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="a strategy of TensorFlow")
def test_training_under_mirrored_is_the_same_with_and_without():
    evaluate = EvaluateEveryN(far_off(), every=3, prefix="test_", at_start=True)
    assert_same(trained([evaluate], mirrored_scope), trained([], mirrored_scope))


def test_training_is_the_same_after_an_evaluation_before_the_first_update():
    """Which comes before fit has built its metrics, and compiled its step."""
    evaluate = EvaluateEveryN(far_off(), every=100, prefix="test_", at_start=True)
    assert_same(trained([evaluate]), trained([]))


def test_training_is_the_same_if_the_first_evaluation_builds_the_model():
    def unbuilt(callbacks):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(3), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        return fit(model, callbacks, epochs=2).history, state_of(model)

    assert_same(unbuilt([EvaluateEveryN(far_off(), every=3, at_start=True)]), unbuilt([]))


class Noise(keras.layers.Layer):
    """Adds noise, in inference too."""

    def __init__(self):
        super().__init__()
        if not IS_TF_KERAS:
            self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x):
        if IS_TF_KERAS:
            import tensorflow as tf

            return x + tf.random.normal(tf.shape(x))
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


def test_training_is_the_same_though_a_layer_draws_in_inference():
    def noisy(callbacks):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((4,)), Noise(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        return fit(model, callbacks).history, state_of(model)

    assert_same(noisy([EvaluateEveryN(far_off(), every=3)]), noisy([]))


class RandomNumbers(Dataset):
    """Data that draw from the random states of Python and NumPy."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        x = np.random.rand(BATCH, 4).astype("float32") + random.random()
        return x, x[:, :1]


def test_the_random_states_are_as_they_were():
    def numbers(callbacks):
        model = make_model()
        random.seed(5)
        np.random.seed(5)
        fit(model, callbacks)
        return random.random(), np.random.rand()

    assert numbers([EvaluateEveryN(RandomNumbers(), every=3)]) == numbers([])


@pytest.mark.skipif(FLAVOUR != "torch", reason="about torch")
def test_torch_shuffles_the_same_and_each_module_keeps_its_mode():
    import torch

    def loader(seed, shuffle):
        tensors = map(torch.from_numpy, arrays(10, seed=seed))
        return torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*tensors), batch_size=BATCH, shuffle=shuffle
        )

    class Two(keras.Model):  # torch does not know the layers of a Sequential
        def __init__(self):
            super().__init__()
            self.one, self.two = keras.layers.Dense(3), keras.layers.Dense(1)

        def call(self, x):
            return self.two(self.one(x))

    def with_a_frozen_layer(callbacks):
        keras.utils.set_random_seed(1)
        model = Two()
        model.compile(keras.optimizers.Adam(0.01), "mse")
        modes = []

        class Freeze(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                model.two.eval()

            def on_train_batch_end(self, batch, logs=None):
                modes.append([module.training for module in model.modules()])

        history = model.fit(loader(0, True), epochs=2, verbose=0, callbacks=[Freeze(), *callbacks])
        assert set(modes[0]) == {True, False}
        return (history.history, modes), state_of(model)

    evaluate = EvaluateEveryN(loader(3, True), every=3)
    assert_same(with_a_frozen_layer([evaluate]), with_a_frozen_layer([]))


def test_the_results_of_an_evaluation_are_those_of_evaluate_at_its_step():
    model, data, expected = make_model(), far_off(), {}

    class Bare(ks.StepCallback):
        order = EvaluateEveryN.order

        def on_step(self, step, logs):
            values = self.model.evaluate(*data, verbose=0, return_dict=True)
            expected[step] = {f"val_{name}": float(value) for name, value in values.items()}

    recorder = Recorder(100)
    fit(model, [EvaluateEveryN(data, every=4), recorder])
    bare = make_model()
    fit(bare, [Bare(ks.AtSteps(4, 8, 10))])
    found = dict(recorder.evaluations)
    assert list(found) == [4, 8, 10]
    assert found[4] == expected[4]  # later ones do not compare: bare evaluate disturbs nothing
    assert found[10] == expected[10]


# ---------------------------------------------------------------- an evaluation that fails


def test_a_fit_whose_evaluation_fails_leaves_the_model_as_of_that_step():
    model = dropout_model()
    evaluate = EvaluateEveryN(Batches(4, fails_at=2), every=3)
    evaluate.data["val_"].x.fails_at = None
    broken = Breaks(evaluate.data["val_"].x, at_step=6)
    with pytest.raises(Exception, match="the disk is gone"):
        fit(model, [broken, evaluate])
    assert ks.global_step(model) == 6
    whole = dropout_model()
    fit(whole, [ks.StopAtStep(6)])
    for a, b in zip(state_of(model), state_of(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    broken.data.fails_at = None
    recorder = Recorder(100)
    fit(model, [evaluate, recorder])
    assert [step for step, _ in recorder.evaluations] == [9, 12, 15, 16]


class Breaks(ks.StepCallback):
    """Lets data fail from a step on."""

    order = ks.step_callback.Order.NAN

    def __init__(self, data, at_step):
        super().__init__(ks.AtSteps(at_step))
        self.data = data

    def on_step(self, step, logs):
        self.data.fails_at = 2


def test_an_evaluation_that_fails_and_is_caught_leaves_no_trace():
    class Caught(EvaluateEveryN):
        failed = 0

        def on_step(self, step, logs):
            self.data["test_"].x.fails_at = (step // 3) % 3
            with pytest.raises(Exception, match="the disk is gone"):
                super().on_step(step, logs)
            self.failed += 1

    data = Batches(4)
    evaluate = Caught(data, every=3, prefix="test_", at_end=False)
    assert_same(trained([evaluate]), trained([]))
    assert evaluate.failed == 6


# ---------------------------------------------------------------- what is evaluated, and when


def tf_dataset(batches, **_):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays(batches, seed=3)).batch(BATCH)


def of_unknown_size(batches):
    dataset = tf_dataset(batches)
    return dataset.filter(lambda x, y: True)


def torch_loader(batches):
    import torch

    tensors = map(torch.from_numpy, arrays(batches, seed=3))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch_size=BATCH)


KINDS = {
    "arrays": lambda batches: arrays(batches, seed=3),
    "weighted": lambda batches: (*arrays(batches, seed=3), np.arange(batches * BATCH) / 10.0),
    "dataset": Batches,
    "tf.data": pytest.param(tf_dataset, marks=on_tensorflow, id="tf.data"),
    "unknown size": pytest.param(of_unknown_size, marks=on_tensorflow, id="unknown size"),
    "loader": pytest.param(
        torch_loader, marks=pytest.mark.skipif(FLAVOUR != "torch", reason="torch"), id="loader"
    ),
}


@pytest.mark.parametrize(
    "make", [v if hasattr(v, "marks") else pytest.param(v, id=k) for k, v in KINDS.items()]
)
def test_each_kind_of_data_gives_what_evaluate_gives_each_time(make):
    data = make(6)
    model, recorder = constant_model(), Recorder(100)
    fit(model, [EvaluateEveryN(data, every=4), recorder])
    parts = data if isinstance(data, tuple) else (data,)
    names = ("x", "y", "sample_weight")
    with warnings.catch_warnings():  # Keras's own, at the end of data of unknown size
        warnings.simplefilter("ignore")
        expected = constant_model().evaluate(
            **dict(zip(names, parts, strict=False)), verbose=0, return_dict=True
        )
    expected = {f"val_{name}": float(value) for name, value in expected.items()}
    assert recorder.evaluations == [(4, expected), (8, expected), (10, expected)]


@of_several_steps
@pytest.mark.parametrize("executions_of", [1, pytest.param(4, marks=needs_executions)])
def test_with_steps_each_evaluation_starts_from_the_beginning(executions_of):
    def evaluations(data, steps):
        recorder = Recorder(100)
        model = constant_model(steps_per_execution=executions_of)
        fit(model, [EvaluateEveryN(data, 3, steps=steps), recorder], batches=10)
        return [results["val_loss"] for _, results in recorder.evaluations]

    first = evaluations(Batches(6), None)
    assert len(set(first)) == 1
    x, y = arrays(9, seed=3)
    wanted = evaluations((x[:64], y[:64]), None)
    assert evaluations((x, y), 2) == wanted
    longer = Batches(9)
    longer.y[6 * BATCH :] = 1e6
    shorter = Batches(9)
    shorter.size = 6
    wanted = evaluations(shorter, None)
    assert evaluations(longer, 6) == wanted
    if ON_TENSORFLOW:
        assert evaluations(tf_dataset(9), 6) == wanted


def test_arrays_are_cut_into_batches_of_32():
    sizes = []

    class Sizes(keras.layers.Layer):
        def call(self, x):
            sizes.append(x.shape[0])
            return x

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), Sizes(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    sizes.clear()
    fit(model, [EvaluateEveryN(far_off(40), every=2)], batches=2)
    assert sizes[-2:] == [32, 8]


def test_several_sets_with_a_prefix_each():
    recorder = Recorder(5)
    data = {"val_": arrays(4, seed=2), "test_": far_off()}
    evaluate = EvaluateEveryN(data, every=5)
    fit(make_model(), [recorder, evaluate])
    assert [step for step, _ in recorder.evaluations] == [5, 10]
    results = recorder.evaluations[0][1]
    assert list(results) == ["val_loss", "val_mae", "test_loss", "test_mae"]
    assert results["test_loss"] > 10_000 * results["val_loss"]


def test_reports_of_the_step_have_the_results():
    history = ks.StepHistory(every=5)
    fit(make_model(), [history, EvaluateEveryN(far_off(), every=5, prefix="test_")])
    points = history.scalars["test_loss"]
    assert history.steps == [5, 10]
    assert all(value > 1000 for value in points)


def test_tensorboard_has_a_run_for_each_prefix(tmp_path):
    evaluate = EvaluateEveryN({"test_": far_off(), "val_": arrays(2)}, every=5)
    fit(make_model(), [ks.StepTensorBoard(tmp_path, every=5), evaluate])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test", "train", "validation"]


@pytest.mark.parametrize(
    ("at_start", "at_end", "steps"),
    [
        (False, False, [4, 8]),
        (False, True, [4, 8, 10]),
        (True, False, [0, 4, 8]),
        (True, True, [0, 4, 8, 10]),
    ],
)
def test_at_start_and_at_end(at_start, at_end, steps):
    recorder = Recorder(100)
    evaluate = EvaluateEveryN(far_off(), every=4, at_start=at_start, at_end=at_end)
    fit(make_model(), [evaluate, recorder])
    assert [step for step, _ in recorder.evaluations] == steps


def test_c34_a_run_that_ends_off_the_grid_and_goes_on():
    model, recorder = make_model(), Recorder(100)
    evaluate = EvaluateEveryN(far_off(), every=4, at_start=True)
    for _ in range(2):
        fit(model, [evaluate, recorder], batches=5)
    assert [step for step, _ in recorder.evaluations] == [0, 4, 5, 8, 10]


def test_a_second_evaluation_of_the_same_names_at_a_step_is_warned_of():
    recorder = Recorder(100)
    callbacks = [EvaluateEveryN(far_off(), every=5), recorder]
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Two evaluations at step 10 .* another prefix")
        fit(make_model(), callbacks, validation_data=arrays(2))
    assert len(caught) == 1
    assert [step for step, _ in recorder.evaluations] == [5, 10]


# ---------------------------------------------------------------- prepared once


def test_data_are_prepared_once_a_fit(monkeypatch):
    made = []
    original = Evaluator.__init__

    def noted(self, *args, **options):
        original(self, *args, **options)
        made.append(self.is_prepared)

    monkeypatch.setattr(Evaluator, "__init__", noted)
    evaluate = EvaluateEveryN({"val_": far_off(), "test_": Batches(2)}, every=2)
    for _ in range(2):
        fit(make_model(), [evaluate])
    assert made == [True] * 4


def test_nothing_is_prepared_in_a_fit_that_is_over(monkeypatch):
    model = make_model()
    fit(model, [], batches=5)
    data = Batches(3)
    data.fails_at = 0
    fit(model, [EvaluateEveryN(data, every=2), ks.StopAtStep(5)])
    assert ks.global_step(model) == 5


@on_tensorflow
def test_later_evaluations_trace_nothing():
    traces = []

    class Counted(keras.layers.Layer):
        def call(self, x, training=None):
            if not training:
                traces.append(x.shape)
            return x

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), Counted(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    counts = []

    class Count(ks.StepCallback):
        def on_step(self, step, logs):
            counts.append(len(traces))

    traces.clear()
    fit(model, [EvaluateEveryN(far_off(), every=2), Count(2)])
    assert counts[0] > 0
    assert counts == [counts[0]] * 5


def test_c40_copies_share_the_data_and_nothing_that_is_prepared():
    data = far_off()
    evaluate = EvaluateEveryN(data, every=4)

    class Copy(ks.StepCallback):
        def on_step(self, step, logs):
            copied.append(copy.deepcopy(evaluate))

    copied = []
    fit(make_model(), [evaluate, Copy(6)])
    for each in (evaluate, *copied):
        assert each.data["val_"].x is data[0]
        recorder = Recorder(100)
        fit(make_model(), [each, recorder])
        assert [step for step, _ in recorder.evaluations] == [4, 8, 10]


def test_a_model_with_an_evaluate_of_its_own():
    class Doubled(Subclassed):
        def evaluate(self, x=None, y=None, **options):
            self.asked = set(options)
            results = super().evaluate(x, y, **options)
            return {**results, "loss": -1.0}

    keras.utils.set_random_seed(1)
    model, recorder = Doubled(), Recorder(100)
    model.compile("sgd", "mse", metrics=["mae"])
    fit(model, [EvaluateEveryN(far_off(), every=5), recorder])
    assert [results["val_loss"] for _, results in recorder.evaluations] == [-1.0, -1.0]
    assert model.asked == {"sample_weight", "batch_size", "steps", "verbose", "return_dict"}


# ---------------------------------------------------------------- bad input


X, Y = arrays(2)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"data": None}, TypeError, r"\(data\) must be what model.evaluate takes.*received None"),
        ({"data": "logs"}, TypeError, "must be what model.evaluate takes.*received 'logs'"),
        ({"data": lambda model: None}, TypeError, "must be a function without arguments"),
        ({"data": dict}, TypeError, "must be what model.evaluate takes.*received <class .dict.>"),
        ({"data": lambda: {}, "steps": 3}, ValueError, "has batches of its own: leave out steps"),
        ({"data": (X, Y, Y, Y)}, ValueError, "received a tuple of 4"),
        ({"data": ()}, ValueError, "received a tuple of 0"),
        ({"data": {}}, ValueError, "received an empty dict"),
        ({"data": {"": (X, Y)}}, ValueError, "a key stands before .* received ''"),
        ({"data": {"_": (X, Y)}}, ValueError, "a key stands before .* received '_'"),
        ({"data": {"test": (X, Y)}}, ValueError, "as 'test_' or 'test/' does; received 'test'"),
        ({"data": {3: (X, Y)}}, TypeError, "a key must be a string such as 'test_'; received 3"),
        ({"data": {"test_": 3}}, TypeError, r"\(data\['test_'\]\) must be .*received 3"),
        ({"prefix": "val"}, ValueError, r"\(prefix\) stands before .* received 'val'"),
        ({"prefix": None}, TypeError, r"\(prefix\) must be a string"),
        ({"every": 0}, ValueError, r"\(every\) must be at least 1"),
        ({"every": "epoch"}, TypeError, r"\(every\) must be a number of steps or a trigger"),
        ({"steps": 0}, ValueError, r"\(steps\) must be at least 1"),
        ({"steps": 1.5}, TypeError, r"\(steps\) must be an integer"),
        ({"at_start": 1}, TypeError, r"\(at_start\) must be True or False; received 1"),
        ({"at_end": None}, TypeError, r"\(at_end\) must be True or False; received None"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=f"^EvaluateEveryN.*{text}"):
        EvaluateEveryN(**{"data": (X, Y), **arguments})


def endless():
    dataset = Batches(3)
    if not IS_TF_KERAS:
        Endless = type("Endless", (Batches,), {"num_batches": property(lambda self: None)})
        dataset.__class__ = Endless
        return dataset
    return tf_dataset(2).repeat()


@pytest.mark.parametrize(
    ("make", "steps", "text"),
    [
        (lambda: (X[:0], Y[:0]), None, "is empty; an evaluation needs at least one batch"),
        (lambda: Batches(0), None, "is empty"),
        (lambda: Batches(3), 4, "has 3 batches, fewer than steps=4. Leave steps out"),
        (lambda: arrays(8), 3, "has 2 batches of 32 examples, fewer than steps=3"),
        (endless, None, "has no end. Say on how many batches to evaluate each time: steps=100"),
        pytest.param(lambda: tf_dataset(3), 4, "has 3 batches, fewer", marks=on_tensorflow),
        pytest.param(lambda: tf_dataset(3).take(0), 4, "is empty", marks=on_tensorflow),
        pytest.param(lambda: tf_dataset(3).repeat(), None, "has no end", marks=on_tensorflow),
    ],
)
def test_bad_data_of_a_known_size_are_refused_at_train_begin(make, steps, text):
    model = make_model()
    evaluate = EvaluateEveryN({"test_": make()}, every=5, steps=steps)
    with pytest.raises(ValueError, match=rf"^EvaluateEveryN\(data\['test_'\]\) {text}"):
        fit(model, [evaluate])
    assert ks.global_step(model) == 0


@pytest.mark.parametrize(
    ("make", "steps", "at", "text"),
    [
        (lambda: batches_of(0), None, 3, "brought no batch. A generator"),
        (lambda: batches_of(3), None, 6, "brought no batch. A generator"),
        (lambda: batches_of(3), 4, 3, "brought 3 batches, fewer than steps=4. A generator"),
        (lambda: batches_of(4), 2, 9, "brought no batch. A generator"),
        pytest.param(lambda: of_unknown_size(3), 4, 3, "brought 3 batches", marks=on_tensorflow),
        pytest.param(
            lambda: of_unknown_size(3).take(0), None, 3, "brought no batch", marks=on_tensorflow
        ),
    ],
)
def test_bad_data_of_an_unknown_size_are_refused_at_the_evaluation(make, steps, at, text, caplog):
    if make().__class__.__name__ != "generator":
        pytest.importorskip("tensorflow")
    model = make_model()
    evaluate = EvaluateEveryN(make(), every=3, steps=steps)
    with pytest.raises(ValueError, match=rf"^EvaluateEveryN\(data\) {text}"):
        fit(model, [evaluate])
    assert ks.global_step(model) == at
    assert "ran out of data" not in caplog.text


def test_a_generator_with_steps_goes_on_where_it_was():
    x, y = arrays(6, seed=3)
    recorder = Recorder(100)
    fit(constant_model(), [EvaluateEveryN(batches_of(6), 4, steps=2), recorder])
    expected = []
    for start in (0, 2 * BATCH, 4 * BATCH):
        part = slice(start, start + 2 * BATCH)
        results = constant_model().evaluate(x[part], y[part], batch_size=BATCH, verbose=0)
        expected.append(float(results[0]))
    assert [results["val_loss"] for _, results in recorder.evaluations] == expected


@on_tensorflow
@of_several_steps
def test_under_mirrored_each_evaluation_gives_what_evaluate_gives():
    with mirrored_scope():
        model = constant_model()
    recorder = Recorder(100)
    fit(model, [EvaluateEveryN(far_off(), every=5), recorder])
    expected = float(model.evaluate(*far_off(), verbose=0)[0])
    assert [results["val_loss"] for _, results in recorder.evaluations] == [expected] * 2
