"""Frames and their heads: where a frame ends, what a request or response is, where its body starts.

A Kafka connection is a stream of frames: an int32 length, then that many bytes. A request opens with its
API key (int16), version (int16), correlation id (int32) and, from request header v1, the client-id
(nullable string with an int16 length) and, in flexible versions (header v2), tagged fields. A response
opens with the correlation id and, in flexible versions (header v1), tagged fields.

The two `Struct`s are public because the proxy's loop unpacks a head per frame, and a function call per
frame is what it cannot afford.
"""

from struct import Struct
from typing import Final

from protocol.errors import ProtocolError

REQUEST_HEAD: Final = Struct(">ihhi")
"""Frame length, API key, version, correlation id."""
REQUEST_HEAD_BYTES: Final = REQUEST_HEAD.size
CLIENT_ID_OFFSET: Final = REQUEST_HEAD_BYTES
"""From the start of the frame (its length included) to the client-id's int16 length."""
REQUEST_LENGTH_MIN: Final = 8
"""API key, version and correlation id: what each request has (header v0 has no more)."""

RESPONSE_HEAD: Final = Struct(">ii")
"""Frame length, correlation id."""
RESPONSE_HEAD_BYTES: Final = RESPONSE_HEAD.size
RESPONSE_LENGTH_MIN: Final = 4

LENGTH: Final = Struct(">i")
LENGTH_BYTES: Final = LENGTH.size
_INT16: Final = Struct(">h")

TAGS_MAX: Final = 100
"""What a header may have; Kafka's have none. They are walked anew whenever more bytes have come."""

INCOMPLETE: Final = -1
"""A position that lies beyond the bytes at hand: ask again with more of them."""


def client_id_end(data: bytes | bytearray, frame: int, end: int) -> int:
    """Return the position behind the client-id of the request whose frame starts at `frame`, or INCOMPLETE.

    `end` is where the bytes at hand end. Raises ProtocolError for a negative length other than null's -1.
    """
    start = frame + CLIENT_ID_OFFSET
    if end - start < _INT16.size:
        return INCOMPLETE
    (length,) = _INT16.unpack_from(data, start)
    if length < -1:
        raise ProtocolError(f"client-id length {length} is negative", offset=CLIENT_ID_OFFSET)
    stop: int = start + _INT16.size + max(length, 0)
    return stop if stop <= end else INCOMPLETE


def request_body(data: bytes | bytearray, frame: int, end: int, *, flexible: bool) -> int:
    """Return where the body of the request whose frame starts at `frame` begins, or INCOMPLETE."""
    position = client_id_end(data, frame, end)
    if position == INCOMPLETE or not flexible:
        return position
    return skip_tags(data, position, end, frame)


def response_body(data: bytes | bytearray, frame: int, end: int, *, flexible: bool) -> int:
    """Return where the body of the response whose frame starts at `frame` begins, or INCOMPLETE.

    `flexible` is whether the response's *header* is (header v1): never for ApiVersions.
    """
    position = frame + RESPONSE_HEAD_BYTES
    if position > end:
        return INCOMPLETE
    return skip_tags(data, position, end, frame) if flexible else position


def skip_tags(data: bytes | bytearray, position: int, end: int, origin: int = 0) -> int:
    """Return the position behind the tagged fields that start at `position`, or INCOMPLETE (KIP-482).

    `origin` is where a ProtocolError's offset counts from.
    """
    if position < end and data[position] == 0:  # nearly always: no tagged fields at all
        return position + 1
    count, position = _uvarint(data, position, end, origin)
    if count > TAGS_MAX:
        raise ProtocolError(f"a header with {count} tagged fields", offset=position - origin)
    for _ in range(count):
        if position == INCOMPLETE:
            return INCOMPLETE
        _tag, position = _uvarint(data, position, end, origin)
        size, position = _uvarint(data, position, end, origin)
        if position != INCOMPLETE:
            position = position + size if position + size <= end else INCOMPLETE
    return position


def _uvarint(data: bytes | bytearray, position: int, end: int, origin: int) -> tuple[int, int]:
    """Return (value, position behind it); (0, INCOMPLETE) if it runs past `end`."""
    if position == INCOMPLETE:
        return 0, INCOMPLETE
    value = 0
    for shift in range(0, 35, 7):
        if position >= end:
            return 0, INCOMPLETE
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ProtocolError("varint is longer than five bytes", offset=position - origin)
