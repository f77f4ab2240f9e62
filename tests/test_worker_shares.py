"""What each of several workers takes up of one backup."""

from pathlib import Path

import numpy as np
import pytest
from flavours import FLAVOUR

from keras_steps.backups import Backup
from keras_steps.distribution import Seat
from keras_steps.random_states import random_states
from keras_steps.worker_shares import for_worker, share_of

pytestmark = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="no matter of the backend")

SUM, AVERAGE = "metrics/0/loss/total", "model/3/moving_mean"


def state_of(name):
    return {"random": name, "at_end": {"random": f"{name} at end", "callbacks": "theirs"}}


def arrays_of(*values):
    """Of one worker with so many replicas."""
    found = {"model/0/kernel": np.array(7.0), "optimizer/0/iterations": np.array(5)}
    for number, value in enumerate(values):
        found[f"{SUM}/replica_{number}"] = np.array(value)
        found[f"{AVERAGE}/replica_{number}"] = np.array(10 * value)
    return found


def backup_of(*workers):
    """As the chief of so many workers has it written; each has a tuple of values."""
    shares = [share_of(state_of(f"{n}"), arrays_of(*values)) for n, values in enumerate(workers)]
    state = {**state_of("0"), **({"workers": shares} if len(shares) > 1 else {})}
    return Backup(Path("backup.json"), state, arrays_of(*workers[0]))


def taken_up(backup, index, count, *, sums_are_global=False):
    """The sums, the averages and the random states of a worker."""
    taken = for_worker(backup, Seat(index, count), sums_are_global=sums_are_global)
    assert taken.arrays["model/0/kernel"] == 7 and taken.arrays["optimizer/0/iterations"] == 5
    assert taken.state["at_end"]["callbacks"] == "theirs"
    values = {
        key: [float(taken.arrays[k]) for k in sorted(taken.arrays) if k.startswith(key)]
        for key in (SUM, AVERAGE)
    }
    return values[SUM], values[AVERAGE], taken.state["random"]


def test_as_many_workers_have_each_its_own():
    backup = backup_of((1.0, 2.0), (3.0, 4.0))
    assert taken_up(backup, 0, 2) == ([1, 2], [10, 20], "0")
    assert taken_up(backup, 1, 2) == ([3, 4], [30, 40], "1")
    other = for_worker(backup, Seat(1, 2), sums_are_global=False)
    assert other.state["at_end"]["random"] == "1 at end"


def test_one_instead_of_two_has_the_values_of_both():
    """From them its replicas get their sum, and their mean: see `for_replicas_of`."""
    assert taken_up(backup_of((1.0,), (3.0,)), 0, 1) == ([1, 3], [10, 30], "0")


def test_two_instead_of_one_sum_up_to_the_same():
    backup = backup_of((5.0,))
    assert taken_up(backup, 0, 2) == ([5], [50], "0")
    sums, averages, randoms = taken_up(backup, 1, 2)
    assert (sums, averages) == ([0], [50])
    assert randoms.keys() == {"pass", "step"}
    assert randoms["step"].keys() == random_states().keys()


def test_sums_that_no_replica_has_of_its_own():
    """Those of a run without a strategy go to the first worker; on JAX all hold them together."""
    arrays = {"model/0/kernel": np.array(7.0), "optimizer/0/iterations": np.array(5)}
    backup = Backup(Path("backup.json"), state_of("0"), {**arrays, SUM: np.array(5.0)})
    assert taken_up(backup, 0, 1) == ([5], [], "0")
    assert taken_up(backup, 0, 2) == ([5], [], "0")
    assert taken_up(backup, 1, 2)[0] == [0]
    assert taken_up(backup, 1, 2, sums_are_global=True)[0] == [5]
