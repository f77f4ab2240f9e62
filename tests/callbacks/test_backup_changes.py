"""Backups in scripts of all kinds: what was killed and started again is what was not."""

import importlib.util
import os
import signal
import warnings

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    arrays,
    clear_session,
    fit,
    keras,
    loss_scaled,
    make_model,
    state_of,
)

import keras_steps as ks
from keras_steps.step_callback import Order

pytestmark = pytest.mark.slow

BATCHES = 10


class Dies(Exception):
    pass


class Killer(ks.StepCallback):
    """Breaks the fit off at a step, as a kill does: nothing is told of it."""

    order = Order.BACKUP

    def __init__(self, *at):
        super().__init__(ks.AtSteps(*at))

    def on_step(self, step, logs):
        raise Dies


def begin(seed=1):
    """What a script begins with."""
    clear_session()
    keras.utils.set_random_seed(seed)
    if IS_TF_KERAS:
        keras.backend.experimental.enable_tf_random_generator()


def backup(directory, every=4, **args):
    return ks.StepBackupAndRestore(directory, every, on_signal=(), **args)


def dies(train, *args, **kwargs):
    with pytest.raises(Dies):
        train(*args, **kwargs)


def assert_same(model, other):
    for array, array_2 in zip(state_of(model), state_of(other), strict=True):
        np.testing.assert_array_equal(array, array_2)


# ---------------------------------------------------------------- data that carry their index


class Indexed(keras.utils.PyDataset if not IS_TF_KERAS else keras.utils.Sequence):
    def __len__(self):
        return 9

    def __getitem__(self, index):
        x, y = rows_of(index)
        return x, y


def rows_of(index):
    return np.full((1, 1), index + 1, "float32"), np.zeros((1, 1), "float32")


def stacked():
    return [np.concatenate(each) for each in zip(*map(rows_of, range(9)), strict=True)]


def as_arrays():
    x, y = stacked()
    return {"x": x, "y": y, "batch_size": 1, "shuffle": False}


def as_shuffled_arrays():
    return {**as_arrays(), "shuffle": True}


def as_py_dataset():
    return {"x": Indexed(), "shuffle": True}


def as_tf_data():
    import tensorflow as tf

    return {"x": tf.data.Dataset.from_tensor_slices(tuple(stacked())).batch(1).shuffle(9, seed=1)}


def as_data_loader():
    import torch

    x, y = (torch.from_numpy(each).reshape(9, 1, 1) for each in stacked())
    data = torch.utils.data.TensorDataset(x, y)
    return {"x": torch.utils.data.DataLoader(data, shuffle=True, batch_size=None)}


def as_generator():
    def generate():
        while True:
            yield from map(rows_of, range(9))

    return {"x": generate(), "steps_per_epoch": 9}


SOURCES = [as_arrays, as_shuffled_arrays, as_py_dataset, as_generator]
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
if HAS_TENSORFLOW:
    SOURCES.append(as_tf_data)
if FLAVOUR == "torch":
    SOURCES.append(as_data_loader)


@pytest.mark.parametrize("source", SOURCES)
def test_c19_each_index_is_trained_on_once_an_epoch(tmp_path, source):
    seen = {}

    def train(*more):
        begin()
        inputs = keras.layers.Input((1,))
        layer = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        model = keras.Model(inputs, layer(inputs))
        model.compile(keras.optimizers.SGD(0.0), "mae")  # the loss is the index + 1

        class Sees(ks.StepCallback):
            def on_step(self, step, logs):
                seen[step] = round(logs["loss"]) - 1

        data = source()
        fit(model, [backup(tmp_path, 5), Sees(1), *more], epochs=2, **data)

    dies(train, Killer(13))
    assert sorted(seen) == list(range(1, 14))
    before = dict(seen)
    train()
    assert {step: seen[step] for step in before} == before
    assert sorted(seen[step] for step in range(1, 10)) == list(range(9))
    assert sorted(seen[step] for step in range(10, 19)) == list(range(9))
    assert len(seen) == 18


# ---------------------------------------------------------------- models


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(3, activation="tanh")
        self.drop = keras.layers.Dropout(0.3)
        self.out = keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.out(self.drop(self.hidden(x), training=training))


class TwoInputs(Subclassed):
    def call(self, x, training=False):
        return super().call(x["a"] + x["b"], training=training)


