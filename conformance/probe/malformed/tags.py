"""Sections of tagged fields that are malformed, or have fields that no schema knows (KIP-482)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.malformed.edits import replaced, varint
from weir.conformance.probe.malformed.marks import MarkKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.conformance.probe.malformed.marks import Mark, Marked

_FIRST: Final = 5000
_SECOND: Final = 5001
"""Tags that no schema has."""


def unknown(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield structs with one more tagged field."""
    for mark in marked.of(MarkKind.TAGS):
        yield mark.path, _with(marked, mark, _tag(_FIRST))


def descending(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield structs with two tagged fields in the wrong order."""
    for mark in marked.of(MarkKind.TAGS):
        yield mark.path, _with(marked, mark, _tag(_SECOND), _tag(_FIRST))


def twice(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield structs with the same tagged field twice."""
    for mark in marked.of(MarkKind.TAGS):
        yield mark.path, _with(marked, mark, _tag(_FIRST), _tag(_FIRST))


def beyond(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield structs with a tagged field that is longer than the frame."""
    for mark in marked.of(MarkKind.TAGS):
        yield mark.path, _with(marked, mark, _tag(_FIRST, size=len(marked.frame)))


def wrong_size(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield tagged fields whose size is one more than their value has."""
    for mark in marked.of(MarkKind.TAG):
        yield mark.path, replaced(marked.frame, mark.start, mark.content, varint(mark.length + 1))


def missing(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield structs whose count of tagged fields is greater than the number of bytes that follow."""
    for mark in marked.of(MarkKind.TAGS):
        count = varint(len(marked.frame) - mark.content + 1)
        yield mark.path, replaced(marked.frame, mark.start, mark.content, count)


def unknown_in_header(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a header with one more tagged field."""
    for mark in _of_header(marked):
        yield mark.path, _with(marked, mark, _tag(_FIRST))


def beyond_in_header(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a header with a tagged field that is longer than the frame."""
    for mark in _of_header(marked):
        yield mark.path, _with(marked, mark, _tag(_FIRST, size=len(marked.frame)))


def _of_header(marked: Marked) -> list[Mark]:
    return [mark for mark in marked.marks if mark.path == "header.tags"]


def _tag(tag: int, size: int | None = None) -> bytes:
    content = b"weir"
    return varint(tag) + varint(len(content) if size is None else size) + content


def _with(marked: Marked, mark: Mark, *added: bytes) -> bytes:
    """Return the frame with tagged fields added behind those of a struct."""
    old = marked.frame[mark.content : mark.end]
    new = varint(mark.length + len(added)) + old + b"".join(added)
    return replaced(marked.frame, mark.start, mark.end, new)
