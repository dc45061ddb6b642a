"""Move bytes from one socket to another within the kernel (`splice`), without a copy into this process.

A splice needs a pipe between the sockets. One pipe serves all relays of a reactor, because it is empty
between two calls: bytes that the second socket does not take are read from the pipe, and wait like others. A
pipe that may not be empty is closed, because the next call would send its bytes to another client.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Final

SPLICED_BYTES_MIN: Final = 64 * 1024
"""Number of bytes of a frame that must be left, so that a splice costs less than a copy."""
PIPE_BYTES: Final = 1024 * 1024
"""Size of the pipe, and so the maximum of one splice, which takes 0.1 ms: any user may have this much by
default.
"""
_REFUSED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP})
"""Errors by which a kernel, or a sandbox, says that it does not splice these sockets."""


class Splicer:
    """Moves bytes through one pipe."""

    __slots__ = ("_into", "_out", "works")

    def __init__(self) -> None:
        self.works = True
        """False if the kernel refuses to splice; then the bytes must be copied."""
        self._out = self._into = -1

    def move(self, source: int, target: int, most: int) -> tuple[int, bytes]:
        """Move up to `most` bytes between the non-blocking sockets with these descriptors. Return the number
        of bytes taken from the source, 0 at the end of file, and those of them that the target has not
        accepted.

        Raises BlockingIOError if the source has no bytes, other OSErrors if the source is broken, and
        TargetError if the target is. Raises NoPipeError if there is no descriptor for a pipe now, and
        PipeError if taken bytes are lost.
        """
        if self._into < 0:
            self._open()
        try:
            return self._move(source, target, most)
        except (OSError, TargetError):  # the pipe is empty
            raise
        except BaseException:
            self.close()
            raise

    def _move(self, source: int, target: int, most: int) -> tuple[int, bytes]:
        try:
            taken = os.splice(source, self._into, min(most, PIPE_BYTES), flags=os.SPLICE_F_NONBLOCK)
        except OSError as error:
            if error.errno in _REFUSED:
                self.works = False
                raise BlockingIOError from error
            raise
        sent = 0
        try:
            while sent < taken:
                sent += os.splice(self._out, target, taken - sent, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return taken, self._read(taken - sent)
        except OSError as error:
            rest = self._read(taken - sent)
            if error.errno not in _REFUSED:
                raise TargetError(str(error)) from error
            self.works = False
            return taken, rest
        return taken, b""

    def close(self) -> None:
        """Close the pipe."""
        if self._into >= 0:
            os.close(self._into)
            os.close(self._out)
            self._into = self._out = -1

    def _open(self) -> None:
        try:
            self._out, self._into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NoPipeError(str(error)) from error
        with suppress(OSError):  # a user with many pipes must do with a smaller one
            fcntl.fcntl(self._into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def _read(self, count: int) -> bytes:
        """Return the `count` bytes that are left in the pipe. Raises PipeError."""
        parts = []
        while count:
            try:
                part = os.read(self._out, count)
            except OSError as error:
                raise PipeError(f"{count} bytes are left in a pipe: {error}") from error
            if not part:
                raise PipeError(f"{count} bytes are missing in a pipe")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class TargetError(Exception):
    """Raised if the socket that shall get the bytes is broken."""


class NoPipeError(Exception):
    """Raised if no pipe can be made now. No bytes were taken, so the caller can copy them."""


class PipeError(Exception):
    """Raised if bytes that were taken from a socket cannot be read from the pipe: they are lost."""
