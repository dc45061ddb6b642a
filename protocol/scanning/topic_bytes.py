"""Counts the bytes of records by topic in a produce request or fetch response that arrives in parts.

The message is never in memory as a whole; only topic names and the lengths of records are decoded.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource
from weir.protocol.scanning.topic_names import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Message

Begin: TypeAlias = "Callable[[Collection[bytes], Counter[bytes], list[int]], Stream]"
"""Generator function (wanted, counted, allowed) that scans a body; `PausingSource` describes `allowed`."""


class TopicBytes(PausingScanner):
    """Scans one message's body chunk by chunk and counts the bytes of records of the wanted topics.

    `complete` becomes True with the last byte of the message's records.
    """

    __slots__ = ("_counted",)

    def __init__(self, message: type[Message], version: int, wanted: Collection[bytes]) -> None:
        """Begin at the start of a body. `wanted`: names (UTF-8) of the topics to count. Raises ValueError if
        `names_topics` is False for this version.
        """
        begin = _counter(message, version)
        self.complete = False
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


class _CountingSource(PausingSource):
    """Generates a scanning function that looks up each topic in `wanted` and counts the bytes of the topic's
    records. The generated function keeps only the current topic's name.
    """

    def _variable(self, slot: Slot, path: str) -> None:
        if is_topic_name(slot):
            self.flush()
            self.keep_name(slot, path)
            self.line("topic = name if name in wanted else None")
        elif slot.type == "records" and not slot.is_array:
            self.flush()
            self._count_records(slot, path)
        else:
            super()._variable(slot, path)

    def _count_records(self, slot: Slot, path: str) -> None:
        self.records_length(slot, path)
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
        source.begin()
        source.line("topic = None")
        source.fields(found.fields, found.name)
        source.end()
    return cast(Begin, compiled(source, found, "stream"))
