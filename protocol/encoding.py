"""Makes functions that write messages: one function per field, or per series of neighbouring number fields.
The functions are made from a layout, which lists the fields of one version.

Values that a version lacks are handled like in Kafka's generated classes. A field that the version lacks must
have its default value, unless the field is ignorable. A tagged field is written only if it does not have its
default value. Unknown tagged fields can be written only in flexible versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from weir.protocol.errors import EncodeError
from weir.protocol.primitives import (
    FORMATS,
    Writer,
    bytes_writer,
    number_writer,
    string_writer,
    write_compact_length,
    write_int32_length,
    write_uuid,
    write_uvarint,
)
from weir.protocol.values import default_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.protocol.decoding import Types
    from weir.protocol.schema import Field, Layout, Slot
    from weir.protocol.values import Value

Put = Callable[[bytearray, "Value"], None]
"""Function that appends one or more fields of a value to a bytearray."""

TAG_MAX: Final = 0x7FFFFFFE
"""Maximum tag; Kafka reserves 0x7FFFFFFF (RawTaggedFieldWriter)."""

WRONG_VALUE: Final = (struct.error, TypeError, ValueError, AttributeError, OverflowError)
"""Python's exceptions for values of a wrong type or range."""


def fields_writer(layout: Layout, slots: Sequence[Slot], types: Types) -> Put:
    """Return a function that writes these fields in order. That function raises EncodeError for a value that
    this version cannot express.
    """
    puts = [_put(run, types) for run in _runs(slots)]
    kept = [field for field in layout.absent if not field.ignorable]
    absent = [(field.name, default_of(field, _type(field, types))) for field in kept]
    flexible = layout.flexible

    def write(out: bytearray, value: Value) -> None:
        for name, default in absent:
            if getattr(value, name) != default:
                raise EncodeError("not in this version, not ignorable, and not at its default", field=name)
        if not flexible and value.unknown_tagged_fields:
            raise EncodeError("this version has no tagged fields", field="unknown_tagged_fields")
        for names, get, put in puts:
            try:
                put(out, get(value))
            except EncodeError as error:
                error.field = ".".join(filter(None, (names[0], error.field)))
                raise
            except WRONG_VALUE as error:
                raise EncodeError(str(error), field=_culprit(layout, names, value)) from error

    return write


def struct_writer(layout: Layout, built: type[Value], types: Types) -> Writer:
    """Return a function that writes a message or struct, including its tagged fields if the version has them
    (is flexible).
    """
    write_fields = fields_writer(layout, layout.fields, types)
    write_tags = tags_writer(layout, types) if layout.flexible else None

    def write(out: bytearray, value: object) -> None:
        if not isinstance(value, built):
            raise TypeError(f"{type(value).__name__} is not a {built.__name__}")
        write_fields(out, value)
        if write_tags is not None:
            write_tags(out, value)

    return write


def _type(field: Field, types: Types) -> type[Value] | None:
    return types(field.type) if field.is_struct else None


def _runs(slots: Sequence[Slot]) -> list[list[Slot]]:
    """Return the fields in groups: neighbouring fields of number types are one group, every other field is a
    group of its own.
    """
    runs: list[list[Slot]] = []
    for number, group in groupby(slots, lambda slot: slot.type in FORMATS and not slot.is_array):
        run = list(group)
        runs += [run] if number else [[slot] for slot in run]
    return runs


def _put(run: list[Slot], types: Types) -> tuple[list[str], Callable[[Value], object], Writer]:
    """Return (names of the fields in a group, function that gets the values of these fields from a message,
    function that writes these values).
    """
    names = [slot.name for slot in run]
    return names, attrgetter(*names), slot_writer(run[0], types) if len(run) == 1 else _run_writer(run)


def _run_writer(slots: Sequence[Slot]) -> Writer:
    """Return a function that writes consecutive fields of number types in one call of `struct`."""
    pack = struct.Struct(">" + "".join(FORMATS[slot.type] for slot in slots)).pack

    def write(out: bytearray, value: object) -> None:
        out += pack(*cast("tuple[object, ...]", value))

    return write


