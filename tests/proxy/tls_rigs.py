"""TLS over a pair of connected sockets: one end for the test, one for the relay."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from tests.proxy.certificates import client_context, server_context
from weir.proxy.net.tls_socket import TlsSocket

HANDSHAKE_STEPS = 1000
RECORD_BYTES = 2048


class FarEnd:
    """What a test does with a plain socket, done with a TLS one."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.tls = sock
        self._abrupt = False
        self._begun = 0
        """How long the record is that could not be sent: it must be tried again before anything else."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tls, name)

    def send(self, data: bytes) -> int:
        """Send in records as small as the kernel's buffer may be."""
        sent = 0
        if len(data) < self._begun:
            raise BlockingIOError
        try:
            while sent < len(data):
                record = data[sent : sent + RECORD_BYTES]
                sent += self.tls.send(record)
                self._begun = 0
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._begun = len(record)
            if not sent:
                raise BlockingIOError from None
        return sent

    def recv(self, count: int) -> bytes:
        try:
            return self.tls.recv(count)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from None

    def shutdown(self, _how: int) -> None:
        """Say that nothing more is sent; what comes can still be received."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set it; a connection that is to be reset says nothing before."""
        self._abrupt = option == socket.SO_LINGER
        self.tls.setsockopt(level, option, value)

    def close(self) -> None:
        if not self._abrupt:
            with contextlib.suppress(OSError, ValueError):
                self.tls.unwrap()
        self.tls.close()


def secured(pair: tuple[socket.socket, socket.socket], *, server: bool) -> tuple[FarEnd, TlsSocket]:
    """Shake hands; the relay's end is the server, as towards clients, or the client, as towards brokers."""
    far, near = pair
    contexts = (client_context(), server_context()) if server else (server_context(), client_context())
    ends = [
        contexts[0].wrap_socket(far, server_side=not server, do_handshake_on_connect=False),
        contexts[1].wrap_socket(
            near, server_side=server, do_handshake_on_connect=False, suppress_ragged_eofs=False
        ),
    ]
    shaking = list(ends)
    for _ in range(HANDSHAKE_STEPS):
        for end in list(shaking):
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                end.do_handshake()
                shaking.remove(end)
        if not shaking:
            return FarEnd(ends[0]), TlsSocket(ends[1], str)
    raise AssertionError("no handshake")
