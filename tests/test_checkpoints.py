"""Checkpoints on disk: what stays, what readers get, and what a kill or an error leaves."""

import errno
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from disks import small_disk
from flavours import FLAVOUR

from keras_steps import checkpoints
from keras_steps.atomic import read_json, write_json
from keras_steps.checkpoint_directory import CheckpointDirectory
from keras_steps.checkpoints import (
    Checkpoint,
    best_checkpoint,
    end_of_run,
    latest_checkpoint,
    list_checkpoints,
)

HERE = Path(__file__).parent
INDEX = "checkpoints.json"
FOREIGN = [".keras_steps_x_y", "notes.txt", "step_00000004.txt.bak~", "step_4.keras"]


def begun(path, step=0, *, overwrite=False, max_to_keep=5, keep_every=None, **monitored):
    directory = CheckpointDirectory(
        path, max_to_keep=max_to_keep, keep_every=keep_every, **monitored
    )
    directory.begin(step, overwrite)
    return directory


def save(directory, step, scores=None, suffix=".keras"):
    text = f"state at {step}"
    return directory.save(step, suffix, lambda path: path.write_text(text), scores or {})


def steps_in(path):
    return [checkpoint.step for checkpoint in list_checkpoints(path)]


def names_in(path):
    return sorted(file.name for file in path.iterdir())


def name(step):
    return f"step_{step:08d}.keras"


@pytest.fixture
def three(tmp_path):
    """Steps 1, 2 and 3 of which 2 is the best and 3 the next."""
    directory = begun(tmp_path, monitor="val_loss")
    for step, loss in ((1, 0.5), (2, 0.1), (3, 0.3)):
        save(directory, step, {"val_loss": loss})
    return tmp_path


# What stays


@pytest.mark.parametrize(
    ("max_to_keep", "keep_every", "steps", "stay"),
    [
        (5, None, [1, 2, 3, 4, 5, 6, 7], [3, 4, 5, 6, 7]),
        (1, None, [1, 2, 3], [3]),
        (None, None, [1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7]),
        (1, 10, [4, 8, 12, 16, 20, 24, 28, 32, 36], [12, 20, 32, 36]),
        (1, 10, [10, 19, 20, 21, 39, 40, 55], [10, 20, 39, 40, 55]),
        (2, 1, [3, 6, 9, 12], [3, 6, 9, 12]),
        (1, 100, [30, 60, 90], [90]),
    ],
)
def test_the_newest_stay_and_the_first_past_each_multiple(
    tmp_path, max_to_keep, keep_every, steps, stay
):
    directory = begun(tmp_path, max_to_keep=max_to_keep, keep_every=keep_every)
    for step in steps:
        save(directory, step)
    assert steps_in(tmp_path) == stay
    assert names_in(tmp_path) == [INDEX, *map(name, stay)]


@pytest.mark.parametrize(
    ("mode", "scores", "stay", "best"),
    [
        ("min", {1: 0.5, 2: 0.1, 3: 0.3, 4: 0.4}, [2, 4], 2),
        ("max", {1: 0.5, 2: 0.1, 3: 0.3, 4: 0.4}, [1, 4], 1),
        ("min", {1: 0.5, 2: 0.5, 3: 0.5}, [1, 3], 1),
        ("min", {1: math.nan, 2: 0.5, 3: math.nan, 4: 0.7}, [2, 4], 2),
        ("max", {1: math.nan, 2: 0.5, 3: math.inf, 4: 0.1}, [2, 4], 2),
        ("min", {1: -math.inf, 2: -1.0, 3: 0.0}, [2, 3], 2),
        ("min", {1: 0.5, 2: None, 3: None}, [1, 3], 1),
    ],
)
def test_the_best_stays_on_top(tmp_path, mode, scores, stay, best):
    directory = begun(tmp_path, max_to_keep=1, monitor="m", mode=mode)
    for step, score in scores.items():
        save(directory, step, {} if score is None else {"m": score, "other": -step})
    assert steps_in(tmp_path) == stay
    assert best_checkpoint(tmp_path) == tmp_path / name(best)
    assert directory.best == Checkpoint(
        tmp_path / name(best), best, {"m": scores[best], "other": -best}
    )


