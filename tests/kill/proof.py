"""Kills trainings at random moments until they have finished, and compares what they came to.

`python tests/kill/proof.py KILLS` spreads so many kills over all combinations; the exit status
is 1 if a run differs from one that was never killed. It prints the seed, with which the
same kills are aimed at again, and leaves what differs where it says.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from combinations import COMBINATIONS, missing
from comparing import differences

HERE = Path(__file__).parent
LIMIT_SECS = 300.0
SHARE_IN_SAVES = 0.4
SHARE_BEFORE_TRAINING = 0.1


class Failed(Exception):
    """A child came to an end of its own, without having finished."""


@dataclass
class Child:
    """What one start of the script came to.

    Attributes:
        was_killed: Whether it was, before it had finished.
        began_at: The step that it went on from, if it came so far.
        seconds: How long it trained, if it finished.
        points: At how many points within saves it was.
        output: All that it printed.
    """

    was_killed: bool = False
    began_at: int | None = None
    seconds: float = 0.0
    points: int = 0
    output: str = ""


@dataclass
class Tally:
    """What is counted over all runs of a combination."""

    name: str
    kills: int = 0
    in_saves: int = 0
    resumes: int = 0
    replayed: int = 0
    runs: int = 0
    mismatches: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.name:<42} {self.kills:>5} {self.in_saves:>8} {self.resumes:>8} "
            f"{self.replayed:>9} {self.runs:>5} {len(self.mismatches):>11}"
        )


HEADER = (
    f"{'combination':<42} {'kills':>5} {'in saves':>8} {'resumes':>8} {'replayed':>9} "
    f"{'runs':>5} {'mismatches':>11}"
)


def start(number: int, directory: Path, *, delay: tuple[str, float] | None = None, point: int = 0):
    """Start the script once, and kill it some seconds after it has said a word, or at a point.

    Raises:
        Failed: If it ended with an error, or not within the time limit.
    """
    combination, child = COMBINATIONS[number], Child()
    command = [str(combination.python), str(HERE / "trains.py"), str(number), str(directory)]
    process = subprocess.Popen(
        [*command, *([str(point)] if point else [])],
        env=combination.environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    timers = [threading.Timer(LIMIT_SECS, process.kill)]
    timers[0].start()
    lines, training_since, ends_at = [], 0.0, time.monotonic() + LIMIT_SECS
    try:
        for line in process.stdout:
            lines.append(line)
            words = line.split()
            if line.startswith("goes on from"):
                child.began_at = int(words[-1])
            elif words and words[0] == "training":
                training_since = time.monotonic()
            elif words and words[0] == "saved":
                child.points = int(words[-1])
                child.seconds = time.monotonic() - training_since
            if delay is not None and words and words[0] == delay[0] and len(timers) == 1:
                timers.append(threading.Timer(delay[1], process.kill))
                timers[1].start()
        code = process.wait()
    finally:
        for timer in timers:
            timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
    child.output = "".join(lines)
    child.was_killed = code == -signal.SIGKILL and time.monotonic() < ends_at
    if code != 0 and not (child.was_killed and (delay or point)):
        raise Failed(f"ended with {code}:\n{child.output[-3000:]}")
    return child


def prove(number: int, kills: int, root: Path, seed: int) -> Tally:
    """Train once without kills, then kill so often; every run that finishes is compared."""
    randoms = random.Random(f"{seed} {number}")
    tally = Tally(COMBINATIONS[number].name)
    whole = root / f"{number}_whole"
    whole.mkdir()
    try:
        unharmed = start(number, whole)
    except Failed as error:
        tally.mismatches.append(f"never killed, {error}")
        return tally
    while tally.kills < kills and len(tally.mismatches) < 3:
        tally.runs += 1
        killed = root / f"{number}_killed_{tally.runs}"
        killed.mkdir()
        try:
            kill_until_done(number, killed, unharmed, kills, randoms, tally)
            found = differences(whole, killed)
        except Failed as error:
            found = [f"after {tally.kills} kills, {error}"]
        if found:
            tally.mismatches.append("\n  ".join(found) + f"\n  left in {killed}")
        else:
            shutil.rmtree(killed)
    return tally


def kill_until_done(
    number: int, directory: Path, unharmed: Child, kills: int, randoms: random.Random, tally: Tally
) -> None:
    """Start the script again and again, until the kills are used up or it has finished."""
    reached = None
    while True:
        aim: dict = {}
        in_save = randoms.random() < SHARE_IN_SAVES
        if tally.kills < kills and in_save:
            aim["point"] = randoms.randint(1, unharmed.points)
        elif tally.kills < kills:
            word = "begins" if randoms.random() < SHARE_BEFORE_TRAINING else "training"
            aim["delay"] = (word, randoms.uniform(0, unharmed.seconds))
        child = start(number, directory, **aim)
        if child.began_at:
            tally.resumes += 1
            tally.replayed += max(0, (reached or 0) - child.began_at)
        if not child.was_killed:
            return
        tally.kills += 1
        tally.in_saves += in_save
        reached = last_fired(directory)


def last_fired(directory: Path) -> int | None:
    """The step of the last firing that was noted: every second one is."""
    path = directory / "firings.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return int(lines[-1].split(",")[1]) if lines else None


def shares(kills: int, count: int, seed: int) -> list[int]:
    """How many kills each combination gets; with few, another beginning for another seed."""
    given = [kills // count] * count
    for extra in range(kills % count):
        given[(seed * kills + extra) % count] += 1
    return given


def main(kills: int, only: list[int], seed: int, jobs: int, root: Path) -> int:
    chosen = only or list(range(len(COMBINATIONS)))
    given = dict(zip(chosen, shares(kills, len(chosen), seed), strict=True))
    began = time.monotonic()
    print(f"{kills} kills, seed {seed}, in {root}\n{HEADER}", flush=True)
    total = Tally("in all")
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(prove, n, k, root, seed) for n, k in given.items() if k]
        for future in futures:
            tally = future.result()
            print(tally.line(), flush=True)
            for mismatch in tally.mismatches:
                print(f"  {mismatch}", flush=True)
            for name in ("kills", "in_saves", "resumes", "replayed", "runs", "mismatches"):
                setattr(total, name, getattr(total, name) + getattr(tally, name))
    print(f"{total.line()}\n{time.monotonic() - began:.0f} s", flush=True)
    return 1 if total.mismatches else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--only", type=int, nargs="+", default=[], help="numbers of combinations")
    today = int(time.time() // 86400)
    parser.add_argument("--seed", type=int, default=today, help="another one each day")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--keep", type=Path, help="where to leave everything")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parsed()
    if missing():
        sys.exit(f"missing: {', '.join(missing())}")
    place = arguments.keep or Path(tempfile.mkdtemp(prefix="keras_steps_kill_"))
    place.mkdir(parents=True, exist_ok=True)
    code = main(arguments.kills, arguments.only, arguments.seed, arguments.jobs, place)
    if code == 0 and not arguments.keep:
        shutil.rmtree(place)
    sys.exit(code)
