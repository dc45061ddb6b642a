"""Read the files that people and other programs write.

A path in a setting may lead to anything. Opening a named pipe waits for a writer, reading a device may never
end, and a file of many gigabytes fills the memory. So only regular files are read, up to a size. Commands
also read pipes that have a writer, such as those of a shell's `<(…)`.

Editors of other systems begin a file with a byte order mark. That of UTF-8 is skipped, and UTF-16 is refused.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path
from typing import Final

QUOTAS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size (bytes) of a quota file or a snapshot: half a million quotas."""
CERTIFICATES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size (bytes) of a file with certificates or a key."""
PASSWORD_BYTES_MAX: Final = 64 * 1024
"""Maximum size (bytes) of a file with a password."""

_CHUNK_BYTES: Final = 1024 * 1024
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileRefusedError(OSError):
    """The file exists, but Weir does not read it. `strerror` gives the reason."""

    def __init__(self, reason: str, path: Path) -> None:
        """Begin with the reason, in one line that does not quote the content."""
        super().__init__(errno.EINVAL, reason, str(path))


def read_bytes(path: Path, bytes_max: int, *, pipes: bool = False) -> bytes:
    """Return the content of a regular file of at most `bytes_max` bytes. With `pipes`, also that of a pipe
    with a writer, until the writer closes it. Raises OSError: FileRefusedError for all else.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise FileRefusedError("its path has a NUL character", path) from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise FileRefusedError("it is a socket: give a regular file", path) from None
        raise
    try:
        status = os.fstat(fd)
        is_pipe = stat.S_ISFIFO(status.st_mode)
        if not stat.S_ISREG(status.st_mode) and not (pipes and is_pipe):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
            raise FileRefusedError(f"it is {kind}: give a regular file", path)
        content = _read_pipe(fd, bytes_max, path) if is_pipe else _read(fd, bytes_max)
    finally:
        os.close(fd)
    if len(content) > bytes_max:
        raise FileRefusedError(f"it is larger than {bytes_max} bytes", path)
    return content


def read_text(path: Path, bytes_max: int, *, pipes: bool = False) -> str:
    """Return the text of a file in UTF-8, without a byte order mark. Raises as `read_bytes`, and
    FileRefusedError for other encodings.
    """
    return text_of(read_bytes(path, bytes_max, pipes=pipes), path)


def text_of(content: bytes, path: Path) -> str:
    """Return the text of the file at `path`, which has this content, as `read_text` does."""
    if content.startswith(_UTF_16):
        raise FileRefusedError("it is UTF-16, by its byte order mark: save it as UTF-8", path)
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileRefusedError(f"it is not UTF-8, at byte {error.start}: save it as UTF-8", path) from None


def _read_pipe(fd: int, bytes_max: int, path: Path) -> bytes:
    """Read a pipe until its writers close it. Raises FileRefusedError if nobody has it open for writing, and
    nothing is in it.
    """
    try:
        first = os.read(fd, 1)
    except BlockingIOError:  # a writer has written nothing yet
        first = b""
    else:
        if not first:
            raise FileRefusedError("it is a pipe that no program writes to: give a regular file", path)
    os.set_blocking(fd, True)
    return first + _read(fd, bytes_max)


def _read(fd: int, bytes_max: int) -> bytes:
    """Read up to `bytes_max` + 1 bytes."""
    chunks, rest = list[bytes](), bytes_max + 1
    while chunk := os.read(fd, min(_CHUNK_BYTES, rest)):
        chunks.append(chunk)
        rest -= len(chunk)
    return b"".join(chunks)
