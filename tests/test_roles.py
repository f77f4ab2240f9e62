"""What a callback of one's own happens to have makes it nothing to a run, and stays its own."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from flavours import fit, make_model, state_of
from loops import loop

import keras_steps as ks


class Averaging(ks.StepCallback):
    """With names that callbacks of this library have as well, and other things behind them."""

    place = "here"
    companions = ("weights", "biases")
    signals = ["buy", "sell"]
    acts_before_updates = True

    def __init__(self, every):
        super().__init__(every)
        self.last_step = "0/0"
        self.state = {"weights": []}
        self.value = self.seconds = self.due_step = self.label = self.window = "mine"
        self.run = self.clock = self.watch = self.progress = self.data = self.writer = object()
        self.schedule, self.horizon, self.monitor, self.directory = np.cos, 1, "f1", "runs"
        self.timeline, self.action, self.owner, self.epoch = "line", print, self, "first"
        self.steps = []

    def on_step(self, step, logs):
        self.steps.append(step)
        self.apply()

    def apply(self):
        """Each name still has what it was given."""
        assert (self.last_step, self.value, self.due_step) == ("0/0", "mine", "mine")
        assert self.companions == ("weights", "biases") and self.signals == ["buy", "sell"]

    def restore(self):
        raise AssertionError("called by nobody but its user")

    suspend = finish = keep_moment = save = setter = write = flush = close = restore


def others(path: Path):
    """Callbacks that look for each of these roles among the rest, but for backups."""
    return [
        ks.StepScheduledLR(ks.schedules.cosine(0.1, 20)),
        ks.StopAtStep(12),
        ks.StopOnNaN(4, action="rollback"),
        ks.StepCSVLogger(path / "log.csv", 4),
        ks.StepCheckpoint(path / "checkpoints", 6, save_weights_only=True),
    ]


@pytest.mark.parametrize("train", [fit, loop])
def test_a_callbacks_own_names_mean_nothing_to_a_run(train, tmp_path):
    bare, model = make_model(), make_model()
    train(bare, others(tmp_path / "bare"), epochs=2)
    own = Averaging(5)
    train(model, [own, *others(tmp_path / "own")], epochs=2)
    assert own.steps == [5, 10]
    for one, other in zip(state_of(model), state_of(bare), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("train", [fit, loop])
def test_nor_do_they_to_a_backup(train, tmp_path):
    for last_step, steps in ((7, [5]), (12, [10])):
        own = Averaging(5)
        stop = [ks.StepBackupAndRestore(tmp_path, 3), ks.StopAtStep(last_step)]
        train(make_model(), [own, *stop], epochs=2)
        assert own.steps == steps


class Private(ks.StepCallback):
    """With names that callbacks of this library keep to themselves."""

    names = [
        "_bar",
        "_best_weights",
        "_contents",
        "_good",
        "_has_warned",
        "_place",
        "_points",
        "_position",
        "_prepared",
        "_resumption",
        "_run",
        "_session",
        "_set",
        "_signals",
        "_state",
        "_trace",
        "_values",
        "_waits",
        "_writer",
        "_written",
    ]

    def __init__(self, every):
        super().__init__(every)
        vars(self).update({name: [name] for name in self.names})
        self.steps = []

    def on_step(self, step, logs):
        self.steps.append(step)
        assert all(vars(self)[name] == [name] for name in self.names)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy])
def test_c40_a_copy_has_all_that_is_its_users_own(copied):
    own = copied(Private(5))
    fit(make_model(), [own, ks.StopAtStep(10)])
    assert own.steps == [5, 10]


def test_the_names_that_are_taken_are_told():
    keras_callback = ks.StepCallback.__base__
    taken = {*vars(ks.StepCallback), *vars(ks.StepCallback(5, optimizer="o"))}
    taken -= {*dir(keras_callback), *vars(keras_callback())}
    to_override = {"on_step", "on_evaluation", "get_state", "set_state"}
    to_override |= {"at_start", "at_end", "uses_model"}
    of_keras = {name for name in taken if name.startswith(("__", "_implements", "_supports"))}
    told = set(re.findall(r"`(\w+)`", ks.StepCallback.__doc__))
    assert taken - to_override - of_keras - {"_abc_impl"} <= told
