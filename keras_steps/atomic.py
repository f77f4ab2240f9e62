"""Files that are whole or not there, whenever the process is killed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_PARTIAL = re.compile(r"\.keras_steps_[0-9a-f]{8}_.+", re.DOTALL)


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Write a file that appears under `path` at once, or not at all.

    The body writes to the path it is given: a hidden one in the same directory that ends with
    the name of `path`, so that its suffix is the same. When the body is through, that file is
    brought to the disk, takes the place of `path`, and the directory is brought to the disk. If
    anything fails before that, it is removed, and what was under `path` stays. A process that
    is killed leaves it behind, for `remove_partials`.

    Args:
        path: Where the file is to be; its directory exists.

    Raises:
        OSError: If the system fails to write, naming `path`.

    Example:

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "greeting.txt"
    >>> with write_atomically(path) as partial:
    ...     _ = partial.write_text("hello")
    >>> path.read_text()
    'hello'
    """
    partial = path.with_name(f".keras_steps_{secrets.token_hex(4)}_{path.name}")
    try:
        yield partial
        _bring_to_disk(partial)
        os.replace(partial, path)
        _bring_directory_to_disk(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)  # gone already, or as unwritable as the error says
        if isinstance(error, OSError):
            raise _naming(path, error, partial) from error
        raise


def remove_partials(directory: Path) -> None:
    """Remove what `write_atomically` left behind in `directory` when its process was killed.

    Call it while nothing else writes there.
    """
    for path in directory.iterdir():
        if _PARTIAL.fullmatch(path.name) and path.is_file():
            os.unlink(path)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` atomically, with a checksum of its own.

    Args:
        path: Where the file is to be; its directory exists.
        value: What JSON can hold, and NaN and infinities; no key `checksum` at the top.

    Raises:
        OSError: If the system fails to write, naming `path`.

    Example:

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.json"
    >>> write_json(path, {"step": 100})
    >>> read_json(path)
    {'step': 100}
    """
    text = _with_checksum(value)
    with write_atomically(path) as partial:
        partial.write_bytes(text)


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a single byte of it is not as it was written, naming `path`.
    """
    text = path.read_bytes()
    try:
        value = json.loads(text)
        del value["checksum"]
        whole = _with_checksum(value) == text
    except (ValueError, KeyError, TypeError):  # no JSON, or none that write_json wrote
        whole = False
    if not whole:
        raise ValueError(f"{path} is damaged, or was changed: its checksum does not fit.")
    return value


def _with_checksum(value: Mapping[str, Any]) -> bytes:
    checksum = hashlib.sha256(json.dumps(value).encode()).hexdigest()
    # On one line: an indent takes twice the time, in which no other thread trains.
    return (json.dumps({**value, "checksum": checksum}) + "\n").encode()


def _naming(path: Path, error: OSError, partial: Path) -> OSError:
    """`error` as one about `path`, of the same kind."""
    about_partial = error.filename is None or os.fspath(error.filename) == str(partial)
    message = f"Cannot write {path}: {about_partial and error.strerror or error}"
    return OSError(error.errno, message) if error.errno else OSError(message)


def _bring_to_disk(path: Path) -> None:
    with path.open("r+b") as file:  # Windows can't do this to a file that is open for reading
        os.fsync(file.fileno())


def _bring_directory_to_disk(directory: Path) -> None:
    if os.name == "nt":  # which opens no directory, and keeps their entries in a journal
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems can't
            raise
    finally:
        os.close(descriptor)
