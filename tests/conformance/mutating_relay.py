"""A TCP relay that plants one defect, by name, into the responses of a server.

It sits between `weir capture` and the server: the capture records bytes as it reads them, so a relay in front
of the capture would plant nothing that the capture sees. Requests pass unchanged. Metadata responses name the
relay as the only broker's address, so that all connections come through it.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from tests.wire.frames import framed
from weir.conformance.frames import FrameCutter
from weir.protocol.api import ApiKey, response_header_version
from weir.protocol.codec import codec, response_type
from weir.protocol.framing import REQUEST_HEAD

if TYPE_CHECKING:
    from types import TracebackType

READ_BYTES: Final = 65536
CRC_OFFSET: Final = 17
"""Offset (bytes) of the CRC in a record batch (KIP-98)."""
LIE: Final = 1 << 20
CREATE_TOPICS_89: Final = 5
"""A version of CreateTopics that does not know error 89 (KIP-599)."""


class Asked(NamedTuple):
    """The request of a response."""

    api_key: int
    version: int


Mutation: TypeAlias = Callable[[bytes, Asked], bytes]
"""Function (response's frame, its request) that returns the bytes to send instead."""


def _body(frame: bytes, asked: Asked) -> tuple[bytes, Any]:
    """Return (header, message) of a response."""
    start = 8 + response_header_version(asked.api_key, asked.version)
    return frame[4:start], codec(response_type(asked.api_key), asked.version).decode(frame, start)


def edited(frame: bytes, asked: Asked, edit: Callable[[Any], object]) -> bytes:
    """The response with its message changed by `edit`."""
    head, message = _body(frame, asked)
    edit(message)
    return framed(head + codec(response_type(asked.api_key), asked.version).encode(message))


def _throttle(throttle_ms: int) -> Mutation:
    def mutate(frame: bytes, asked: Asked) -> bytes:
        if asked.api_key != ApiKey.API_VERSIONS:
            return frame
        return edited(frame, asked, lambda message: setattr(message, "throttle_time_ms", throttle_ms))

    return mutate


def _swapped() -> Mutation:
    """Swap the first two responses to heartbeats, which the client must have sent without waiting."""
    held: list[bytes] = []
    done = False

    def mutate(frame: bytes, asked: Asked) -> bytes:
        nonlocal done
        if done or asked.api_key != ApiKey.HEARTBEAT:
            return frame
        if not held:
            held.append(frame)
            return b""
        done = True
        return frame + held.pop()

    return mutate


def _wrong_crc(frame: bytes, asked: Asked) -> bytes:
    if asked.api_key != ApiKey.FETCH:
        return frame

    def edit(message: Any) -> None:
        for topic in message.responses:
            for part in topic.partitions:
                if part.records:
                    records = bytearray(part.records)
                    records[CRC_OFFSET] ^= 0xFF
                    part.records = bytes(records)

    return edited(frame, asked, edit)


def _array_length(frame: bytes, asked: Asked) -> bytes:
    """Lie about the number of created topics, the field behind the throttle time."""
    if asked != Asked(ApiKey.CREATE_TOPICS, 4):
        return frame
    return frame[:12] + struct.pack(">i", LIE) + frame[16:]


def _frame_length(frame: bytes, asked: Asked) -> bytes:
    """Lie about the length of the last response."""
    if asked.api_key != ApiKey.FETCH:
        return frame
    return struct.pack(">i", len(frame)) + frame[4:]


def _error_89(frame: bytes, asked: Asked) -> bytes:
    if asked != Asked(ApiKey.CREATE_TOPICS, CREATE_TOPICS_89):
        return frame
    return edited(frame, asked, lambda message: setattr(message.topics[0], "error_code", 89))


def _reordered_tags(frame: bytes, asked: Asked) -> bytes:
    """Put unknown tags, which readers skip, at the end of an ApiVersions response in descending order."""
    if asked.api_key != ApiKey.API_VERSIONS or frame[-1]:
        return frame
    return framed(frame[4:-1] + b"\2\x65\1a\x64\1b")


MUTATIONS: Final[dict[str, tuple[str, Callable[[], Mutation]]]] = {
    "a negative throttle": ("throttle-negative", lambda: _throttle(-1)),
    "a throttle for a client that does not wait": ("throttle-ignored", lambda: _throttle(60_000)),
    "two responses swapped": ("response-order", _swapped),
    "a wrong CRC": ("batch-crc", lambda: _wrong_crc),
    "a lie about the length of an array": ("field-length", lambda: _array_length),
    "a lie about the length of a frame": ("frame-incomplete", lambda: _frame_length),
    "error 89 in a version that lacks it": ("error-89-version", lambda: _error_89),
    "tags in another order": ("tag-order", lambda: _reordered_tags),
}
"""Name of a defect → (the rule that names it, function that returns a connection's mutation)."""


class MutatingRelay:
    """Relays connections to a server, with a defect or (`None`) without; a context manager."""

    def __init__(self, host: str, port: int, defect: str | None) -> None:
        self._server = host, port
        self._new = MUTATIONS[defect][1] if defect is not None else lambda: lambda frame, _asked: frame
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends the accepting thread's wait
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                asked: deque[tuple[int, Asked]] = deque()
                for run in (self._requests, self._responses):
                    threading.Thread(target=run, args=(client, server, asked), daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, asked: deque[tuple[int, Asked]]
    ) -> None:
        cutter = FrameCutter()
        with suppress(OSError):
            while data := client.recv(READ_BYTES):
                for frame in cutter.feed(data, 0):
                    _length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(frame.data)
                    asked.append((correlation_id, Asked(api_key, version)))
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _responses(
        self, client: socket.socket, server: socket.socket, asked: deque[tuple[int, Asked]]
    ) -> None:
        cutter, mutate = FrameCutter(), self._new()
        with client, server:
            with suppress(OSError):
                while data := server.recv(READ_BYTES):
                    for frame in cutter.feed(data, 0):
                        client.sendall(self._changed(frame.data, asked, mutate))
            for sock in (client, server):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # ends the other thread's wait

    def _changed(self, frame: bytes, asked: deque[tuple[int, Asked]], mutate: Mutation) -> bytes:
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        while True:  # a request without a response (acks=0) is passed over
            number, request = asked.popleft()
            if number == correlation_id:
                break
        if request.api_key == ApiKey.METADATA:
            frame = edited(frame, request, self._here)
        return mutate(frame, request)

    def _here(self, message: Any) -> None:
        for broker in message.brokers:
            broker.host, broker.port = "127.0.0.1", self.port
