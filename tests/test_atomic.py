"""Files that are whole or not there."""

import errno
import math
import os

import pytest

from keras_steps.atomic import (
    read_json,
    remove_partials,
    sha256_of,
    write_atomically,
    write_json,
)

CALLS = ("fsync", "replace", "fsync")  # of one write, in this order


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def fail_at(monkeypatch, n, code=errno.ENOSPC):
    """Let the n-th of the calls fail once; gives the list of the calls made."""
    made = []

    def failing(name, real):
        def call(*args, **kwargs):
            made.append(name)
            if len(made) == n:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        return call

    for name in set(CALLS):
        monkeypatch.setattr(os, name, failing(name, getattr(os, name)))
    return made


def test_a_file_appears_at_the_end_and_under_its_own_suffix(tmp_path):
    path = tmp_path / "step_1.weights.h5"
    path.write_text("before")
    with write_atomically(path) as partial:
        assert partial.parent == tmp_path
        assert partial.name.startswith(".keras_steps_")
        assert partial.name.endswith("_step_1.weights.h5")
        partial.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert names_in(tmp_path) == ["step_1.weights.h5"]


def test_the_order_of_a_write(tmp_path, monkeypatch):
    made = fail_at(monkeypatch, None)
    with write_atomically(tmp_path / "file") as partial:
        partial.write_text("whole")
    assert tuple(made) == CALLS


@pytest.mark.parametrize(("n", "left"), [(1, "before"), (2, "before"), (3, "after")])
def test_an_error_of_the_system_names_the_file_and_leaves_a_whole_one(
    tmp_path, monkeypatch, n, left
):
    path = tmp_path / "file"
    path.write_text("before")
    fail_at(monkeypatch, n)
    full = pytest.raises(OSError, match=f"Cannot write {path}: No space left")
    with full as raised, write_atomically(path) as partial:
        partial.write_text("after")
    assert raised.value.errno == errno.ENOSPC
    assert path.read_text() == left
    assert names_in(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_else_goes_wrong_goes_through_as_it_is(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(type(error)) as raised, write_atomically(path) as partial:
        partial.write_text("half")
        raise error
    assert raised.value is error
    assert path.read_text() == "before"
    assert names_in(tmp_path) == ["file"]


def test_an_error_of_a_library_without_a_number(tmp_path):
    path = tmp_path / "file"
    named = pytest.raises(OSError, match=f"Cannot write {path}: unable to lock")
    with named, write_atomically(path):
        raise OSError("unable to lock")


def test_an_error_about_another_file_names_both(tmp_path):
    path, other = tmp_path / "file", tmp_path / "vocabulary"
    named = pytest.raises(FileNotFoundError, match=f"Cannot write {path}.*{other}")
    with named, write_atomically(path):
        other.read_text()


@pytest.mark.parametrize(
    "body", [lambda partial: None, lambda partial: partial.write_text("x")], ids=["nothing", "x"]
)
def test_a_directory_that_is_not_there(tmp_path, body):
    path = tmp_path / "missing" / "file"
    named = pytest.raises(FileNotFoundError, match=f"Cannot write {path}: No such file")
    with named, write_atomically(path) as partial:
        body(partial)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_bring_a_directory_to_the_disk(tmp_path, monkeypatch, code):
    made = fail_at(monkeypatch, 3, code)
    with write_atomically(tmp_path / "file") as partial:
        partial.write_text("whole")
    assert len(made) == 3
    assert (tmp_path / "file").read_text() == "whole"


def test_what_a_kill_left_behind_is_removed_and_nothing_else(tmp_path):
    foreign = [".keras_steps_notes", ".keras_steps_0123456_x", "keras_steps_01234567_x", "file"]
    for name in [".keras_steps_01234567_step_1.keras", *foreign]:
        (tmp_path / name).touch()
    remove_partials(tmp_path)
    assert names_in(tmp_path) == sorted(foreign)


def test_the_name_of_a_partial_is_one_that_is_removed(tmp_path):
    with pytest.raises(FileNotFoundError), write_atomically(tmp_path / "file") as partial:
        partial.touch()
        remove_partials(tmp_path)
    assert names_in(tmp_path) == []


def test_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256_of(tmp_path / "file") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": [1, 2.5, None, True, "ü\ud800\n"], "b": {"c": {}}},
        {"loss": 0.1 + 0.2, "worst": math.inf, "least": -math.inf, "tiny": 5e-324},
    ],
)
def test_json_comes_back_as_it_was(tmp_path, value):
    write_json(tmp_path / "file", value)
    assert read_json(tmp_path / "file") == value


def test_nan_comes_back(tmp_path):
    write_json(tmp_path / "file", {"loss": math.nan})
    assert math.isnan(read_json(tmp_path / "file")["loss"])


def test_each_cut_and_each_changed_bit_is_found(tmp_path):
    path = tmp_path / "state.json"
    write_json(path, {"step": 10, "scores": {"loss": 0.25}, "names": ["a", "b"], "ended": None})
    whole = path.read_bytes()
    cut = [whole[:n] for n in range(len(whole))]
    flipped = [
        whole[:n] + bytes([whole[n] ^ 1 << bit]) + whole[n + 1 :]
        for n in range(len(whole))
        for bit in range(8)
    ]
    others = [b"null", b"[]", b"{}", b'{"checksum": 1}', whole + b"\n", whole * 2, b"\0" * 99]
    for text in [*cut, *flipped, *others]:
        path.write_bytes(text)
        with pytest.raises(ValueError, match=f"^{path} is damaged, or was changed"):
            read_json(path)
    path.write_bytes(whole)
    assert read_json(path)["step"] == 10


def test_json_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="state.json"):
        read_json(tmp_path / "state.json")
