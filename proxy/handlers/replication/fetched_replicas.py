"""The throttled replicas of one fetch, and the choice of those that may get records now.

KIP-73 holds back a replica that is listed, is not in sync, and whose leader or follower is over its rate.
Weir also cuts the partition limits of the others, so that one fetch asks for no more records of throttled
replicas than both budgets allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.replication.replication_quotas import ReplicaProgress

if TYPE_CHECKING:
    from weir.protocol.messages import FetchRequest

Key: TypeAlias = tuple[bytes, int]
"""A partition as fetches identify it: the topic (name in UTF-8, or topic id) and the partition's number."""

QUANTUM_S: Final = 1.0
"""A replica that was held back gets records again when its budget allows the bytes that it asks for, or those
of this time (s). Smaller fetches would waste more: a leader cuts records at the limit, not at the end of a
batch, and a follower discards a batch that is cut.
"""
FIRST_VERSION_WITH_WHOLE_BATCHES: Final = 3
"""First version of Fetch in which a response has a batch even if it is larger than the limits (KIP-74).
Limits of older versions are not cut, because a replica would never get a batch above them.
"""


class LeaderAndFollower(NamedTuple):
    """The brokers of a replication connection, by node id."""

    leader: int
    follower: int


class FetchedReplica:
    """A throttled replica that a fetch asks for."""

    __slots__ = ("asked", "at_leader", "budgets", "is_held_back", "is_mentioned", "max_bytes", "progress")

    def __init__(
        self,
        asked: FetchRequest.FetchPartition,
        budgets: tuple[ReplicationBudget, ...],
        progress: ReplicaProgress,
    ) -> None:
        self.asked = asked
        """The partition as the follower has last named it, with its fetch offset and epochs."""
        self.is_mentioned = True
        """True if the follower has named the partition and the leader has not received it since. A fetch that
        Weir answers itself does not reach the leader.
        """
        self.budgets = budgets
        """Budgets that the replica's records are charged to: the leader's, the follower's, or both."""
        self.progress = progress
        self.is_held_back = False
        """True if the present fetch may get no records of the partition."""
        self.max_bytes = asked.partition_max_bytes
        """Limit of the partition's records (bytes) in the present fetch."""
        self.at_leader: int | None = None
        """Limit of the partition's records (bytes) in the leader's fetch session; None if that session does
        not have the partition.
        """

    def ask(self, asked: FetchRequest.FetchPartition, now_ms: int) -> None:
        """Note that the follower's present fetch names the partition. The high watermark of another leader
        epoch is not kept, because a leader that has lost records has a lower one.
        """
        self.asked, self.is_mentioned, progress = asked, True, self.progress
        if asked.current_leader_epoch != progress.leader_epoch:
            if progress.leader_epoch is not None:
                progress.high_watermark = -1
            progress.leader_epoch = asked.current_leader_epoch
        progress.is_fetched = True
        progress.next_offset, progress.seen_ms = asked.fetch_offset, now_ms

    def cut(self) -> FetchRequest.FetchPartition:
        """Return the partition as the leader is asked for it, with the cut limit."""
        if self.max_bytes == self.asked.partition_max_bytes:
            return self.asked
        return replace(self.asked, partition_max_bytes=self.max_bytes)


def choose(replicas: Iterable[FetchedReplica], *, enforced: bool, cut: bool, now_ms: int) -> float:
    """Set `is_held_back` and `max_bytes` of the replicas. Return the time (ms) until the first replica that
    is held back may get records; infinity if none is held back. With `enforced` False none is.

    The first replicas get the bytes that are left, so the caller should begin with others at each fetch. With
    `cut`, the limits of partitions are cut to the bytes that are left.
    """
    left: dict[ReplicationBudget, float] = {}
    waits: dict[tuple[tuple[ReplicationBudget, ...], int], int] = {}
    for replica in replicas:
        progress, asked = replica.progress, replica.asked.partition_max_bytes
        replica.is_held_back = progress.is_held_back = False
        replica.max_bytes = asked
        if progress.is_in_sync or not enforced:
            continue
        budgets, allowed = replica.budgets, math.inf
        for budget in budgets:
            budget_left = left.get(budget)
            if budget_left is None:
                budget_left = left[budget] = budget.allowed_bytes(now_ms)
            allowed = min(allowed, budget_left)
            if budget_left < _least(budget.limit, asked):
                replica.is_held_back = progress.is_held_back = True
        if replica.is_held_back:
            if (budgets, asked) not in waits:  # thousands of replicas share their budgets
                waits[budgets, asked] = max(
                    budget.wait_ms(now_ms, _least(budget.limit, asked)) for budget in budgets
                )
            continue
        if cut:
            replica.max_bytes = max(int(min(asked, allowed)), 1)
        for budget in budgets:
            left[budget] -= replica.max_bytes
    return min(waits.values(), default=math.inf)


def _least(limit: float, asked: int) -> float:
    """Return the bytes that a budget with this limit (bytes/s) must allow before a replica that was held back
    gets records again. `asked` is the replica's own limit (bytes).
    """
    return max(min(asked, limit * QUANTUM_S), 1)
