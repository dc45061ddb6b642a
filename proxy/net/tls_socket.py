"""An established TLS connection with the methods of a plain socket.

Two differences from a plain socket remain. Decrypted bytes wait in the TLS library, where no poll sees them:
`waiting` reports them, `tls_relay` reads them. A short send must be repeated with the same bytes; a relay
does that, because it sends unsent bytes first.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""Size of the largest TLS record, and so of the largest read from the library."""
LONELY_BYTES: Final = 1024
"""Size (bytes) of a read from the TLS library below which the read was probably one whole request. No further
read is tried then, because waiting for the next poll costs less CPU.
"""


class TlsSocket:
    """A non-blocking TLS connection after its handshake. Errors are OSErrors, as with sockets."""

    __slots__ = ("_ended", "_explain", "_heard", "_peeked", "_sock", "wants_write")

    def __init__(self, sock: ssl.SSLSocket, explain: Callable[[ssl.SSLError], str]) -> None:
        """Take over a socket made with suppress_ragged_eofs=False, so that a reset does not look like an end
        of file. `explain` returns the description of a TLS error.
        """
        self._sock = sock
        self._explain = explain
        self._peeked = b""
        self._ended = False
        self._heard = False
        """True once the peer has sent data. A reset before that may mean that the peer refuses Weir's
        certificate: a TLS 1.3 server does so only after the client has finished its handshake.
        """
        self.wants_write = False
        """True if reading needs a send first (the answer to a key update)."""

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._sock.fileno()

    def waiting(self) -> bool:
        """Return True if decrypted bytes, or the end of file, wait in the TLS library, where no poll reports
        them.
        """
        return bool(self._peeked or self._ended or self._sock.pending())

    def waiting_bytes(self) -> int:
        """Return the number of decrypted bytes that wait in the TLS library."""
        return len(self._peeked) + self._sock.pending()

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Read decrypted bytes into `buffer`, of several records if available; at most `nbytes`, 0 for the
        whole buffer. Return the number of bytes, 0 at the end of file.

        Raises BlockingIOError if no bytes are available, OSError if the connection is broken.
        """
        room = nbytes or len(buffer)
        count = 0
        if self._peeked:
            buffer[:1] = self._peeked
            self._peeked = b""
            count = 1
        count += self._take(buffer[count:room])
        if count:
            self._heard = True
            return count
        if self._ended:
            return 0
        raise BlockingIOError

    def _take(self, buffer: memoryview) -> int:
        """Read the decrypted bytes that are available and return their number: 0 at the end of file, or if no
        bytes are available. Raises OSError.
        """
        count, room = 0, len(buffer)
        try:
            while count < room and not self._ended:
                got = self._sock.recv_into(
                    buffer[count:], room - count
                )  # with a given size, the library need not compute it
                count += got
                self._ended = not got
                if got < LONELY_BYTES:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self.wants_write = True
        except ssl.SSLEOFError as end:
            # OpenSSL 3 has a reason for an end without close_notify. Typeshed calls the reason a str, which
            # compiled code would check.
            if getattr(end, "reason", None) is None:
                raise self._reset(end) from None
            self._ended = True
        except ssl.SSLError as error:
            raise ConnectionError(self._explain(error)) from None
        return count

    def recv(self, _bufsize: int, _flags: int, /) -> bytes:
        """Return the next byte without consuming it, b"" at the end of file. Relays call this only with
        MSG_PEEK. Raises BlockingIOError if no byte is available, OSError if the connection is broken.
        """
        if not self._peeked:
            byte = bytearray(1)
            count = self.recv_into(memoryview(byte))
            self._peeked = bytes(byte[:count])
        return self._peeked

    def send(self, data: memoryview | bytes, /) -> int:
        """Send bytes as TLS records until the connection takes no more; return the number of bytes sent.

        Raises BlockingIOError if the connection takes none. The next send must begin with the bytes not
        taken.
        """
        rest = memoryview(data)
        sent = 0
        try:
            while sent < len(rest):
                until = sent + RECORD_BYTES
                sent += self._sock.send(rest[sent:until])
        except ssl.SSLWantWriteError:
            if not sent:
                raise BlockingIOError from None
        except ssl.SSLEOFError as end:
            raise self._reset(end) from None
        except ssl.SSLError as error:
            raise ConnectionError(self._explain(error)) from None
        return sent

    def _reset(self, error: ssl.SSLError) -> ConnectionResetError:
        return ConnectionResetError("reset by peer" if self._heard else self._explain(error))

    def sendmsg(self, buffers: Sequence[memoryview | bytes], /) -> int:
        """Send the bytes of all buffers, joined so that small buffers share a TLS record. Return the number
        of bytes sent. Raises BlockingIOError, OSError.
        """
        return self.send(b"".join(buffers))

    def shutdown(self, how: int, /) -> None:
        """Send TLS's close_notify and close the sending half. Relays call this only with SHUT_WR. Raises
        OSError.

        Later reads return the peer's records as they are, still encrypted.
        """
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.shutdown(how)

    def close(self) -> None:
        """Send TLS's close_notify, and close the socket without waiting for the peer's close_notify."""
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()
