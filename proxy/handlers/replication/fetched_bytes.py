"""Charges the records of throttled replicas in a fetch response to the leader's and the follower's budget.

KIP-73's leader counts the response reduced to its throttled partitions, its follower the records. Weir counts
records for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from weir.protocol.scanning.fetched_partitions import FetchedPartitions
from weir.proxy.handlers.plan import RESPONSE_QUOTA
from weir.proxy.handlers.replication.replica_session import ReplicaSession

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context

Answered: TypeAlias = Callable[[int, int], None]
"""Function (error code, session id) to call at the end of a response."""


class FetchedBytes:
    """A `ByteCounter` of one response to a replica fetch. Records are charged when their length arrives."""

    __slots__ = ("_answered", "_context", "_partitions", "_session")
    quota: Final = RESPONSE_QUOTA

    def __init__(self, context: Context, session: ReplicaSession, answered: Answered) -> None:
        """Begin before the response. `session` has the throttled replicas of the fetch."""
        self._context = context
        self._session = session
        self._answered = answered
        self._partitions = FetchedPartitions(session.version, self.note)

    def note(self, topic: bytes, partition: int, error_code: int, high_watermark: int, size: int) -> None:
        """Charge `size` bytes of records of a partition, and note its high watermark."""
        replica = self._session.replicas.get((topic, partition))
        if replica is None or error_code:
            return
        replica.progress.high_watermark = high_watermark
        if size:
            replica.progress.sent_bytes += size
            for budget in replica.budgets:
                budget.charge(size, self._context.now_ms)

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Read the body's next bytes, `data[start:stop]`, as many elements as the turn allows. Return the
        position behind the bytes that were read. Raises ProtocolError if the body is malformed.
        """
        return self._context.clock.feed(self._partitions, data, start, stop)

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Note the end of the response. Return 0, because replication has no throttle time."""
        del now_ms, told
        self._answered(self._partitions.error_code or 0, self._partitions.session_id or 0)
        return 0

    def cut(self, now_ms: int) -> None:
        """Do nothing: the records that arrived are charged already."""
