"""Start a script as several workers on this machine, which train one model together.

Each gets TF_CONFIG, by which TensorFlow finds the others; the script makes a
MultiWorkerMirroredStrategy.
On several machines a scheduler does what is done here. Ctrl-C reaches all of the workers.

    python demo/workers.py [--workers 2] demo/digits.py --strategy workers
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time

SECONDS_TO_FOLLOW = 60  # for workers whose neighbour has failed, to see that and end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [sys.executable, options.script, *options.arguments]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(options.workers)]}
    signal.signal(signal.SIGINT, lambda *_: None)  # the workers have had it too, and save
    workers = []
    try:
        for index in range(options.workers):
            task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            environment = {**os.environ, "TF_CONFIG": json.dumps(task)}
            workers.append(subprocess.Popen(command, env=environment))
        return wait_for(workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def wait_for(workers: list[subprocess.Popen]) -> int:
    """The first exit code that is not 0, when all have ended or have had the time to."""
    ends_at = None
    while any(worker.poll() is None for worker in workers):
        failed = [code for code in (worker.poll() for worker in workers) if code]
        if failed and ends_at is None:
            ends_at = time.monotonic() + SECONDS_TO_FOLLOW
        if ends_at is not None and time.monotonic() > ends_at:
            print(f"a worker has ended with {failed[0]}; the others are killed", file=sys.stderr)
            return failed[0]
        time.sleep(0.2)
    return next((worker.returncode for worker in workers if worker.returncode), 0)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