def unbuilt_sequential():
    return keras.Sequential(
        [keras.layers.Dense(3, activation="tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    )


def compiled(make, optimizer=None, **args):
    def made():
        model = make()
        model.compile(optimizer() if optimizer else keras.optimizers.Adam(0.01), "mse", **args)
        return model

    return made


class SeveralUpdates(Subclassed):
    """Updates twice a batch."""

    def train_step(self, *args):
        if FLAVOUR == "jax":
            return self._on_jax(*args)
        x, y = args[0]
        for _ in range(2):
            if FLAVOUR == "torch":
                self.zero_grad()
                loss = self.compute_loss(x, y, self(x, training=True))
                loss.backward()
                loss = loss.detach()
                trainable = list(self.trainable_weights)
                gradients = [v.value.grad for v in trainable]
                import torch

                with torch.no_grad():
                    self.optimizer.apply(gradients, trainable)
            else:
                import tensorflow as tf

                with tf.GradientTape() as tape:
                    loss = self.compute_loss(x, y, self(x, training=True))
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(
                    zip(gradients, self.trainable_variables, strict=True)
                )
        return {"loss": loss}

    def _on_jax(self, state, data):
        import jax

        trainable, others, of_optimizer, of_metrics = state
        x, y = data

        def loss_of(trainable, others):
            predicted, others = self.stateless_call(trainable, others, x, training=True)
            return self.compute_loss(x, y, predicted), others

        for _ in range(2):
            (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, others)
            trainable, of_optimizer = self.optimizer.stateless_apply(
                of_optimizer, gradients, trainable
            )
        return {"loss": loss}, (trainable, others, of_optimizer, of_metrics)


def ema():
    return keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=7)


def scheduled():
    return keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, 30))


MODELS = {
    "unbuilt": compiled(unbuilt_sequential),
    "subclassed": compiled(Subclassed),
    "several_updates": compiled(SeveralUpdates),
    "ema": compiled(Subclassed, ema),
    "scheduled": compiled(Subclassed, scheduled),
    "loss_scaled": lambda: make_model(loss_scaled(keras.optimizers.Adam(0.01))),
    "eager": compiled(Subclassed, run_eagerly=True),
}
if FLAVOUR != "torch":
    MODELS["jit"] = compiled(Subclassed, jit_compile=True)
if not IS_TF_KERAS:
    MODELS["accumulating"] = compiled(
        Subclassed, lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=4)
    )


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_c20_models(tmp_path, make):
    def train(directory, *more):
        begin()
        model = make()
        every = 1 if make is MODELS.get("accumulating") else 4
        callbacks = [backup(directory, every), *more]
        x, y = arrays(BATCHES)
        fit(model, callbacks, epochs=2, x=x, y=y, batch_size=BATCH, shuffle=True)
        return model

    whole = train(tmp_path / "whole")
    dies(train, tmp_path / "killed", Killer(1 if make is MODELS.get("accumulating") else 7))
    assert_same(whole, train(tmp_path / "killed"))


# ---------------------------------------------------------------- arguments of fit


def endless():
    x, y = arrays(7)

    def generate():
        while True:
            for at in range(0, len(x), BATCH):
                yield x[at : at + BATCH], y[at : at + BATCH]

    return {"x": generate(), "steps_per_epoch": 10}


def repeated():
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(arrays(7)).shuffle(56, seed=4).repeat().batch(BATCH)
    return {"x": data, "steps_per_epoch": 10}


def of_arrays(**args):
    x, y = arrays(BATCHES)
    return {"x": x, "y": y, "batch_size": BATCH, **args}


ARGS = {
    "sample_weight": lambda: of_arrays(sample_weight=np.linspace(0, 1, 80)),
    "validation_split": lambda: of_arrays(validation_split=0.2),
    "initial_epoch": lambda: of_arrays(initial_epoch=1),
    "endless": endless,
    "validation_freq": lambda: of_arrays(validation_data=arrays(2), validation_freq=2),
    "fewer_steps": lambda: of_arrays(steps_per_epoch=7),
}
if HAS_TENSORFLOW:
    ARGS["repeated"] = repeated


@pytest.mark.parametrize("data", ARGS.values(), ids=ARGS)
def test_arguments_of_fit(tmp_path, data):
    def train(directory, *more):
        begin()
        model = make_model(keras.optimizers.Adam(0.01))
        history = fit(model, [backup(directory), *more], epochs=3, **data())
        return model, history.history

    whole = train(tmp_path / "whole")
    dies(train, tmp_path / "killed", Killer(13))
    again = train(tmp_path / "killed")
    assert_same(whole[0], again[0])
    assert whole[1] == again[1]


def test_class_weight(tmp_path):
    def train(directory, *more):
        begin()
        model = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(2, activation="softmax")]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        x = arrays(BATCHES)[0]
        y = (x[:, 0] > 0).astype("int32")
        fit(model, [backup(directory), *more], epochs=2, x=x, y=y, batch_size=BATCH,
            class_weight={0: 1.0, 1: 3.0})  # fmt: skip
        return model

    whole = train(tmp_path / "whole")
    dies(train, tmp_path / "killed", Killer(13))
    assert_same(whole, train(tmp_path / "killed"))


