"""A file system so small that it gets full, and that can become read-only."""

import contextlib
import errno
import os
import subprocess

import pytest

FILLER = "foreign"


class SmallDisk:
    """A disk of a test's own, below `path`."""

    def __init__(self, path):
        self.path = path

    def fill(self):
        """Take all the room that is left, with a file that is nobody's."""
        with (self.path / FILLER).open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(512))
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def make_room(self):
        (self.path / FILLER).unlink()

    def make_read_only(self):
        self._remount("ro")

    def make_writable(self):
        self._remount("rw")

    def _remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.path], check=True)


@contextlib.contextmanager
def small_disk(path, *, kib):
    """Mount one of so many KiB for the time being. Only root can: else the test is skipped."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", path]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
