"""Finds the names and ids of topics in a response that arrives in parts, such as Metadata (KIP-516)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource
from weir.protocol.scanning.topic_names import is_topic_id, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weir.protocol.schema import Layout, Slot
    from weir.protocol.values import Message

Note: TypeAlias = "Callable[[bytes, bytes], object]"
"""Function (topic id, name in UTF-8) that is called for each topic."""


class TopicIdentities(PausingScanner):
    """Scans one response's body chunk by chunk, and reports its topics."""

    __slots__ = ()

    def __init__(
        self, message: type[Message], version: int, known: Mapping[bytes, bytes], note: Note
    ) -> None:
        """Begin at the start of a body. `note` is called for each topic whose id is not in `known`; the name
        is empty if the response has none. Raises ValueError if `has_identities` is False for this version.
        """
        self.complete = False
        self._left = [0]
        self._chunks = Chunks(_scanner(message, version)(note, known, self._left))


def has_identities(message: MessageLike, version: int) -> bool:
    """Return True if topics in this version have both a name and an id. Raises ValueError for a message or
    version that the schemas lack.
    """
    return _has_identities(layout(message, version))


def _has_identities(found: Layout) -> bool:
    return any(
        any(map(is_topic_name, slot.struct.fields)) and any(map(is_topic_id, slot.struct.fields))
        for slot in found.fields
        if slot.struct is not None and slot.is_array
    )


class _IdentitySource(PausingSource):
    """Generates a scanning function that calls `note` for each topic. In all schemas the name comes first."""

    def reads(self, slot: Slot) -> bool:
        """Return True for topic ids: topics are reported there."""
        return is_topic_id(slot)

    def _variable(self, slot: Slot, path: str) -> None:
        if is_topic_id(slot):
            self.keep_id()
            with self.block("if topic_id not in known:"):
                self.line("note(topic_id, name)")
        elif is_topic_name(slot):
            self.keep_name(slot, path)
        else:
            super()._variable(slot, path)


@cache
def _scanner(
    message: type[Message], version: int
) -> Callable[[Note, Mapping[bytes, bytes], list[int]], Stream]:
    found = layout(message, version)
    if not _has_identities(found):
        raise ValueError(f"{found.name} v{version} has no topics with names and ids")
    source = _IdentitySource(found, when_short=None)
    with source.block("def stream(note, known, allowed):"):
        source.begin()
        source.line("name = b''")
        source.fields(found.fields, found.name)
        source.end()
    return cast(
        "Callable[[Note, Mapping[bytes, bytes], list[int]], Stream]", compiled(source, found, "stream")
    )
