"""A fit that is resumed reads the batches, in the order, that the killed one had left."""

import importlib.util
import random

import numpy as np
import pytest
from flavours import FLAVOUR, IS_TF_KERAS, ON_TENSORFLOW, keras, mirrored_strategy, no_scope

from keras_steps.keras_internals import Position, calls_around, start_at_epoch, training_data_of
from keras_steps.keras_internals.skipping import Skipping

ROWS, ROWS_A_BATCH, BATCHES = 10, 2, 5
X = np.arange(ROWS, dtype="float32").reshape(-1, 1)

HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

with_tf_data = pytest.mark.skipif(not HAS_TENSORFLOW, reason="needs TensorFlow")
on_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow only")
keras_3 = not IS_TF_KERAS
on_torch = pytest.mark.skipif(FLAVOUR != "torch", reason="torch only")


def random_states():
    kind, keys, *rest = np.random.get_state()
    states = [random.getstate(), (kind, keys.tolist(), *rest)]
    if FLAVOUR == "torch":
        import torch

        states.append(torch.get_rng_state().tolist())
    return states


def set_random_states(states):
    random.setstate(states[0])
    np.random.set_state(states[1])
    if FLAVOUR == "torch":
        import torch

        torch.set_rng_state(torch.tensor(states[2], dtype=torch.uint8))


def draw_random_numbers():
    random.random()
    np.random.random(3)
    if FLAVOUR == "torch":
        import torch

        torch.rand(2)


class Reads(keras.callbacks.Callback):
    """Reads batches where fit would train on them, and draws random numbers as training may.

    Its `orders` holds the rows of each batch, a list an epoch. At each of the `places`, an epoch
    and a number of its batches, it keeps in `backups` what a fit resumed there needs: the `backup`.
    """

    def __init__(self, places=(), backup=None, draws=True):
        super().__init__()
        self.draws = draws
        self.places, self.backup, self.backups = places, backup, {}
        self.orders, self.numbers, self.unread = [], [], 0
        self.passes = self.lead_in = self.batches = 0
        self.states = {}

    def on_train_begin(self, logs=None):
        call = next(calls_around())
        self.data = training_data_of(self.model, call)
        self.model.train_function = self.read
        self.model.get_metrics_result = dict
        self.took_up = self.is_first = self.backup is not None
        if not self.took_up:
            return
        backup = self.backup
        start_at_epoch(self.model, call, backup["epoch"])
        states = backup["states"]
        begins = backup["lead_in"] + backup["batches"] == 0
        self.data.resume(
            Position(*(backup[name] for name in Position._fields)),
            at_pass=lambda: set_random_states(states["step" if begins else "pass"]),
            at_step=lambda last: set_random_states(states["step"]),
            on_read=lambda done: self.count(),
        )

    def count(self):
        self.unread += 1

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if self.took_up:
            self.took_up = False
        elif not self.orders or self.data.begins_pass:
            self.passes += bool(self.orders)
            self.lead_in = 0
            self.states["pass"] = random_states()
        else:
            self.lead_in += self.batches
        self.batches = 0
        self.orders.append([])

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1, 0) in self.places:
            ends = self.data.begins_pass
            self.keep(
                epoch + 1,
                0,
                self.passes + 1 if ends else self.passes,
                0 if ends else self.lead_in + self.batches,
            )

    def on_train_batch_begin(self, batch, logs=None):
        self.number = batch

    def read(self, *args):
        source = args[-1]
        spe = (
            self.model._steps_per_execution.numpy()
            if IS_TF_KERAS
            else self.model.steps_per_execution
        )
        if FLAVOUR == "torch":
            source = iter(source)
        has_read = False
        for _ in range(spe):
            batch = next(source, None)
            if batch is None:
                break
            has_read = True
            self.orders[-1].append(rows_of(batch))
            self.batches += 1
        if not has_read:
            if not self.is_first:
                raise StopIteration
            self.is_first = False
            self.data.found_end()
            return ({}, args[0]) if FLAVOUR == "jax" else {}
        self.is_first = False
        self.numbers.append((self.epoch, self.number))
        if self.draws:
            draw_random_numbers()
        if (self.epoch, self.batches) in self.places:
            self.keep(self.epoch, self.batches, self.passes, self.lead_in)
        return ({}, args[0]) if FLAVOUR == "jax" else {}

    def on_train_end(self, logs=None):
        self.end_states = random_states()

    def keep(self, epoch, batches, passes, lead_in):
        states = {**self.states, "step": random_states()}
        place = {"epoch": epoch, "batches": batches, "passes": passes, "lead_in": lead_in}
        self.backups[epoch, batches] = {**place, "states": states}


