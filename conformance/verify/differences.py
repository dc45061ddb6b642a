"""Finds the fields of a message whose bytes are not those that Kafka's own writers produce.

The scanner reads bytes along a layout and builds no values, so its memory does not grow with the message. It
continues behind a defect where brokers do; where the next field cannot be found, it stops.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from weir.conformance.verify.clean_elements import UNUSUAL, clean_element
from weir.conformance.verify.finding import Defect
from weir.conformance.verify.rules import R
from weir.protocol.decoding import struct_size_min
from weir.protocol.primitives import FORMATS, STRING_BYTES_MAX, size_min

if TYPE_CHECKING:
    from weir.conformance.verify.clean_elements import Pass
    from weir.protocol.schema import Layout, Slot

DEFECTS_MAX: Final = 20
"""Maximum number of defects found in one message."""
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT32_MAX: Final = 0x7FFFFFFF


class _StopError(Exception):
    """Raised behind a defect that hides the next field, or after `DEFECTS_MAX` defects."""


def _minimal(value: int) -> bytes:
    """Return an unsigned varint in as few bytes as possible."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


class MessageScanner:
    """Scans one message. `defects` has the defects so far, `elements` the number of array elements and
    tagged fields.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.end = len(data)
        self.position = position
        self.defects: list[Defect] = []
        self.elements = 0
        self.complete = False
        """True once a message was scanned to its end: `position` is then behind that message."""
        self._path: list[str | int] = []

    def scan(self, layout: Layout, prefix: str = "") -> None:
        """Scan one message. `prefix` is put before its paths."""
        self._path = [prefix] if prefix else []
        self.complete = False
        try:
            self._struct(layout)
            self.complete = True
        except _StopError:
            pass

    def _struct(self, layout: Layout) -> None:
        for slot in layout.fields:
            self._path.append(slot.name)
            self._slot(slot)
            self._path.pop()
        if layout.flexible:
            if self.position < self.end and self.data[self.position] == 0:
                self.position += 1
            else:
                self._tags(layout)

    def _slot(self, slot: Slot) -> None:
        if slot.is_array:
            self._array(slot)
        elif slot.struct is not None:
            if not slot.nullable or self._present():
                self._struct(slot.struct)
        else:
            self._primitive(slot.type, slot.compact, slot.nullable)

    def _present(self) -> bool:
        """Read the byte before a nullable struct; return False for null."""
        at = self._take(1)
        marker = self.data[at]
        if marker not in (1, 0xFF):
            self._defect(
                R.NULL_FORM,
                "A nullable struct begins with another byte.",
                at,
                "1, or -1 for null",
                str(marker),
            )
        return marker < 0x80

    def _array(self, slot: Slot) -> None:
        at = self.position
        count = self._length(4, slot.compact)
        if count < 0:
            self._check_null(slot.nullable, at)
            return
        layout = slot.struct
        least = max(1, struct_size_min(layout) if layout else size_min(slot.type, slot.compact))
        if count * least > self.end - self.position:
            self._too_long(at, count, f"elements of at least {least} bytes")
        self.elements += count
        if slot.type in FORMATS and slot.type != "bool":
            self.position += count * least
            return
        clean, index = clean_element(slot), 0
        while (index := self._clean(clean, index, count)) < count:
            self._path.append(index)
            if layout is not None:
                self._struct(layout)
            else:
                self._primitive(slot.type, slot.compact, nullable=False)
            self._path.pop()
            index += 1

    def _clean(self, clean: Pass, index: int, count: int) -> int:
        """Pass over elements from `index` on, and return the index of the first that needs a closer look, or
        `count`.
        """
        data, end, position, elements, counted = self.data, self.end, self.position, [0], 0
        try:
            while index < count:
                after = clean(data, position, elements)
                if after > end:
                    break
                position, counted, index = after, elements[0], index + 1
        except UNUSUAL:
            pass
        self.position = position
        self.elements += counted
        return index

    def _primitive(self, type_: str, compact: bool, nullable: bool) -> None:
        if type_ in FORMATS or type_ == "uuid":
            at = self._take(size_min(type_, compact))
            if type_ == "bool" and self.data[at] > 1:
                self._defect(R.BOOL_VALUE, "A boolean has another value.", at, "0 or 1", str(self.data[at]))
            return
        at = self.position
        length = self._length(2 if type_ == "string" else 4, compact)
        if length < 0:
            self._check_null(nullable, at)
            return
        if length > self.end - self.position:
            self._too_long(at, length, "bytes")
        start = self._take(length)
        if type_ == "string":
            self._check_text(start, length)

    def _check_text(self, start: int, length: int) -> None:
        if length > STRING_BYTES_MAX:
            self._defect(
                R.STRING_UTF8,
                "A string is too long.",
                start,
                f"at most {STRING_BYTES_MAX} bytes",
                str(length),
            )
        try:
            str(memoryview(self.data)[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            self._defect(R.STRING_UTF8, "A string is not UTF-8.", start + error.start, "UTF-8", error.reason)

    def _check_null(self, nullable: bool, at: int) -> None:
        if not nullable:
            self._defect(
                R.NULL_NOT_ALLOWED,
                "A field is null, but this version does not allow null. Write a value; it may be empty.",
                at,
                "a value",
                "null",
            )

    def _too_long(self, at: int, length: int, unit: str) -> None:
        left = self.end - self.position
        self._defect(
            R.FIELD_LENGTH,
            "A length exceeds the end of the message.",
            at,
            f"at most {left} bytes",
            f"{length} {unit}",
        )
        raise _StopError

    def _length(self, size: int, compact: bool) -> int:
        """Read the length of a string, bytes or array field; negative for null."""
        if compact:
            return self._uvarint() - 1
        at = self._take(size)
        length: int = (_INT16 if size == 2 else _INT32).unpack_from(self.data, at)[0]
        if length < -1:
            self._defect(R.NULL_FORM, "Null has a length other than -1.", at, "-1", str(length))
        return length

    def _uvarint(self) -> int:
        at = self.position
        value = shift = 0
        while shift < 35:
            byte = self.data[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    self._defect(
                        R.VARINT_NOT_MINIMAL,
                        "A varint has more bytes than it needs. Stop when all bits that are left are 0.",
                        at,
                        _minimal(value).hex(" "),
                        self.data[at : self.position].hex(" "),
                    )
                if value > _INT32_MAX:
                    break
                return value
            shift += 7
        self._defect(R.VARINT, "A varint has more than 31 bits.", at, "at most 31 bits", "more")
        raise _StopError

    def _tags(self, layout: Layout) -> None:
        known = {slot.tag: slot for slot in layout.tagged}
        before = -1
        self._path.append("tagged fields")
        count = self._uvarint()
        self._path.pop()
        self.elements += count
        for _ in range(count):
            at = self.position
            tag = self._uvarint()
            if tag <= before:
                text = f"Tag {tag} follows tag {before}. Write tags in ascending order, each once."
                self._path.append("tagged fields")
                self._defect(R.TAG_ORDER, text, at, f"a tag above {before}", str(tag))
                self._path.pop()
            before = max(before, tag)
            at = self.position
            size = self._uvarint()
            if size > self.end - self.position:
                self._too_long(at, size, "bytes")
            if tag in known:
                self._tag(known[tag], size, at)
            else:
                self.position += size

    def _tag(self, slot: Slot, size: int, at: int) -> None:
        self._path.append(slot.name)
        start = self.position
        self._slot(slot)
        if self.position - start != size:
            self._defect(
                R.TAG_SIZE,
                "A tagged field's size is not its value's.",
                at,
                str(self.position - start),
                str(size),
            )
            self.position = max(self.position, start + size)
        self._path.pop()

    def _take(self, size: int) -> int:
        """Return the position, and move it on by `size` bytes."""
        at = self.position
        if at + size > self.end:
            self._defect(
                R.FIELD_LENGTH,
                "The message ends within a field.",
                at,
                f"{size} more bytes",
                f"{self.end - at} bytes",
            )
            raise _StopError
        self.position = at + size
        return at

    def _defect(self, rule: R, message: str, offset: int, expected: str, found: str) -> None:
        self.defects.append(Defect(rule, message, self._spelled(), offset, expected, found))
        if len(self.defects) >= DEFECTS_MAX:
            raise _StopError

    def _spelled(self) -> str:
        spelled = ""
        for part in self._path:
            spelled += f"[{part}]" if isinstance(part, int) else f".{part}" if spelled else part
        return spelled


class TagScanner(MessageScanner):
    """Lists the tagged fields of a message that its layout knows, in the order of the bytes."""

    def __init__(self, data: bytes, position: int) -> None:
        super().__init__(data, position)
        self.tags: list[tuple[str, int]] = []
        """Path and offset of each field. The offset is that of the size before the value."""

    def _clean(self, clean: Pass, index: int, count: int) -> int:  # noqa: ARG002  # all fields are visited
        return min(index, count)

    def _tag(self, slot: Slot, size: int, at: int) -> None:
        self._path.append(slot.name)
        self.tags.append((self._spelled(), at))
        self._path.pop()
        super()._tag(slot, size, at)


class Locator(MessageScanner):
    """Finds the bytes of fields: of those with given paths, and of the innermost one at a given offset."""

    def __init__(self, data: bytes, position: int, paths: frozenset[str], offset: int = -1) -> None:
        super().__init__(data, position)
        self.spans: dict[str, tuple[int, int]] = {}
        """Path → (start, end) of the field, with its length prefix."""
        self.path_at = ""
        """Path of the innermost field at the offset; "" if no field has it."""
        self._paths = paths
        self._offset = offset

    def _clean(self, clean: Pass, index: int, count: int) -> int:  # noqa: ARG002  # all fields are visited
        return min(index, count)

    def _slot(self, slot: Slot) -> None:
        start = self.position
        super()._slot(slot)
        if self._paths and (path := self._spelled()) in self._paths:
            self.spans[path] = start, self.position
        if not self.path_at and start <= self._offset < self.position:
            self.path_at = self._spelled()
