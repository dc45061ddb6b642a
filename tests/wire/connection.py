"""A connection to a broker, or to Weir: a frame is sent, a frame is read."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Final, Self, TypeVar

from tests.wire.frames import body_of
from tests.wire.frames import request as request_frame
from weir.protocol.framing import LENGTH, LENGTH_BYTES
from weir.protocol.values import Message

M = TypeVar("M", bound="Message")

Address = tuple[str, int]
"""Host and port."""
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes: of more it closes the connection, as if TLS had been meant."""


class Connection:
    """A context manager. Its methods raise OSError, EOFError, ProtocolError."""

    def __init__(self, to: Address | socket.socket, client_id: str = "app", timeout_s: float = 60.0) -> None:
        """On a new connection to an address, or on a socket that somebody else closes."""
        self._borrowed = isinstance(to, socket.socket)
        self._socket = to if isinstance(to, socket.socket) else _connected(to, timeout_s)
        self.client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, unless it is borrowed."""
        if not self._borrowed:
            self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """Return the next frame. Raises EOFError if there is none."""
        return receive_frame(self._socket)

    def exchange(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()

    def ask(self, request: Message, response: type[M], version: int) -> M:
        self.send(request_frame(request, version, client_id=self.client_id.encode()))
        return body_of(self.receive(), response, version)


def receive_frame(sock: socket.socket) -> bytes:
    """Return the next frame. Raises OSError, EOFError, ValueError for a length that no frame has."""
    head = _receive(sock, LENGTH_BYTES)
    (length,) = LENGTH.unpack(head)
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise ValueError(f"no frame has {length} bytes")
    return head + _receive(sock, length)


def _receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError("closed instead of answered")
        data += part
    return bytes(data)


def _connected(address: Address, timeout_s: float) -> socket.socket:
    connection = socket.create_connection(address, timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
