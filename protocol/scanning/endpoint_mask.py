"""Makes clients ignore brokers' addresses among the tagged fields of a message that arrives in parts.

A fetch response of 50 MB is never in memory as a whole. `EndpointMask` scans its fields chunk by chunk up to
the message's tagged fields; records are skipped by their length. Among the tagged fields it overwrites the
addresses of brokers (NodeEndpoints of KIP-951), because with these addresses clients would bypass Weir. The
addresses cannot be removed, because the frame's length has already been sent.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.schema import Layout

UNKNOWN_TAG: Final = 127
"""Tag that `EndpointMask` writes instead of the tag of the addresses.

This tag takes one byte, like the original tag, and is the largest such tag. Kafka 4.4 has no tag above 3, so
a newer client is unlikely to know this tag. Writers must sort tags (KIP-482). The largest tag keeps the
order, because the addresses are the last top-level tagged field of every version in the schemas. If a newer
broker sends another field behind the addresses, the tags are not in order. No choice of tag could prevent
this, because the next tag may be the very next number, and is not known when the mask is sent. The other
field stays unchanged for clients that know it. Kafka's own classes (tried: 3.9.1, 4.2.0) accept tags in any
order; a strict reader, such as this project's codec, refuses the message.
"""


class EndpointMask(PausingScanner):
    """Changes a response in place, chunk by chunk, so that clients get no addresses of brokers.

    The field with the addresses gets a tag that no client knows (`UNKNOWN_TAG`), and zeros as its value. The
    field's length stays the same. If `feed` raises ProtocolError, the caller must not send the chunk, because
    it may contain addresses.
    """

    __slots__ = ()

    def __init__(self, message: MessageLike, version: int) -> None:
        """Begin at the start of a body. Raises ValueError if `endpoints_tag` is None for this version."""
        found = layout(message, version)
        self.complete = False
        self._left = [0]
        self._chunks = Chunks(_masker(found.name, version)(self._left))


def endpoints_tag(message: MessageLike, version: int) -> int | None:
    """Return the tag of the top-level tagged field with addresses of brokers (structs with a host and a
    port); None if the version has no such field.

    Raises ValueError for a message or version that the schemas lack.
    """
    for slot in layout(message, version).tagged:
        names = {inner.name for inner in slot.struct.fields} if slot.struct else set()
        if {"host", "port"} <= names:
            return slot.tag
    return None


class _MaskingSource(PausingSource):
    """Generates a scanning function that overwrites the top-level tagged field `masked_tag`."""

    def __init__(self, layout: Layout, masked_tag: int) -> None:
        super().__init__(layout, when_short=None)
        self._masked_tag = masked_tag
        self._path = f"{layout.name} (tagged fields)"

    def _tag(self, path: str) -> None:
        if path != self._path:  # within an element
            super()._tag(path)
            return
        self.need()
        with self.block(f"if data[position] == {self._masked_tag}:"):
            self.line(f"data[position] = {UNKNOWN_TAG}")
            self.line("position += 1")
            self._varint(path)
            self.line("cover = b''")
            self.overwrite()
        with self.block("else:"):
            self._varint(path)
            # A part of the tag may have been sent, so it cannot be masked. No broker writes such a tag.
            self._refuse(f"n == {self._masked_tag}", "a tag is longer than it needs to be")
            self._varint(path)
            self.line("position += n")


@cache
def _masker(message: str, version: int) -> Callable[[list[int]], Stream]:
    found, tag = layout(message, version), endpoints_tag(message, version)
    if tag is None:
        raise ValueError(f"{message} v{version} has no addresses among its tags")
    source = _MaskingSource(found, tag)
    with source.block("def stream(allowed):"):
        source.begin()
        source.message(found)
        source.end()
    return cast("Callable[[list[int]], Stream]", compiled(source, found, "stream"))
