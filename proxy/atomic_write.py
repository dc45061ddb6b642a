"""Replacing a file in one step: whoever reads it, at whatever moment, after whatever crash, finds the old
content or the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from proxy.file_watch import Stamp, stamp

PRIVATE: Final = 0o600


def replace(path: Path, content: bytes, *, mode: int = PRIVATE, instead_of: bytes | None = None) -> Stamp:
    """Put `content` at `path`, durably, and return its stamp. Raises OSError, and leaves the old file then.

    A file that is there keeps its permissions, and its owner where Weir may give it; a new one has `mode`.
    With `instead_of`, it is replaced only if it holds that; if it does not any more, return None.
    """
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as new:
            new.write(content)
            new.flush()
            _be_like(new.fileno(), path, mode)
            os.fsync(new.fileno())
        if instead_of is not None and path.read_bytes() != instead_of:
            return None
        written = stamp(Path(name))  # not that of `path`, which somebody may replace in turn
        Path(name).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
    sync_directory(path.parent)
    return written


def sync_directory(directory: Path) -> None:
    """Make new names in it durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _be_like(fd: int, path: Path, mode: int) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        os.fchmod(fd, mode)
        return
    with contextlib.suppress(PermissionError):
        os.fchown(fd, status.st_uid, status.st_gid)
    os.fchmod(fd, status.st_mode & 0o7777)
