"""Offsets of fields that are read or changed without decoding a message, computed from the schema.

Most fields have a fixed offset from the body's start, some from its end. Others have fields of variable size
before them, which a compiled function scans (`field_scanner`). `FieldOffset.locate` hides these differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Final, TypeAlias

from weir.protocol import schema
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE
from weir.protocol.scanning.field_scanner import Bytes, Locate, fixed_size, least_size, locator
from weir.protocol.schema import Layout, MessageSchema, Slot

MessageLike: TypeAlias = MessageSchema | type[object] | str
"""A schema, its name, or a class in `messages` with that name."""

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
"""Format used for a field that is not an integer of fixed size: one byte, the least that such a field has."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldOffset:
    """The position of a field, or of the tagged fields, in the body of one version of a message."""

    message: str
    """Name of the message in the schemas, such as ProduceRequest."""
    version: int
    field: str
    """Name of the field in the schema; "" for the tagged fields."""
    fixed_offset: int | None
    """Number of bytes from the body's start to the field; None if the size of an earlier field varies."""
    offset_from_end: int | None
    """Number of bytes from the field to the body's end; None if the size of this or a later field varies."""
    locate: Locate
    """Function `locate(data, body, end, complete)` that returns the position of the field in `data`. The body
    starts at `data[body]`; its bytes have arrived up to `end`. `complete`: True if `end` is the end of the
    body. Returns INCOMPLETE if an integer has not arrived in full, or no byte of any other field has arrived.
    Raises ProtocolError, with the offset from the body's start, if a complete body ends before the field, or
    an earlier field has an impossible length.
    """
    _integer: Struct | None

    @property
    def size(self) -> int:
        """Size (bytes) of the integer. Raises TypeError if the field is not an integer."""
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        return self._integer.size

    def read(self, data: Bytes, position: int) -> int:
        """Return the integer at the `position` that `locate` returned. Raises TypeError if the field is not
        an integer.
        """
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        value: int = self._integer.unpack_from(data, position)[0]
        return value

    def write(self, data: bytearray, position: int, value: int) -> None:
        """Overwrite the integer at the `position` that `locate` returned. Raises struct.error if the value
        does not fit, TypeError if the field is not an integer.
        """
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        self._integer.pack_into(data, position, value)

    def raise_to(self, data: bytearray, position: int, value: int) -> None:
        """Overwrite the integer at the `position` that `locate` returned, if it is smaller than `value`.
        Raises as `write`.
        """
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        if self._integer.unpack_from(data, position)[0] < value:
            self._integer.pack_into(data, position, value)


def field_offset(message: MessageLike, version: int, field_name: str) -> FieldOffset | None:
    """Return the offset of a top-level field; None if the version lacks the field, or the field is a tagged
    field in this version (cached).

    Raises ValueError for a message or version that the schemas lack.
    """
    return _place(_schema(message).name, version, field_name)


def tag_section(message: MessageLike, version: int) -> FieldOffset | None:
    """Return the offset of the count of the body's tagged fields; None if the version is not flexible
    (cached).

    Raises ValueError for a message or version that the schemas lack.
    """
    return _tag_section(_schema(message).name, version)


def layout(message: MessageLike, version: int) -> Layout:
    """Return the layout of a version of a message. Raises ValueError if the schemas lack the message or
    version.
    """
    return _schema(message).layout(version)


def _schema(message: MessageLike) -> MessageSchema:
    if isinstance(message, MessageSchema):
        return message
    name = message if isinstance(message, str) else message.__name__
    found = schema.message(name)
    if found is None:
        raise ValueError(f"no message of Kafka's is called {name}")
    return found


@cache
def _place(message: str, version: int, field_name: str) -> FieldOffset | None:
    found = layout(message, version)
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
    found = layout(message, version)
    return _make(found, found.fields, "", None, None) if found.flexible else None


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
    """Return a function that locates a field at a fixed distance from the body's end (see
    `FieldOffset.locate`). As long as the end of the body has not arrived, that function scans the fields
    before this field instead.
    """
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
