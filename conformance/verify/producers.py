"""Epochs and sequence numbers of idempotent producers, per partition (KIP-98).

A producer repeats batches after errors, and repeats them on other connections after a leader moved. So the
state belongs to the capture, and a lower sequence number is no defect: only a gap is. The first batch of a
producer id may have any number, because the capture may have begun later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.verify.finding import Defect
from weir.conformance.verify.rules import R

if TYPE_CHECKING:
    from weir.conformance.verify.record_batches import Head

PRODUCERS_MAX: Final = 100_000
"""Maximum number of (producer id, partition) pairs kept; the oldest is forgotten."""
_SEQUENCES: Final = 1 << 31


class Producers:
    """The last epoch and the next sequence number of each producer id in each partition."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, str, int], tuple[int, int]] = {}

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
        if len(self._next) > PRODUCERS_MAX:
            self._next.pop(next(iter(self._next)))
        if not is_gap:
            return []
        message = "A producer leaves out sequence numbers."
        return [
            Defect(
                R.PRODUCER_SEQUENCE,
                message,
                path + ".base_sequence",
                offset + 53,
                str(expected),
                str(head.base_sequence),
            )
        ]