def test_a_score_that_comes_later_moves_the_best(tmp_path):
    directory = begun(tmp_path, max_to_keep=1, monitor="m")
    save(directory, 1, {"m": 0.5})
    save(directory, 2)
    assert steps_in(tmp_path) == [1, 2]
    directory.add_scores(2, {"m": 0.1, "n": 1})
    assert list_checkpoints(tmp_path) == [(tmp_path / name(2), 2, {"m": 0.1, "n": 1.0})]
    directory.add_scores(2, {"m": 9.0, "o": 2})
    assert list_checkpoints(tmp_path)[0].scores == {"m": 0.1, "n": 1.0, "o": 2.0}
    assert names_in(tmp_path) == [INDEX, name(2)]


def test_scores_for_a_step_without_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint of step 7"):
        begun(tmp_path).add_scores(7, {"m": 0.5})


def test_a_step_is_saved_once(tmp_path):
    directory = begun(tmp_path)
    save(directory, 1)
    assert (directory.has(1), directory.has(2)) == (True, False)
    with pytest.raises(ValueError, match="checkpoint of step 1 .*already"):
        save(directory, 1)


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".pt"])
def test_names_and_suffixes(tmp_path, suffix):
    directory, seen = begun(tmp_path), []
    path = directory.save(123, suffix, lambda p: (seen.append(p), p.touch()), {})
    assert path == directory.path_of(123, suffix) == tmp_path / f"step_00000123{suffix}"
    assert seen[0].name.endswith(suffix)
    assert save(directory, 123_456_789).name == "step_123456789.keras"
    assert steps_in(tmp_path) == [123, 123_456_789]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_to_keep": 0}, ValueError, "max_to_keep must be at least 1; received 0"),
        ({"max_to_keep": 2.0}, TypeError, "max_to_keep must be an integer; received 2.0"),
        ({"keep_every": 0}, ValueError, "keep_every must be at least 1; received 0"),
        ({"mode": "auto"}, ValueError, "mode must be 'min' or 'max'; received 'auto'"),
    ],
)
def test_arguments(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        begun(tmp_path, **arguments)


# Runs


def test_a_fresh_run_does_not_mix_with_an_earlier_one(three):
    before = {file.name: file.read_bytes() for file in three.iterdir()}
    with pytest.raises(FileExistsError, match=r"holds 3 checkpoints.*overwrite=True"):
        begun(three)
    assert {file.name: file.read_bytes() for file in three.iterdir()} == before
    directory = begun(three, overwrite=True)
    assert not directory.holds_any()
    assert names_in(three) == [INDEX]


@pytest.mark.parametrize(("step", "stay"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (9, [1, 2, 3])])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_goes_on_drops_what_lies_past_its_step(three, step, stay, overwrite):
    directory = begun(three, step, overwrite=overwrite)
    assert steps_in(three) == stay
    assert names_in(three) == [INDEX, *map(name, stay)]
    save(directory, 10)
    assert steps_in(three) == [*stay, 10]


def test_a_run_goes_back_in_place(three):
    directory = CheckpointDirectory(three, max_to_keep=5, keep_every=None)
    directory.drop_past(1)
    assert names_in(three) == [INDEX, name(1)]
    directory.drop_past(0)
    assert names_in(three) == [INDEX]


def test_the_best_so_far_survives_a_restart(three):
    assert begun(three, 3, monitor="val_loss").best.step == 2
    assert begun(three, 3, monitor="val_loss", mode="max").best.step == 1
    assert best_checkpoint(three) == three / name(1)
    assert begun(three, 3, monitor="other").best is None
    assert begun(three, 3).best is None


def test_a_file_that_somebody_deleted_can_be_saved_again(three):
    (three / name(3)).unlink()
    directory = begun(three, 3, monitor="val_loss")
    assert not directory.has(3)
    save(directory, 3)
    assert steps_in(three) == [1, 2, 3]


def test_the_end_of_a_run_is_marked(tmp_path):
    assert end_of_run(tmp_path / "missing") is None
    directory = begun(tmp_path)
    assert end_of_run(tmp_path) is None
    save(directory, 1)
    directory.end("reached")
    assert end_of_run(tmp_path) == "reached"
    begun(tmp_path, 1)
    assert end_of_run(tmp_path) is None


def test_the_directory_is_made_where_a_run_begins(tmp_path):
    path = tmp_path / "a" / "b"
    directory = CheckpointDirectory(path, max_to_keep=1, keep_every=None)
    assert not directory.holds_any()
    assert not path.exists()
    directory.begin(0, False)
    assert names_in(path) == [INDEX]


def test_foreign_files_are_not_touched(tmp_path):
    foreign = ["a.txt", "model.keras", "step_1.keras", "step_00000001_best.keras", *FOREIGN]
    for file in foreign:
        (tmp_path / file).write_text("foreign")
    directory = begun(tmp_path, max_to_keep=1)
    for step in (1, 2, 3):
        save(directory, step)
    begun(tmp_path, overwrite=True)
    assert names_in(tmp_path) == sorted({INDEX, *foreign})
    assert {(tmp_path / file).read_text() for file in foreign} == {"foreign"}


def test_a_foreign_file_in_the_way_is_told_before_the_first_save(three):
    (three / name(8)).write_text("foreign")
    with pytest.raises(FileExistsError, match=f"{three / name(8)} has the name of a checkpoint"):
        begun(three, 3)
    assert steps_in(three) == [1, 2, 3]
    begun(three, 8)
    assert (three / name(8)).read_text() == "foreign"


def test_a_foreign_file_that_comes_later_is_told_at_the_save(tmp_path):
    directory = begun(tmp_path)
    (tmp_path / name(1)).write_text("foreign")
    with pytest.raises(FileExistsError, match=f"{tmp_path / name(1)} is there"):
        save(directory, 1)
    assert (tmp_path / name(1)).read_text() == "foreign"
    save(directory, 2)
    assert steps_in(tmp_path) == [2]


# Readers


@pytest.mark.parametrize("missing", [True, False])
def test_before_any_training_there_is_none(tmp_path, missing):
    path = tmp_path / "missing" if missing else tmp_path
    assert list_checkpoints(str(path)) == []
    assert latest_checkpoint(str(path)) is None
    assert best_checkpoint(str(path)) is None
    begun(tmp_path)
    assert latest_checkpoint(tmp_path) is None


def test_a_list_is_by_step_with_scores(three):
    assert list_checkpoints(three) == [
        Checkpoint(three / name(1), 1, {"val_loss": 0.5}),
        Checkpoint(three / name(2), 2, {"val_loss": 0.1}),
        Checkpoint(three / name(3), 3, {"val_loss": 0.3}),
    ]
    (three / name(1)).unlink()
    (three / name(3)).write_text("cut")
    assert steps_in(three) == [2]


def test_latest_and_best(three):
    assert latest_checkpoint(three) == three / name(3)
    assert best_checkpoint(three) == three / name(2)


DAMAGES = {
    "gone": (Path.unlink, "is gone"),
    "truncated": (lambda path: os.truncate(path, 4), "is damaged: it has 4 bytes of 10"),
    "empty": (lambda path: os.truncate(path, 0), "is damaged: it has 0 bytes of 10"),
    "longer": (lambda path: os.truncate(path, 11), "is damaged: it has 11 bytes of 10"),
    "changed": (lambda path: path.write_text("state at!3"), "is damaged: its checksum"),
}


@pytest.mark.parametrize(("damage", "fault"), DAMAGES.values(), ids=DAMAGES)
def test_c18_the_one_before_is_taken_with_a_warning_that_names_both(three, damage, fault):
    damage(three / name(3))
    message = rf"{three / name(3)} {fault}.*\. {name(2)} is taken instead\."
    with pytest.warns(UserWarning, match=message) as caught:
        assert latest_checkpoint(three) == three / name(2)
    assert [warning.filename for warning in caught] == [__file__]
    assert best_checkpoint(three) == three / name(2)


@pytest.mark.parametrize(("damage", "fault"), DAMAGES.values(), ids=DAMAGES)
def test_c18_the_next_best_is_taken_with_a_warning_that_names_both(three, damage, fault):
    damage(three / name(2))
    message = rf"{three / name(2)} {fault}.*\. {name(3)} is taken instead\."
    with pytest.warns(UserWarning, match=message) as caught:
        assert best_checkpoint(three) == three / name(3)
    assert [warning.filename for warning in caught] == [__file__]
    assert latest_checkpoint(three) == three / name(3)


def test_c18_two_are_damaged(three):
    (three / name(3)).unlink()
    os.truncate(three / name(2), 0)
    with pytest.warns(UserWarning, match=f"{name(3)} is gone; .*{name(2)} is .*{name(1)} is taken"):
        assert latest_checkpoint(three) == three / name(1)


@pytest.mark.parametrize("read", [latest_checkpoint, best_checkpoint])
def test_c18_none_is_whole(three, read):
    for step in (1, 2, 3):
        (three / name(step)).unlink()
    with pytest.raises(ValueError, match=f"No checkpoint in {three} is whole: .*{name(1)} is gone"):
        read(three)


def test_best_needs_a_monitor_and_a_score(tmp_path):
    save(begun(tmp_path), 1, {"val_loss": 0.5})
    with pytest.raises(ValueError, match=r"without a monitor.*monitor='val_loss'"):
        best_checkpoint(tmp_path)
    directory = begun(tmp_path, 1, monitor="accuracy", mode="max")
    save(directory, 2, {"accuracy": math.nan})
    with pytest.raises(ValueError, match="None of the 2 .* has a finite score 'accuracy'"):
        best_checkpoint(tmp_path)
    assert latest_checkpoint(tmp_path) == tmp_path / name(2)


@pytest.mark.parametrize("read", [list_checkpoints, latest_checkpoint, best_checkpoint, end_of_run])
def test_an_index_that_is_damaged_or_gone_is_an_error_that_names_it(three, read):
    index = three / INDEX
    whole = index.read_bytes()
    for text in (b"", whole[:100], whole.replace(b"0.5", b"0.6")):
        index.write_bytes(text)
        with pytest.raises(ValueError, match=rf"{index} is damaged.*loaded by its name"):
            read(three)
        with pytest.raises(ValueError, match=f"{index} is damaged"):
            begun(three, 3)
    index.unlink()
    with pytest.raises(FileNotFoundError, match=rf"holds {name(1)}, .*, but not {INDEX}"):
        read(three)
    with pytest.raises(FileNotFoundError, match=f"but not {INDEX}"):
        begun(three)
    assert names_in(three) == [name(1), name(2), name(3)]


def test_an_index_of_another_format(three):
    write_json(three / INDEX, {**read_json(three / INDEX), "format": 2})
    with pytest.raises(ValueError, match="has the format 2; this version .* reads 1"):
        list_checkpoints(three)


@pytest.mark.parametrize("read", [list_checkpoints, latest_checkpoint, best_checkpoint])
def test_a_directory_that_is_none(tmp_path, read):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file"):
        read(tmp_path / "file")
    with pytest.raises(ValueError, match="on this machine; received 'gs://bucket'"):
        read("gs://bucket")


def test_a_reader_whose_file_is_dropped_meanwhile_takes_the_new_one(tmp_path, monkeypatch):
    directory = begun(tmp_path, max_to_keep=1)
    save(directory, 1)
    real = checkpoints.sha256_of

    def slow(path):
        if not directory.has(2):
            save(directory, 2)
        return real(path)

    monkeypatch.setattr(checkpoints, "sha256_of", slow)
    assert latest_checkpoint(tmp_path) == tmp_path / name(2)


# Kills and errors

on_one_backend = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="no matter of the backend")


