"""Decodes and encodes large messages in pieces.

The readers and writers here are generators: they yield None after every `PIECE_BYTES`, so that their caller
can do other work in between. A piece takes about half a millisecond. Structs without arrays of structs or
strings are read and written at once, by the closures of `decoding` and `encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from weir.protocol.decoding import array_header, fields_reader, primitive_reader, struct_reader, tags_reader
from weir.protocol.encoding import WRONG_VALUE, fields_writer, primitive_writer, struct_writer, tags_writer
from weir.protocol.errors import EncodeError, OversizedError, ProtocolError
from weir.protocol.primitives import (
    FORMATS,
    STRICT,
    Buffer,
    Reading,
    write_compact_length,
    write_int32_length,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.protocol.decoding import Types
    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Value

PIECE_BYTES: Final = 1024
"""Number of bytes that are read or written before the next pause. An array element is not divided, so a piece
may be longer.
"""
PIECE_ITEMS: Final = 100
"""Number of values that `each` handles before the next pause."""

T = TypeVar("T")
S = TypeVar("S")
Pieces: TypeAlias = Generator[None, None, T]
"""Generator that yields None after each piece of work and returns the result."""


def at_once(pieces: Pieces[T]) -> T:
    """Run the generator `pieces` to its end without a pause; return its result."""
    while True:
        try:
            next(pieces)
        except StopIteration as over:
            result: T = over.value
            return result


def each(work: Callable[[S], T], values: Iterable[S]) -> Pieces[list[T]]:
    """Call `work` with each of the values, and pause after each `PIECE_ITEMS` calls. Return the list of
    results.
    """
    found: list[T] = []
    for value in values:
        found.append(work(value))
        if not len(found) % PIECE_ITEMS:
            yield
    return found


def chosen(test: Callable[[S], bool], values: Iterable[S]) -> Pieces[list[S]]:
    """Call `test` with each of the values, and pause after each `PIECE_ITEMS` calls. Return the values for
    which `test` returned True.
    """
    found = yield from each(lambda value: (test(value), value), values)
    return [value for passed, value in found if passed]


def release(values: list[T]) -> Pieces[None]:
    """Remove values from the end of a list until `PIECE_ITEMS` values are left; pause after each
    `PIECE_ITEMS` values, because freeing a long list at once takes long.
    """
    while len(values) > PIECE_ITEMS:
        del values[-PIECE_ITEMS:]
        yield


class Pace:
    """State that all readers of a message share: the position at which the next pause is due, and the number
    of array elements that the rest of the message may have.
    """

    __slots__ = ("elements_left", "pause_at")

    def __init__(self, start: int, elements_max: int | None = None) -> None:
        """Begin at the position `start` of the message. `elements_max`: maximum number of elements of all
        arrays together; None for no maximum.
        """
        self.pause_at = start + PIECE_BYTES
        self.elements_left = elements_max

    def take(self, count: int) -> None:
        """Subtract the `count` elements of an array from the elements that the message may still have. Raises
        OversizedError if it may not have that number.
        """
        if self.elements_left is not None:
            self.elements_left -= count
            if self.elements_left < 0:
                raise OversizedError("too many elements")


ReadPieces: TypeAlias = "Callable[[Buffer, int, int, Pace], Pieces[tuple[object, int]]]"
WritePieces: TypeAlias = "Callable[[bytearray, object, Pace], Pieces[None]]"


def _is_large(slot: Slot) -> bool:
    """Return True if the size of the field is not bounded, because the field is, or contains, an array of
    anything but numbers. One call reads or writes an array of numbers.
    """
    if slot.is_array:
        return slot.type not in FORMATS
    return slot.struct is not None and _has_arrays(slot.struct)


def _has_arrays(layout: Layout) -> bool:
    return any(map(_is_large, layout.fields))


def _runs(slots: Sequence[Slot]) -> list[tuple[bool, list[Slot]]]:
    """Return the fields in groups, as (True if the group is large, fields): neighbouring small fields are one
    group, every field that `_is_large` calls large is a group of its own.
    """
    runs: list[tuple[bool, list[Slot]]] = []
    for large, group in groupby(slots, _is_large):
        run = list(group)
        runs += [(True, [slot]) for slot in run] if large else [(False, run)]
    return runs


# Decoding


def struct_pieces_reader(
    layout: Layout, built: type[Value], types: Types, reading: Reading = STRICT
) -> ReadPieces:
    """Return a reader of a message or struct that pauses after each `PIECE_BYTES`. The parameters are those
    of `decoding.struct_reader`.
    """
    steps = [
        (run[0].name, _slot_reader(run[0], types, reading), None)
        if large
        else ("", None, fields_reader(run, types, reading))
        for large, run in _runs(layout.fields)
    ]
    read_tags = tags_reader(layout, types, reading) if layout.flexible else None

    def read(data: Buffer, position: int, end: int, pace: Pace) -> Pieces[tuple[object, int]]:
        values: dict[str, object] = {}
        for name, read_pieces, read_fields in steps:
            if read_pieces is not None:
                values[name], position = yield from read_pieces(data, position, end, pace)
            elif read_fields is not None:
                found, position = read_fields(data, position, end)
                values |= found
        if read_tags is not None:
            position = read_tags(data, position, end, values)
        return built(**values), position  # type: ignore[arg-type]  # the schema has matching types

    return read


def _slot_reader(slot: Slot, types: Types, reading: Reading) -> ReadPieces:
    if slot.is_array:
        return _array_reader(slot, types, reading)
    assert slot.struct is not None
    read_struct, nullable = struct_pieces_reader(slot.struct, types(slot.type), types, reading), slot.nullable

    def read(data: Buffer, position: int, end: int, pace: Pace) -> Pieces[tuple[object, int]]:
        if nullable:
            if position >= end:
                raise ProtocolError("ends before a nullable struct", offset=position)
            if data[position] > 0x7F:
                return None, position + 1
            position += 1
        return (yield from read_struct(data, position, end, pace))

    return read


def _array_reader(slot: Slot, types: Types, reading: Reading) -> ReadPieces:
    read_header = array_header(slot, reading)
    read_pieces, read_element = None, None
    if slot.struct is not None and _has_arrays(slot.struct):
        read_pieces = struct_pieces_reader(slot.struct, types(slot.type), types, reading)
    elif slot.struct is not None:
        read_element = struct_reader(slot.struct, types(slot.type), types, reading)
    else:
        read_element = primitive_reader(slot.type, slot.compact, False, reading)

    def read(data: Buffer, position: int, end: int, pace: Pace) -> Pieces[tuple[object, int]]:
        count, position = read_header(data, position, end)
        if count < 0:
            return None, position
        pace.take(count)
        elements: list[object] = []
        for _ in range(count):
            if read_element is not None:
                element, position = read_element(data, position, end)
            else:
                assert read_pieces is not None
                element, position = yield from read_pieces(data, position, end, pace)
            elements.append(element)
            if position >= pace.pause_at:
                pace.pause_at = position + PIECE_BYTES
                yield
        return elements, position

    return read


# Encoding


def struct_pieces_writer(layout: Layout, built: type[Value], types: Types) -> WritePieces:
    """Return a writer of a message or struct that pauses after each `PIECE_BYTES`. The parameters are those
    of `encoding.struct_writer`.
    """
    steps = [
        (run[0].name, _slot_writer(run[0], types), None)
        if large
        else ("", None, fields_writer(layout, run, types))
        for large, run in _runs(layout.fields)
    ]
    check = fields_writer(layout, (), types)
    write_tags = tags_writer(layout, types) if layout.flexible else None

    def write(out: bytearray, value: object, pace: Pace) -> Pieces[None]:
        if not isinstance(value, built):
            raise TypeError(f"{type(value).__name__} is not a {built.__name__}")
        check(out, value)
        for name, write_pieces, write_fields in steps:
            if write_fields is not None:
                write_fields(out, value)
            elif write_pieces is not None:
                try:
                    yield from write_pieces(out, getattr(value, name), pace)
                except EncodeError as error:
                    error.field = ".".join(filter(None, (name, error.field)))
                    raise
                except WRONG_VALUE as error:
                    raise EncodeError(str(error), field=name) from error
        if write_tags is not None:
            write_tags(out, value)

    return write


def _slot_writer(slot: Slot, types: Types) -> WritePieces:
    if slot.is_array:
        return _array_writer(slot, types)
    assert slot.struct is not None
    write_struct, nullable = struct_pieces_writer(slot.struct, types(slot.type), types), slot.nullable

    def write(out: bytearray, value: object, pace: Pace) -> Pieces[None]:
        if nullable:
            out.append(0xFF if value is None else 1)
        if value is not None or not nullable:
            yield from write_struct(out, value, pace)

    return write


def _array_writer(slot: Slot, types: Types) -> WritePieces:
    write_length = write_compact_length if slot.compact else write_int32_length
    write_pieces, write_element = None, None
    if slot.struct is None:
        write_element = primitive_writer(slot.type, slot.compact, False)
    elif _has_arrays(slot.struct):
        write_pieces = struct_pieces_writer(slot.struct, types(slot.type), types)
    else:
        write_element = struct_writer(slot.struct, types(slot.type), types)
    nullable = slot.nullable

    def write(out: bytearray, value: object, pace: Pace) -> Pieces[None]:
        if value is None and nullable:
            write_length(out, -1)
            return
        if not isinstance(value, list | tuple):
            raise TypeError(f"{type(value).__name__} is not a list")
        write_length(out, len(value))
        for element in value:
            if write_element is not None:
                write_element(out, element)
            else:
                assert write_pieces is not None
                yield from write_pieces(out, element, pace)
            if len(out) >= pace.pause_at:
                pace.pause_at = len(out) + PIECE_BYTES
                yield

    return write
