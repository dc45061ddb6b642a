"""Makes functions that read messages: one function per field, or per series of neighbouring number fields.
The functions are made from a layout, which lists the fields of one version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from weir.protocol.errors import OversizedError, ProtocolError
from weir.protocol.primitives import (
    FORMATS,
    STRICT,
    Buffer,
    Reader,
    Reading,
    bytes_reader,
    number_reader,
    read_uuid,
    read_uvarint,
    read_wrapped_uvarint,
    size_min,
    string_reader,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Value

NUMBERS_MAX: Final = 50_000
"""Maximum length of an array of numbers in a request, because it is read at once: 50,000 take a
millisecond.
"""
TAGS_MAX: Final = 1000
"""Maximum number of tagged fields of a struct in a request."""
INT32_MAX: Final = 0x7FFFFFFF

Types = Callable[[str], "type[Value]"]
"""Function that takes the name of a struct and returns its class."""
Step = Callable[[Buffer, int, int, list[object]], int]
"""Function that reads one or more fields, appends their values, and returns the position after them."""


def fields_reader(
    slots: Sequence[Slot], types: Types, reading: Reading = STRICT
) -> Callable[[Buffer, int, int], tuple[dict[str, object], int]]:
    """Return a function that reads these fields, which are in wire order. That function returns (dict of name
    → value, position after the last field).
    """
    names = tuple(slot.name for slot in slots)
    steps = _steps(slots, types, reading)

    def read(data: Buffer, position: int, end: int) -> tuple[dict[str, object], int]:
        values: list[object] = []
        for step in steps:
            position = step(data, position, end, values)
        return dict(zip(names, values, strict=True)), position

    return read


def struct_reader(layout: Layout, built: type[Value], types: Types, reading: Reading = STRICT) -> Reader:
    """Return a function that reads a message or struct, including its tagged fields if the version has them
    (is flexible).
    """
    names = tuple(slot.name for slot in layout.fields)
    steps = _steps(layout.fields, types, reading)
    read_tags = tags_reader(layout, types, reading) if layout.flexible else None

    def read(data: Buffer, position: int, end: int) -> tuple[Value, int]:
        found: list[object] = []
        for step in steps:  # as in `fields_reader`, whose call would cost a tenth of an element of an array
            position = step(data, position, end, found)
        values = dict(zip(names, found))  # noqa: B905  # as many values as names, and `strict` takes time
        if read_tags is not None:
            if position < end and data[position] == 0:
                position += 1
            else:
                position = read_tags(data, position, end, values)
        return built(**values), position  # type: ignore[arg-type]  # the schema has matching types

    return read


def _steps(slots: Sequence[Slot], types: Types, reading: Reading) -> list[Step]:
    steps: list[Step] = []
    for number, group in groupby(slots, lambda slot: slot.type in FORMATS and not slot.is_array):
        run = list(group)
        steps += [_run_step(run)] if number else [_step(slot_reader(slot, types, reading)) for slot in run]
    return steps


def _step(read: Reader) -> Step:
    def step(data: Buffer, position: int, end: int, values: list[object]) -> int:
        value, position = read(data, position, end)
        values.append(value)
        return position

    return step


def _run_step(slots: Sequence[Slot]) -> Step:
    """Return a function that reads consecutive fields of number types in one call of `struct`."""
    form = struct.Struct(">" + "".join(FORMATS[slot.type] for slot in slots))
    unpack, size = form.unpack_from, form.size
    names = ", ".join(slot.name for slot in slots)

    def step(data: Buffer, position: int, end: int, values: list[object]) -> int:
        after = position + size
        if after > end:
            raise ProtocolError(f"ends within {names}", offset=end)
        values += unpack(data, position)
        return after

    return step


def slot_reader(slot: Slot, types: Types, reading: Reading = STRICT) -> Reader:
    """Return a function that reads one field."""
    if slot.is_array:
        return _array_reader(slot, types, reading)
    if slot.struct is not None:
        read = struct_reader(slot.struct, types(slot.type), types, reading)
        return _nullable_struct_reader(read) if slot.nullable else read
    return primitive_reader(slot.type, slot.compact, slot.nullable, reading)


def primitive_reader(type_: str, compact: bool, nullable: bool, reading: Reading) -> Reader:
    """Return a function that reads one value of a primitive type."""
    if type_ in FORMATS:
        return number_reader(type_)
    if type_ == "uuid":
        return read_uuid
    make = string_reader if type_ == "string" else bytes_reader
    return make(compact, nullable, reading)


def _nullable_struct_reader(read_struct: Reader) -> Reader:
    """Return a function that reads a struct that may be null (KIP-893): an int8, negative for null, then the
    struct.
    """

    def read(data: Buffer, position: int, end: int) -> tuple[object, int]:
        if position >= end:
            raise ProtocolError("ends before a nullable struct", offset=position)
        if data[position] > 0x7F:
            return None, position + 1
        return read_struct(data, position + 1, end)

    return read


def array_header(slot: Slot, reading: Reading) -> Callable[[Buffer, int, int], tuple[int, int]]:
    """Return a function that reads an array's count, -1 for null. That function raises ProtocolError if the
    remaining bytes are too few for this count, so that its caller can allocate the array safely.
    """
    read_length = reading.compact_length if slot.compact else reading.int32_length
    element_size_min = max(
        1, struct_size_min(slot.struct) if slot.struct else size_min(slot.type, slot.compact)
    )
    nullable, name = slot.nullable, slot.name

    def read(data: Buffer, position: int, end: int) -> tuple[int, int]:
        count, start = read_length(data, position, end)
        if count < 0:
            if nullable:
                return -1, start
            raise ProtocolError(f"array {name} is null", offset=position)
        if count * element_size_min > end - start:
            raise ProtocolError(f"array {name} of {count} in {end - start} bytes", offset=position)
        return count, start

    return read


def _array_reader(slot: Slot, types: Types, reading: Reading) -> Reader:
    read_header, read_elements = array_header(slot, reading), _elements_reader(slot, types, reading)

    def read(data: Buffer, position: int, end: int) -> tuple[list[object] | None, int]:
        count, start = read_header(data, position, end)
        return (None, start) if count < 0 else read_elements(data, start, end, count)

    return read


def _elements_reader(
    slot: Slot, types: Types, reading: Reading
) -> Callable[[Buffer, int, int, int], tuple[list[object], int]]:
    if slot.type in FORMATS:
        form, size = FORMATS[slot.type], size_min(slot.type, compact=False)
        numbers_max = NUMBERS_MAX if reading.lenient else INT32_MAX

        def read_numbers(data: Buffer, position: int, _end: int, count: int) -> tuple[list[object], int]:
            # The count was compared with the remaining bytes.
            if count > numbers_max:
                raise OversizedError(f"an array of {count} numbers, limit {numbers_max}", offset=position)
            return list(struct.unpack_from(f">{count}{form}", data, position)), position + count * size

        return read_numbers
    if slot.struct is not None:
        read = struct_reader(slot.struct, types(slot.type), types, reading)
    else:
        read = primitive_reader(slot.type, slot.compact, nullable=False, reading=reading)

    def read_each(data: Buffer, position: int, end: int, count: int) -> tuple[list[object], int]:
        elements: list[object] = []
        for _ in range(count):
            element, position = read(data, position, end)
            elements.append(element)
        return elements, position

    return read_each


def struct_size_min(layout: Layout) -> int:
    """Return the smallest size (bytes) of a message or struct."""
    return sum(map(_slot_size_min, layout.fields)) + layout.flexible


def _slot_size_min(slot: Slot) -> int:
    if slot.is_array:
        return 1 if slot.compact else 4
    if slot.struct is None:
        return size_min(slot.type, slot.compact)
    return 1 if slot.nullable else struct_size_min(slot.struct)


ReadTags: TypeAlias = Callable[[Buffer, int, int, dict[str, object]], int]
"""Function that reads tagged fields, adds their values to a dict, and returns the position after them."""


def tags_reader(layout: Layout, types: Types, reading: Reading) -> ReadTags:
    """Return a function that reads tagged fields (KIP-482): a count, then per field its tag, size and
    bytes.
    """
    return (_lenient_tags_reader if reading.lenient else _strict_tags_reader)(layout, types, reading)


def _strict_tags_reader(layout: Layout, types: Types, reading: Reading) -> ReadTags:
    known = {slot.tag: (slot.name, slot_reader(slot, types, reading)) for slot in layout.tagged}

    def read(data: Buffer, position: int, end: int, values: dict[str, object]) -> int:
        count, position = read_uvarint(data, position, end)
        unknown: list[tuple[int, bytes]] = []
        before = -1
        for _ in range(count):
            tag, start = read_uvarint(data, position, end)
            if tag <= before:
                raise ProtocolError(f"tag {tag} after tag {before}", offset=position)
            size, start = read_uvarint(data, start, end)
            after = start + size
            if after > end:
                raise ProtocolError(f"tag {tag} of {size} bytes, {end - start} left", offset=position)
            if tag in known:
                name, read_value = known[tag]
                values[name], position = read_value(data, start, after)
                if position != after:
                    raise ProtocolError(f"{name} leaves {after - position} bytes of its tag", offset=position)
            else:
                unknown.append((tag, bytes(data[start:after])))
            position, before = after, tag
        if unknown:
            values["unknown_tagged_fields"] = tuple(unknown)
        return position

    return read


def _lenient_tags_reader(layout: Layout, types: Types, reading: Reading) -> ReadTags:
    """Return a function that reads tagged fields like Kafka's generated classes: the last of duplicate tags
    counts, and the size of a known field is ignored.
    """
    known = {slot.tag: (slot.name, slot_reader(slot, types, reading)) for slot in layout.tagged}

    def read(data: Buffer, position: int, end: int, values: dict[str, object]) -> int:
        count, position = read_wrapped_uvarint(data, position, end)
        if count > TAGS_MAX:
            raise OversizedError(f"{count} tagged fields, limit {TAGS_MAX}", offset=position)
        unknown: dict[int, bytes] = {}
        for _ in range(count):
            tag, start = read_wrapped_uvarint(data, position, end)
            size, start = read_wrapped_uvarint(data, start, end)
            if tag in known:
                name, read_value = known[tag]
                values[name], position = read_value(data, start, end)
                continue
            after = start + size
            if not start <= after <= end:
                raise ProtocolError(f"tag {tag} of {size} bytes, {end - start} left", offset=position)
            if 0 <= tag < 0x7FFFFFFF:  # other tags are not valid in any schema
                unknown[tag] = bytes(data[start:after])
            position = after
        if unknown:
            values["unknown_tagged_fields"] = tuple(sorted(unknown.items()))
        return position

    return read
