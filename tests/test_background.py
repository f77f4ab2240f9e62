"""Writes in the background: one at a time, and their errors come out."""

import threading

import pytest

from keras_steps.background import BackgroundWriter


def test_runs_in_another_thread_in_the_order_of_arrival():
    writer, seen = BackgroundWriter(), []
    for number in range(3):
        writer.submit(lambda number=number: seen.append((number, threading.current_thread())))
    writer.wait()
    assert [number for number, _ in seen] == [0, 1, 2]
    assert all(thread is not threading.main_thread() for _, thread in seen)


def test_the_next_one_waits_for_the_one_under_way():
    writer, go_on, seen = BackgroundWriter(), threading.Event(), []
    writer.submit(lambda: (go_on.wait(10), seen.append("first")))
    threading.Timer(0.05, go_on.set).start()
    writer.submit(lambda: seen.append("second"))
    assert seen[:1] == ["first"]
    writer.wait()
    assert seen == ["first", "second"]


def fails():
    raise OSError("no space")


def test_a_failure_comes_out_at_the_next_write_which_is_not_made():
    writer, seen = BackgroundWriter(), []
    writer.submit(fails)
    with pytest.raises(OSError, match="no space"):
        writer.submit(lambda: seen.append(1))
    writer.wait()
    assert seen == []
    writer.submit(lambda: seen.append(2))
    writer.wait()
    assert seen == [2]


def test_a_failure_comes_out_in_wait_once():
    writer = BackgroundWriter()
    writer.submit(fails)
    with pytest.raises(OSError, match="no space"):
        writer.wait()
    writer.wait()
