"""Bodies with one malformed field: truncated, or with a wrong length, a forbidden null, or a wrong value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from weir.conformance.probe.malformed.edits import cut, framed, length, replaced, varint, with_length
from weir.conformance.probe.malformed.marks import MarkKind
from weir.protocol.framing import LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.conformance.probe.malformed.marks import Mark, Marked

Make: TypeAlias = "Callable[[Marked], Iterator[tuple[str, bytes]]]"

INT16_MAX: Final = 0x7FFF
INT32_MAX: Final = 0x7FFFFFFF
_SIZED: Final = (MarkKind.ARRAY, MarkKind.STRING, MarkKind.BYTES)
_VARINT_BYTES: Final = 6
_NO_UTF8: Final = 0xFF
"""Byte that UTF-8 never has."""


def truncated(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield frames that end before a field."""
    for mark in _fields(marked):
        yield mark.path, cut(marked.frame, mark.start)


def truncated_within(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield frames that end one byte before the end of a field."""
    for mark in _fields(marked):
        if mark.end - mark.start > 1:
            yield mark.path, cut(marked.frame, mark.end - 1)


def beyond(role: MarkKind) -> Make:
    """Return a function that yields fields which are longer than the frame."""

    def make(marked: Marked) -> Iterator[tuple[str, bytes]]:
        for mark in marked.of(role):
            size = len(marked.frame) - mark.content + 1
            if size <= INT16_MAX or role is not MarkKind.STRING:
                yield mark.path, with_length(marked.frame, mark, size)

    return make


def huge(role: MarkKind) -> Make:
    """Return a function that yields fields with the greatest length that their form has."""

    def make(marked: Marked) -> Iterator[tuple[str, bytes]]:
        for mark in marked.of(role):
            wide = mark.compact or role is not MarkKind.STRING
            size = INT32_MAX - mark.compact if wide else INT16_MAX
            if size > len(marked.frame):
                yield mark.path, with_length(marked.frame, mark, size)

    return make


def negative(role: MarkKind, *, nullable: bool = False) -> Make:
    """Return a function that yields fields of length -2, without content. `nullable`: the fields may be
    null.
    """

    def make(marked: Marked) -> Iterator[tuple[str, bytes]]:
        for mark in marked.of(role):
            if mark.nullable == nullable:
                yield mark.path, replaced(marked.frame, mark.start, mark.end, length(mark, -2))

    return make


def null(role: MarkKind) -> Make:
    """Return a function that yields fields which are null, and may not be."""

    def make(marked: Marked) -> Iterator[tuple[str, bytes]]:
        for mark in marked.of(role):
            if not mark.nullable:
                yield mark.path, replaced(marked.frame, mark.start, mark.end, length(mark, -1))

    return make


def not_utf8(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield strings whose last byte is not UTF-8."""
    for mark in marked.of(MarkKind.STRING):
        if mark.length > 0:
            yield mark.path, replaced(marked.frame, mark.end - 1, mark.end, bytes((_NO_UTF8,)))


def bool_2(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield true bools with the byte 2. Kafka reads the byte as true, so that the request means the same."""
    for mark in marked.of(MarkKind.FIXED):
        if mark.type == "bool" and marked.frame[mark.start]:
            yield mark.path, replaced(marked.frame, mark.start, mark.end, b"\x02")


def varint_long(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield lengths and counts in six bytes, one more than a varint of 32 bits can have."""
    yield from _padded(marked, _VARINT_BYTES)


def varint_padded(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield lengths and counts with one byte more than they need."""
    yield from _padded(marked, 0)


def trailing(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield the request with bytes behind it, within the frame."""
    for extra in (b"\x00", b"\xff" * 9):
        yield f"{len(extra)}-bytes", framed(marked.frame[LENGTH_BYTES:] + extra)


def _padded(marked: Marked, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield varints of `size` bytes; 0 for one byte more than before."""
    for mark in marked.of(*_SIZED, MarkKind.TAGS):
        if mark.compact:
            value = mark.length + (mark.role is not MarkKind.TAGS)
            longer = varint(value, size or mark.content - mark.start + 1)
            yield mark.path, replaced(marked.frame, mark.start, mark.content, longer)


def _fields(marked: Marked) -> list[Mark]:
    return [mark for mark in marked.marks if mark.start >= marked.body and mark.role is not MarkKind.TAG]