def rows_of(batch):
    first = batch[0]
    if hasattr(first, "values") and isinstance(first.values, tuple):
        return [int(row) for part in first.values for row in np.asarray(part).ravel()]
    return [int(row) for row in np.asarray(first).ravel()]


def read(make_data, callback, *, epochs=4, spe=1, scope=no_scope, is_built=False, **fit_args):
    """What a new process does that runs the script: seeds, model, data, fit."""
    keras.utils.set_random_seed(0)
    with scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=spe)
    if is_built:  # else fit of JAX and torch reads a batch before it begins
        model.train_on_batch(X[:1], X[:1])
    model.fit(**make_data(), epochs=epochs, verbose=0, callbacks=[callback], **fit_args)
    return callback


PLACES = [(0, 2), (1, 0), (2, 1), (3, 4)]
OF_3_STEPS = [(0, 2), (1, 0), (2, 1), (3, 2)]


def assert_resumed(make_data, places=PLACES, *, draws=True, **fit_args):
    """Fits resumed at an epoch and a batch of it read what the whole one has left to read there.

    Returns the whole one, and those by the place.
    """
    whole = read(make_data, Reads(places, draws=draws), **fit_args)
    assert list(whole.backups) == places
    resumed = {}
    for place, backup in whole.backups.items():
        epoch, batches = place
        one = read(make_data, Reads(backup=backup, draws=draws), **fit_args)
        assert one.orders == [whole.orders[epoch][batches:], *whole.orders[epoch + 1 :]], place
        assert one.numbers == [number for number in whole.numbers if number >= place], place
        assert random_states() == whole.end_states, place
        resumed[place] = one
    return whole, resumed


def arrays(**args):
    return lambda: {"x": X, "y": X, "batch_size": ROWS_A_BATCH, **args}


def draws_beside(shuffle):
    """Keras on JAX shuffles a batch ahead of the one it trains on, except by 3.15 on a CPU.

    Training that draws from NumPy's state as well then can't be resumed to the bit.
    """
    return FLAVOUR != "jax" or shuffle != "batch"


@pytest.mark.parametrize("shuffle", [False, True, "batch"], ids=str)
def test_arrays(shuffle):
    whole, _ = assert_resumed(arrays(shuffle=shuffle), draws=draws_beside(shuffle))
    in_order = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert (whole.orders == [in_order] * 4) is (shuffle is False)


@pytest.mark.parametrize("shuffle", [False, True, "batch"], ids=str)
@pytest.mark.parametrize(
    ("steps", "epochs", "places"), [(3, 3, [(0, 2), (1, 0), (2, 1), (2, 2)]), (5, 4, PLACES)]
)
def test_arrays_with_steps_per_epoch(steps, epochs, places, shuffle):
    """Passes span epochs in Keras 3, and end in the middle of one."""
    args = {"steps_per_epoch": steps, "epochs": epochs, "draws": draws_beside(shuffle)}
    assert_resumed(arrays(shuffle=shuffle), places, **args)


@pytest.mark.skipif(FLAVOUR == "torch", reason="torch has one batch an execution")
@pytest.mark.parametrize("shuffle", [False, True], ids=str)
def test_executions_of_several_batches(shuffle):
    assert_resumed(arrays(shuffle=shuffle), [(0, 2), (1, 0), (2, 4), (3, 4)], spe=2)


# ---------------------------------------------------------------- tf.data


def dataset(*, seed=3, endless=False, unknown=False):
    def make():
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((X, X)).shuffle(ROWS, seed=seed)
        data = data.batch(ROWS_A_BATCH)
        if unknown:
            data = data.filter(lambda x, y: True)
        return {"x": data.repeat() if endless else data}

    return make


@with_tf_data
@pytest.mark.parametrize("seed", [3, None])
def test_a_finite_dataset_that_is_shuffled_anew_each_epoch(seed):
    whole, _ = assert_resumed(dataset(seed=seed))
    assert len({str(order) for order in whole.orders}) == 4


@with_tf_data
@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_a_dataset_of_unknown_size():
    """A backup after the last batch does not know that it is; the epoch then ends empty."""
    places = sorted([*PLACES, (0, 5), (1, 5)])
    whole, _ = assert_resumed(dataset(unknown=True), places)
    assert len({str(order) for order in whole.orders}) == 4


@with_tf_data
def test_an_endless_dataset():
    _, resumed = assert_resumed(dataset(endless=True), OF_3_STEPS, steps_per_epoch=3)
    assert [one.unread for one in resumed.values()] == [2, 3, 7, 11]


