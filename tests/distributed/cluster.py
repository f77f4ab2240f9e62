"""Starts the processes of a cluster on loopback, and ends them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def run_cluster(script, jobs, *, limit, report_from, ends_with=0, **settings):
    """Run `script` once a task; returns what each task of the reporting jobs has reported.

    With it comes `output`, what the task has printed.

    Args:
        script: A file beside this one. It reports by `report(thing)`.
        jobs: Tasks a job, such as {"worker": 2}.
        limit: Seconds after which all processes are killed and the test fails.
        report_from: The jobs whose tasks are waited for; the others are ended then.
        ends_with: The exit code of each of them, or a dict of codes by (job, index). One that
            is killed leaves no report.
        settings: Environment variables for all of them.
    """
    cluster = {job: [f"127.0.0.1:{port}" for port in _free_ports(n)] for job, n in jobs.items()}
    with tempfile.TemporaryDirectory() as folder:
        tasks = {}
        try:
            for job, addresses in cluster.items():
                for index in range(len(addresses)):
                    tasks[job, index] = _Task(folder, script, cluster, job, index, settings)
            ends_at = time.monotonic() + limit
            waited_for = {key: task for key, task in tasks.items() if key[0] in report_from}
            codes = ends_with if isinstance(ends_with, dict) else dict.fromkeys(tasks, ends_with)
            return {key: task.result(ends_at, codes[key]) for key, task in waited_for.items()}
        finally:
            for task in tasks.values():
                task.end()


class _Task:
    def __init__(self, folder, script, cluster, job, index, settings):
        self.name = f"{job} {index}"
        self.report = Path(folder, f"{job}-{index}.json")
        self.output = Path(folder, f"{job}-{index}.txt")
        config = {"cluster": cluster, "task": {"type": job, "index": index}}
        environment = {
            **os.environ,
            **settings,
            "TF_CONFIG": json.dumps(config),
            "REPORT": str(self.report),
            "PYTHONPATH": f"{HERE.parent}:{HERE.parent.parent}",
            "GRPC_FAIL_FAST": "use_caller",
        }
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / script)],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def result(self, ends_at, ends_with):
        try:
            code = self.process.wait(max(0.1, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = "a time limit"
        text = self.output.read_text()
        assert code == ends_with, f"{self.name} ended with {code}:\n{text[-6000:]}"
        reported = json.loads(self.report.read_text()) if self.report.exists() else {}
        return {**reported, "output": text}

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def report(**things):
    """Called by a task: leave its report, for the test to read."""
    Path(os.environ["REPORT"]).write_text(json.dumps(things))


def leave():
    """Called by a task of torch behind its report: end, and leave its group as it is.

    Else the process aborts now and then, behind its report: `terminate called without an active
    exception`. (Seen with torch 2.13 over gloo, under load; why was not found out.)
    """
    sys.stdout.flush()
    os._exit(0)
