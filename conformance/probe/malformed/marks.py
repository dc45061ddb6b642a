"""Places of the fields in a well-formed request, so that an edit can change one of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from weir.protocol import schema
from weir.protocol.api import request_header_version
from weir.protocol.framing import LENGTH_BYTES, REQUEST_HEAD
from weir.protocol.primitives import (
    FORMATS,
    read_compact_length,
    read_int16_length,
    read_int32_length,
    read_uvarint,
    size_min,
)

if TYPE_CHECKING:
    from weir.protocol.schema import Layout, Slot


class MarkKind(StrEnum):
    """Kind of a mark."""

    FIXED = "fixed"
    """A value of a fixed size: a number, a bool, a uuid."""
    STRING = "string"
    BYTES = "bytes"
    """Bytes or records."""
    ARRAY = "array"
    STRUCT = "struct"
    """The byte that says whether a nullable struct is null (KIP-893)."""
    TAGS = "tags"
    """The count of a struct's tagged fields, and these fields."""
    TAG = "tag"
    """The size of a tagged field that the schemas have."""


class Mark(msgspec.Struct, frozen=True):
    """A field, or a part of one. Offsets count bytes from the start of the frame's length prefix."""

    path: str
    """Names of the fields from the top, such as "topics.name"; those of the header begin with "header."."""
    role: MarkKind
    type: str
    """Name of a primitive type or of a struct; for an array, type of its elements."""
    start: int
    content: int
    """Offset of the content: behind the length, the count or the size; `start` if the field has none."""
    end: int
    """Offset behind the field, with its elements or fields."""
    nullable: bool
    compact: bool
    length: int = -1
    """Length or count in the bytes before `content`; -1 for null, and for fields without length."""


class Marked(msgspec.Struct, frozen=True):
    """A well-formed request with its marks."""

    frame: bytes
    """The request, with its length prefix."""
    api_key: int
    version: int
    correlation_id: int
    body: int
    """Offset of the body."""
    marks: tuple[Mark, ...]
    """Marks in wire order. Of an array, only the first element has marks."""

    def of(self, *roles: MarkKind) -> list[Mark]:
        """Return the marks of these roles in the body."""
        return [mark for mark in self.marks if mark.role in roles and mark.start >= self.body]


def mark(frame: bytes) -> Marked:
    """Return a well-formed request with its marks. Raises ProtocolError for malformed bytes,
    UnknownVersionError for an API or a version that the schemas lack.
    """
    _length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
    header_version = request_header_version(api_key, version)
    found = schema.api(api_key)
    assert found is not None  # else request_header_version raises
    marker = _Marker(frame)
    body = marker.struct(schema.header("request").layout(header_version), LENGTH_BYTES, "header.", keep=True)
    marker.struct(found.request.layout(version), body, "", keep=True)
    return Marked(frame, api_key, version, correlation_id, body, tuple(marker.marks))


class _Marker:
    """Walks through a frame. `keep` is False within elements that get no marks."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.marks: list[Mark] = []

    def struct(self, layout: Layout, position: int, path: str, *, keep: bool) -> int:
        """Mark a struct's fields. Return the offset behind the struct."""
        for slot in layout.fields:
            position = self._slot(slot, position, path + slot.name, keep=keep)
        return self._tags(layout, position, path, keep=keep) if layout.flexible else position

    def _slot(self, slot: Slot, position: int, path: str, *, keep: bool) -> int:
        if slot.is_array:
            return self._array(slot, position, path, keep=keep)
        if slot.struct is not None:
            if slot.nullable:
                return self._nullable_struct(slot, position, path, keep=keep)
            return self.struct(slot.struct, position, path + ".", keep=keep)
        return self._primitive(slot, position, path, keep=keep)

    def _nullable_struct(self, slot: Slot, position: int, path: str, *, keep: bool) -> int:
        assert slot.struct is not None
        at, end = len(self.marks), position + 1
        if self._frame[position] <= 0x7F:
            end = self.struct(slot.struct, end, path + ".", keep=keep)
        self._add(MarkKind.STRUCT, slot, path, position, position + 1, end, at=at, keep=keep)
        return end

    def _primitive(self, slot: Slot, position: int, path: str, *, keep: bool) -> int:
        if slot.type in FORMATS or slot.type == "uuid":
            end = position + size_min(slot.type, compact=False)
            self._add(MarkKind.FIXED, slot, path, position, position, end, keep=keep)
            return end
        length, content = self._length(slot, position)
        role = MarkKind.STRING if slot.type == "string" else MarkKind.BYTES
        end = content + max(length, 0)
        self._add(role, slot, path, position, content, end, length, keep=keep)
        return end

    def _array(self, slot: Slot, position: int, path: str, *, keep: bool) -> int:
        count, content = self._length(slot, position)
        at, end = len(self.marks), content
        for index in range(count):
            end = self._element(slot, end, path, keep=keep and index == 0)
        self._add(MarkKind.ARRAY, slot, path, position, content, end, count, at=at, keep=keep)
        return end

    def _element(self, slot: Slot, position: int, path: str, *, keep: bool) -> int:
        if slot.struct is not None:
            return self.struct(slot.struct, position, path + ".", keep=keep)
        element = msgspec.structs.replace(
            slot, field=msgspec.structs.replace(slot.field, is_array=False), nullable=False
        )
        return self._primitive(element, position, path + ".element", keep=keep)

    def _tags(self, layout: Layout, position: int, path: str, *, keep: bool) -> int:
        known = {slot.tag: slot for slot in layout.tagged}
        start = position
        count, content = read_uvarint(self._frame, position, len(self._frame))
        at, position = len(self.marks), content
        for _ in range(count):
            tag, size_at = read_uvarint(self._frame, position, len(self._frame))
            size, inside = read_uvarint(self._frame, size_at, len(self._frame))
            position = inside + size
            if (slot := known.get(tag)) is not None:
                self._add(MarkKind.TAG, slot, path + slot.name, size_at, inside, position, size, keep=keep)
        if keep:
            tags = Mark(path + "tags", MarkKind.TAGS, "", start, content, position, False, True, count)
            self.marks.insert(at, tags)
        return position

    def _length(self, slot: Slot, position: int) -> tuple[int, int]:
        if slot.compact:
            return read_compact_length(self._frame, position, len(self._frame))
        if slot.type == "string" and not slot.is_array:
            return read_int16_length(self._frame, position, len(self._frame))
        return read_int32_length(self._frame, position, len(self._frame))

    def _add(
        self,
        role: MarkKind,
        slot: Slot,
        path: str,
        start: int,
        content: int,
        end: int,
        length: int = -1,
        *,
        keep: bool,
        at: int | None = None,
    ) -> None:
        """Add a mark, before the mark with index `at`."""
        if keep:
            new = Mark(path, role, slot.type, start, content, end, slot.nullable, slot.compact, length)
            self.marks.insert(len(self.marks) if at is None else at, new)
