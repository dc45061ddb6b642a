"""Counts the bytes of records by topic in a produce request or fetch response that arrives in parts.

The message is never in memory as a whole; only topic names and the lengths of records are decoded.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Bytes, Chunks, Source, Stream, compiled, length_width
from weir.protocol.scanning.topic_names import NAME_BYTES_MAX, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Message

Begin: TypeAlias = "Callable[[Collection[bytes], Counter[bytes], list[int]], Stream]"
"""Generator function (wanted, counted, allowed) that scans a body. `allowed[0]` is the number of elements
that it may visit before it pauses, set by the caller; it is up to date whenever the generator yields or
returns.
"""


class TopicBytes:
    """Scans one message's body chunk by chunk and counts the bytes of records of the wanted topics."""

    __slots__ = ("_chunks", "_counted", "_left", "complete")

    def __init__(self, message: type[Message], version: int, wanted: Collection[bytes]) -> None:
        """Begin at the start of a body. `wanted`: names (UTF-8) of the topics to count. Raises ValueError if
        `names_topics` is False for this version.
        """
        begin = _counter(message, version)
        self.complete = False
        """True once the body has been fed up to the last byte of its records."""
        self._counted = Counter[bytes]()
        self._left = [0]
        self._chunks = Chunks(begin(wanted, self._counted, self._left))

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

    @property
    def elements_left(self) -> int:
        """Number of elements that the latest call of `feed` might still have visited."""
        return self._left[0]

    def feed(self, data: Bytes, start: int, stop: int, elements_max: int = sys.maxsize) -> int:
        """Scan the body's next bytes, `data[start:stop]`, up to `elements_max` array elements and tagged
        fields. Return the position behind the scanned bytes; the next call begins there. Raises
        ProtocolError for malformed bytes.
        """
        self._left[0] = elements_max
        if self.complete:
            return stop
        before = self._chunks.fed
        self.complete = self._chunks.feed(data, start, stop) is not None
        return start + self._chunks.fed - before


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
    """Generates a scanning function that looks up each topic in `wanted` and counts the bytes of the topic's
    records. The generated function keeps only the current topic's name, and refuses names longer than
    `NAME_BYTES_MAX`. It pauses when the elements are used up that its caller allows.
    """

    def begin_element(self) -> None:
        """Add source that pauses if the caller allows no more elements: one element has three bytes and takes
        0.4 microseconds, and all of a message would delay others.
        """
        self.line("left -= 1")
        with self.block("if left < 0:"):
            self.next_chunk()

    def next_chunk(self) -> None:
        """Add source that yields, and then reads the number of elements that may be visited."""
        self.line("allowed[0] = left")
        super().next_chunk()
        self.line("left = allowed[0]")

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
        self.line("stop = position + n")
        with self.block("if stop <= end:"):
            self.line("name = bytes(data[position:stop])")
            self.line("position = stop")
        with self.block("else:"):  # the name continues in the next chunk
            self.line("part = bytearray()")
            with self.block("while len(part) < n:"):
                self.need()
                self.line("stop = min(end, position + n - len(part))")
                self.line("part += data[position:stop]")
                self.line("position = stop")
            self.line("name = bytes(part)")
        self.line("topic = name if name in wanted else None")

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
def _counter(message: type[Message], version: int) -> Begin:
    """Return the generator function that scans this version (cached, because each request needs one).

    Raises ValueError if the version does not name topics.
    """
    found = layout(message, version)
    if not _names_topics(found):
        raise ValueError(f"{found.name} v{version} does not name its topics")
    source = _CountingSource(found, when_short=None)
    with source.block("def stream(wanted, counted, allowed):"):
        source.line("body = position = end = left = 0")
        source.line("topic = None")
        source.fields(found.fields, found.name)
        source.flush()
        with source.block("while position > end:"):
            source.next_chunk()
        source.line("allowed[0] = left")
        source.line("return position - body")
    return cast(Begin, compiled(source, found, "stream"))
