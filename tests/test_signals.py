"""Signals: the first asks, the second ends the process; handlers come back."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from keras_steps.signals import SignalWatch, signals_named


@pytest.fixture
def handler():
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGUSR1, before)


def watch(noticed, is_needed=lambda frame: True):
    return SignalWatch([signal.SIGUSR1], noticed.append, is_needed)


def test_the_first_is_noticed_and_the_handler_comes_back(handler):
    noticed = []
    waiting = watch(noticed)
    waiting.start("X")
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (noticed, waiting.received, handler) == (["SIGUSR1"], "SIGUSR1", [])
    waiting.stop()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (noticed, handler) == (["SIGUSR1"], [signal.SIGUSR1])


def test_without_need_the_signal_does_what_it_did_before(handler):
    noticed = []
    watch(noticed, is_needed=lambda frame: False).start("X")
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (noticed, handler) == ([], [signal.SIGUSR1])


def test_a_second_one_ends_the_process_at_once():
    code = """
import os, signal
from keras_steps.signals import SignalWatch
watch = SignalWatch([signal.SIGTERM], lambda name: print(name, flush=True), lambda frame: True)
watch.start("X")
os.kill(os.getpid(), signal.SIGTERM)
print("still there", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("not reached", flush=True)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.returncode) == ("SIGTERM\nstill there\n", -signal.SIGTERM)


def test_outside_the_main_thread_it_says_what_to_do():
    errors = []

    def start():
        try:
            watch([]).start("X(on_signal)")
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(10)
    assert len(errors) == 1
    assert "main thread only" in errors[0]
    assert "on_signal=()" in errors[0]


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        (
            "SIGTERM",
            TypeError,
            r"must be a tuple of names; received 'SIGTERM'. Write \('SIGTERM',\)",
        ),
        ((15,), TypeError, "names such as 'SIGTERM'; received 15"),
        (("TERM",), ValueError, "received 'TERM'"),
        (("SIGKILL",), ValueError, "can be caught.*received 'SIGKILL'"),
    ],
)
def test_bad_names(names, error, text):
    with pytest.raises(error, match=text):
        signals_named(names, "X(on_signal)")


def test_good_names():
    assert signals_named((), "X") == ()
    assert signals_named(("SIGTERM", "SIGUSR1"), "X") == (signal.SIGTERM, signal.SIGUSR1)
