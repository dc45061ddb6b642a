"""Logs of the replication model: batches with offsets, epochs and a size."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

_HEAD: Final = Struct(">qiiiI")
"""Base offset, length behind this field, number of records, leader epoch, serial number."""
_LENGTH_END: Final = 12
BATCH_BYTES_MIN: Final = _HEAD.size


class Batch(NamedTuple):
    """A batch of records, in a format of the model's own."""

    offset: int
    records: int
    epoch: int
    data: bytes

    @classmethod
    def create(cls, offset: int, count: int, epoch: int, serial: int, size: int) -> Batch:
        """Return a batch of `size` bytes; batches with different serial numbers differ."""
        size = max(size, BATCH_BYTES_MIN)
        head = _HEAD.pack(offset, size - _LENGTH_END, count, epoch, serial)
        return cls(offset, count, epoch, head + bytes(size - BATCH_BYTES_MIN))

    @property
    def end(self) -> int:
        """First offset behind the batch."""
        return self.offset + self.records


def batches(data: bytes) -> Iterator[Batch]:
    """Yield the complete batches in the records of a response; the last batch may be cut."""
    while len(data) >= BATCH_BYTES_MIN:
        offset, length, count, epoch, _serial = _HEAD.unpack_from(data)
        size = _LENGTH_END + length
        if len(data) < size:
            return
        yield Batch(offset, count, epoch, data[:size])
        data = data[size:]


class Log:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def end(self) -> int:
        """First offset that the log lacks."""
        return self.batches[-1].end if self.batches else 0

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch; -1 of an empty log."""
        return self.batches[-1].epoch if self.batches else -1

    def append(self, batch: Batch) -> None:
        assert batch.offset == self.end, f"batch at {batch.offset} appended to a log that ends at {self.end}"
        self.batches.append(batch)

    def truncate(self, offset: int) -> None:
        while self.end > offset:
            self.batches.pop()

    def position(self, offset: int) -> int:
        for index in range(len(self.batches) - 1, -1, -1):
            if self.batches[index].offset == offset:
                return index
        return len(self.batches)

    def read(self, offset: int, limit: int, *, one_batch: bool, whole: bool) -> bytes:
        """Return at most `limit` bytes from `offset` on, perhaps with a cut batch at the end. `one_batch`: at
        least the first batch. `whole`: nothing rather than a part of the first batch.
        """
        found = bytearray()
        for batch in self.batches[self.position(offset) :]:
            found += batch.data
            if len(found) >= limit:
                break
        if not found:
            return b""
        first = len(self.batches[self.position(offset)].data)
        if limit < first:
            return bytes(found[:first]) if one_batch else b"" if whole else bytes(found[:limit])
        return bytes(found[:limit])

    def readable_bytes(self, offset: int) -> int:
        return sum(len(batch.data) for batch in self.batches[self.position(offset) :])

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the last epoch that is at most `epoch`, and the offset at which it ends; -1 if none is."""
        for batch in reversed(self.batches):
            if batch.epoch <= epoch:
                return batch.epoch, batch.end
        return -1, 0
