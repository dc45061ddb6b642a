"""Frames as they are on the wire, made by struct and the codec; what is in a stream of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar

from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec
from weir.protocol.values import Message, schema_of

M = TypeVar("M", bound="Message")

NO_TAGS = b"\x00"


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(
    api_key: int, version: int, correlation_id: int, client_id: bytes | None, *, tags: bytes | None
) -> bytes:
    """A request's header; `tags` None leaves them out (header v1)."""
    name = struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    return struct.pack(">hhi", api_key, version, correlation_id) + name + (tags or b"")


def request_frame(
    api_key: int,
    version: int,
    body: bytes,
    correlation_id: int = 1,
    client_id: bytes | None = b"app",
    tags: bytes = NO_TAGS,
) -> bytes:
    """A request's frame with this body, and with the header that its version has."""
    kind = request_header_version(api_key, version)
    if kind == 0:
        return framed(struct.pack(">hhi", api_key, version, correlation_id) + body)
    return framed(
        header(api_key, version, correlation_id, client_id, tags=tags if kind == 2 else None) + body
    )


def request(
    message: Message,
    version: int,
    correlation_id: int = 1,
    client_id: bytes | None = b"app",
    tags: bytes = NO_TAGS,
) -> bytes:
    """A request's frame, with the header that its version has."""
    body = codec(type(message), version).encode(message)
    return request_frame(schema_of(type(message)).api_key, version, body, correlation_id, client_id, tags)


def response_frame(
    api_key: int, version: int, body: bytes, correlation_id: int = 1, tags: bytes = NO_TAGS
) -> bytes:
    """A response's frame with this body, and with the header that its version has."""
    flexible = response_header_version(api_key, version) == 1
    return framed(struct.pack(">i", correlation_id) + (tags if flexible else b"") + body)


def response(message: Message, version: int, correlation_id: int = 1, tags: bytes = NO_TAGS) -> bytes:
    """A response's frame, with the header that its version has."""
    body = codec(type(message), version).encode(message)
    return response_frame(schema_of(type(message)).api_key, version, body, correlation_id, tags)


def unknown_request(api_key: int, version: int, correlation_id: int = 1, body: bytes = b"?") -> bytes:
    """A request that no schema describes, with a client-id as in header v1."""
    return framed(header(api_key, version, correlation_id, b"app", tags=None) + body)


def unknown_response(correlation_id: int = 1, body: bytes = b"!") -> bytes:
    return framed(struct.pack(">i", correlation_id) + body)


def split(stream: bytes) -> list[bytes]:
    """The frames of a stream, the last one perhaps incomplete."""
    frames = []
    while stream:
        length = struct.unpack_from(">i", stream)[0] + 4 if len(stream) >= 4 else len(stream)
        frames.append(stream[:length])
        stream = stream[length:]
    return frames


def body_of(frame: bytes, message: type[M], version: int) -> M:
    """The message in a response's frame, whose length must be right."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    start = 8 + (response_header_version(schema_of(message).api_key, version) == 1)
    return codec(message, version).decode(frame, start)


def request_body_of(frame: bytes, message: type[M], version: int) -> M:
    """The message in a request's frame that has a client-id and no tags in its header."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    (size,) = struct.unpack_from(">h", frame, 12)
    flexible = request_header_version(schema_of(message).api_key, version) == 2
    return codec(message, version).decode(frame, 14 + max(size, 0) + flexible)


def padded(frame: bytes, length: int = 1 << 20) -> bytes:
    """The same with zeros behind it, so that the length prefix is `length`; for what nobody decodes."""
    payload = frame[4:]
    assert len(payload) <= length
    return framed(payload + bytes(length - len(payload)))


@dataclass(frozen=True)
class Head:
    api_key: int
    version: int
    correlation_id: int


def head_of(frame: bytes) -> Head:
    return Head(*struct.unpack_from(">hhi", frame, 4))


def told(stream: bytes) -> str:
    parts = [f"{len(frame)} B {frame[4:24].hex(' ')}" for frame in split(stream)]
    return "; ".join(parts) or "nothing"
