"""The classes of malformed requests: for each, the frames that it makes and the outcomes that it permits.

A broker closes the connection if it cannot parse a request (InvalidRequestException in Kafka's
SocketServer). A server may also answer INVALID_REQUEST. Kafka parses some malformed values without an error:
these are permitted to lead to a usual answer, too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from weir.conformance.probe.malformed import bodies, frames, tags
from weir.conformance.probe.malformed.marks import MarkKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.conformance.probe.malformed.marks import Marked

Edits: TypeAlias = "Iterator[tuple[str, bytes]]"
"""(Path of the changed field, or another name of the place; frame), for each place that a class can change.
"""

GUIDE: Final = "protocol guide: Common Request and Response Structure"
PRIMITIVES: Final = "protocol guide: Protocol Primitive Types"
ORDER: Final = "protocol guide: Network"
TAGS: Final = "KIP-482"
ALLOCATION: Final = "CVE-2022-34917"


class ClassGroup(StrEnum):
    """Classes of one kind. Each version of an API gets cases of every group."""

    FRAME = "frame"
    HEADER = "header"
    TRUNCATED = "truncated"
    LENGTH = "length"
    NULL = "null"
    TAG = "tag"
    VALUE = "value"
    PACE = "pace"


class Expected(StrEnum):
    """Outcomes that a class permits."""

    CLOSED = "closed"
    """The target closes the connection."""
    REFUSED = "refused"
    """The target closes the connection, or answers INVALID_REQUEST."""
    USUAL = "usual"
    """The target answers like the well-formed request."""
    EITHER = "either"
    """Known servers ignore the fault, or refuse the request with any error code."""


class Class(msgspec.Struct, frozen=True):
    """A class of malformed requests."""

    name: str
    group: ClassGroup
    expected: Expected
    reference: str
    explanation: str
    make: Callable[[Marked], Edits]
    ends_sending: bool = False
    """True if the target may wait for more bytes, so that the client ends its side of the connection."""
    changes_values: bool = False
    """True if the target may carry out the request with values that the well-formed request lacks."""
    dangerous: bool = False
    """True if some releases of Kafka allocate the memory that the bytes claim."""
    segment_bytes: int = 0
    """Size (bytes) of each segment; 0 for all bytes at once."""


_NOUNS: Final = {
    MarkKind.ARRAY: "An array",
    MarkKind.STRING: "A string",
    MarkKind.BYTES: "A bytes or records field",
}


def _lengths(role: MarkKind, *, dangerous: bool) -> Iterator[Class]:
    """Yield the classes of fields with a length. `dangerous`: as in `Class`, for the greatest length."""
    noun, refused, length = _NOUNS[role], Expected.REFUSED, ClassGroup.LENGTH
    text = f"{noun} is longer than the frame."
    yield Class(f"{role}-beyond", length, refused, PRIMITIVES, text, bodies.beyond(role))
    text = f"{noun} has the greatest length that its form allows."
    yield Class(f"{role}-huge", length, refused, ALLOCATION, text, bodies.huge(role), dangerous=dangerous)
    text = f"{noun} that may not be null has length -2."
    yield Class(f"{role}-negative", length, refused, PRIMITIVES, text, bodies.negative(role))
    text = f"{noun} that may be null has length -2."
    nullable = bodies.negative(role, nullable=True)
    name = f"{role}-negative-nullable"
    yield Class(name, length, Expected.EITHER, PRIMITIVES, text, nullable, changes_values=True)
    text = f"{noun} that may not be null is null."
    yield Class(f"{role}-null", ClassGroup.NULL, refused, PRIMITIVES, text, bodies.null(role))


CLASSES: Final = (
    Class(
        "frame-negative",
        ClassGroup.FRAME,
        Expected.CLOSED,
        GUIDE,
        "The frame's length is negative.",
        frames.negative,
    ),
    Class(
        "frame-huge",
        ClassGroup.FRAME,
        Expected.CLOSED,
        "socket.request.max.bytes",
        "The frame's length is 2 GiB.",
        frames.huge,
    ),
    Class(
        "frame-beyond",
        ClassGroup.FRAME,
        Expected.CLOSED,
        GUIDE,
        "The frame ends before its length says, and the client ends its side of the connection.",
        frames.beyond,
        ends_sending=True,
    ),
    Class(
        "frame-short",
        ClassGroup.FRAME,
        Expected.REFUSED,
        GUIDE,
        "The frame has more bytes than its length says, so that the message is cut.",
        frames.short,
        ends_sending=True,
    ),
    Class("frame-empty", ClassGroup.FRAME, Expected.CLOSED, GUIDE, "The frame's length is 0.", frames.empty),
    Class(
        "header-truncated",
        ClassGroup.HEADER,
        Expected.CLOSED,
        GUIDE,
        "The frame ends within the API key, the version or the correlation id.",
        frames.truncated_header,
    ),
    Class(
        "client-id-beyond",
        ClassGroup.HEADER,
        Expected.REFUSED,
        GUIDE,
        "The client-id is longer than the frame.",
        frames.client_id_beyond,
    ),
    Class(
        "client-id-negative",
        ClassGroup.HEADER,
        Expected.EITHER,
        GUIDE,
        "The client-id's length is -2.",
        frames.client_id_negative,
    ),
    Class(
        "client-id-null",
        ClassGroup.HEADER,
        Expected.USUAL,
        GUIDE,
        "The client-id is null, which the header's schema allows.",
        frames.client_id_null,
    ),
    Class(
        "client-id-missing",
        ClassGroup.HEADER,
        Expected.REFUSED,
        GUIDE,
        "The frame ends before the client-id.",
        frames.client_id_missing,
    ),
    Class(
        "header-tag-unknown",
        ClassGroup.HEADER,
        Expected.USUAL,
        TAGS,
        "The header has a tagged field that no schema knows.",
        tags.unknown_in_header,
    ),
    Class(
        "header-tag-beyond",
        ClassGroup.HEADER,
        Expected.REFUSED,
        TAGS,
        "The header has a tagged field that is longer than the frame.",
        tags.beyond_in_header,
    ),
    Class(
        "truncated",
        ClassGroup.TRUNCATED,
        Expected.REFUSED,
        PRIMITIVES,
        "The frame ends before a field.",
        bodies.truncated,
    ),
    Class(
        "truncated-within",
        ClassGroup.TRUNCATED,
        Expected.REFUSED,
        PRIMITIVES,
        "The frame ends one byte before the end of a field.",
        bodies.truncated_within,
    ),
    *_lengths(MarkKind.ARRAY, dangerous=True),
    *_lengths(MarkKind.STRING, dangerous=False),
    *_lengths(MarkKind.BYTES, dangerous=True),
    Class(
        "tag-unknown",
        ClassGroup.TAG,
        Expected.USUAL,
        TAGS,
        "A struct has a tagged field that no schema knows.",
        tags.unknown,
    ),
    Class(
        "tags-descending",
        ClassGroup.TAG,
        Expected.EITHER,
        TAGS,
        "Two tagged fields come in the wrong order.",
        tags.descending,
    ),
    Class("tag-twice", ClassGroup.TAG, Expected.EITHER, TAGS, "A tagged field comes twice.", tags.twice),
    Class(
        "tag-beyond",
        ClassGroup.TAG,
        Expected.REFUSED,
        TAGS,
        "A tagged field is longer than the frame.",
        tags.beyond,
    ),
    Class(
        "tag-size",
        ClassGroup.TAG,
        Expected.EITHER,
        TAGS,
        "The size of a tagged field is one more than its value has.",
        tags.wrong_size,
    ),
    Class(
        "tags-missing",
        ClassGroup.TAG,
        Expected.REFUSED,
        TAGS,
        "The count of tagged fields is greater than the number of bytes that follow.",
        tags.missing,
    ),
    Class(
        "not-utf-8",
        ClassGroup.VALUE,
        Expected.EITHER,
        PRIMITIVES,
        "A string is not UTF-8.",
        bodies.not_utf8,
        changes_values=True,
    ),
    Class(
        "bool-2",
        ClassGroup.VALUE,
        Expected.EITHER,
        PRIMITIVES,
        "A bool has the byte 2.",
        bodies.bool_2,
        changes_values=True,
    ),
    Class(
        "varint-long", ClassGroup.VALUE, Expected.REFUSED, TAGS, "A varint has six bytes.", bodies.varint_long
    ),
    Class(
        "varint-padded",
        ClassGroup.VALUE,
        Expected.EITHER,
        TAGS,
        "A varint has one byte more than it needs.",
        bodies.varint_padded,
    ),
    Class(
        "trailing",
        ClassGroup.VALUE,
        Expected.EITHER,
        GUIDE,
        "Bytes follow the request within its frame.",
        bodies.trailing,
    ),
    Class(
        "two-at-once",
        ClassGroup.PACE,
        Expected.USUAL,
        ORDER,
        "An ApiVersions request and the well-formed request come in one segment.",
        frames.two_at_once,
    ),
    Class(
        "byte-by-byte",
        ClassGroup.PACE,
        Expected.USUAL,
        ORDER,
        "The well-formed request comes in segments of one byte.",
        frames.unchanged,
        segment_bytes=1,
    ),
)
"""All classes, by group."""
