"""Kafka's primitive types: readers and writers.

A reader takes (buffer, position, end) and returns (value, position after it); it raises ProtocolError with
the offset for bytes that it cannot read, and never reads at or behind `end`. A writer appends a value to a
bytearray; it raises EncodeError, or Python's error for a value of the wrong type (the caller adds the field's
name).

Types of a fixed size are given as struct formats, so that several in a row can be read at once. A length is
an int16 (strings) or int32 (others), or in flexible versions an unsigned varint of the length plus one
(KIP-482); null has length -1.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.errors import EncodeError, ProtocolError, UnencodableError
from protocol.values import ZERO_UUID

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
"""Types of a fixed size, as format characters of `struct` (big endian)."""

STRING_BYTES_MAX: Final = 0x7FFF
"""Kafka's limit for every string, even where the length is a varint."""

_INT32_MAX: Final = 0x7FFFFFFF
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def read_uvarint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint that fits Kafka's int32 (31 bits), in at most five bytes."""
    value, after = _read_varint(data, position, end)
    if value > _INT32_MAX:
        raise ProtocolError("varint is over 31 bits", offset=position)
    return value, after


def _read_varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a varint in at most five bytes, which hold 35 bits."""
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
    """Read a length in a flexible version; -1 is null."""
    if position < end and (byte := data[position]) < 0x80:
        return byte - 1, position + 1
    value, position = read_uvarint(data, position, end)
    return value - 1, position


def read_wrapped_uvarint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a varint as a broker does: an int32 of the lowest 32 bits, which may be negative."""
    value, after = _read_varint(data, position, end)
    return _int32(value), after


def _read_wrapped_compact_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    value, after = _read_varint(data, position, end)
    return _int32(value - 1), after


def _int32(value: int) -> int:
    """Return a number truncated to an int32."""
    return (value + _INT32_MAX + 1 & 0xFFFFFFFF) - _INT32_MAX - 1


def read_int16_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a string's length in an inflexible version; -1 is null."""
    if position + 2 > end:
        raise ProtocolError("ends within a length", offset=position)
    (length,) = _INT16.unpack_from(data, position)
    if length < -1:
        raise ProtocolError(f"length {length} is negative", offset=position)
    return length, position + 2


def read_int32_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read the length of bytes or of an array in an inflexible version; -1 is null."""
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
"""Length of U+FFFD, which may replace a single byte."""


class Reading(NamedTuple):
    """How lengths, texts and tags are read; a negative length means null."""

    compact_length: Callable[[Buffer, int, int], tuple[int, int]]
    int16_length: Callable[[Buffer, int, int], tuple[int, int]]
    int32_length: Callable[[Buffer, int, int], tuple[int, int]]
    text: Callable[[Buffer, int, int], str]
    lenient: bool


STRICT: Final = Reading(
    read_compact_length, read_int16_length, read_int32_length, _strict_text, lenient=False
)
"""Accepts bytes that Kafka's own writers can produce, nothing else."""
AS_A_BROKER: Final = Reading(
    _read_wrapped_compact_length, _read_signed_int16, _read_signed_int32, _replaced_text, lenient=True
)
"""Accepts the bytes that a broker accepts (Kafka's ByteBufferAccessor and generated classes): every negative
length is null, varints wrap around, invalid UTF-8 is replaced, tags may come in any order and more than
once.
"""


def write_compact_length(out: bytearray, length: int) -> None:
    """Write a length in a flexible version; -1 is null."""
    write_uvarint(out, length + 1)


def write_int16_length(out: bytearray, length: int) -> None:
    """Write a string's length in an inflexible version; -1 is null."""
    out += _INT16.pack(length)


def write_int32_length(out: bytearray, length: int) -> None:
    """Write the length of bytes or of an array in an inflexible version; -1 is null."""
    out += _INT32.pack(length)


def string_reader(compact: bool, nullable: bool, reading: Reading = STRICT) -> Reader:
    """Return a reader of str; None if `nullable`."""
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
    """Return a writer of str; None if `nullable`."""
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
    """Return a reader of bytes, or of records as opaque bytes; None if `nullable`."""
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
    """Return a writer of bytes or records; None if `nullable`."""
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
    """Read sixteen bytes."""
    after = position + 16
    if after > end:
        raise ProtocolError("ends within a uuid", offset=position)
    raw = bytes(data[position:after])
    return uuid.UUID(bytes=raw) if any(raw) else ZERO_UUID, after


def write_uuid(out: bytearray, value: object) -> None:
    """Write sixteen bytes."""
    if not isinstance(value, uuid.UUID):
        raise TypeError(f"{type(value).__name__} is not a UUID")
    out += value.bytes


def number_reader(type_: str) -> Reader:
    """Return a reader of a type in FORMATS."""
    form = struct.Struct(">" + FORMATS[type_])
    unpack, size = form.unpack_from, form.size

    def read(data: Buffer, position: int, end: int) -> tuple[object, int]:
        after = position + size
        if after > end:
            raise ProtocolError(f"ends within {type_}", offset=position)
        return unpack(data, position)[0], after

    return read


def number_writer(type_: str) -> Writer:
    """Return a writer of a type in FORMATS."""
    pack = struct.Struct(">" + FORMATS[type_]).pack

    def write(out: bytearray, value: object) -> None:
        out += pack(value)

    return write


def size_min(type_: str, compact: bool) -> int:
    """Return the smallest size (bytes) of a primitive."""
    if type_ in FORMATS:
        return struct.calcsize(">" + FORMATS[type_])
    if type_ == "uuid":
        return 16
    if compact:
        return 1
    return 2 if type_ == "string" else 4
