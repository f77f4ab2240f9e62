"""Which of several siblings a run writes to."""

import subprocess
import sys

import pytest
from flavours import FLAVOUR

from keras_steps import table_writer, tensorboard_writer
from keras_steps.timelines import local_path, place_for, share_a_timeline


def place_of(path, *, goes_on, kind=table_writer):
    """The place, and the lines that tell of it."""
    lines = []
    place = place_for(
        path, goes_on=goes_on, is_taken=kind.is_taken, take=kind.take, tell=lines.append
    )
    return place, lines


@pytest.mark.parametrize(
    ("there", "fresh", "going_on"),
    [
        ([], "m.csv", "m.csv"),
        (["m.csv"], "m_2.csv", "m.csv"),
        (["m.csv", "m_2.csv"], "m_3.csv", "m_2.csv"),
        (["m.csv", "m_2.csv", "m_10.csv"], "m_11.csv", "m_10.csv"),
        (["m_2.csv"], "m_3.csv", "m_2.csv"),
        (["m.csv", "m_02.csv", "m_1.csv", "m_x.csv", "m_3.txt", "mm_4.csv"], "m_2.csv", "m.csv"),
    ],
)
def test_siblings(tmp_path, there, fresh, going_on):
    for name in there:
        (tmp_path / name).write_text("something")
    path = tmp_path / "m.csv"
    for name, goes_on in ((going_on, True), (fresh, False)):
        assert place_of(path, goes_on=goes_on)[0] == tmp_path / name


def test_a_line_tells_of_a_place_that_was_not_named(tmp_path):
    path, other = tmp_path / "m.csv", tmp_path / "m_2.csv"
    assert place_of(path, goes_on=True) == (path, [])
    path.write_text("something")
    line = f"{path} holds an earlier run: this one writes to {other}"
    assert place_of(path, goes_on=False) == (other, [line])
    other.write_text("something")
    line = f"{path} is not the newest of its runs: this one goes on in {other}"
    assert place_of(path, goes_on=True) == (other, [line])


def test_an_empty_file_is_another_ones_that_has_not_reported_yet(tmp_path):
    (tmp_path / "m.csv").touch()
    assert place_of(tmp_path / "m.csv", goes_on=False)[0] == tmp_path / "m_2.csv"


def test_a_directory_that_someone_has_made_is_free(tmp_path):
    (tmp_path / "logs/own").mkdir(parents=True)
    place, _ = place_of(tmp_path / "logs", goes_on=False, kind=tensorboard_writer)
    assert place == tmp_path / "logs"


def test_what_is_no_directory_is_passed_over(tmp_path):
    (tmp_path / "logs/train").mkdir(parents=True)
    (tmp_path / "logs_2").write_text("something")
    place, _ = place_of(tmp_path / "logs", goes_on=False, kind=tensorboard_writer)
    assert place == tmp_path / "logs_3"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("logs", "logs", True),
        ("logs", "sub/../logs", True),
        ("logs", "link", True),
        ("logs", "logs_2", True),
        ("m_10.csv", "m.csv", True),
        ("logs", "logs_1", False),
        ("logs", "logs_x", False),
        ("logs_2", "logs_3", False),
        ("m.csv", "m.jsonl", False),
        ("m.csv", "sub/m.csv", False),
        ("logs", "logs/m.csv", False),
    ],
)
def test_places_that_a_run_and_a_later_one_of_another_would_share(tmp_path, one, other, expected):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    assert share_a_timeline(tmp_path / one, tmp_path / other) is expected
    assert share_a_timeline(tmp_path / other, tmp_path / one) is expected


def test_a_path_below_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~/logs", "f(x)") == tmp_path / "logs"


TAKES_TWENTY = """
import sys
from pathlib import Path
from keras_steps import {kind}
from keras_steps.timelines import place_for
path = Path(sys.argv[1])
print("ready", flush=True)
input()
for _ in range(20):
    print(place_for(path, goes_on=False, is_taken={kind}.is_taken, take={kind}.take, tell=str).name)
"""


@pytest.mark.slow
@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="no matter of the backend")
@pytest.mark.parametrize("kind", ["table_writer", "tensorboard_writer"])
def test_processes_that_begin_at_the_same_moment_take_different_places(tmp_path, kind):
    command = [sys.executable, "-c", TAKES_TWENTY.format(kind=kind), str(tmp_path / "m")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        taken = [p.communicate(timeout=60)[0].split() for p in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert sorted(taken[0] + taken[1]) == sorted(["m", *(f"m_{n}" for n in range(2, 41))])
