"""Counts the bytes of records by topic in a produce request or fetch response that arrives in parts.

The message is never in memory as a whole; only topics and the lengths of records are decoded. Newer versions
have topic ids instead of names (KIP-516). The caller passes the names of the ids that it knows; the bytes of
other topics are counted by id.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource
from weir.protocol.scanning.topic_names import UNKNOWN_MAX, is_topic_id, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Message

Begin: TypeAlias = (
    "Callable[[Collection[bytes], Counter[bytes], list[int], Mapping[bytes, bytes], set[bytes]], Stream]"
)
"""Generator function (wanted, counted, allowed, names, unknown) that scans a body. `PausingSource` describes
`allowed`, `TopicBytes` the others.
"""


_NO_NAMES: Final[Mapping[bytes, bytes]] = {}


class TopicBytes(PausingScanner):
    """Scans one message's body chunk by chunk and counts the bytes of records of the wanted topics.

    `complete` becomes True with the last byte of the message's records.
    """

    __slots__ = ("_counted", "unknown")

    def __init__(
        self,
        message: type[Message],
        version: int,
        wanted: Collection[bytes],
        names: Mapping[bytes, bytes] = _NO_NAMES,
    ) -> None:
        """Begin at the start of a body. `wanted`: names (UTF-8) of the topics to count. `names`: topic id →
        name, for a version with topic ids. Raises ValueError if the version has no records of topics.
        """
        begin = _counter(message, version)
        self.complete = False
        self.unknown: set[bytes] = set()
        """Topic ids that `names` lacks, at most `UNKNOWN_MAX`. `counted` and `begun` have their bytes under
        these ids, until `count_as` gives them a name. More such ids are not counted.
        """
        self._counted = Counter[bytes]()
        self._left = [0]
        self._chunks = Chunks(begin(wanted, self._counted, self._left, names, self.unknown))

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

    def count_as(self, topic_id: bytes, name: bytes | None) -> None:
        """Count the bytes of an unknown topic id for the topic `name`; None not to count them."""
        self.unknown.discard(topic_id)
        size = self._counted.pop(topic_id, None)
        if name is not None and size is not None:
            self._counted[name] += size


def names_topics(message: MessageLike, version: int) -> bool:
    """Return True if this version of a produce request or fetch response identifies topics by name, False if
    by topic id (newer versions, KIP-516). Raises ValueError for a message or version that the schemas lack.
    """
    return _has_topics(layout(message, version), is_topic_name)


def _has_topics(found: Layout, is_identity: Callable[[Slot], bool]) -> bool:
    """Return True if a struct within `found` has a field that identifies a topic, and records."""
    slots = [slot for slot in found.fields if slot.struct is not None and slot.is_array]
    return any(
        (any(map(is_identity, inner.fields)) and _has_records(inner)) or _has_topics(inner, is_identity)
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

    def reads(self, slot: Slot) -> bool:
        """Return True for topic ids: they are looked up in `names`."""
        return is_topic_id(slot)

    def _look_up(self) -> None:
        self.keep_id()
        self.line("topic = names.get(topic_id)")
        with self.block("if topic is None:"), self.block(f"if len(unknown) < {UNKNOWN_MAX}:"):
            self.line("topic = topic_id")
            self.line("unknown.add(topic_id)")
        with self.block("elif topic not in wanted:"):
            self.line("topic = None")

    def _variable(self, slot: Slot, path: str) -> None:
        if is_topic_id(slot):
            self._look_up()
        elif is_topic_name(slot):
            self.keep_name(slot, path)
            self.line("topic = name if name in wanted else None")
        elif slot.type == "records" and not slot.is_array:
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

    Raises ValueError if the version has no records of topics.
    """
    found = layout(message, version)
    if not (_has_topics(found, is_topic_name) or _has_topics(found, is_topic_id)):
        raise ValueError(f"{found.name} v{version} has no records of topics")
    source = _CountingSource(found, when_short=None)
    with source.block("def stream(wanted, counted, allowed, names, unknown):"):
        source.begin()
        source.line("topic = None")
        source.fields(found.fields, found.name)
        source.end()
    return cast(Begin, compiled(source, found, "stream"))
