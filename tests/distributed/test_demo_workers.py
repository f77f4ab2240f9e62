"""make demo-workers: two processes on loopback, started by one command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flavours import FLAVOUR

ROOT = Path(__file__).parents[2]
LAUNCHER = [sys.executable, str(ROOT / "demo/workers.py")]

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(300),
    pytest.mark.skipif(FLAVOUR != "tensorflow", reason="the demo runs on TensorFlow"),
]


def test_two_workers_train_on_digits_and_one_of_them_reports(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is missing")
    script = ["demo/digits.py", "--strategy", "workers", "--steps", "40", "--output", tmp_path]
    ran = subprocess.run(
        [*LAUNCHER, *script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    lines = ran.stdout.splitlines()
    assert [line for line in lines if line.startswith("global step")] == ["global step 40"]
    assert len([line for line in lines if line.startswith("step 40/40: ")]) == 1
    names = sorted(path.name for path in (tmp_path / "workers/checkpoints").iterdir())
    assert names == ["checkpoints.json", "step_00000040.keras"]


def test_a_worker_that_fails_ends_the_command_with_its_code(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "task = json.loads(os.environ['TF_CONFIG'])\n"
        "assert len(task['cluster']['worker']) == 2\n"
        "sys.exit(3 * task['task']['index'])\n"
    )
    assert subprocess.run([*LAUNCHER, str(script)], timeout=60).returncode == 3