# ---------------------------------------------------------------- PyDataset, Sequence


class Indexed(keras.utils.Sequence):
    """Batches by index, in an order that it may shuffle itself after each epoch."""

    def __init__(self, shuffles=False, **args):
        if not IS_TF_KERAS:
            super().__init__(**args)
        self.order = np.arange(ROWS)
        self.random = {False: None, True: np.random.RandomState(5), "global": np.random}[shuffles]
        self.taken = []

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        self.taken.append(index)
        rows = X[self.order[index * ROWS_A_BATCH :][:ROWS_A_BATCH]]
        return rows, rows

    def on_epoch_end(self):
        if self.random is not None:
            self.random.shuffle(self.order)


# With two workers, an epoch of tf_keras may wait 5 s for its threads.
TWO_WORKERS = [] if IS_TF_KERAS else [(2, [(2, 1)])]
with_workers = pytest.mark.parametrize(
    ("workers", "places"), [(1, PLACES), *TWO_WORKERS], ids=["one worker", "two"][: 1 + keras_3]
)


def indexed(workers=1, **args):
    of_fit = {"workers": workers} if IS_TF_KERAS else {}
    of_data = {} if IS_TF_KERAS else {"workers": workers}
    return lambda: {"x": Indexed(**args, **of_data), **of_fit}


@with_workers
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_indexed_dataset_that_keras_shuffles(shuffle, workers, places):
    assert_resumed(indexed(workers), places, shuffle=shuffle, is_built=True)


@with_workers
def test_an_indexed_dataset_that_shuffles_itself_after_each_epoch(workers, places):
    make = indexed(workers, shuffles=True)
    whole, _ = assert_resumed(make, places, shuffle=False, is_built=True)
    assert len({str(order) for order in whole.orders}) == 4


def test_an_indexed_dataset_that_shuffles_itself_with_numpys_global_state():
    """It comes out right as long as nothing else in the fit draws from that state."""
    make = indexed(shuffles="global")
    whole, _ = assert_resumed(make, shuffle=False, draws=False)
    assert len({str(order) for order in whole.orders}) == 4


@pytest.mark.skipif(FLAVOUR != "torch", reason="others may read ahead of a hook that shuffles")
def test_an_indexed_dataset_whose_passes_span_epochs():
    assert_resumed(indexed(shuffles=True), OF_3_STEPS, shuffle=False, steps_per_epoch=3)


# ---------------------------------------------------------------- generators


def seeded_generator():
    order = np.random.RandomState(7)
    while True:
        rows = X[order.randint(ROWS, size=ROWS_A_BATCH)]
        yield rows, rows


def test_a_generator_that_is_seeded_by_the_script():
    assert_resumed(lambda: {"x": seeded_generator()}, OF_3_STEPS, steps_per_epoch=3)


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_a_finite_generator_that_has_given_its_last_batch():
    def make():
        rows = ((X[n : n + ROWS_A_BATCH],) * 2 for n in range(0, ROWS, ROWS_A_BATCH))
        return {"x": rows}

    _, resumed = assert_resumed(make, [(0, 5)], epochs=1)
    assert resumed[0, 5].orders == [[]]


# ---------------------------------------------------------------- DataLoader


def loader(*, own_generator=False):
    def make():
        from torch import Generator, from_numpy
        from torch.utils.data import DataLoader, TensorDataset

        rows = from_numpy(X)
        generator = Generator().manual_seed(3) if own_generator else None
        data = TensorDataset(rows, rows)
        return {"x": DataLoader(data, ROWS_A_BATCH, shuffle=True, generator=generator)}

    return make


@on_torch
@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("fit_args", [{}, {"steps_per_epoch": 5}], ids=str)
def test_a_data_loader(fit_args, own_generator):
    whole, _ = assert_resumed(loader(own_generator=own_generator), **fit_args)
    assert len({str(order) for order in whole.orders}) == 4


# ---------------------------------------------------------------- seeking, errors

READ = {
    "arrays": (arrays(shuffle=True), {}, 1),
    "arrays in order": (arrays(shuffle=False), {}, 1),
    "arrays by the batch": (arrays(shuffle="batch"), {}, 1 if keras_3 else 2 * 5 + 4),
    "indexed": (indexed(), {"shuffle": True}, 1 if keras_3 else 4),
    "generator": (lambda: {"x": seeded_generator()}, {"steps_per_epoch": 5}, 2 * 5 + 4),
}
if ON_TENSORFLOW:
    READ["dataset"] = (dataset(), {}, 4)
