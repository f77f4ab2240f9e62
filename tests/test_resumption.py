"""What a restored state puts back where the fit goes on."""

import random
from types import SimpleNamespace

import numpy as np

from keras_steps.random_states import random_states
from keras_steps.resumption import Resumption


def test_at_an_epochs_begin_the_random_states_are_those_of_the_backup():
    saved = {name: random_states() for name in ("pass", "step")}
    expected = np.random.rand(), random.random()
    state = {
        "position": [1, 0, 0, 0],
        "run": {},
        "log_names": [],
        "callbacks": {},
        "begun_by": None,
        "random": saved,
    }
    resumption = Resumption(None, state, {}, lambda: None, is_over=False)
    resumption.open_epoch([], SimpleNamespace(take_up=lambda position, randoms: None))
    assert (np.random.rand(), random.random()) == expected
