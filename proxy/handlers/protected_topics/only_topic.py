"""Produce requests with one topic: the topic is compared with that of the latest such request.

Most requests have one topic, the same as the previous request of their connection, and are then not parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE
from weir.protocol.primitives import read_int16_length, read_int32_length, read_wrapped_uvarint

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context, NeedsLook
    from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics

MANY: Final = -2
SEARCHED_BYTES_MAX: Final = 16 * 1024
"""Maximum size (bytes) of a produce request in which Weir searches the bytes for protected names. In a larger
request, scanning the fields takes less time than such a search.
"""
_LENGTHS_BYTES: Final = 10
"""Maximum size (bytes) of two fields of a produce request together: the number of topics, and the length of
the first topic's name.
"""
_TIMEOUT_BYTES: Final = 4
_ID_BYTES: Final = 16


class OnlyTopic:
    """State of a connection: the topic of its latest produce request."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known = b""
        """Bytes from the field timeout_ms to the end of the topic's name or id, in the latest request with
        only one topic, which was not protected. A request with the same bytes needs no look.
        """


def names_protected(protected: ProtectedTopics, *, flexible: bool, with_ids: bool) -> NeedsLook:
    """Return a function that returns True if a produce request may name a protected topic."""

    def needs_look(context: Context, data: bytearray, position: int, end: int, complete: bool) -> bool:
        only = context.state_of(OnlyTopic)
        known, start = only.known, position + _TIMEOUT_BYTES
        if known and data.startswith(known, position) and position + len(known) <= end:
            return False
        try:
            first, stop = only_topic(data, start, end, complete, flexible=flexible, with_ids=with_ids)
        except ProtocolError:
            return True
        if with_ids:
            name = context.cluster.names_by_id.name(first)
            if stop < 0 or name is None or name in protected.on_wire:
                return True
        elif stop == MANY and complete and end - position <= SEARCHED_BYTES_MAX:
            return protected.occur(data, position, end)
        elif stop < 0 or first in protected.on_wire:
            return True
        only.known = bytes(data[position:stop])
        return False

    return needs_look


def only_topic(
    data: bytearray, position: int, end: int, complete: bool, *, flexible: bool, with_ids: bool
) -> tuple[bytes, int]:
    """Return the name or id of the request's only topic, and the position behind it. The array of topics
    begins at `position`.

    The returned position is INCOMPLETE if more bytes are needed, and `MANY` if the request has no topic or
    several. Raises ProtocolError if the bytes are malformed.
    """
    if not complete and end - position < _LENGTHS_BYTES:
        return b"", INCOMPLETE
    read_count = read_wrapped_uvarint if flexible else read_int32_length
    count, start = read_count(data, position, end)
    if count - flexible != 1:
        return b"", MANY
    if with_ids:
        if complete and end - start < _ID_BYTES:
            raise ProtocolError("the message ends within a topic's id", offset=start)
        stop = start + _ID_BYTES
        return (b"", INCOMPLETE) if stop > end else (bytes(data[start:stop]), stop)
    read_length = read_wrapped_uvarint if flexible else read_int16_length
    length, start = read_length(data, start, end)
    length -= flexible
    if length < 0 or (complete and length > end - start):
        raise ProtocolError(f"a topic's name of {length} bytes", offset=start)
    stop = start + length
    return (b"", INCOMPLETE) if stop > end else (bytes(data[start:stop]), stop)
