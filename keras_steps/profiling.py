"""One trace of what host and devices do, taken by the profiler of the backend."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from keras_steps.timelines import place_for

BACKENDS = ("tensorflow", "tf_keras", "jax")
"""Those whose profiler writes what TensorBoard's Profile tab reads."""


class ProfilerIsBusyError(RuntimeError):
    """Someone else's trace is under way; a process bears one at a time."""


class Trace:
    """A trace from `start` to `stop`, which only then appears in its directory, whole.

    Args:
        backend: One of BACKENDS.
        log_dir: The directory that TensorBoard is pointed at.
        owner: The fit that is traced. It is not kept: without it, a trace was left behind.
    """

    under_way: ClassVar[Trace | None] = None
    """The one trace of this library that has been started and not stopped."""

    def __init__(self, backend: str, log_dir: Path, owner: Any) -> None:
        self.backend = backend
        self._owner = weakref.ref(owner)
        # Profilers name a run by the second: two traces within one would overwrite each other.
        self._staging = log_dir / f".trace_{os.getpid()}"

    def start(self) -> None:
        """Begin, once the devices are idle.

        Raises:
            ProfilerIsBusyError: If a trace is under way already, ours or someone else's.
        """
        other = Trace.under_way
        if other is not None and other._owner() is None:
            other.discard()
        _wait_for_devices(self.backend)
        _start(self.backend, str(self._staging))
        Trace.under_way = self

    def stop(self, directory: Path) -> None:
        """End, once the devices are idle, and make `directory` of it, instead of what is there."""
        Trace.under_way = None
        try:
            _wait_for_devices(self.backend)
            _stop(self.backend)
            (written,) = _runs(self._staging).iterdir()
            _remove(directory)
            written.replace(directory)
        except Exception as error:
            error.add_note(f"This came of ending the trace for {directory}.")
            raise
        finally:
            _remove(self._staging)

    def discard(self) -> None:
        """End without leaving a file."""
        Trace.under_way = None
        try:
            _stop(self.backend)
        finally:
            _remove(self._staging)


def directory_for(log_dir: Path, step: int) -> Path:
    """Where the Profile tab looks for a trace that begins at `step`, listed under that name."""
    return _runs(log_dir) / f"step_{step:08d}"


def place_of_traces(
    log_dir: Path, begun_at: int, *, goes_on: bool, tell: Callable[[str], None]
) -> Path:
    """The log directory for the traces of a run, without those of other timelines.

    Args:
        log_dir: What the user named.
        begun_at: The step at which the run begins.
        goes_on: Whether it continues an earlier one.
        tell: As in `place_for`.
    """
    place = place_for(log_dir, goes_on=goes_on, is_taken=_is_taken, take=_take, tell=tell)
    if goes_on and _is_taken(place):
        for path in list(_runs(place).glob("step_*")):
            digits = path.name.removeprefix("step_")
            if digits.isdecimal() and int(digits) > begun_at:
                _remove(path)
    elif goes_on:
        _take(place)
    return place


_MARK = ".step_profiler"


def _is_taken(log_dir: Path) -> bool:
    return (_runs(log_dir) / _MARK).exists()


def _take(log_dir: Path) -> None:
    _runs(log_dir).mkdir(parents=True, exist_ok=True)
    (_runs(log_dir) / _MARK).touch(exist_ok=False)


def _runs(log_dir: Path) -> Path:
    return log_dir / "plugins" / "profile"


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


def _start(backend: str, directory: str) -> None:
    if backend == "jax":
        import jax

        try:
            jax.profiler.start_trace(directory)
        except RuntimeError as error:
            if "already been started" not in str(error):
                raise
            raise ProfilerIsBusyError(str(error)) from error
    else:
        import tensorflow as tf

        try:
            tf.profiler.experimental.start(directory)
        except tf.errors.AlreadyExistsError as error:
            raise ProfilerIsBusyError(str(error)) from error


def _stop(backend: str) -> None:
    if backend == "jax":
        import jax

        jax.profiler.stop_trace()
    else:
        import tensorflow as tf

        tf.profiler.experimental.stop()


def _wait_for_devices(backend: str) -> None:
    """Wait for what has been dispatched, so that a trace holds all of its steps and no others."""
    if backend == "jax":
        import jax

        jax.block_until_ready(jax.live_arrays())
    else:
        import tensorflow as tf

        names = [device.name for device in tf.config.list_logical_devices()]
        task = names[0].partition("/device:")[0]  # those of this process come first
        if all(name.startswith(f"{task}/") for name in names):
            tf.test.experimental.sync_devices()
            return
        for name in names:  # that waits for none of another process
            if name.startswith(f"{task}/"):
                with tf.device(name):
                    tf.raw_ops.SyncDevice()
