"""Atomic replacement of a file: any reader, even after a crash, finds the old content or the new one."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from weir.proxy.file_watch import Stamp, stamp
from weir.proxy.files import FileRefusedError, read_bytes

PRIVATE: Final = 0o600


def replace(
    path: Path, content: bytes | Iterable[bytes], *, mode: int = PRIVATE, instead_of: bytes | None = None
) -> Stamp:
    """Replace the regular file at `path` by a file with this content (or these parts of it), which survives a
    crash. Return the new file's modification time, size and inode. Raises OSError; the old file stays in that
    case.

    An existing file keeps its permissions, and its owner if Weir may set the owner; a new file gets `mode`.
    With `instead_of`, the file is replaced only if its content is `instead_of`; otherwise return None.
    """
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as new:
            new.writelines([content] if isinstance(content, bytes) else content)
            new.flush()
            _be_like(new.fileno(), path, mode)
            os.fsync(new.fileno())
        if instead_of is not None and not _has(path, instead_of):
            return None
        written = stamp(Path(name))  # not of `path`: another process may replace that file now
        Path(name).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
    sync_directory(path.parent)
    return written


def sync_directory(directory: Path) -> None:
    """Make renames of files in this directory durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _has(path: Path, content: bytes) -> bool:
    try:
        return read_bytes(path, len(content)) == content
    except FileRefusedError:  # larger, or no regular file any more
        return False


def _be_like(fd: int, path: Path, mode: int) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        os.fchmod(fd, mode)
        return
    if not stat.S_ISREG(status.st_mode):  # such as /dev/null, which others need
        raise FileRefusedError("it is no regular file", path)
    with contextlib.suppress(PermissionError):
        os.fchown(fd, status.st_uid, status.st_gid)
    os.fchmod(fd, status.st_mode & 0o7777)
