"""When several workers meet: after executions that all know, as rarely as will do."""

import numpy as np
import pytest
from flavours import FLAVOUR, make_model

from keras_steps.agreement import Meetings
from keras_steps.channels import Channel
from keras_steps.distribution import Seat
from keras_steps.workers import Workers

pytestmark = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="no matter of the backend")


class Echo(Channel):
    """Of a worker that all the others agree with."""

    def _gathered(self, numbers):
        return np.stack([numbers] * self.seat.count)


def meetings_of_chief():
    workers = Workers(make_model(), is_chief=True)
    workers.seat = Seat(0, 2)
    workers._channel = Echo(None, workers.seat)
    return Meetings(workers)


def met_at(meetings, executions, seconds_each, due_every=None):
    """After which executions the meetings are, and after which of them something was due."""
    met, fired, due_at = [], [], due_every
    for execution in range(1, executions + 1):
        if execution < meetings.next_at:
            continue
        time = execution * seconds_each
        _, (is_due,) = meetings.meet(execution, time, [None if due_at is None else due_at - time])
        met.append(execution)
        if is_due:
            fired.append(execution)
            due_at = time + due_every
    assert meetings.held == len(met)
    return met, fired


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.001, [1, 2, 4, 8, 16, 32, 64, 128, 228, 328]),  # a hundred executions
        (0.1, [1, 2, 4, 8, 16, 32, 64, 114, 164, 214, 264, 314]),  # five seconds
        (1.0, [1, 2, 4, 8, *range(13, 340, 5)]),
    ],
)
def test_the_intervals_grow_to_what_a_signal_may_wait(seconds, expected):
    assert met_at(meetings_of_chief(), 340, seconds) == (expected, [])


def test_slow_executions_end_with_a_meeting_each():
    assert met_at(meetings_of_chief(), 5, 60.0) == ([1, 2, 3, 4, 5], [])


def test_a_time_is_met_when_it_is_due():
    """Ten executions; after a firing there is a meeting with the next execution."""
    met, fired = met_at(meetings_of_chief(), 64, 0.5, due_every=5.0)
    assert fired == [10, 20, 30, 40, 50, 60]
    assert met == [1, 2, 4, 8, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61]


def test_a_clock_that_stands_still():
    assert met_at(meetings_of_chief(), 20, 0.0) == ([1, 2, 4, 8, 16], [])


def test_a_meeting_at_an_epochs_end_changes_no_estimate():
    meetings = meetings_of_chief()
    for execution in (1, 2, 4, 8):
        meetings.meet(execution, execution * 1.0, [None])
    assert meetings.next_at == 13
    meetings.meet(8, 60.0, [None])  # after a validation
    assert meetings.next_at == 13
    meetings.meet(13, 65.0, [None])
    assert meetings.next_at == 18


def test_a_signal_is_heard_of_by_all():
    meetings = meetings_of_chief()
    assert meetings.meet(1, 1.0, []) == (False, [])
    meetings.signal = "SIGTERM"
    assert meetings.meet(2, 2.0, []) == (True, [])


def test_workers_that_have_made_other_numbers_of_executions(monkeypatch):
    """One of them has had no more batches, and meets the others at an epoch's end."""
    meetings = meetings_of_chief()

    def gathered(channel, numbers):
        other = numbers.copy()
        other[numbers == 12] = 10
        return np.stack([numbers, other])

    monkeypatch.setattr(Echo, "_gathered", gathered)
    with pytest.raises(RuntimeError, match="different numbers of executions, 12, 10: they have"):
        meetings.meet(12, 1.0, [])


@pytest.mark.parametrize("content", [b"", b"1", b"12345678", b"123456789\0"])
def test_bytes_of_any_length(content):
    channel = Echo(None, Seat(1, 3))
    assert channel.gathered_bytes(content) == [content] * 3