def _culprit(layout: Layout, names: Sequence[str], value: Value) -> str:
    """Return the name of the first of the fields `names` whose value in `value` cannot be written."""
    slots = {slot.name: slot for slot in layout.fields}
    for name in names[:-1]:
        try:
            struct.pack(">" + FORMATS[slots[name].type], getattr(value, name))
        except WRONG_VALUE:
            return name
    return names[-1]


def slot_writer(slot: Slot, types: Types) -> Writer:
    """Return a function that writes one field."""
    if slot.is_array:
        return _array_writer(slot, types)
    if slot.struct is not None:
        write = struct_writer(slot.struct, types(slot.type), types)
        return _nullable_struct_writer(write) if slot.nullable else write
    return primitive_writer(slot.type, slot.compact, slot.nullable)


def primitive_writer(type_: str, compact: bool, nullable: bool) -> Writer:
    """Return a function that writes one value of a primitive type."""
    if type_ in FORMATS:
        return number_writer(type_)
    if type_ == "uuid":
        return write_uuid
    return string_writer(compact, nullable) if type_ == "string" else bytes_writer(compact, nullable)


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    """Return a function that writes a struct that may be null (KIP-893): an int8 (-1 for null, else 1), then
    the struct.
    """

    def write(out: bytearray, value: object) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write_struct(out, value)

    return write


def _array_writer(slot: Slot, types: Types) -> Writer:
    write_length = write_compact_length if slot.compact else write_int32_length
    nullable, form = slot.nullable, FORMATS.get(slot.type)
    if slot.struct is not None:
        write_element = struct_writer(slot.struct, types(slot.type), types)
    else:
        write_element = primitive_writer(slot.type, slot.compact, nullable=False)

    def write(out: bytearray, value: object) -> None:
        if value is None and nullable:
            write_length(out, -1)
            return
        if not isinstance(value, list | tuple):
            raise TypeError(f"{type(value).__name__} is not a list")
        write_length(out, len(value))
        if form:
            out += struct.pack(f">{len(value)}{form}", *value)
            return
        for element in value:
            write_element(out, element)

    return write


def tags_writer(layout: Layout, types: Types) -> Put:
    """Return a function that writes tagged fields (KIP-482), known and unknown ones, by ascending tag."""
    tagged = [
        (slot.tag or 0, slot.name, fields_writer(layout, [slot], types), _slot_default(slot, types))
        for slot in layout.tagged
    ]
    known = frozenset(tag for tag, *_ in tagged)

    def write(out: bytearray, value: Value) -> None:
        if not tagged and not value.unknown_tagged_fields:
            out.append(0)
            return
        present: list[tuple[int, bytes | bytearray]] = []
        if value.unknown_tagged_fields:
            _check_unknown([tag for tag, _ in value.unknown_tagged_fields], known)
            present += value.unknown_tagged_fields
        for tag, name, put, default in tagged:
            if getattr(value, name) != default:
                content = bytearray()
                put(content, value)
                present.append((tag, content))
        write_uvarint(out, len(present))
        for tag, raw in sorted(present, key=lambda pair: pair[0]):
            write_uvarint(out, tag)
            write_uvarint(out, len(raw))
            out += raw

    return write


def _slot_default(slot: Slot, types: Types) -> object:
    return default_of(slot.field, _type(slot.field, types))


def _check_unknown(tags: list[int], known: frozenset[int]) -> None:
    if len(set(tags)) < len(tags) or known.intersection(tags):
        raise EncodeError(f"tags {tags} are not unique, or known", field="unknown_tagged_fields")
    if any(not 0 <= tag <= TAG_MAX for tag in tags):
        raise EncodeError(f"tags {tags} are not within 0 and {TAG_MAX}", field="unknown_tagged_fields")
