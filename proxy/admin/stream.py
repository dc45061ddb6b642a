"""A connection of the admin endpoint, plain or TLS, which knows since when its client makes no progress."""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

HANDSHAKE_S: Final = 5.0
"""Maximum time (s) of a TLS handshake."""
SEND_S: Final = 10.0
"""Maximum time (s) that a client may take to receive `SEND_BYTES`."""
SEND_BYTES: Final = 16 * 1024
"""Length (bytes) of the parts in which responses are sent. Each part that the kernel takes is progress."""
STREAM: Final = "weir.stream"
"""Key of an ASGI scope: the `AdminStream` of the request."""


class AdminStream:
    """The connection of one client."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = stream
        self.socket = stream.socket
        self.lifetime = trio.CancelScope()
        """Scope whose deadline ends the connection."""
        self.has_place = False
        """True while its request has a place (`places`), or while it reads events."""
        self.waits_since_s = math.inf
        """Time (s) since which Weir waits for the client to send or to receive; inf if Weir does not wait."""

    @property
    def scheme(self) -> str:
        """The scheme of the client's URLs."""
        return "https" if isinstance(self._stream, trio.SSLStream) else "http"

    async def secure(self, context: ssl.SSLContext) -> bool:
        """Do the TLS handshake; return False if it fails, or takes too long."""
        assert isinstance(self._stream, trio.SocketStream)
        secured = trio.SSLStream(self._stream, context, server_side=True, https_compatible=True)
        try:
            with trio.fail_after(HANDSHAKE_S):
                await secured.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            return False
        self._stream = secured
        return True

    async def receive_some(self, max_bytes: int) -> bytes:
        """Receive up to this number of bytes, none at the end."""
        with self._waiting():
            return bytes(await self._stream.receive_some(max_bytes))
        raise AssertionError("unreachable: nothing is suppressed")

    async def send_all(self, data: bytes) -> None:
        """Send the data. Raises trio.TooSlowError if the client does not receive."""
        for start in range(0, len(data), SEND_BYTES):
            with self._waiting(), trio.fail_after(SEND_S):
                await self._stream.send_all(memoryview(data)[start : start + SEND_BYTES])

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waits_since_s = trio.current_time()
        try:
            yield
        finally:
            self.waits_since_s = math.inf

    def keep_open(self) -> None:
        """Let the connection last, because its response has no end; the hub of events limits its readers."""
        self.has_place = True
        self.lifetime.deadline = math.inf

    async def send_eof(self) -> None:
        """Close the sending half, after which the client still reads the response. TLS has none."""
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    def close(self) -> None:
        """Close the socket; tasks that use the socket get an error."""
        self.socket.close()
