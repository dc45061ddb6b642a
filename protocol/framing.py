"""Frames and their headers: the end of a frame, the kind of a request, the start of its body.

A Kafka connection is a stream of frames: an int32 length, then as many bytes. A request begins with its API
key (int16), version (int16), correlation id (int32) and, from request header v1, the client-id (nullable
string with an int16 length) and, in flexible versions (header v2), tagged fields. A response begins with the
correlation id and, in flexible versions (header v1), tagged fields.

Both `Struct`s are public because the proxy's loop unpacks a header per frame, where a function call would
cost too much.
"""

from struct import Struct
from typing import Final

from weir.protocol.errors import ProtocolError

REQUEST_HEAD: Final = Struct(">ihhi")
"""Format of the first 12 bytes of a request: frame length, API key, version, correlation id."""
REQUEST_HEAD_BYTES: Final = REQUEST_HEAD.size
CLIENT_ID_OFFSET: Final = REQUEST_HEAD_BYTES
"""Offset (bytes) of the client-id's int16 length from the start of the frame's length prefix."""
REQUEST_LENGTH_MIN: Final = 8
"""Minimum length of a request: API key, version and correlation id (header v0 has no more fields)."""

RESPONSE_HEAD: Final = Struct(">ii")
"""Format of the first 8 bytes of a response: frame length, correlation id."""
RESPONSE_HEAD_BYTES: Final = RESPONSE_HEAD.size
RESPONSE_LENGTH_MIN: Final = 4

LENGTH: Final = Struct(">i")
LENGTH_BYTES: Final = LENGTH.size
_INT16: Final = Struct(">h")

TAGS_MAX: Final = 100
"""Maximum number of tagged fields in a request or response header (Kafka's headers have none). Each time more
bytes arrive, the tagged fields are read again from the first one; the maximum bounds the time for that.
"""

INCOMPLETE: Final = -1
"""Value that functions return instead of a position, if the bytes up to that position have not arrived. The
caller calls the function again with more bytes.
"""


def client_id_end(data: bytes | bytearray, frame: int, end: int) -> int:
    """Return the position behind the client-id of the request whose frame starts at `frame`; INCOMPLETE if
    the client-id has not arrived completely.

    `end` is the end of the bytes that have arrived. A negative length is null, as in Kafka's RequestHeader.
    """
    start = frame + CLIENT_ID_OFFSET
    if end - start < _INT16.size:
        return INCOMPLETE
    (length,) = _INT16.unpack_from(data, start)
    stop: int = start + _INT16.size + max(length, 0)
    return stop if stop <= end else INCOMPLETE


def missing_bytes(data: bytes | memoryview, rest_bytes: int) -> int:
    """Return the number of bytes that the last frame in `data` lacks, or its length prefix; 0 if the frame is
    complete. `data` begins with the last `rest_bytes` of an earlier frame.
    """
    end, position = len(data), rest_bytes
    while end - position >= LENGTH_BYTES:
        (length,) = LENGTH.unpack_from(data, position)
        position += LENGTH_BYTES + max(length, 0)
    return position - end if position >= end else LENGTH_BYTES - (end - position)


def request_body(data: bytes | bytearray, frame: int, end: int, *, flexible: bool) -> int:
    """Return the start of the body of the request whose frame starts at `frame`; INCOMPLETE if it has not
    arrived. `flexible`: True if the header has tagged fields (header v2). Raises ProtocolError for a
    malformed header.
    """
    position = client_id_end(data, frame, end)
    if position == INCOMPLETE or not flexible:
        return position
    if position < end and data[position] == 0:  # nearly always: no tagged fields, and no call for them
        return position + 1
    return skip_tags(data, position, end, frame)


def response_body(data: bytes | bytearray, frame: int, end: int, *, flexible: bool) -> int:
    """Return the start of the body of the response whose frame starts at `frame`; INCOMPLETE if it has not
    arrived. Raises ProtocolError for a malformed header.

    `flexible`: True if the response *header* has tagged fields (header v1). It never has for ApiVersions.
    """
    position = frame + RESPONSE_HEAD_BYTES
    if position > end:
        return INCOMPLETE
    if flexible and position < end and data[position] == 0:  # nearly always, as in requests
        return position + 1
    return skip_tags(data, position, end, frame) if flexible else position


def skip_tags(data: bytes | bytearray, position: int, end: int, origin: int = 0) -> int:
    """Return the position behind the tagged fields (KIP-482) that start at `position`; INCOMPLETE if they
    have not arrived completely. Raises ProtocolError, with an offset from `origin`, for malformed bytes.
    """
    if position < end and data[position] == 0:
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
    """Read an unsigned varint; return (value, position behind the varint), or (0, INCOMPLETE) if the varint
    continues behind `end`.
    """
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
