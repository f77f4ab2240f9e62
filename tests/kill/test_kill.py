"""What a kill alone does not bring: damaged files, a full disk, one that can't be written to.

The kills themselves are made by `proof.py`; here is what shows that it sees a difference.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
import warnings

import numpy as np
import proof
import pytest
from comparing import differences
from disks import SmallDisk, small_disk
from flavours import FLAVOUR, IS_TF_KERAS, clear_session, fit, keras, make_model, state_of

import keras_steps as ks
from keras_steps.background import let_all_finish
from keras_steps.backups import BackupDirectory

NUMBER = [c.flavour for c in proof.COMBINATIONS].index(FLAVOUR)
RANGES = 100
"""Into so many ranges each file of a backup is cut, and each range is damaged once."""

pytestmark = [
    pytest.mark.kill,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.*dead_handles"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a run that was never killed, and what it came to."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, proof.start(NUMBER, directory)


def in_final_state(run):
    with np.load(run / "final.npz") as stored:
        arrays = dict(stored)
    arrays["arr_0"].flat[0] = np.nextafter(arrays["arr_0"].flat[0], 9, dtype="float32")
    np.savez(run / "final.npz", **arrays)


def in_table(run):
    lines = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").write_text("\n".join([*lines[:3], *lines[4:]]) + "\n")


def in_firings(run):
    lines = (run / "firings.jsonl").read_text().splitlines()
    kind, step, logs = json.loads(lines[5])
    again = json.dumps([kind, step, {name: value + 1 for name, value in logs.items()}])
    (run / "firings.jsonl").write_text("\n".join([again, *lines]) + "\n")


def in_firing_steps(run):
    lines = (run / "firings.jsonl").read_text().splitlines()
    (run / "firings.jsonl").write_text("\n".join(lines[:-1]) + "\n")


def in_history(run):
    results = json.loads((run / "history.json").read_text())
    (run / "history.json").write_text(json.dumps({**results, "epoch": results["epoch"][1:]}))


def in_curves(run):
    writer = ks.tensorboard_writer.TensorBoardWriter(run / "logs", 0, [])
    writer.write(57, {"loss": 1.0})
    writer.close()


def in_checkpoints(run):
    next((run / "checkpoints").glob("*.keras")).unlink()


def in_places(run):
    shutil.copytree(run / "checkpoints", run / "checkpoints_2")


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (in_final_state, "the final weights and optimizer: arr_0"),
        (in_table, "metrics.csv: "),
        (in_firings, "fired with other values: "),
        (in_firing_steps, "the firing steps: "),
        (in_history, "History: epoch"),
        (in_curves, "TensorBoard's values: ('train', 'loss')"),
        (in_checkpoints, "the files: "),
        (in_places, "the files: checkpoints_2/"),
    ],
)
def test_the_proof_sees_a_change(tmp_path, whole, change, seen):
    assert differences(whole[0], whole[0]) == []
    shutil.copytree(whole[0], tmp_path / "other")
    change(tmp_path / "other")
    found = differences(whole[0], tmp_path / "other")
    assert any(line.startswith(seen) for line in found), found


def damaged(content, start, end, randoms):
    """`content` cut within a range, or with other bytes in it, or with one bit flipped."""
    at = randoms.randrange(start, end)
    how = randoms.choice(["cut", "bit", "zeros", "noise"])
    if how == "cut":
        return how, content[:at]
    if how == "bit":
        flipped = content[at] ^ (1 << randoms.randrange(8))
        return how, content[:at] + bytes([flipped]) + content[at + 1 :]
    size = randoms.randint(1, end - start)
    other = bytes(size) if how == "zeros" else randoms.randbytes(size)
    result = content[:at] + other + content[at + size :]
    return how, result if result != content else content[:at]


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_damage_anywhere_is_seen_and_the_backup_before_taken(tmp_path, whole, ending):
    shutil.copytree(whole[0] / "backup", tmp_path / "backup")
    before, newest = sorted((tmp_path / "backup").glob("*.json"))
    directory = BackupDirectory(tmp_path / "backup", 2)
    assert directory.newest().path == newest
    file = newest.with_suffix(f".{ending}")
    content, randoms = file.read_bytes(), random.Random(7)
    with np.load(before.with_suffix(".npz")) as stored:
        wanted = {key: stored[key].tobytes() for key in stored.files if key.startswith("variable/")}
    bounds = np.linspace(0, len(content), RANGES + 1, dtype=int).tolist()
    for start, end in zip(bounds, bounds[1:], strict=False):
        how, other = damaged(content, start, end, randoms)
        file.write_bytes(other)
        with pytest.warns(UserWarning, match="Going on from the one before") as told:
            backup = directory.newest()
        assert backup.path == before, (how, start, end)
        assert str(file) in str(told[0].message) and str(before) in str(told[0].message)
        got = {f"variable/{key}": array.tobytes() for key, array in backup.arrays.items()}
        assert got == wanted
    assert len(bounds) == RANGES + 1
    before.write_bytes(before.read_bytes()[:-1])
    with pytest.raises(ValueError, match="None of the backups"):
        directory.newest()
    file.write_bytes(content)
    assert directory.newest().path == newest


def test_a_run_whose_newest_backup_is_damaged_comes_to_the_same(tmp_path, whole):
    directory, unharmed = whole
    assert proof.start(NUMBER, tmp_path, point=unharmed.points // 2).was_killed
    before, newest = sorted((tmp_path / "backup").glob("*.json"))[-2:]
    content = bytearray(newest.with_suffix(".npz").read_bytes())
    content[len(content) // 2] ^= 1
    newest.with_suffix(".npz").write_bytes(content)
    again = proof.start(NUMBER, tmp_path)
    assert again.began_at == int(before.stem.rpartition("_")[2])
    assert newest.stem in again.output and f"Going on from the one before, {before}" in again.output
    assert differences(directory, tmp_path) == []


def test_a_run_without_a_good_backup_does_not_start_from_0(tmp_path, whole):
    assert proof.start(NUMBER, tmp_path, point=whole[1].points // 2).was_killed
    for manifest in (tmp_path / "backup").glob("*.json"):
        manifest.write_bytes(manifest.read_bytes()[:100])
    with pytest.raises(proof.Failed, match="None of the backups .* can be used"):
        proof.start(NUMBER, tmp_path)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", kib=1024) as disk:
        yield disk


def train(directory, *more):
    clear_session()
    if IS_TF_KERAS:
        keras.backend.experimental.enable_tf_random_generator()
    model = make_model(keras.optimizers.Adam(0.01))
    callbacks = [ks.StepBackupAndRestore(directory, every=4, on_signal=()), *more]
    error = None
    try:
        fit(model, callbacks, epochs=3, shuffle=True)
    except OSError as raised:
        error = raised
    return model, error


@pytest.mark.parametrize(
    ("harm", "mend", "code"),
    [
        (SmallDisk.fill, SmallDisk.make_room, errno.ENOSPC),
        (SmallDisk.make_read_only, SmallDisk.make_writable, errno.EROFS),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_can_be_written_to_no_more(tmp_path, disk, harm, mend, code):
    backup = disk.path / "backup"
    whole, error = train(tmp_path / "whole")
    assert error is None

    def do_harm(step, logs):
        let_all_finish()
        harm(disk)

    model, error = train(backup, ks.OnStep(ks.AtSteps(9), do_harm))
    assert error.errno == code
    assert f"{backup}" in str(error) and "step_00000012" in str(error)
    assert 12 <= ks.global_step(model) <= 16  # the run is broken off, its state is there
    assert all(np.isfinite(array).all() for array in state_of(model))
    assert np.isfinite(model.predict(np.ones((2, 4), "float32"), verbose=0)).all()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert BackupDirectory(backup, 2).newest().state["step"] == 8

    mend(disk)
    model, error = train(backup)
    assert error is None and ks.global_step(model) == 30
    for array, array_2 in zip(state_of(whole), state_of(model), strict=True):
        np.testing.assert_array_equal(array, array_2)
