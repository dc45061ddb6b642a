"""Places of the fields that are patched without decoding a message, worked out from the schema.

Most places are at a fixed offset from the body's start, some at one from its end; others have fields of
variable size before them, which a compiled function walks over (`walk`). Whoever has a place need not know
which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Final, TypeAlias

from protocol import schema
from protocol.errors import ProtocolError
from protocol.field_scanner import Bytes, Locate, fixed_size, least_size, locator
from protocol.framing import INCOMPLETE
from protocol.schema import Layout, MessageSchema, Slot

MessageLike: TypeAlias = MessageSchema | type[object]
"""A schema, or a class of `messages`, whose name is the schema's."""

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
"""Stands for what is not an integer of fixed size: at least one byte."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldOffset:
    """Where a field, or the tag section, is in the body of one version of a message."""

    message: str
    """As in `schema`: ProduceRequest."""
    version: int
    field: str
    """Its name in the schema; empty for the tag section."""
    fixed_offset: int | None
    """Bytes from the body's start, if everything before the place is of fixed size."""
    offset_from_end: int | None
    """Bytes before the body's end, if everything from here on is of fixed size."""
    locate: Locate
    """`locate(data, body, end, complete)`: the absolute position in `data`, whose body starts at `body`.

    `end` is where the bytes at hand end, `complete` whether that is the body's end. If more bytes are
    needed: INCOMPLETE, or ProtocolError if there are none. At the position returned there is all of an
    integer, or the first byte of anything else. Other ProtocolErrors: a length that cannot be, with its
    offset from the body's start.
    """
    _integer: Struct | None

    @property
    def size(self) -> int:
        """Bytes of the integer. Raises TypeError if the field is none."""
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        return self._integer.size

    def read(self, data: Bytes, position: int) -> int:
        """The integer at a position that `locate` returned. Raises TypeError if the field is none."""
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        value: int = self._integer.unpack_from(data, position)[0]
        return value

    def write(self, data: bytearray, position: int, value: int) -> None:
        """Put another integer there. Raises struct.error if it does not fit, TypeError if the field is
        none."""
        if self._integer is None:
            raise TypeError(f"{self.message}.{self.field} is no integer")
        self._integer.pack_into(data, position, value)


def field_offset(message: MessageLike, version: int, field_name: str) -> FieldOffset | None:
    """Where a top-level field is; None if the version lacks it, or has it among its tagged ones (cached).

    Raises ValueError for a message or version that the schemas do not know.
    """
    return _place(_schema(message).name, version, field_name)


def tag_section(message: MessageLike, version: int) -> FieldOffset | None:
    """Where the body's tagged fields begin, at their count; None if the version has none (cached).

    Raises ValueError for a message or version that the schemas do not know.
    """
    return _tag_section(_schema(message).name, version)


def layout(message: MessageLike, version: int) -> Layout:
    """How a version of a message lies on the wire. Raises ValueError if the schemas do not know it."""
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

    def locate(data: Bytes, body: int, end: int, complete: bool) -> int:  # noqa: ARG001 - all Locates are alike
        if body + stop <= end:
            return body + offset
        if complete:
            raise _too_short(found, end - body)
        return INCOMPLETE

    return locate


def _before_end(found: Layout, offset: int, walk: Locate) -> Locate:
    """While the end is not at hand the place can still be: a walk tells."""
    least = sum(map(least_size, found.fields))

    def locate(data: Bytes, body: int, end: int, complete: bool) -> int:
        if not complete:
            return walk(data, body, end, False)
        if end - body < least:
            raise _too_short(found, end - body)
        return end - offset

    return locate


def _too_short(found: Layout, offset: int) -> ProtocolError:
    return ProtocolError("the message ends too early", api=found.name, version=found.version, offset=offset)