# ---------------------------------------------------------------- Keras's callbacks


def shrinking():
    return keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)


def early_stopping():
    return keras.callbacks.EarlyStopping(
        "val_loss", patience=1, min_delta=0.5, restore_best_weights=True
    )


def plateau():
    return keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=0.5, factor=0.5)


NEIGHBOURS = {"scheduler": shrinking, "early": early_stopping, "plateau": plateau}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("neighbour", "killed_at", "every"),
    [("scheduler", 4, 5), ("scheduler", 13, 5), ("scheduler", 16, 10), ("early", 16, 12),
     ("plateau", 24, 5)],
)  # fmt: skip
def test_callbacks_of_keras(tmp_path, neighbour, is_first, killed_at, every):
    make = NEIGHBOURS[neighbour]

    def train(directory, *more):
        begin()
        model = make_model(keras.optimizers.Adam(0.01))
        ours = [backup(directory, every), *more]
        callbacks = [make(), *ours] if is_first else [*ours, make()]
        history = fit(model, callbacks, epochs=4, validation_data=arrays(2, seed=5))
        return model, history.history

    whole = train(tmp_path / "whole")
    dies(train, tmp_path / "killed", Killer(killed_at))
    again = train(tmp_path / "killed")
    assert_same(whole[0], again[0])
    assert whole[1] == again[1]
    once_more = train(tmp_path / "killed")
    assert_same(whole[0], once_more[0])


def test_step_early_stopping_that_ended_a_run(tmp_path):
    def train(patience):
        begin()
        model = make_model(keras.optimizers.SGD(1e-9))
        callbacks = [
            backup(tmp_path),
            ks.StepEarlyStopping("val_loss", patience=patience, min_delta=1.0),
        ]
        fit(model, callbacks, epochs=8, validation_data=arrays(2, seed=5))
        return ks.global_step(model), ks.stop_reason(model)

    assert train(2) == (30, "early")
    assert train(2) == (30, "early")
    assert train(4) == (50, "early")
    assert train(4) == (50, "early")


# ---------------------------------------------------------------- several fits


def two_fits(directories, *more, killed_in=None, recompiles=False):
    begin()
    model = make_model(keras.optimizers.Adam(0.01))
    for number, directory in enumerate(directories):
        if number and recompiles:
            model.compile(keras.optimizers.SGD(0.001), "mse")
        killers = more if number == killed_in else ()
        x, y = arrays(BATCHES, seed=number)
        rate = ks.StepScheduledLR(lambda step: 0.02 / (step + 1))
        rate = [] if recompiles else [rate]
        fit(
            model,
            [backup(directory), *rate, *killers],
            epochs=2,
            x=x,
            y=y,
            batch_size=BATCH,
            shuffle=True,
        )
    return model


@pytest.mark.parametrize(
    ("names", "recompiles", "number", "at"),
    [("aa", False, 1, 33), ("ab", False, 1, 21), ("aa", True, 1, 13), ("ab", True, 0, 13)],
)
def test_two_fits(tmp_path, names, recompiles, number, at):
    whole = two_fits([tmp_path / f"whole {n}" for n in names], recompiles=recompiles)
    directories = [tmp_path / n for n in names]
    dies(two_fits, directories, Killer(at), killed_in=number, recompiles=recompiles)
    assert_same(whole, two_fits(directories, recompiles=recompiles))


def test_a_cell_that_is_interrupted_again_and_again(tmp_path):
    """The same model and callbacks, in one process; the rate is what a schedule made of it."""
    begin()
    model = make_model(keras.optimizers.Adam(0.01))
    rate = ks.StepScheduledLR(lambda step: 0.02 / (step + 1))
    callbacks = [backup(tmp_path, 3), rate]
    for at in (13, 17):
        dies(fit, model, [*callbacks, Killer(at)], epochs=3)
    fit(model, callbacks, epochs=3, validation_data=arrays(2))
    assert ks.global_step(model) == 30
    fit(model, callbacks, epochs=3)  # a new fit
    assert ks.global_step(model) == 60


# ---------------------------------------------------------------- changes


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("model", ("shape (4, 3)", "shape (4, 5)")),
        ("optimizer", ("Adam", "SGD")),
        ("rate", ("was 0.0", "0.5")),
        ("size", ("10 batches", "7")),
    ],
)
def test_a_changed_script(tmp_path, change, names):
    def train(change=None, on_change="raise"):
        begin()
        units = 5 if change == "model" else 3
        model = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)]
        )
        rate = 0.5 if change == "rate" else 0.01
        kind = keras.optimizers.SGD if change == "optimizer" else keras.optimizers.Adam
        model.compile(kind(rate), "mse")
        batches = 7 if change == "size" else BATCHES
        fit(model, [backup(tmp_path, on_change=on_change)], batches=batches, epochs=2)
        return model

    begin()
    train()
    with pytest.raises(ValueError, match="on_change='warn'") as refused:
        train(change)
    assert all(name in str(refused.value) for name in names), refused.value
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = train(change, "warn")
    assert any("goes on with what fits" in str(one.message) for one in caught)
    assert ks.global_step(model) == 20


