"""A TLS connection as a Trio stream, for Weir's own requests to brokers."""

from __future__ import annotations

from typing import Final

import trio

from proxy.net.tls_socket import TlsSocket

RECEIVE_BYTES: Final = 65_536


class TlsStream(trio.abc.Stream):
    """For one task at a time. Raises OSError as sockets do."""

    def __init__(self, sock: TlsSocket) -> None:
        """Take over the socket."""
        self._sock = sock

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`."""
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            try:
                sent = self._sock.send(rest)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)
            else:
                rest = rest[sent:]

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket is writable."""
        await trio.lowlevel.wait_writable(self._sock)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return available bytes, nothing at the end."""
        await trio.lowlevel.checkpoint()
        buffer = bytearray(max_bytes or RECEIVE_BYTES)
        while True:
            try:
                count = self._sock.recv_into(memoryview(buffer))
            except BlockingIOError:
                await self._wait_to_receive()
            else:
                return bytes(buffer[:count])

    async def _wait_to_receive(self) -> None:
        if self._sock.wants_write:
            self._sock.wants_write = False
            await trio.lowlevel.wait_writable(self._sock)
        else:
            await trio.lowlevel.wait_readable(self._sock)

    async def aclose(self) -> None:
        """Close the socket."""
        self._sock.close()
        await trio.lowlevel.checkpoint()
