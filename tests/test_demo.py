"""The demo: sessions that go on where the last one ended, or was ended."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from flavours import FLAVOUR

DEMO = Path(__file__).parents[1] / "demo/digits.py"
LIMIT = 100  # seconds after which a process is ended, whatever happens


@pytest.fixture
def environment():
    pytest.importorskip("sklearn", reason="scikit-learn is missing")
    if FLAVOUR != "tensorflow":
        pytest.skip("the demo runs on TensorFlow")
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(DEMO.parents[1])}


def command(folder, steps):
    return [sys.executable, str(DEMO), "--steps", str(steps), "--output", str(folder)]


def lines_of_session(folder, steps, environment):
    ran = subprocess.run(
        command(folder, steps), capture_output=True, text=True, env=environment, timeout=LIMIT
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def interrupt_session(folder, environment):
    """Begin a long session, press Ctrl-C after its first line of results; what it says then."""
    with subprocess.Popen(
        command(folder, 10**6),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as session:
        limit = threading.Timer(LIMIT, session.kill)
        limit.start()
        try:
            assert any(line.startswith("step 100/") for line in session.stdout)
            session.send_signal(signal.SIGINT)
            _, said = session.communicate()
        finally:
            limit.cancel()
            session.kill()
    assert session.returncode == 1, said
    return said.splitlines()


@pytest.mark.slow
def test_the_demo_goes_on_after_ctrl_c(tmp_path, environment):
    """Ctrl-C ends a session in good order, and the next one goes on."""
    *_, said = interrupt_session(tmp_path, environment)
    (stopped_at,) = re.fullmatch(r"stopped at step (\d+): the same command .*", said).groups()
    assert int(stopped_at) >= 100
    target = int(stopped_at) + 10
    lines = lines_of_session(tmp_path, target, environment)
    assert lines[0].startswith("going on from step ")
    assert f"global step {target}" in lines
    assert any(line.startswith("best on 297 held-out images: accuracy=0.") for line in lines)
    assert (tmp_path / "loss_and_learning_rate.png").stat().st_size > 10_000
