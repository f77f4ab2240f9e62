"""Kills a process at each line of the storage layer that touches the disk; what is left?

A program of its own, without Keras: `python tests/kill_everywhere.py SCENARIO DIRECTORY`. It
prints, as JSON, the kills, the states they left (without repetition), and after which of them
a run that goes on doesn't come to the same directory as one that was never killed.
"""

import itertools
import json
import os
import shutil
import signal
import sys
import types
import warnings
from pathlib import Path

HERE = Path(__file__).resolve()
PACKAGE = types.ModuleType("keras_steps")  # its modules, without the package's own imports
PACKAGE.__path__ = [str(HERE.parents[1] / "keras_steps")]
sys.modules["keras_steps"] = PACKAGE

from keras_steps.checkpoint_directory import CheckpointDirectory  # noqa: E402
from keras_steps.checkpoints import latest_checkpoint, list_checkpoints  # noqa: E402

LOSS = {2: 0.5, 4: 0.1, 6: 0.9, 8: 0.8, 10: 0.7, 12: 0.6}
TRACED = {"atomic.py", "checkpoint_directory.py", HERE.name}  # what touches the disk
FOREIGN = ("notes.txt", "step_00000004.txt.bak~", "step_4.keras", ".keras_steps_x_y")


def content(label, step):
    return f"{label} {step} ".encode() * 1000


def writer(label, step):
    def write(path):
        whole = content(label, step)
        with path.open("wb") as file:
            file.write(whole[:2000])
            file.flush()
            file.write(whole[2000:])

    return write


def directory_at(path):
    return CheckpointDirectory(path, max_to_keep=2, keep_every=5, monitor="val_loss")


def train(path, begun, *, label="a", overwrite=False, last=12):
    """A run from step `begun` on; the score of step 4 comes after its checkpoint."""
    directory = directory_at(path)
    directory.begin(begun, overwrite)
    for step in (s for s in LOSS if s <= last):
        if step > begun and not directory.has(step):
            scores = {} if step == 4 else {"val_loss": LOSS[step]}
            directory.save(step, ".keras", writer(label, step), scores)
        if step == 4 and begun <= 4:
            directory.add_scores(4, {"val_loss": LOSS[4]})
    directory.end("reached")


def contents(path):
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name in FOREIGN:
        (path / name).write_text("foreign")


def killed_at(n, act):
    """Whether a process that does `act` is still at it when it comes to its n-th line."""
    child = os.fork()
    if child == 0:
        lines = itertools.count(1)

        def trace(frame, event, argument):
            if os.path.basename(frame.f_code.co_filename) not in TRACED:
                return None
            if event == "line" and next(lines) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        act()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0


def state_left(path):
    """The steps that are listed, with the run that wrote each: whole files, or an error."""
    listed = list_checkpoints(path)
    newest = latest_checkpoint(path)
    assert newest == (listed[-1].path if listed else None), newest
    state = []
    for checkpoint in listed:
        label = checkpoint.path.read_bytes()[:1].decode()
        assert checkpoint.path.read_bytes() == content(label, checkpoint.step), checkpoint
        state.append(f"{label}{checkpoint.step}")
    return " ".join(state)


def kill_everywhere(path, prepare, act, resume):
    states, mismatches, n = [], [], 0
    prepare(path)
    act()
    wanted = contents(path)
    for n in itertools.count(1):
        prepare(path)
        if not killed_at(n, act):
            break
        state = state_left(path)
        if states[-1:] != [state]:
            states.append(state)
        resume(path)
        if contents(path) != wanted:
            mismatches.append([n, sorted(contents(path))])
    return {"kills": n - 1, "states": states, "mismatches": mismatches, "left": sorted(wanted)}


def from_the_newest(path):
    newest = list_checkpoints(path)[-1:]
    train(path, newest[0].step if newest else 0)


def from_an_earlier_step(path):
    newest = list_checkpoints(path)[-1:]
    begun = max(0, newest[0].step - 3) if newest else 0
    train(path, begun, overwrite=begun == 0)


def with_an_earlier_run(path):
    fresh(path)
    train(path, 0, label="z", last=6)


def read_while_another_writes(path):
    """A reader beside a run never sees anything but whole files, and is warned of nothing."""
    fresh(path)
    child = os.fork()
    if child == 0:
        directory = CheckpointDirectory(path, max_to_keep=1, keep_every=None)
        directory.begin(0, False)
        for step in itertools.count(1):
            directory.save(step, ".keras", writer("a", step), {})
    seen = [0]
    while len(set(seen)) < 20 and os.waitpid(child, os.WNOHANG) == (0, 0):
        newest = latest_checkpoint(path)
        if newest is not None:
            seen.append(int(newest.stem.removeprefix("step_")))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"in_order": seen == sorted(seen), "seen": len(set(seen))}


def main(scenario, path):
    warnings.simplefilter("error")

    overwrite = scenario == "overwrite"

    def go():
        train(path, 0, overwrite=overwrite, last=2 if overwrite else 12)

    if scenario == "read":
        return read_while_another_writes(path)
    prepare = with_an_earlier_run if overwrite else fresh
    resume = {
        "newest": from_the_newest,
        "earlier": from_an_earlier_step,
        "overwrite": lambda path: train(path, 0, overwrite=True, last=2),
    }[scenario]
    return kill_everywhere(path, prepare, go, resume)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
