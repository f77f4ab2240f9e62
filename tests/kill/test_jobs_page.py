"""The scripts of docs/jobs.md do what the page says, with real signals; two commands play Slurm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/jobs.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TRAIN, SBATCH, MANIFEST, LOOP = (text for _, text in BLOCKS)

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


@pytest.fixture
def place(tmp_path):
    """A folder with train.py, and commands that do here what Slurm's do there."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sh").write_text(SBATCH)
    commands = {
        "python": f'exec {sys.executable} "$@"',
        "srun": 'exec "$@"',
        "scontrol": 'echo "scontrol $*"; exec bash job.sh',
    }
    for name, line in commands.items():
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/bash\n{line}\n")
        command.chmod(0o755)
    return tmp_path


def child_of(process):
    """The one process that a shell waits for."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def interrupted_at_the_first_line(script, place, name):
    """What the script prints, with the signal sent to the first training when it has begun."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=place,
        env=os.environ
        | {
            "PATH": f"{place}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.fspath(root),
            "SLURM_JOB_ID": "17",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        lines = [process.stdout.readline()]
        os.kill(child_of(process), name)
        lines += process.stdout
    return process.returncode, [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("script", "name", "again", "exit_code"),
    [
        (LOOP, signal.SIGTERM, "once more", 0),
        (SBATCH, signal.SIGUSR1, "scontrol requeue 17", 75),  # of the first job
    ],
    ids=["by hand", "Slurm"],
)
def test_a_training_that_was_told_to_end_is_started_again_and_ends(
    place, script, name, again, exit_code
):
    """Code 75 brings the next start, which goes on and comes to the end; 0 brings none."""
    code, lines = interrupted_at_the_first_line(script, place, name)
    assert code == exit_code
    assert lines[0].startswith("step 1/3000")
    assert lines.count(again) == 1
    assert lines[lines.index(again) + 1].startswith("going on from step ")
    assert lines[-1] == "3000"
    assert (place / "runs/first/final.keras").exists()


def test_the_scripts_agree_on_the_exit_code():
    wanted = re.search(r"^AGAIN = (\d+)$", TRAIN, re.MULTILINE)[1]
    assert f"-eq {wanted} " in SBATCH and f"-eq {wanted} " in LOOP
    assert f"onExitCodes: {{operator: In, values: [{wanted}]}}" in MANIFEST
