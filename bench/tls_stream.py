"""The load generator's TLS connections in the terms of plain ones, with few calls of the library."""

from __future__ import annotations

import ssl
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""The most that a TLS record holds, and that the library reads or writes at once."""
SHORT_BYTES: Final = 4 * 1024
"""After a record below this, no other is looked for: the next poll tells, without a read in vain."""


class TlsStream:
    """Reads and writes on a connection that does not block, as `socket.socket` does."""

    __slots__ = ("_read", "_write")

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._read, self._write = connection.recv_into, connection.send

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Read the records that are here and fit; 0 at the end. Raises BlockingIOError, OSError.

        A record is read whole or not at all: no poll would tell of its rest. So `buffer` has room for one.
        """
        view, count = memoryview(buffer), 0
        try:
            while len(view) - count >= RECORD_BYTES:
                got = self._read(view[count:])
                count += got
                if got < SHORT_BYTES:
                    break
        except ssl.SSLWantReadError:
            if not count:
                raise BlockingIOError from None
        return count

    def send(self, data: memoryview) -> int:
        """Send as much as the connection takes; the next call must begin with the rest.

        Raises BlockingIOError if it takes nothing, OSError.
        """
        sent = 0
        try:
            while sent < len(data):
                end = sent + RECORD_BYTES
                sent += self._write(data[sent:end])
        except ssl.SSLWantWriteError:
            if not sent:
                raise BlockingIOError from None
        return sent
