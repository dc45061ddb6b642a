"""Counts the bytes of records by topic in a produce request or fetch response that arrives in parts.

The message is never in memory as a whole; only topic names and the lengths of records are decoded.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Bytes, Chunks, Source, Stream, compiled, length_width
from weir.protocol.scanning.topic_names import NAME_BYTES_MAX, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Message


class TopicBytes:
    """Scans one message's body chunk by chunk and counts the bytes of records of the wanted topics."""

    __slots__ = ("_chunks", "_counted", "complete")

    def __init__(self, message: type[Message], version: int, wanted: Collection[bytes]) -> None:
        """Begin at the start of a body. `wanted`: names (UTF-8) of the topics to count. Raises ValueError if
        `names_topics` is False for this version.
        """
        begin = _counter(message, version)
        self.complete = False
        """True once the body has been fed up to the last byte of its records."""
        self._counted = Counter[bytes]()

        def known(topic: bytearray) -> bytes | None:
            name = bytes(topic)
            return name if name in wanted else None

        self._chunks = Chunks(begin(known, self._counted))

    @property
    def counted(self) -> Mapping[bytes, int]:
        """Topic (UTF-8) → number of bytes of its records in this message. Empty until `complete` is True,
        because the lengths in an incomplete message may be wrong.
        """
        return self._counted if self.complete else {}

    @property
    def begun(self) -> Mapping[bytes, int]:
        """Topic (UTF-8) → number of bytes of its records, as announced by the lengths that have been read so
        far. The records themselves may not have arrived.
        """
        return self._counted

    def feed(self, data: Bytes, start: int, stop: int) -> None:
        """Scan the body's next bytes, `data[start:stop]`. Raises ProtocolError for malformed bytes."""
        if not self.complete:
            self.complete = self._chunks.feed(data, start, stop) is not None


def names_topics(message: MessageLike, version: int) -> bool:
    """Return True if this version of a produce request or fetch response identifies topics by name, False if
    by topic id (newer versions, KIP-516). Raises ValueError for a message or version that the schemas lack.
    """
    return _names_topics(layout(message, version))


def _names_topics(found: Layout) -> bool:
    slots = [slot for slot in found.fields if slot.struct is not None and slot.is_array]
    return any(
        (any(map(is_topic_name, inner.fields)) and _has_records(inner)) or _names_topics(inner)
        for slot in slots
        if (inner := slot.struct) is not None
    )


def _has_records(found: Layout) -> bool:
    return any(
        slot.type == "records" or (slot.struct is not None and _has_records(slot.struct))
        for slot in found.fields
    )


class _CountingSource(Source):
    """Generates a scanning function that calls `known` once per topic and counts the bytes of the topic's
    records. The generated function keeps only the current topic's name, and refuses names longer than
    `NAME_BYTES_MAX`.
    """

    def _variable(self, slot: Slot, path: str) -> None:
        if is_topic_name(slot):
            self.flush()
            self._keep_topic(slot, path)
        elif slot.type == "records" and not slot.is_array:
            self.flush()
            self._count_records(slot, path)
        else:
            super()._variable(slot, path)

    def _keep_topic(self, slot: Slot, path: str) -> None:
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        self._refuse(f"n > {NAME_BYTES_MAX}", f"{path} is longer than a name can be")
        self.line("name = bytearray()")
        with self.block("while len(name) < n:"):
            self.need()
            self.line("stop = min(end, position + n - len(name))")
            self.line("name += data[position:stop]")
            self.line("position = stop")
        self.line("topic = known(name)")

    def _count_records(self, slot: Slot, path: str) -> None:
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        with self.block("if n > 0:"):
            self.line("position += n")
            with self.block("if topic is not None:"):
                self.line("counted[topic] += n")


@cache
def _counter(
    message: type[Message], version: int
) -> Callable[[Callable[[bytearray], bytes | None], Counter[bytes]], Stream]:
    """Return the generator function that scans this version (cached, because each request needs one).

    Raises ValueError if the version does not name topics.
    """
    found = layout(message, version)
    if not _names_topics(found):
        raise ValueError(f"{found.name} v{version} does not name its topics")
    source = _CountingSource(found, when_short=None)
    with source.block("def stream(known, counted):"):
        source.line("body = position = end = 0")
        source.line("topic = None")
        source.fields(found.fields, found.name)
        source.flush()
        with source.block("while position > end:"):
            source.next_chunk()
        source.line("return position - body")
    return cast(
        "Callable[[Callable[[bytearray], bytes | None], Counter[bytes]], Stream]",
        compiled(source, found, "stream"),
    )
