"""Readers and writers of Kafka's primitive types.

A reader takes (buffer, position, end) and returns (value, position after it). A reader raises ProtocolError,
with the offset, for malformed bytes, and never reads at or behind `end`. A writer appends a value to a
bytearray. A writer raises EncodeError, or Python's error for a value of the wrong type; the caller adds the
field's name.

Types of a fixed size are given as struct formats, so that several in a row can be read at once. A length is
an int16 (strings) or int32 (others), or in flexible versions an unsigned varint of the length plus one
(KIP-482); null has length -1.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from weir.protocol.errors import EncodeError, ProtocolError, UnencodableError
from weir.protocol.values import ZERO_UUID

Buffer = bytes | bytearray | memoryview
Reader = Callable[[Buffer, int, int], tuple[object, int]]
Writer = Callable[[bytearray, object], None]

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
"""Name of a number type → its format character in `struct` (big endian)."""

STRING_BYTES_MAX: Final = 0x7FFF
"""Maximum size (bytes) of a string in Kafka's protocol. It also holds in versions whose varint length could
express a longer string.
"""

_INT32_MAX: Final = 0x7FFFFFFF
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def read_uvarint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes and 31 bits. Raises ProtocolError for a longer one."""
    value, after = _read_varint(data, position, end)
    if value > _INT32_MAX:
        raise ProtocolError("varint is over 31 bits", offset=position)
    return value, after


def _read_varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a varint of at most five bytes (35 bits). Raises ProtocolError for a longer one."""
    value = shift = 0
    for at in range(position, min(position + 5, end)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    if end - position < 5:
        raise ProtocolError("ends within a varint", offset=position)
    raise ProtocolError("varint is longer than five bytes", offset=position)


def write_uvarint(out: bytearray, value: int) -> None:
    """Write an unsigned varint in as few bytes as possible."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_compact_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read the length of a field in a flexible version: a varint of the length plus one. Return (length,
    position after the varint); the length is -1 for null.
    """
    if position < end and (byte := data[position]) < 0x80:
        return byte - 1, position + 1
    value, position = read_uvarint(data, position, end)
    return value - 1, position


def read_wrapped_uvarint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a varint like a broker: its lowest 32 bits as an int32, which may be negative."""
    value, after = _read_varint(data, position, end)
    return _int32(value), after


def _read_wrapped_compact_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    value, after = _read_varint(data, position, end)
    return _int32(value - 1), after


def _int32(value: int) -> int:
    """Return the lowest 32 bits of a number as a signed int32."""
    return (value + _INT32_MAX + 1 & 0xFFFFFFFF) - _INT32_MAX - 1


def read_int16_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read the int16 length of a string in an inflexible version. Return (length, position after it); the
    length is -1 for null.
    """
    if position + 2 > end:
        raise ProtocolError("ends within a length", offset=position)
    (length,) = _INT16.unpack_from(data, position)
    if length < -1:
        raise ProtocolError(f"length {length} is negative", offset=position)
    return length, position + 2


def read_int32_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read the int32 length of a bytes field or of an array in an inflexible version. Return (length,
    position after it); the length is -1 for null.
    """
    if position + 4 > end:
        raise ProtocolError("ends within a length", offset=position)
    (length,) = _INT32.unpack_from(data, position)
    if length < -1:
        raise ProtocolError(f"length {length} is negative", offset=position)
    return length, position + 4


def _read_signed_int16(data: Buffer, position: int, end: int) -> tuple[int, int]:
    if position + 2 > end:
        raise ProtocolError("ends within a length", offset=position)
    return _INT16.unpack_from(data, position)[0], position + 2


def _read_signed_int32(data: Buffer, position: int, end: int) -> tuple[int, int]:
    if position + 4 > end:
        raise ProtocolError("ends within a length", offset=position)
    return _INT32.unpack_from(data, position)[0], position + 4


