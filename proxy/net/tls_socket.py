"""An established TLS connection in the terms of a plain socket: what a relay reads from and sends to.

Two things differ from a socket, and are dealt with here and in `tls_relay`. What has been decrypted waits in
the TLS library, where no poll sees it: `waiting` tells. And a send that was cut short must be repeated with
the same bytes, which a relay does: what it sends next begins with what was left unsent.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""The most that one TLS record holds, and so the most that one read of the library returns."""
LONELY_BYTES: Final = 1024
"""A shorter record is mostly a whole request: the poll tells of a next one more cheaply than a look does."""


class TlsSocket:
    """A non-blocking TLS connection whose handshake is done. Its errors are OSErrors, as a socket's are."""

    __slots__ = ("_ended", "_explain", "_heard", "_peeked", "_sock", "wants_write")

    def __init__(self, sock: ssl.SSLSocket, explain: Callable[[ssl.SSLError], str]) -> None:
        """Take over what was made with suppress_ragged_eofs=False (else a reset would look like an end);
        `explain` says what is wrong in words.
        """
        self._sock = sock
        self._explain = explain
        self._peeked = b""
        self._ended = False
        self._heard = False
        """A TLS 1.3 server refuses a client's certificate when the client takes the handshake for done."""
        self.wants_write = False
        """Nothing can be read before something is sent (an answer to the peer's change of keys)."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._sock.fileno()

    def waiting(self) -> bool:
        """Whether there is something to read that no poll reports."""
        return bool(self._peeked or self._ended or self._sock.pending())

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Read into `buffer`, several records if they are here; at most `nbytes`, 0 for all the room there
        is.

        Returns 0 at the end. Raises BlockingIOError if there is nothing, OSError if the connection is broken.
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
        """Read what is here; nothing at the end, either. Raises OSError."""
        count, room = 0, len(buffer)
        try:
            while count < room and not self._ended:
                got = self._sock.recv_into(buffer[count:], room - count)  # told how much, it need not look
                count += got
                self._ended = not got
                if got < LONELY_BYTES:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self.wants_write = True
        except ssl.SSLEOFError as error:
            if error.reason is None:  # OpenSSL 3 gives one for a mere end, which a plain socket has as well
                raise self._reset(error) from None
            self._ended = True
        except ssl.SSLError as error:
            raise ConnectionError(self._explain(error)) from None
        return count

    def recv(self, _bufsize: int, _flags: int, /) -> bytes:
        """Return the next byte without taking it (as with MSG_PEEK, the only use), nothing at the end. Raises
        as `recv_into` does.
        """
        if not self._peeked:
            byte = bytearray(1)
            count = self.recv_into(memoryview(byte))
            self._peeked = bytes(byte[:count])
        return self._peeked

    def send(self, data: memoryview | bytes, /) -> int:
        """Send records as long as the connection takes them; return how much that was.

        Raises BlockingIOError if it takes none. What is sent next must begin with what was not taken.
        """
        rest = memoryview(data)
        sent = 0
        try:
            while sent < len(rest):
                end = sent + RECORD_BYTES
                sent += self._sock.send(rest[sent:end])
        except ssl.SSLWantWriteError:
            if not sent:
                raise BlockingIOError from None
        except ssl.SSLEOFError as error:
            raise self._reset(error) from None
        except ssl.SSLError as error:
            raise ConnectionError(self._explain(error)) from None
        return sent

    def _reset(self, error: ssl.SSLError) -> ConnectionResetError:
        return ConnectionResetError("reset by peer" if self._heard else self._explain(error))

    def sendmsg(self, buffers: Sequence[memoryview | bytes], /) -> int:
        """Send all of these as `send` does: small ones share a record."""
        return self.send(b"".join(buffers))

    def close(self) -> None:
        """Say that this was all, without waiting for the peer to say so too, and close."""
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()
