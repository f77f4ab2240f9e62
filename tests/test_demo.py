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
GAN = DEMO.with_name("gan.py")
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


@pytest.mark.slow
def test_the_gan_killed_in_its_loop_ends_with_the_same_images(tmp_path, environment):
    def session(folder, *, kill=False):
        arguments = ["--loop", "--steps", "600", "--output", str(tmp_path / folder)]
        with subprocess.Popen(
            [sys.executable, str(GAN), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            limit = threading.Timer(LIMIT, process.kill)
            limit.start()
            lines = []
            for line in process.stdout:
                lines.append(line.rstrip())
                if kill and line.startswith("critic step 2500:"):
                    process.kill()
            limit.cancel()
        assert process.returncode == (-signal.SIGKILL if kill else 0)
        return lines

    *_, counters, quality, _ = whole = session("whole")
    assert counters == "global steps 600 and 3000"
    killed = session("killed", kill=True)
    assert killed[:2] == whole[:2]
    first, *again = session("killed")
    assert re.match("going on from step [24]00: ", first)
    assert again[:-1] == whole[:-1]
    images = [(tmp_path / folder / "digits.png").read_bytes() for folder in ("whole", "killed")]
    assert images[0] == images[1]