if FLAVOUR == "torch":
    READ["loader"] = (loader(), {}, 1)


@pytest.mark.parametrize("name", READ)
def test_what_can_be_indexed_is_not_read_but_for_the_last_batch(name):
    """Fails where Keras or a backend has changed what seeking rests on."""
    make, fit_args, expected = READ[name]
    _, resumed = assert_resumed(make, [(2, 4)], **fit_args)
    assert resumed[2, 4].unread == expected


@pytest.mark.skipif(ON_TENSORFLOW, reason="TensorFlow looks at some batches, and reads ahead")
def test_an_indexed_dataset_is_asked_for_no_batch_that_was_sought():
    data = indexed(shuffles=True)()
    whole = read(lambda: data, Reads([(1, 3)]), shuffle=False, is_built=True)
    data["x"].taken.clear()
    read(lambda: data, Reads(backup=whole.backups[1, 3]), shuffle=False, is_built=True, epochs=2)
    assert data["x"].taken == [2, 3, 4]


@pytest.mark.parametrize("spe", [1] if FLAVOUR == "torch" else [1, 3])
@pytest.mark.parametrize("make", [lambda x: arrays()() | {"x": x, "y": x}], ids=["arrays"])
def test_data_that_have_become_shorter_are_refused(make, spe):
    place = (0, 4) if spe == 1 else (0, 3)
    whole = read(lambda: make(X), Reads([place]), epochs=1, spe=spe)
    backup = {**whole.backups[place], "batches": 4}
    with pytest.raises(ValueError, match=r"only 3 batches where the backup was made after 4: "):
        read(lambda: make(X[:6]), Reads(backup=backup), epochs=1, spe=spe)


@pytest.mark.skipif(not keras_3, reason="tf_keras reads a generator through tf.data from the start")
def test_a_generator_gives_its_batches_away_before_keras_converts_them(monkeypatch):
    sought_of = {}
    over = Skipping.over

    def noted(self, iterator, sought):
        sought_of[self.batches] = sought
        over(self, iterator, sought)

    monkeypatch.setattr(Skipping, "over", noted)
    assert_resumed(lambda: {"x": seeded_generator()}, [(2, 4)], steps_per_epoch=5)
    assert sought_of[14] == 13


def test_a_generator_that_ends_before_is_refused():
    def make(batches):
        return {"x": ((X[n : n + 2], X[n : n + 2]) for n in range(batches))}

    whole = read(lambda: make(9), Reads([(1, 1)]), epochs=2, steps_per_epoch=3)
    with pytest.raises(ValueError, match=r"only 3 batches where the backup was made after 4: "):
        backup = whole.backups[1, 1]
        read(lambda: make(3), Reads(backup=backup), epochs=2, steps_per_epoch=3)


class OwnFit(keras.Sequential):
    def fit(self, callbacks):
        callbacks = keras.callbacks.CallbackList(callbacks, model=self)
        callbacks.on_train_begin()


def test_a_fit_of_the_models_own_is_refused():
    model = OwnFit([keras.layers.Dense(1)], name="mine")
    with pytest.raises(ValueError, match=r"needs Keras's own fit, .* 'mine' has neither"):
        model.fit([Reads()])


def test_begins_pass():
    """Asked at epochs' begins and ends: True where the next epoch takes a new iterator."""
    found = []

    class Asks(Reads):
        def on_epoch_begin(self, epoch, logs=None):
            found.append(self.data.begins_pass)
            super().on_epoch_begin(epoch, logs)

        def on_epoch_end(self, epoch, logs=None):
            found.append(self.data.begins_pass)

    read(arrays(), Asks(), epochs=2)
    assert found == [keras_3] * 4
    found.clear()
    read(arrays(), Asks(), steps_per_epoch=2, epochs=2)
    assert found == ([True, False, False, False] if keras_3 else [False] * 4)
    found.clear()
    read(arrays(), Asks(), steps_per_epoch=5, epochs=2)
    assert found == [keras_3] * 4
    found.clear()
    read(indexed(), Asks(), epochs=2)
    assert found == [True] * 4


@on_tensorflow
@pytest.mark.parametrize(
    ("make", "fit_args"),
    [
        (arrays(shuffle=True), {}),
        (dataset(), {}),
        (dataset(endless=True), {"steps_per_epoch": 5}),
    ],
    ids=["arrays", "dataset", "endless"],
)
def test_under_mirrored(make, fit_args):
    assert_resumed(make, scope=lambda: mirrored_strategy().scope(), **fit_args)
