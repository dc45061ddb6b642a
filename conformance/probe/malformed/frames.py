"""Frames whose length or header is malformed, and well-formed frames sent in unusual segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.link import CLIENT_ID, header
from weir.conformance.probe.malformed.edits import cut, framed, replaced
from weir.protocol.api import ApiKey
from weir.protocol.framing import CLIENT_ID_OFFSET, LENGTH, LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.conformance.probe.malformed.marks import Marked

INT32_MAX: Final = 0x7FFFFFFF
_MISSING_BYTES: Final = (1, 1000)


def negative(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield frames with a negative length."""
    for name, size in (("-1", -1), ("least", -INT32_MAX - 1)):
        yield name, _with_size(marked, size)


def huge(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield the frame with a length of 2 GiB."""
    yield "2-gib", _with_size(marked, INT32_MAX)


def beyond(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield frames that end before their length says."""
    for missing in _MISSING_BYTES:
        yield f"by-{missing}", _with_size(marked, len(marked.frame) - LENGTH_BYTES + missing)


def short(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield frames that have more bytes than their length says. The message is cut, and its last bytes become
    the length of another frame, which is incomplete.
    """
    for surplus in (1, 3):
        yield f"by-{surplus}", _with_size(marked, len(marked.frame) - LENGTH_BYTES - surplus)


def empty(_marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a frame without contents."""
    yield "no-header", framed(b"")


def truncated_header(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield headers cut within each of the first fields."""
    for name, end in (("api-key", 1), ("version", 3), ("correlation-id", 7)):
        yield name, cut(marked.frame, LENGTH_BYTES + end)


def client_id_beyond(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a client-id that is longer than the frame."""
    yield from _client_id(marked, 0x7FFF)


def client_id_negative(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a client-id of length -2, without bytes."""
    yield from _client_id(marked, -2)


def client_id_null(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a client-id that is null. The header's schema allows it."""
    yield from _client_id(marked, -1)


def client_id_missing(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield a frame that ends before the client-id."""
    if _has_client_id(marked):
        yield "end", cut(marked.frame, CLIENT_ID_OFFSET)


def two_at_once(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield the frame behind an ApiVersions request. The answers come in the same order."""
    before = header(ApiKey.API_VERSIONS, 0, marked.correlation_id - 1, CLIENT_ID)
    yield "api-versions-first", framed(before) + marked.frame


def unchanged(marked: Marked) -> Iterator[tuple[str, bytes]]:
    """Yield the well-formed frame."""
    yield "all", marked.frame


def _client_id(marked: Marked, size: int) -> Iterator[tuple[str, bytes]]:
    if _has_client_id(marked):
        found = next(mark for mark in marked.marks if mark.path == "header.client_id")
        end = found.content if size > 0 else found.end
        yield f"{size}", replaced(marked.frame, found.start, end, size.to_bytes(2, signed=True))


def _has_client_id(marked: Marked) -> bool:
    return any(mark.path == "header.client_id" for mark in marked.marks)


def _with_size(marked: Marked, size: int) -> bytes:
    return LENGTH.pack(size) + marked.frame[LENGTH_BYTES:]
