"""Offsets of fields that are read or changed without decoding a message, computed from the schema.

Most fields have a fixed offset from the body's start, some from its end. Others have fields of variable size
before them, which a compiled function scans (`field_scanner`). Callers need not distinguish these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Final, TypeAlias

from protocol import schema
from protocol.errors import ProtocolError
from protocol.framing import INCOMPLETE
from protocol.scanning.field_scanner import Bytes, Locate, fixed_size, least_size, locator
from protocol.schema import Layout, MessageSchema, Slot

MessageLike: TypeAlias = MessageSchema | type[object]
"""A schema, or a class in `messages` with the schema's name."""

_INTEGERS: Final = {
    "bool": Struct(">b"),
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "uint16": Struct(">H"),
    "int32": Struct(">i"),
    "uint32": Struct(">I"),
    "int64": Struct(">q"),
}
_OPAQUE: Final = Struct(">b")
"""For fields that are not integers of fixed size: at least one byte."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldOffset:
    """The position of a field, or of the tagged fields, in the body of one version of a message."""

    message: str
    """The name in `schema`: ProduceRequest."""
    version: int
    field: str
    """The field's name in the schema; empty for the tagged fields."""
    fixed_offset: int | None
    """Bytes from the body's start, if all earlier fields have a fixed size."""
    offset_from_end: int | None
    """Bytes before the body's end, if this and all later fields have a fixed size."""
    locate: Locate
    """`locate(data, body, end, complete)`: the absolute position in `data`, whose body starts at `body`.

    `end` is the end of the bytes at hand; `complete` if that is the body's end. If more bytes are needed, the
    result is INCOMPLETE, or ProtocolError
    if the body is complete. At the returned position the whole integer is at
    hand, or the first byte of any other field. Impossible lengths raise ProtocolError too, with the offset
    from the body's start.
    """
    _integer: Struct | None

    @property
    def size(self) -> int:
        """Size (bytes) of the integer. Raises TypeError if the field is not an integer."""
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        return self._integer.size

    def read(self, data: Bytes, position: int) -> int:
        """Return the integer at a position from `locate`. Raises TypeError if the field is not an integer."""
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        value: int = self._integer.unpack_from(data, position)[0]
        return value

    def write(self, data: bytearray, position: int, value: int) -> None:
        """Overwrite the integer. Raises struct.error if the value does not fit, TypeError if the field is not
        an integer.
        """
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        self._integer.pack_into(data, position, value)


def field_offset(message: MessageLike, version: int, field_name: str) -> FieldOffset | None:
    """Return the offset of a top-level field; None if the version lacks it, or has it as a tagged field
    (cached).

    Raises ValueError for a message or version that the schemas lack.
    """
    return _place(_schema(message).name, version, field_name)


def tag_section(message: MessageLike, version: int) -> FieldOffset | None:
    """Return the offset of the body's tagged fields, at their count; None if the version has none (cached).

    Raises ValueError for a message or version that the schemas lack.
    """
    return _tag_section(_schema(message).name, version)


def layout(message: MessageLike, version: int) -> Layout:
    """Return the layout of a version of a message. Raises ValueError if the schemas lack it."""
    return _schema(message).layout(version)


def _schema(message: MessageLike) -> MessageSchema:
    if isinstance(message, MessageSchema):
        return message
    found = schema.message(message.__name__)
    if found is None:
        raise ValueError(f"no message of Kafka's is called {message.__name__}")
    return found


@cache
def _place(message: str, version: int, field_name: str) -> FieldOffset | None:
    found = _named(message).layout(version)
    names = [slot.name for slot in found.fields]
    if field_name not in names:
        return None
    index = names.index(field_name)
    slot = found.fields[index]
    integer = None if slot.is_array else _INTEGERS.get(slot.type)
    from_end = None if found.flexible else fixed_size(found.fields[index:])
    return _make(found, found.fields[:index], field_name, from_end, integer)


@cache
def _tag_section(message: str, version: int) -> FieldOffset | None:
    found = _named(message).layout(version)
    return _make(found, found.fields, "", None, None) if found.flexible else None


def _named(message: str) -> MessageSchema:
    found = schema.message(message)
    if found is None:
        raise ValueError(f"no message of Kafka's is called {message}")
    return found


def _make(
    found: Layout, before: tuple[Slot, ...], field: str, from_end: int | None, integer: Struct | None
) -> FieldOffset:
    fixed_offset = fixed_size(before)
    size = (integer or _OPAQUE).size
    if fixed_offset is not None:
        locate = _at(found, fixed_offset, size)
    else:
        locate = locator(found, before, size)
        if from_end is not None:
            locate = _before_end(found, from_end, locate)
    return FieldOffset(found.name, found.version, field, fixed_offset, from_end, locate, integer)


def _at(found: Layout, offset: int, size: int) -> Locate:
    stop = offset + size

    def locate(data: Bytes, body: int, end: int, complete: bool) -> int:  # noqa: ARG001 - a Locate
        if body + stop <= end:
            return body + offset
        if complete:
            raise _too_short(found, end - body)
        return INCOMPLETE

    return locate


def _before_end(found: Layout, offset: int, scan: Locate) -> Locate:
    """Locate from the body's end once that is at hand, by scanning until then."""
    least = sum(map(least_size, found.fields))

    def locate(data: Bytes, body: int, end: int, complete: bool) -> int:
        if not complete:
            return scan(data, body, end, False)
        if end - body < least:
            raise _too_short(found, end - body)
        return end - offset

    return locate


def _too_short(found: Layout, offset: int) -> ProtocolError:
    return ProtocolError("the message ends too early", api=found.name, version=found.version, offset=offset)
