"""A file of lines that is being written: locked, and cut back to whole lines whenever a write fails."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

Write: TypeAlias = Callable[[int, memoryview], int]
"""As `os.write`."""

MODE: Final = 0o640
"""Names of users are for the owner, and for the group of those who read them. The umask may take more."""
TAIL_BYTES: Final = 64 * 1024


class UnevenError(OSError):
    """A write failed, and could not be taken back."""

    whole: bytes = b""
    """The whole lines that were written: whoever finishes the file keeps them."""


class PartFile:
    """Nobody reads it before it is renamed; who finds it unlocked knows that its writer is dead."""

    def __init__(self, path: Path, write: Write = os.write) -> None:
        """Make it. Raises OSError: FileExistsError if there is one, BlockingIOError if somebody took it for a
        dead one's before it was locked.
        """
        self.path = path
        self.length = 0
        self.records = 0
        self._write = write
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(path, self._fd):
                raise BlockingIOError(errno.EAGAIN, "removed")
        except OSError:
            os.close(self._fd)
            raise

    def append(self, lines: bytes, records: int) -> None:
        """Write all of these whole lines, or none. Raises OSError; UnevenError if some of them, and part of a
        line at the end, are there now: leave it then.
        """
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[self._write(self._fd, rest) :]
        except OSError as error:
            try:
                os.ftruncate(self._fd, self.length)
            except OSError:
                uneven = UnevenError(error.errno, error.strerror)
                uneven.whole = lines[: lines.rfind(b"\n", 0, len(lines) - len(rest)) + 1]
                raise uneven from None
            raise
        self.length += len(lines)
        self.records += records

    def finish(self, name: str) -> None:
        """Give it its name, once it is on the disk as a whole. Raises OSError, and is closed in any case."""
        try:
            os.fsync(self._fd)
            _rename(self.path, name)
        finally:
            os.close(self._fd)

    def discard(self) -> None:
        """Remove it. Raises OSError, and is closed in any case."""
        try:
            self.path.unlink(missing_ok=True)
        finally:
            os.close(self._fd)

    def leave(self) -> None:
        """Close it as it is; whoever looks for files of the dead finishes it."""
        os.close(self._fd)


def finish_for_the_dead(path: Path, name: str) -> int:
    """Cut a file that nobody writes any more after its last whole line, and give it its name. Return how many
    bytes were cut off; -1 if somebody does write it, or has just finished it. Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)  # a link may lead to any file
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return -1
        if not _is_at(path, fd):
            return -1
        length = os.fstat(fd).st_size
        whole = _whole_lines(fd, length)
        if whole == 0:
            path.unlink()
            return length
        os.ftruncate(fd, whole)
        os.fsync(fd)
        _rename(path, name)
        return length - whole
    finally:
        os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    """Whether the file is the one that has this name now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _whole_lines(fd: int, length: int) -> int:
    """Return how many bytes there are up to the last line's end."""
    end = length
    while end > 0:
        begin = max(end - TAIL_BYTES, 0)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _rename(path: Path, name: str) -> None:
    """Within its directory, which is written out as well. Raises OSError."""
    path.rename(path.with_name(name))
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
