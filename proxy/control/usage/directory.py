"""The usage directory: files are written, finished and removed.

A file that is being written is locked, and after a failed write cut back to whole frames. Its name is
`.usage-INSTANCE-NUMBER.jsonl.zst.part`: readers of directories ignore names that begin with a dot. The name
of a finished file is `usage-INSTANCE-NUMBER.jsonl.zst`. Traces have files of their own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from weir.proxy.atomic_write import sync_directory
from weir.proxy.control.usage.compression import whole_frames
from weir.proxy.control.usage.tally import OF_USAGE, Kind, Tally

Write: TypeAlias = Callable[[int, memoryview], int]
"""Function that writes bytes to a descriptor and returns their number, like `os.write`."""

MODE: Final = 0o640
"""Permissions of files: the group may read them, and no other user, because records contain user names. The
umask may remove more.
"""
_FINISHED: Final = re.compile(rf"(?:{'|'.join(OF_USAGE)})-.*\.jsonl\.zst")
_UNFINISHED: Final = re.compile(rf"\.({_FINISHED.pattern})\.part")


class _File(NamedTuple):
    changed_ns: int
    name: str
    length: int


def finished_name(kind: Kind, instance: str, number: int) -> str:
    """Return the name that a file gets when it is finished. The name is unique; the names of one instance's
    files sort by age.
    """
    return f"{kind.value}-{instance}-{number:08d}.jsonl.zst"


def unfinished_name(name: str) -> str:
    """Return the name that a file has while it is being written, from the name that it gets when finished."""
    return f".{name}.part"


def make(directory: Path) -> None:
    """Create the directory if it is missing, and check that files can be created in it. Raises OSError."""
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    probe = directory / f".weir-probe-{os.getpid()}"
    probe.touch()
    probe.unlink()


def recover(directory: Path, tally: Tally) -> None:
    """Finish the files that killed processes have left unfinished; skip a file that cannot be finished.
    Raises OSError if the directory cannot be read.
    """
    for entry in _scan(directory):
        match = _UNFINISHED.fullmatch(entry.name)
        if match is None:
            continue
        with suppress(OSError):  # a full disk, or another user's file, must not prevent writing new files
            tally.recovered_files += finish_for_the_dead(directory / entry.name, match[1]) >= 0


def prune(directory: Path, keep_bytes: int, tally: Tally) -> None:
    """Delete the oldest finished files until the remaining ones have at most `keep_bytes`. Raises OSError."""
    files = sorted(entry for entry in _scan(directory) if _FINISHED.fullmatch(entry.name))
    too_many = sum(file.length for file in files) - keep_bytes
    for file in files:
        if too_many <= 0:
            return
        (directory / file.name).unlink(missing_ok=True)  # another Weir may prune too
        too_many -= file.length
        tally.deleted_files += 1
        tally.deleted_bytes += file.length


def _scan(directory: Path) -> list[_File]:
    files = []
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            files.append(_File(status.st_mtime_ns, entry.name, status.st_size))
    return files


class UnevenError(OSError):
    """A write to a file failed after a part was written, and this part could not be removed."""


class PartFile:
    """A file that is being written, and is renamed when finished. It is locked meanwhile, so that other
    processes do not take it for a file that a killed process has left.
    """

    def __init__(self, path: Path, write: Write = os.write) -> None:
        """Create and lock the file. Raises OSError: FileExistsError if the file exists; BlockingIOError if
        another process took the file for one left by a killed process, before it was locked.
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

    def append(self, content: bytes, records: int) -> None:
        """Write all of the content, or nothing. Raises OSError; UnevenError if some bytes were written and
        could not be removed: the caller must then call `leave`.
        """
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._write(self._fd, rest) :]
        except OSError as error:
            try:
                os.ftruncate(self._fd, self.length)
            except OSError:
                raise UnevenError(error.errno, error.strerror) from None
            raise
        self.length += len(content)
        self.records += records

    def finish(self, name: str) -> None:
        """Sync the file to disk, rename it to `name`, and close it. Raises OSError; the file is closed in any
        case.
        """
        try:
            os.fsync(self._fd)
            _rename(self.path, name)
        finally:
            os.close(self._fd)

    def discard(self) -> None:
        """Delete the file and close it. Raises OSError; the file is closed in any case."""
        try:
            self.path.unlink(missing_ok=True)
        finally:
            os.close(self._fd)

    def leave(self) -> None:
        """Close the file without renaming it. A later call of `recover` finishes it."""
        os.close(self._fd)


def finish_for_the_dead(path: Path, name: str) -> int:
    """Finish a file that a killed process has left: cut off an incomplete last frame, and rename the
    file; delete it if nothing else is in it. Return the number of bytes removed; -1 if another process is
    writing the file, or has just finished it. Raises OSError.
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
        whole = whole_frames(fd, length)
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
    """Return True if the path still leads to the file with this descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _rename(path: Path, name: str) -> None:
    """Rename the file within its directory, and sync the directory. Raises OSError."""
    path.rename(path.with_name(name))
    sync_directory(path.parent)