def _strict_text(data: Buffer, start: int, after: int) -> str:
    try:
        return str(data[start:after], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("string is not UTF-8", offset=start + error.start) from None


def _replaced_text(data: Buffer, start: int, after: int) -> str:
    text = str(data[start:after], "utf-8", "replace")
    if (after - start) * _REPLACEMENT_BYTES > STRING_BYTES_MAX and len(text.encode()) > STRING_BYTES_MAX:
        raise UnencodableError("string is not UTF-8, and too long to be replaced", offset=start)
    return text


_REPLACEMENT_BYTES: Final = 3
"""Size (bytes) of U+FFFD in UTF-8. Kafka decodes an invalid byte to this character, so one byte of a request
can become this many when Weir encodes the request again.
"""


class Reading(NamedTuple):
    """Manner of reading: functions that read lengths (negative for null) and strings, and `lenient` for the
    order of tags. The two manners are `STRICT` and `AS_A_BROKER`.
    """

    compact_length: Callable[[Buffer, int, int], tuple[int, int]]
    int16_length: Callable[[Buffer, int, int], tuple[int, int]]
    int32_length: Callable[[Buffer, int, int], tuple[int, int]]
    text: Callable[[Buffer, int, int], str]
    lenient: bool
    """True if tagged fields may come in any order and more than once."""


STRICT: Final = Reading(
    read_compact_length, read_int16_length, read_int32_length, _strict_text, lenient=False
)
"""Manner of reading (`Reading`) that accepts only bytes that Kafka's own writers can produce."""
AS_A_BROKER: Final = Reading(
    _read_wrapped_compact_length, _read_signed_int16, _read_signed_int32, _replaced_text, lenient=True
)
"""Manner of reading (`Reading`) that accepts all bytes that a broker accepts (Kafka's ByteBufferAccessor and
generated classes): every negative length is null, varints wrap around, invalid UTF-8 is replaced, tags may
come in any order and more than once.
"""


def write_compact_length(out: bytearray, length: int) -> None:
    """Write the length of a field in a flexible version; -1 for null."""
    write_uvarint(out, length + 1)


def write_int16_length(out: bytearray, length: int) -> None:
    """Write the length of a string in an inflexible version; -1 for null."""
    out += _INT16.pack(length)


def write_int32_length(out: bytearray, length: int) -> None:
    """Write the length of bytes or of an array in an inflexible version; -1 for null."""
    out += _INT32.pack(length)


def string_reader(compact: bool, nullable: bool, reading: Reading = STRICT) -> Reader:
    """Return a reader of a string. If `nullable`, the reader returns None for null, else it raises
    ProtocolError.
    """
    read_length = reading.compact_length if compact else reading.int16_length
    read_text = reading.text

    def read(data: Buffer, position: int, end: int) -> tuple[str | None, int]:
        length, start = read_length(data, position, end)
        after = start + length
        if length < 0:
            if nullable:
                return None, start
            raise ProtocolError("string is null", offset=position)
        if after > end or length > STRING_BYTES_MAX:
            raise ProtocolError(f"string of {length} bytes, {end - start} left", offset=position)
        return read_text(data, start, after), after

    return read


def string_writer(compact: bool, nullable: bool) -> Writer:
    """Return a writer of a string. If `nullable`, the writer accepts None and writes null."""
    write_length = write_compact_length if compact else write_int16_length

    def write(out: bytearray, value: object) -> None:
        if value is None and nullable:
            write_length(out, -1)
            return
        encoded = str.encode(value, "utf-8")  # type: ignore[arg-type]  # TypeError is right for other types
        if len(encoded) > STRING_BYTES_MAX:
            raise EncodeError(f"string of {len(encoded)} bytes, over {STRING_BYTES_MAX}", field="")
        write_length(out, len(encoded))
        out += encoded

    return write


def bytes_reader(compact: bool, nullable: bool, reading: Reading = STRICT) -> Reader:
    """Return a reader of bytes, or of records as opaque bytes. If `nullable`, the reader returns None for
    null, else it raises ProtocolError.
    """
    read_length = reading.compact_length if compact else reading.int32_length

    def read(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
        length, start = read_length(data, position, end)
        after = start + length
        if length < 0:
            if nullable:
                return None, start
            raise ProtocolError("bytes are null", offset=position)
        if after > end:
            raise ProtocolError(f"{length} bytes, {end - start} left", offset=position)
        return bytes(data[start:after]), after

    return read


def bytes_writer(compact: bool, nullable: bool) -> Writer:
    """Return a writer of bytes or records. If `nullable`, the writer accepts None and writes null."""
    write_length = write_compact_length if compact else write_int32_length

    def write(out: bytearray, value: object) -> None:
        if value is None and nullable:
            write_length(out, -1)
            return
        content = memoryview(value).cast("B")  # type: ignore[arg-type]  # TypeError is right for other types
        write_length(out, len(content))
        out += content

    return write


def read_uuid(data: Buffer, position: int, end: int) -> tuple[uuid.UUID, int]:
    """Read a uuid (16 bytes)."""
    after = position + 16
    if after > end:
        raise ProtocolError("ends within a uuid", offset=position)
    raw = bytes(data[position:after])
    return uuid.UUID(bytes=raw) if any(raw) else ZERO_UUID, after


def write_uuid(out: bytearray, value: object) -> None:
    """Write a uuid (16 bytes). Raises TypeError for a value of another type."""
    if not isinstance(value, uuid.UUID):
        raise TypeError(f"{type(value).__name__} is not a UUID")
    out += value.bytes


def number_reader(type_: str) -> Reader:
    """Return a reader of the number type `type_` (a key of FORMATS)."""
    form = struct.Struct(">" + FORMATS[type_])
    unpack, size = form.unpack_from, form.size

    def read(data: Buffer, position: int, end: int) -> tuple[object, int]:
        after = position + size
        if after > end:
            raise ProtocolError(f"ends within {type_}", offset=position)
        return unpack(data, position)[0], after

    return read


def number_writer(type_: str) -> Writer:
    """Return a writer of the number type `type_` (a key of FORMATS)."""
    pack = struct.Struct(">" + FORMATS[type_]).pack

    def write(out: bytearray, value: object) -> None:
        out += pack(value)

    return write


def size_min(type_: str, compact: bool) -> int:
    """Return the size (bytes) of the shortest value of a primitive type. `compact`: True if a string or bytes
    field has a varint as its length.
    """
    if type_ in FORMATS:
        return struct.calcsize(">" + FORMATS[type_])
    if type_ == "uuid":
        return 16
    if compact:
        return 1
    return 2 if type_ == "string" else 4
