"""Counts the bytes of old record batches in a fetch response that arrives in parts.

Of a batch (magic 2, KIP-98), and of a message in the older formats, only the header is read: its length, and
the largest timestamp of its records. Batches without timestamps (magic 0, or -1) are not old.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, cast

from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.field_offsets import layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource
from weir.protocol.scanning.record_batches import ENTRY_HEAD_BYTES, MAGIC_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.schema import Slot

_HEAD_BYTES: Final = 43
"""Size (bytes) of a batch's header up to its largest timestamp, which is the last field read."""
_MAX_TIMESTAMP: Final = 35
_OLD_TIMESTAMP: Final = 18
"""Offset (bytes) of the timestamp of a message with magic 1 (KIP-32)."""


class OldBatches(PausingScanner):
    """Scans the body of one fetch response chunk by chunk, and counts the bytes of old batches.

    `complete` becomes True with the last byte of the response's records.
    """

    __slots__ = ("_before_ms", "old_bytes")

    def __init__(self, version: int, before_ms: int) -> None:
        """Begin at the start of a body. Batches whose records are all older than `before_ms` (Unix ms) are
        old. Raises ValueError for a version that the schemas lack.
        """
        self.complete = False
        self._before_ms = before_ms
        self.old_bytes = 0
        """Number of bytes of the old batches whose headers have arrived."""
        self._left = [0]
        self._chunks = Chunks(_scanner(version)(self._batch, self._left))

    def _batch(self, head: bytearray, left: int) -> int:
        """Count the batch with this header; its partition has `left` more bytes. Return its length: at least
        that of the header, and at most `left`.
        """
        size = left
        if len(head) >= ENTRY_HEAD_BYTES:
            size = ENTRY_HEAD_BYTES + int.from_bytes(head[8:ENTRY_HEAD_BYTES], signed=True)
            size = size if len(head) <= size <= left else left  # the last one may be cut
        if -1 < _timestamp(head) < self._before_ms:
            self.old_bytes += size
        return size


def _timestamp(head: bytearray) -> int:
    """Return the largest timestamp (Unix ms) of a batch; -1 for none."""
    if len(head) <= MAGIC_OFFSET or not head[MAGIC_OFFSET]:
        return -1
    start = _OLD_TIMESTAMP if head[MAGIC_OFFSET] == 1 else _MAX_TIMESTAMP
    return int.from_bytes(head[start : start + 8], signed=True) if len(head) >= start + 8 else -1


class _BatchSource(PausingSource):
    """Generates a scanning function that passes the header of each batch to `batch`."""

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.type != "records" or slot.is_array:
            super()._variable(slot, path)
            return
        self.records_length(slot, path)
        self.line("rest = n")
        with self.block("while rest > 0:"):
            self.begin_element()
            self.line(f"n = rest if rest < {_HEAD_BYTES} else {_HEAD_BYTES}")
            self.collect("n")
            self.line("size = batch(part, rest)")
            self.line("position += size - n")
            self.line("rest -= size")


@cache
def _scanner(version: int) -> Callable[[Callable[[bytearray, int], int], list[int]], Stream]:
    found = layout(FetchResponse, version)
    source = _BatchSource(found, when_short=None)
    with source.block("def stream(batch, allowed):"):
        source.begin()
        source.fields(found.fields, found.name)
        source.end()
    streams = compiled(source, found, "stream")
    return cast("Callable[[Callable[[bytearray, int], int], list[int]], Stream]", streams)
