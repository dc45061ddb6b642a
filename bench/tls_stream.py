"""TLS connections of the load generator, with the methods of a plain socket and few calls of the library."""

from __future__ import annotations

import ssl
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""Maximum number of bytes in a TLS record, and in one read or write by the library."""
SHORT_BYTES: Final = 4 * 1024
"""Size (bytes) of a record below which `recv_into` does not try to read another: a further record is likely
to be missing, and if it arrives, the next poll reports it.
"""


class TlsStream:
    """A non-blocking TLS connection, with the methods `recv_into` and `send` of `socket.socket`."""

    __slots__ = ("_read", "_write")

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._read, self._write = connection.recv_into, connection.send

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Read the records that have arrived and fit into `buffer`; return the number of bytes, 0 at the end
        of the stream. Raises BlockingIOError if no record has arrived, OSError.

        A record is read whole or not at all, because no poll would report the rest of a record. So `buffer`
        must have room for a whole record (`RECORD_BYTES`).
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
        """Send as many bytes as the connection takes, and return their number. The next call must begin with
        the first byte that was not sent.

        Raises BlockingIOError if the connection takes no bytes, OSError.
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
