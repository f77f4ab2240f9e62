"""A loop that is broken off and started again goes on as if nothing had happened."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flavours import FLAVOUR, ON_TENSORFLOW, arrays, keras, make_model, state_of
from loops import batches_of, by_train_on_batch

import keras_steps as ks
from keras_steps.testing import Recorder

EPOCHS, BATCHES = 3, 7


class Killed(Exception):
    pass


def in_lists():
    return [batches_of(*arrays(BATCHES))] * EPOCHS


def from_one_generator():
    def endless():
        while True:
            yield from batches_of(*arrays(BATCHES, seed=3))

    numbers = endless()
    return [(next(numbers) for _ in range(BATCHES)) for _ in range(EPOCHS)]


def from_one_iterator_over_all():
    everything = iter(batches_of(*arrays(BATCHES * EPOCHS)))
    return [_Part(everything) for _ in range(EPOCHS)]


class _Part:
    """Some batches of an iterator, as an iterator."""

    def __init__(self, source):
        self.source, self.left = source, BATCHES

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return next(self.source)


def shuffled():
    """Data of the backend that come in another order in each epoch."""
    x, y = arrays(BATCHES)
    if FLAVOUR == "torch":
        import torch

        pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        loader = torch.utils.data.DataLoader(pairs, batch_size=8, shuffle=True)
        return [loader] * EPOCHS
    if ON_TENSORFLOW:
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(56, seed=1).batch(8)
        return [data] * EPOCHS
    return [Shuffled(x, y)] * EPOCHS


class Shuffled:
    """Draws its order from NumPy's random state."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        order = np.random.permutation(len(self.x))
        return iter(batches_of(self.x[order], self.y[order]))


def shuffled_by_a_generator():
    """Torch's samplers draw from it, once more at the end of each epoch."""
    import torch

    (loader, *_) = shuffled()
    order = torch.Generator().manual_seed(3)
    loader = torch.utils.data.DataLoader(loader.dataset, 8, shuffle=True, generator=order)
    return [loader] * EPOCHS


DATA = {
    "lists": in_lists,
    "generators": from_one_generator,
    "parts of one iterator": from_one_iterator_over_all,
    "shuffled": shuffled,
}


def a_model():
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(6), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def script(
    directory, make_data, *, killed_at=None, callbacks=(), every=4, epochs=EPOCHS, left_every=None
):
    """A training script, from its first line; returns the model and what was seen of it."""
    model = a_model()
    step, recorder = by_train_on_batch(model), Recorder(3)
    backup = ks.StepBackupAndRestore(directory, every, on_signal=("SIGUSR1",))
    try:
        with ks.StepLoop([recorder, backup, *callbacks], model=model) as the_loop:
            for data in make_data()[:epochs]:
                for x, y in the_loop.over(data):
                    the_loop.log(loss=step(np.asarray(x), np.asarray(y))[0])
                    if ks.global_step(model) == killed_at:
                        raise Killed
                    if left_every and ks.global_step(model) % left_every == 0:
                        break
    except Killed:
        pass
    return model, recorder, the_loop


def reports(recorder):
    return {
        step: (logs["loss"], logs["epoch"])
        for step, logs in zip(recorder.steps, recorder.logs, strict=True)
    }


if FLAVOUR == "torch":
    DATA["shuffled by a generator"] = shuffled_by_a_generator
SLOW = ("lists", "generators")
KINDS = [
    pytest.param(make, id=name, marks=pytest.mark.slow if name in SLOW else ())
    for name, make in DATA.items()
]


@pytest.mark.parametrize("make_data", KINDS)
def test_goes_on_where_a_break_has_left_earlier_epochs(make_data, tmp_path):
    whole, *_ = script(tmp_path / "whole", make_data, left_every=3)
    assert ks.global_step(whole) == 9
    for killed_at in (5, 8, None):
        model, *_ = script(tmp_path / "backup", make_data, killed_at=killed_at, left_every=3)
    assert ks.global_step(model) == 9
    np.testing.assert_equal(state_of(model), state_of(whole))


@pytest.mark.parametrize("stopped_by", ["a kill", "its target"])
def test_a_step_that_is_saved_and_left_by_a_break_is_its_epochs_last(tmp_path, stopped_by):
    whole, *_ = script(tmp_path / "whole", in_lists, every=3, left_every=3)
    if stopped_by == "a kill":
        script(tmp_path / "parts", in_lists, every=3, left_every=3, killed_at=4)
    else:
        target = [ks.StopAtStep(3)]
        script(tmp_path / "parts", in_lists, every=100, left_every=3, callbacks=target)
    model, *_ = script(tmp_path / "parts", in_lists, every=3, left_every=3)
    assert (ks.global_step(model), ks.global_step(whole)) == (9, 9)
    np.testing.assert_equal(state_of(model), state_of(whole))