def test_an_initial_epoch_beyond_the_backup_is_refused(tmp_path):
    begin()
    dies(fit, make_model(), [backup(tmp_path), Killer(13)], epochs=4)
    with pytest.raises(ValueError, match="goes on in epoch 1, .*initial_epoch=3"):
        fit(make_model(), [backup(tmp_path)], epochs=4, initial_epoch=3)


@pytest.mark.filterwarnings("ignore:There is no backup of step")
def test_after_a_rollback_it_goes_on_as_the_run_that_was_not_killed(tmp_path):
    x, y = arrays(BATCHES)
    x[6 * BATCH] = np.nan

    def train(directory, *more):
        begin()
        model = make_model(keras.optimizers.Adam(0.01))
        guard = ks.StopOnNaN(3, action="rollback")
        data = {"x": x, "y": y, "batch_size": BATCH, "shuffle": True}
        fit(model, [backup(directory), guard, *more], epochs=2, **data)
        return model

    whole = train(tmp_path / "whole")
    dies(train, tmp_path / "killed", Killer(10))
    assert_same(whole, train(tmp_path / "killed"))


def test_keras_s_own_backup_beside_ours_is_refused(tmp_path):
    theirs = keras.callbacks.BackupAndRestore(str(tmp_path / "theirs"))
    with pytest.raises(ValueError, match="Take BackupAndRestore out"):
        fit(make_model(), [backup(tmp_path / "ours"), theirs])


@pytest.mark.skipif(not IS_TF_KERAS, reason="Keras 3 can save its generators")
def test_tf_keras_without_generators_is_warned_of(tmp_path):
    begin()
    keras.backend.experimental.disable_tf_random_generator()
    model = compiled(unbuilt_sequential)()
    with pytest.warns(UserWarning, match="Nobody can save the random state of dropout"):
        fit(model, [backup(tmp_path)])


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_epoch_begin"])
def test_a_signal_between_two_epochs(tmp_path, hook):
    class Sends(keras.callbacks.Callback):
        def get_state(self):
            return {}

        def set_state(self, state):
            pass

    def send(self, epoch, logs=None):
        if epoch == (0 if hook == "on_epoch_end" else 1):
            os.kill(os.getpid(), signal.SIGTERM)

    setattr(Sends, hook, send)
    begin()
    model = make_model()
    ours = ks.StepBackupAndRestore(tmp_path, 1000)
    callbacks = [ours, Sends()] if hook == "on_epoch_end" else [Sends(), ours]
    fit(model, callbacks, epochs=4)
    assert (ks.global_step(model), ks.stop_reason(model)) == (10, "signal")


# ---------------------------------------------------------------- several optimizers


class Pair(keras.Model):
    """Two networks with an optimizer each, as a GAN has, and no call of its own."""

    def __init__(self):
        super().__init__()
        self.one = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        self.two = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])

    def compile(self, one_optimizer, two_optimizer):
        super().compile(loss="mse")
        self.one_optimizer, self.two_optimizer = one_optimizer, two_optimizer

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        for network, optimizer in (
            (self.one, self.one_optimizer),
            (self.two, self.two_optimizer),
        ):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((y - network(x)) ** 2)
            variables = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


@pytest.mark.skipif(not ON_TENSORFLOW, reason="its training step is TensorFlow's")
def test_two_optimizers(tmp_path):
    def train(directory, *more, rate=0.02):
        begin()
        model = Pair()
        model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(rate))
        callbacks = [backup(directory, optimizer="one_optimizer"), *more]
        fit(model, callbacks, epochs=2)
        networks = (model.one, model.two)
        weights = [array for network in networks for array in network.get_weights()]
        return weights, ks.global_step(model.one_optimizer)

    whole, _ = train(tmp_path / "whole")
    killer = ks.OnStep(ks.AtSteps(13), raise_dies, optimizer="one_optimizer")
    dies(train, tmp_path / "killed", killer)
    with pytest.raises(ValueError, match=r"two_optimizer: learning_rate was 0.0.*0.5"):
        train(tmp_path / "killed", rate=0.5)
    again, step = train(tmp_path / "killed")
    assert step == 20
    for array, array_2 in zip(whole, again, strict=True):
        np.testing.assert_array_equal(array, array_2)


def raise_dies(step, logs):
    raise Dies
