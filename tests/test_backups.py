"""Backups on the disk: what is written comes back, what is damaged is passed over."""

import json

import numpy as np
import pytest

from keras_steps.backups import BackupDirectory
from keras_steps.random_states import random_states, set_random_states

ARRAYS = {"model/0/kernel": np.arange(6, dtype="float32").reshape(2, 3), "model/1/n": np.array(7)}


def state(step):
    return {"step": step, "nested": {"list": [1, None, "a", np.float32(0.5)], "nan": float("nan")}}


def saved(directory, *steps, keep=2):
    backups = BackupDirectory(directory, keep)
    backups.begin()
    return backups, [backups.save(step, state(step), ARRAYS) for step in steps]


def test_what_is_saved_comes_back(tmp_path):
    backups, (path,) = saved(tmp_path / "backup", 100)
    assert path.name == "backup_000001_step_00000100.json"
    backup = backups.newest()
    assert backup.path == path
    assert backup.state["nested"]["list"] == [1, None, "a", 0.5]
    assert np.isnan(backup.state["nested"]["nan"])
    assert backup.arrays.keys() == ARRAYS.keys()
    for key, array in ARRAYS.items():
        assert backup.arrays[key].dtype == array.dtype
        np.testing.assert_array_equal(backup.arrays[key], array)


def test_arrays_within_the_state_come_back(tmp_path):
    backups, _ = saved(tmp_path)
    weights = [np.ones((2, 2)), np.zeros(3, "int8")]
    backups.save(5, {"best": {"weights": weights, "at": 3}}, {})
    found = backups.newest().state["best"]
    assert found["at"] == 3
    for array, expected in zip(found["weights"], weights, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_names_that_look_like_marks_come_back(tmp_path):
    backups, _ = saved(tmp_path)
    ones = np.ones(2)
    logged = {"array": [1.5, 2]}
    state = {
        "sums": logged,
        "deep": {"array": {"array": ones}, "dict": {"dict": {"dict": ones}}},
        "a/b": {"c": ones},
        "a": {"b": {"c": 2 * ones}, "b/c": 3 * ones},
    }
    backups.save(5, state, {})
    np.testing.assert_equal(backups.newest().state, state)


def test_types_that_numpys_files_do_not_know(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    backups, _ = saved(tmp_path)
    backups.save(1, {}, {"w": array})
    found = backups.newest().arrays["w"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_random_states_come_back(tmp_path):
    backups, _ = saved(tmp_path)
    backups.save(1, {"random": random_states()}, {})
    drawn = np.random.rand(), __import__("random").random()
    set_random_states(backups.newest().state["random"])
    assert (np.random.rand(), __import__("random").random()) == drawn


def test_the_newest_stay_and_foreign_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "backup_1_step_1.json").write_text("mine")
    (tmp_path / "backup_000009_step_00000090.json").mkdir()
    (tmp_path / "backup_000009_step_00000090.npz").mkdir()
    (tmp_path / ".keras_steps_0123abcd_mine").mkdir()
    backups, _ = saved(tmp_path, 10, 20, 30, keep=2)
    backups.begin()
    assert backups.newest().state["step"] == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".keras_steps_0123abcd_mine",
        "backup_000002_step_00000020.json",
        "backup_000002_step_00000020.npz",
        "backup_000003_step_00000030.json",
        "backup_000003_step_00000030.npz",
        "backup_000009_step_00000090.json",
        "backup_000009_step_00000090.npz",
        "backup_1_step_1.json",
        "notes.txt",
    ]


def test_a_second_one_of_a_step_is_the_newer(tmp_path):
    backups, _ = saved(tmp_path, 10)
    backups.save(10, {"step": 10, "ended": "reached"}, ARRAYS)
    assert backups.newest().state["ended"] == "reached"


def test_after_a_rollback_later_ones_are_dropped(tmp_path):
    backups, _ = saved(tmp_path, 10, 20, 30, keep=3)
    backups.drop_past(10)
    assert backups.newest().state["step"] == 10
    backups.save(15, state(15), ARRAYS)
    assert backups.newest().state["step"] == 15


def test_what_a_killed_process_left_is_no_backup(tmp_path):
    backups, (path,) = saved(tmp_path, 10)
    (tmp_path / "backup_000002_step_00000020.npz").write_bytes(b"half")
    (tmp_path / ".keras_steps_0123abcd_backup_000002_step_00000020.npz").write_bytes(b"h")
    assert backups.newest().path == path
    backups.begin()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        f"{path.stem}.json",
        f"{path.stem}.npz",
    ]


def test_no_backup_and_no_directory_is_none(tmp_path):
    assert BackupDirectory(tmp_path / "none", 2).newest() is None


def flipped(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "gone"])
def test_c18_a_damaged_one_is_passed_over_with_a_warning_that_names_both(tmp_path, suffix, damage):
    backups, (before, newest) = saved(tmp_path, 10, 20)
    file = newest.with_suffix(suffix)
    if damage == "flip":
        flipped(file, file.stat().st_size // 2)
    elif damage == "truncate":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    if (suffix, damage) == (".json", "gone"):
        assert backups.newest().state["step"] == 10
        return
    with pytest.warns(UserWarning) as caught:
        assert backups.newest().state["step"] == 10
    assert str(file) in str(caught[0].message)
    assert str(before) in str(caught[0].message)


def test_every_byte_counts(tmp_path):
    """Each byte of a backup flipped in turn, and each length that it can be cut to."""
    backups, (before, newest) = saved(tmp_path, 10, 20)
    for file in (newest, newest.with_suffix(".npz")):
        whole = file.read_bytes()
        for at in range(0, len(whole), 7):
            for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
                file.write_bytes(content)
                with pytest.warns(UserWarning, match="Going on from the one before"):
                    assert backups.newest().path == before
        file.write_bytes(whole)
    assert backups.newest().path == newest


def test_if_none_is_whole_that_is_an_error(tmp_path):
    backups, paths = saved(tmp_path, 10, 20)
    for path in paths:
        path.write_text("{}")
    with pytest.raises(ValueError, match="None of the backups in .* can be used.*000002.*000001"):
        backups.newest()


def test_a_later_format_is_not_guessed_at(tmp_path):
    from keras_steps.atomic import read_json, write_json

    backups, (path,) = saved(tmp_path, 10)
    write_json(path, {**_without_checksum(read_json(path)), "format": 99})
    with pytest.raises(ValueError, match="has format 99; this version reads 2"):
        backups.newest()


def _without_checksum(value):
    return {key: each for key, each in value.items() if key != "checksum"}


def test_a_write_that_fails_leaves_the_others(tmp_path, monkeypatch):
    backups, (path,) = saved(tmp_path, 10)

    def full(file, **arrays):
        file.write(b"x" * 100)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="Cannot write .*backup_000002_step_00000020.npz: No space"):
        backups.save(20, state(20), ARRAYS)
    assert backups.newest().path == path
    assert len(list(tmp_path.iterdir())) == 2
    assert json.loads(path.read_text())["format"] == 2
