"""Epochs and sequence numbers of idempotent producers, per partition (KIP-98).

A producer repeats batches after errors, and repeats them on other connections after a leader moved. So the
state belongs to the capture, and a repeated batch is no defect. A gap is a defect. So are other records with
a number of the batch that was accepted last: brokers drop or refuse them. The first batch of a producer id
may have any number, because the capture may have begun later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from weir.conformance.verify.finding import Defect
from weir.conformance.verify.record_batches import Head
from weir.conformance.verify.rules import R

if TYPE_CHECKING:
    from collections.abc import Iterable

PRODUCERS_MAX: Final = 100_000
"""Maximum number of (producer id, partition) pairs kept; the oldest is forgotten."""
_SEQUENCES: Final = 1 << 31


class ProducedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch in a Produce request."""

    topic: str
    """Name or id."""
    partition: int
    head: Head


class Producers:
    """The last epoch and the next sequence number of each producer id in each partition."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, str, int], tuple[int, int]] = {}
        self._accepted: dict[tuple[int, str, int], Head] = {}

    def answered(self, batches: Iterable[ProducedBatch], response: Any) -> None:
        """Take the ProduceResponse of a request with these batches."""
        refused = {
            (topic.name or str(topic.topic_id), part.index)
            for topic in response.responses
            for part in topic.partition_responses
            if part.error_code
        }
        for one in batches:
            if (one.topic, one.partition) not in refused:
                key = one.head.producer_id, one.topic, one.partition
                self._accepted.pop(key, None)
                self._accepted[key] = one.head
                _forget_oldest(self._accepted)

    def check(self, topic: str, partition: int, path: str, head: Head, offset: int) -> list[Defect]:
        """Compare a batch with those before it. `path`, `offset` (bytes): of the batch."""
        if head.producer_id < 0 or head.producer_epoch < 0 or head.base_sequence < 0:
            return []
        key = head.producer_id, topic, partition
        epoch, expected = self._next.pop(key, (head.producer_epoch, head.base_sequence))
        following = (head.base_sequence + max(0, head.count)) % _SEQUENCES
        if head.producer_epoch < epoch:
            self._next[key] = epoch, expected
            message = "A producer uses an epoch older than its last one."
            found = str(head.producer_epoch)
            return [
                Defect(
                    R.PRODUCER_EPOCH,
                    message,
                    path + ".producer_epoch",
                    offset + 51,
                    f"at least {epoch}",
                    found,
                )
            ]
        if head.producer_epoch > epoch:
            expected = 0
        ahead = (head.base_sequence - expected) % _SEQUENCES
        is_gap = 0 < ahead < _SEQUENCES // 2
        is_repeated = ahead >= _SEQUENCES // 2 and (following - expected) % _SEQUENCES >= _SEQUENCES // 2
        self._next[key] = head.producer_epoch, expected if is_repeated else following
        _forget_oldest(self._next)
        accepted = self._accepted.get(key)
        if accepted is not None and _reuses(head, accepted):
            message = (
                "A producer sends other records with a sequence number of a batch that was accepted. "
                "Add the number of records to the sequence number after each batch."
            )
            expected = (accepted.base_sequence + accepted.count) % _SEQUENCES
        elif is_gap:
            message = (
                "A producer leaves out sequence numbers. "
                "Add the number of records to the sequence number after each batch."
            )
        else:
            return []
        place, found = path + ".base_sequence", str(head.base_sequence)
        return [Defect(R.PRODUCER_SEQUENCE, message, place, offset + 53, str(expected), found)]


def _reuses(head: Head, accepted: Head) -> bool:
    """Return True if a batch has a sequence number of an accepted batch, but not its bytes."""
    if head.producer_epoch != accepted.producer_epoch:
        return False
    into = (head.base_sequence - accepted.base_sequence) % _SEQUENCES
    return 0 < into < accepted.count or (into == 0 and head.crc != accepted.crc)


def _forget_oldest(kept: dict[tuple[int, str, int], Any]) -> None:
    if len(kept) > PRODUCERS_MAX:
        kept.pop(next(iter(kept)))