@pytest.mark.parametrize("make_data", KINDS)
def test_goes_on_with_the_next_batch(make_data, tmp_path, capsys):
    whole, of_whole, _ = script(tmp_path / "whole", make_data)
    seen = {}
    for killed_at in (2, 6, 14, 17, None):  # before the first backup, within, at an epoch's end
        model, recorder, _ = script(tmp_path / "backup", make_data, killed_at=killed_at)
        seen |= reports(recorder)
    assert ks.global_step(model) == EPOCHS * BATCHES
    np.testing.assert_equal(state_of(model), state_of(whole))
    assert seen == reports(of_whole)
    assert list(seen) == [3, 6, 9, 12, 15, 18, 21]
    assert "going on from step 16" in capsys.readouterr().out


def kill_at(step, directory):
    """For a process of its own: trains, and is killed with the iteration that makes the step."""
    kill = ks.OnStep(ks.AtSteps(step), lambda step, logs: os.kill(os.getpid(), signal.SIGKILL))
    script(directory, shuffled, callbacks=[kill])


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on_in_another(tmp_path):
    code = f"import test_loop_backups; test_loop_backups.kill_at(10, {str(tmp_path / 'backup')!r})"
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    whole, of_whole, _ = script(tmp_path / "whole", shuffled)
    model, recorder, _ = script(tmp_path / "backup", shuffled)
    assert recorder.steps in ([6, 9, 12, 15, 18, 21], [9, 12, 15, 18, 21])  # 8 may be half written
    np.testing.assert_equal(state_of(model), state_of(whole))
    assert reports(recorder).items() <= reports(of_whole).items()


def test_one_that_is_done_makes_no_step_and_a_larger_target_goes_on(tmp_path, capsys):
    first, *_ = script(tmp_path, in_lists, callbacks=[ks.StopAtStep(10)])
    again, recorder, _ = script(tmp_path, in_lists, callbacks=[ks.StopAtStep(10)])
    assert "already at step 10" in capsys.readouterr().out
    assert recorder.steps == []
    np.testing.assert_equal(state_of(again), state_of(first))
    further, recorder, _ = script(tmp_path, in_lists, callbacks=[ks.StopAtStep(12)])
    _, of_whole, _ = script(tmp_path / "whole", in_lists)
    assert reports(recorder) == {12: reports(of_whole)[12]}


def test_epochs_that_are_over_are_empty_and_more_of_them_go_on(tmp_path):
    script(tmp_path, in_lists, epochs=2)
    model, recorder, _ = script(tmp_path, in_lists, epochs=2)
    assert (ks.global_step(model), recorder.steps) == (14, [])
    model, recorder, _ = script(tmp_path, in_lists, epochs=3)
    assert (ks.global_step(model), recorder.steps) == (21, [15, 18, 21])


def test_a_signal_ends_it_after_the_iteration_and_it_goes_on_another_time(tmp_path):
    def send(step, logs):
        os.kill(os.getpid(), signal.SIGUSR1)

    model, _, the_loop = script(tmp_path, in_lists, callbacks=[ks.OnStep(ks.AtSteps(9), send)])
    assert the_loop.stop_reason == ks.stop_reason(model) == "signal"
    assert ks.global_step(model) == 9
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    model, recorder, the_loop = script(tmp_path, in_lists)
    assert recorder.steps == [12, 15, 18, 21]
    assert the_loop.stop_reason is None


@pytest.mark.parametrize("make_data", [from_one_generator, from_one_iterator_over_all])
def test_data_of_an_epoch_that_is_done_which_have_become_fewer_are_named(make_data, tmp_path):
    def shorter():
        return [itertools.islice(make_data()[0], 2), *make_data()[1:]]

    script(tmp_path, make_data, killed_at=9)
    with pytest.raises(ValueError, match="data of epoch 0 have only 2 batches, and had 7 when"):
        script(tmp_path, shorter)


@pytest.mark.parametrize("counts", [lambda: 0, "torch"])
def test_what_a_callback_follows_it_has_to_restore_too(counts, tmp_path):
    """Also where the loop itself counts by a Keras optimizer."""
    if counts == "torch":
        if FLAVOUR != "torch":
            pytest.skip("of torch")
        import torch

        counts = torch.optim.SGD([torch.zeros(1)])
    backup = ks.StepBackupAndRestore(tmp_path)
    model, other = make_model(), keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match="(<lambda>|SGD) counts the steps of this loop"):
        ks.StepLoop([backup, Recorder(1, optimizer=lambda model: counts)], model=model)
    callbacks = [backup, Recorder(1, optimizer=lambda model: other)]
    with pytest.raises(ValueError, match=r"one that counts steps is none: model\.optimizer = "):
        ks.StepLoop(callbacks, model=model)
    model.d_optimizer = other
    ks.StepLoop(callbacks, model=model)


@pytest.mark.parametrize(
    ("loop_args", "text"),
    [
        (lambda: {}, "and the loop has no model"),
        (lambda: {"model": make_model(), "optimizer": lambda: 0}, "counts the steps of this loop"),
        (
            lambda: {"model": make_model(), "optimizer": keras.optimizers.SGD(0.1)},
            "model.optimizer = optimizer makes it one",
        ),
    ],
)
def test_what_it_can_not_restore_is_refused(loop_args, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        ks.StepLoop([ks.StepBackupAndRestore(tmp_path)], **loop_args())