def kill_everywhere(scenario, tmp_path_factory):
    """Run the scenario in memory if there is a place: each kill waits for the disk otherwise."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path_factory.mktemp("kills")
    path = place / f"keras_steps_{os.getpid()}_{scenario}"
    try:
        ran = subprocess.run(
            [sys.executable, HERE / "kill_everywhere.py", scenario, path],
            capture_output=True,
            text=True,
            timeout=110,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
    finally:
        subprocess.run(["rm", "-rf", path], check=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
@on_one_backend
@pytest.mark.parametrize("scenario", ["newest", "earlier"])
def test_a_kill_anywhere_leaves_whole_files_and_a_run_that_goes_on_ends_alike(
    scenario, tmp_path_factory
):
    """Going on from the newest checkpoint, or from an earlier step, as a backup has it."""
    result = kill_everywhere(scenario, tmp_path_factory)
    assert result["kills"] > 500
    assert result["mismatches"] == []
    assert result["states"] == [
        "",
        "a2",
        "a2 a4",
        "a4 a6",
        "a4 a6 a8",
        "a4 a6 a8 a10",
        "a4 a6 a10 a12",
    ]
    assert result["left"] == sorted([INDEX, *map(name, (4, 6, 10, 12)), *FOREIGN])


@on_one_backend
def test_a_kill_while_an_earlier_run_is_overwritten(tmp_path_factory):
    result = kill_everywhere("overwrite", tmp_path_factory)
    assert result["kills"] > 150
    assert result["mismatches"] == []
    assert result["states"] == ["z4 z6", "", "a2"]


@on_one_backend
def test_a_reader_beside_a_run_sees_whole_files_only(tmp_path_factory):
    result = kill_everywhere("read", tmp_path_factory)
    assert result["in_order"]
    assert result["seen"] == 20


def act(directory):
    """What is left to do of a run that saves three steps and ends; any part of it may fail."""
    for step, loss in ((1, 0.1), (2, 0.2), (3, 0.3)):
        if not directory.has(step):
            save(directory, step, {"m": loss})
    directory.end("reached")


def test_an_error_of_the_system_at_each_point_names_a_path_and_the_run_can_go_on(
    tmp_path, monkeypatch
):
    def attempt(path, n):
        """Whether the n-th call failed; the run goes on after it."""
        directory = begun(path, max_to_keep=1, monitor="m")
        with monkeypatch.context() as patch:
            made = []
            for function in ("fsync", "replace", "unlink"):
                patch.setattr(os, function, failing(getattr(os, function), made, n))
            try:
                act(directory)
                return False
            except OSError as error:
                assert error.errno == errno.ENOSPC
                assert str(path) in str(error)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            latest_checkpoint(path)
        assert [step for step in (1, 2, 3) if directory.has(step)] == steps_in(path)
        act(directory)
        return True

    def failing(real, made, n):
        def call(*args, **kwargs):
            made.append(args)
            if len(made) == n:
                path = args[0] if isinstance(args[0], (str, os.PathLike)) else None
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return real(*args, **kwargs)

        return call

    n = 1
    while attempt(tmp_path / str(n), n):
        assert steps_in(tmp_path / str(n)) == [1, 3]
        assert names_in(tmp_path / str(n)) == [INDEX, name(1), name(3)]
        assert end_of_run(tmp_path / str(n)) == "reached"
        n += 1
    assert n > 30


def test_a_write_that_fails_leaves_what_was_there(three):
    directory = begun(three, 3, monitor="val_loss")
    before = names_in(three)

    def write(path):
        path.write_text("half")
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match="no such layer"):
        directory.save(4, ".keras", write, {})
    assert names_in(three) == before
    assert latest_checkpoint(three) == three / name(3)
    save(directory, 4)
    assert steps_in(three) == [1, 2, 3, 4]


def test_a_write_that_writes_nothing(tmp_path):
    directory = begun(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"Cannot write {tmp_path / name(1)}"):
        directory.save(1, ".keras", lambda path: None, {})


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", kib=64) as disk:
        yield disk


def test_c17_a_full_disk(disk):
    path = disk.path
    directory = begun(path)
    directory.save(1, ".keras", lambda p: p.write_bytes(bytes(30_000)), {})
    with pytest.raises(OSError, match=f"Cannot write {path / name(2)}: No space left"):
        directory.save(2, ".keras", lambda p: p.write_bytes(bytes(60_000)), {})
    assert names_in(path) == [INDEX, name(1)]
    assert latest_checkpoint(path) == path / name(1)
    directory.save(3, ".keras", lambda p: p.write_bytes(bytes(9_000)), {})
    assert steps_in(path) == [1, 3]


def test_c17_a_disk_on_which_not_even_the_index_has_room(disk):
    path = disk.path
    directory = begun(path)
    save(directory, 1)
    disk.fill()
    with pytest.raises(OSError, match=f"Cannot write {path / INDEX}: No space left"):
        save(directory, 2)
    assert latest_checkpoint(path) == path / name(1)
    disk.make_room()
    save(directory, 2)
    assert steps_in(path) == [1, 2]


def test_c17_a_disk_that_becomes_read_only(disk):
    path = disk.path
    directory = begun(path)
    save(directory, 1)
    disk.make_read_only()
    with pytest.raises(OSError, match=f"Cannot write {path / INDEX}: Read-only file system"):
        save(directory, 2)
    assert latest_checkpoint(path) == path / name(1)
    with pytest.raises(OSError, match="Read-only file system"):
        begun(path, 1)
