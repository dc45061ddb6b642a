"""Replaces the payloads of record batches by zeros, in messages that arrive in parts.

The head of each batch stays (up to the number of records; of older messages, up to the timestamp), so
offsets, sizes, producers and counts can still be read. All behind the head becomes zeros: CRCs no longer
match, and compressed records cannot be opened.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Final

from weir.protocol.errors import ProtocolError
from weir.protocol.messages import FetchResponse, ProduceRequest, ShareFetchResponse
from weir.protocol.scanning.field_offsets import MessageLike
from weir.protocol.scanning.field_spans import field_spans

RECORDS: Final[dict[MessageLike, tuple[str, ...]]] = {
    ProduceRequest: ("topic_data.partition_data.records",),
    FetchResponse: ("responses.partitions.records",),
    ShareFetchResponse: ("responses.partitions.records",),
}
"""Paths of the records fields of messages."""
_LENGTH_AND_MAGIC: Final = Struct(">8xi4xB")
"""Format of a batch's first 17 bytes: base offset, length of all behind the length, leader epoch or CRC,
magic.
"""
_LENGTH_END: Final = 12
_KEPT: Final = {0: 18, 1: 26, 2: 61}
"""Size (bytes) of the head of a batch or message, by magic."""
_UNBOUNDED: Final = 2**62


class RecordsBlanking:
    """The records of one message's body."""

    def __init__(self, message: MessageLike, version: int) -> None:
        """Begin at the start of a body. Raises ValueError for a version that the schemas lack."""
        self._spans: deque[tuple[int, int]] = deque()
        """Offsets (start, stop) in the body of records that have not arrived completely."""
        self._scan = field_spans(message, version, RECORDS[message], self._note)
        self._fed = 0
        self._complete = False
        self._failed = False
        self._batches = _Batches()

    def give_up(self) -> None:
        """Replace all further bytes: the message cannot be read."""
        self._failed = True

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Replace payloads in data[start:stop], the next bytes of the body. If they are malformed, all of
        them, and all bytes behind, become zeros.
        """
        body = start - self._fed
        if not (self._complete or self._failed):
            try:
                self._complete = self._scan.feed(data, start, stop) is not None
            except ProtocolError:
                self._failed = True
        self._fed += stop - start
        if self._failed:
            data[start:stop] = bytes(stop - start)
            return
        while self._spans and body + self._spans[0][0] < stop:
            first, last = self._spans[0]
            if body + first >= start:
                self._batches = _Batches()
            self._batches.feed(data, max(body + first, start), min(body + last, stop))
            if body + last > stop:
                break
            self._spans.popleft()

    def _note(self, _index: int, offset: int, size: int) -> None:
        self._spans.append((offset, offset + size))


class _Batches:
    """The batches of one records field."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._at = 0
        """Number of bytes of the present batch that were fed."""
        self._kept = self._size = 0

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Replace the payloads in data[start:stop], the next bytes of the field."""
        while start < stop:
            if self._at < _LENGTH_AND_MAGIC.size:
                end = min(start + _LENGTH_AND_MAGIC.size - self._at, stop)
                self._head += data[start:end]
                self._at += end - start
                if self._at == _LENGTH_AND_MAGIC.size:
                    self._begin()
            elif self._at < self._kept:
                end = min(start + self._kept - self._at, stop)
                self._at += end - start
            elif self._at < self._size:
                end = min(start + self._size - self._at, stop)
                data[start:end] = bytes(end - start)
                self._at += end - start
            else:
                self._head.clear()
                self._at, end = 0, start
            start = end

    def _begin(self) -> None:
        length, magic = _LENGTH_AND_MAGIC.unpack(self._head)
        self._size = _LENGTH_END + length
        self._kept = _KEPT.get(magic, 0)
        if not self._kept or self._size < self._kept:  # malformed: all of the field becomes zeros
            self._kept, self._size = 0, _UNBOUNDED
