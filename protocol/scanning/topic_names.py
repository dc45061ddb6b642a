"""Finds given topics in a request without decoding the request.

Decoding a request of 1 MB takes a second, and any client may send such a request. Scanning takes a tenth of
the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.errors import OversizedError
from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Bytes, Source, compiled, length_width

if TYPE_CHECKING:
    from weir.protocol.schema import Layout, Slot

NAME_BYTES_MAX: Final = 32_767
"""Maximum size (bytes) of a string in Kafka's protocol."""

ELEMENTS_MAX: Final = 10_000
"""Maximum number of array elements and tagged fields of a scanned request. They take 5 ms; a fetch of this
number of partitions has about 0.5 MB.
"""

UNKNOWN_MAX: Final = 10_000
"""Maximum number of topic ids without a known name that a scan of a message reports."""

SHORT: Final = "return short(position - body, True)"

FindTopics: TypeAlias = Callable[
    [Bytes, int, int, Collection[bytes], Mapping[bytes, bytes], set[bytes]], set[bytes]
]
"""Function (data, body, end, wanted, names, unknown) that returns those of the topics `wanted` (UTF-8) that
occur in the body `data[body:end]`. In a version with topic ids, `names` maps topic ids to names; the ids that
it lacks are added to `unknown`. Raises ProtocolError for a malformed body, and OversizedError beyond
`ELEMENTS_MAX`.
"""


def is_topic_name(slot: Slot) -> bool:
    """Return True if a field is the name of one topic."""
    return slot.field.entity_type == "topicName" and slot.type == "string" and not slot.is_array


def is_topic_id(slot: Slot) -> bool:
    """Return True if a field is the id of one topic (KIP-516)."""
    return slot.name == "topic_id" and slot.type == "uuid" and not slot.is_array


def topics_in(message: MessageLike, version: int, array: str) -> FindTopics:
    """Return a function that finds topics in the first fields of a complete body, up to and including the
    field `array` (cached). Raises ValueError for a message or version that the schemas lack, or that has no
    field `array`.
    """
    return _finder(layout(message, version), array)


class _NamingSource(Source):
    """Generates a scanning function that collects wanted topic names."""

    def reads(self, slot: Slot) -> bool:
        """Return True for topic ids: they are looked up in `names`."""
        return is_topic_id(slot)

    def _look_up(self) -> None:
        self.need(16)
        self.line("topic_id = bytes(data[position:position + 16])")
        self.line("position += 16")
        self.line("name = names.get(topic_id)")
        with self.block("if name is None:"):
            self.line("unknown.add(topic_id)")
        with self.block("elif name in wanted:"):
            self.line("found.add(name)")

    def begin_elements(self) -> None:
        """Add source that refuses a request with more than `ELEMENTS_MAX` elements."""
        self.line("left -= n")
        with self.block("if left < 0:"):
            self.line("oversized()")

    def _variable(self, slot: Slot, path: str) -> None:
        if is_topic_id(slot):
            self._look_up()
            return
        if not is_topic_name(slot):
            super()._variable(slot, path)
            return
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        self._refuse(f"n > {NAME_BYTES_MAX}", f"{path} is longer than a name can be")
        with self.block("if n > 0:"):
            self.line("start, position = position, position + n")
            with self.block("if position > end:"):
                self.line(SHORT)
            self.line("name = bytes(data[start:position])")
            with self.block("if name in wanted:"):
                self.line("found.add(name)")


@cache
def _finder(found: Layout, array: str) -> FindTopics:
    names = [slot.name for slot in found.fields]
    if array not in names:
        raise ValueError(f"{found.name} v{found.version} has no {array}")
    last = names.index(array)

    def oversized() -> None:
        raise OversizedError(f"more than {ELEMENTS_MAX} elements", api=found.name, version=found.version)

    source = _NamingSource(found, when_short=SHORT)
    with source.block("def locate(data, body, end, wanted, names, unknown):"):
        source.line(f"position, found, left = body, set(), {ELEMENTS_MAX}")
        source.fields(found.fields[: last + 1], found.name)
        source.flush()
        with source.block("if position > end:"):
            source.line(SHORT)
        source.line("return found")
    return cast(FindTopics, compiled(source, found, "locate", oversized=oversized))
