"""A snapshot of replication quotas (KIP-73): the JSON of `GET /replication`.

`weir top --view replication` reads the JSON with the same types.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias, TypeVar

import msgspec

from weir.quotas.replication.replication_quotas import Replica, ReplicaProgress, ReplicationQuotas
from weir.quotas.replication.throttles import RATE_KEYS, Role

T = TypeVar("T")
Known: TypeAlias = tuple[Replica, ReplicaProgress]
"""A throttled replica and its progress."""

PATH: Final = "/replication"
REPLICAS_MAX: Final = 1000
"""Maximum number of replicas in a snapshot; others are only counted."""
SLICE: Final = 250
"""Number of replicas that are read in one step, of about a millisecond."""


class BrokerStatus(msgspec.Struct, frozen=True):
    """Usage of one broker in one role of replication."""

    node_id: int
    role: str
    """Role of the broker: `leader` or `follower`."""
    limit: float | None
    """Limit (bytes/s); null without a limit."""
    rate: float
    """Rate (bytes/s) that is compared with the limit: over the last 10 to 11 s."""
    charged_bytes: int
    """Bytes of records of throttled replicas since Weir's start."""
    replicas: int
    """Number of replicas that are throttled in this role at this broker, and have fetched."""


class FollowerStatus(msgspec.Struct, frozen=True):
    """Sums over the throttled replicas of one follower."""

    node_id: int
    replicas: int
    in_sync: int
    held_back: int
    lag: int
    """Number of offsets that the replicas lack together; those whose lag is unknown are left out."""
    stalled_s: float
    """Longest time (s) for which one of the replicas has lacked records and got none."""


class ReplicaStatus(msgspec.Struct, frozen=True):
    """Progress of one throttled replica."""

    topic: str
    partition: int
    leader: int
    follower: int
    in_sync: bool
    """True if the replica has all records below the high watermark."""
    held_back: bool
    """True if the latest fetch got no records of the partition, because a rate is exceeded."""
    lag: int | None
    """Number of offsets that the replica lacks; null before the first response."""
    next_offset: int
    high_watermark: int | None
    """The leader's high watermark; null before the first response."""
    sent_bytes: int
    """Bytes of records sent since the replica's first fetch."""
    rate: float
    """Rate (bytes/s) of the replica over the last 10 to 20 s."""
    bytes_left: float | None
    """Estimated bytes that the replica lacks; null if unknown."""
    time_left_s: float | None
    """Estimated time (s) until the replica is in sync at its present rate, if the leader gets no new records;
    null if unknown, or if the replica gets no records.
    """
    share_done: float
    """Share (0 to 1) of the copy that is done."""
    stalled_s: float
    """Time (s) for which the replica has lacked records and got none."""


class ReplicationStatus(msgspec.Struct, frozen=True):
    """The content of the JSON response."""

    configured: bool
    """True if Weir has replication listeners."""
    enforced: bool
    """True if rates are enforced; False if usage is only counted (shadow mode)."""
    topics: int
    """Number of topics with throttled replicas, also if no replica has fetched yet."""
    brokers: list[BrokerStatus]
    followers: list[FollowerStatus]
    replicas: list[ReplicaStatus]
    """Replicas that are not in sync, then the others, each by topic, partition and follower."""
    hidden: int
    """Number of throttled replicas that are not in `replicas`, because they are more than `REPLICAS_MAX`."""


NOT_CONFIGURED: Final = ReplicationStatus(False, False, 0, [], [], [], 0)
"""Status of a Weir without replication listeners."""


def read(
    quotas: ReplicationQuotas | None, now_ms: int, replicas_max: int = REPLICAS_MAX
) -> Generator[None, None, ReplicationStatus]:
    """Return the snapshot, and yield where the caller may serve sockets. `quotas` is None without replication
    listeners.
    """
    if quotas is None:
        return NOT_CONFIGURED
    known, sums = [one for one in quotas.progress.items() if one[1].is_fetched], _Sums()
    for part in _slices(known):
        for replica, progress in part:
            sums.add(replica, progress, quotas, now_ms)
        yield
    chosen = list(islice(chain(sums.lagging, sums.in_sync), replicas_max))
    replicas: list[ReplicaStatus] = []
    for part in _slices(sorted(chosen, key=_not_in_sync_first)):
        replicas += [_replica(replica, progress, now_ms) for replica, progress in part]
        yield
    return ReplicationStatus(
        configured=True,
        enforced=quotas.enforced,
        topics=len(quotas.throttles.topics),
        brokers=list(_brokers(quotas, sums.listed, now_ms)),
        followers=[followed.status(node_id) for node_id, followed in sorted(sums.followers.items())],
        replicas=replicas,
        hidden=len(known) - len(replicas),
    )


class _Follower:
    """Sums over the replicas of one follower; the fields are those of `FollowerStatus`."""

    def __init__(self) -> None:
        self.replicas = self.in_sync = self.held_back = self.lag = self.stalled_ms = 0

    def add(self, progress: ReplicaProgress, now_ms: int) -> None:
        self.replicas += 1
        if progress.is_in_sync:
            self.in_sync += 1
            return
        self.held_back += progress.is_held_back
        self.lag += max(progress.lag, 0)
        self.stalled_ms = max(self.stalled_ms, progress.stalled_ms(now_ms))

    def status(self, node_id: int) -> FollowerStatus:
        return FollowerStatus(
            node_id, self.replicas, self.in_sync, self.held_back, self.lag, self.stalled_ms / 1000
        )


class _Sums:
    """Sums over all throttled replicas."""

    def __init__(self) -> None:
        self._leaders: Counter[int] = Counter()
        self._followers: Counter[int] = Counter()
        self.followers: dict[int, _Follower] = {}
        self.lagging: list[Known] = []
        """Replicas that are not in sync, in the order of their first fetches."""
        self.in_sync: list[Known] = []

    def add(
        self, replica: Replica, progress: ReplicaProgress, quotas: ReplicationQuotas, now_ms: int
    ) -> None:
        topic, partition, node_id = replica
        if quotas.throttles.is_listed(Role.LEADER, topic, partition, progress.leader):
            self._leaders[progress.leader] += 1
        if quotas.throttles.is_listed(Role.FOLLOWER, topic, partition, node_id):
            self._followers[node_id] += 1
        follower = self.followers.get(node_id)
        if follower is None:
            follower = self.followers[node_id] = _Follower()
        follower.add(progress, now_ms)
        (self.in_sync if progress.is_in_sync else self.lagging).append((replica, progress))

    @property
    def listed(self) -> dict[tuple[Role, int], int]:
        """Number of throttled replicas by role and node id."""
        both = {Role.LEADER: self._leaders, Role.FOLLOWER: self._followers}
        return {(role, node_id): counts[node_id] for role, counts in both.items() for node_id in counts}


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + SLICE] for start in range(0, len(items), SLICE))


def _not_in_sync_first(known: Known) -> tuple[bool, Replica]:
    replica, progress = known
    return progress.is_in_sync, replica


def _brokers(
    quotas: ReplicationQuotas, listed: Mapping[tuple[Role, int], int], now_ms: int
) -> Iterator[BrokerStatus]:
    """Yield the status of each broker that has replicated, has throttled replicas, or a rate of its own."""
    with_rate = {
        (RATE_KEYS[key.name], int(key.resource_name))
        for key in quotas.throttles.values
        if key.name in RATE_KEYS and key.resource_name
    }
    seen = {*quotas.budgets, *listed, *with_rate}
    for role, node_id in sorted(seen, key=lambda pair: (pair[1], pair[0] is Role.FOLLOWER)):
        budget, limit = quotas.budgets.get((role, node_id)), quotas.throttles.rate(role, node_id)
        yield BrokerStatus(
            node_id,
            role.value,
            limit=None if limit == math.inf else limit,
            rate=0.0 if budget is None else budget.rate(now_ms),
            charged_bytes=0 if budget is None else int(budget.charged),
            replicas=listed.get((role, node_id), 0),
        )


def _replica(replica: Replica, progress: ReplicaProgress, now_ms: int) -> ReplicaStatus:
    rate, bytes_left = progress.rate(now_ms), progress.bytes_left
    return ReplicaStatus(
        replica.topic,
        replica.partition,
        progress.leader,
        replica.node_id,
        in_sync=progress.is_in_sync,
        held_back=progress.is_held_back and not progress.is_in_sync,
        lag=None if progress.lag < 0 else progress.lag,
        next_offset=progress.next_offset,
        high_watermark=None if progress.high_watermark < 0 else progress.high_watermark,
        sent_bytes=progress.sent_bytes,
        rate=rate,
        bytes_left=bytes_left,
        time_left_s=_time_left_s(bytes_left, rate),
        share_done=progress.share_done,
        stalled_s=progress.stalled_ms(now_ms) / 1000,
    )


def _time_left_s(bytes_left: float | None, rate: float) -> float | None:
    if bytes_left == 0:
        return 0.0
    return bytes_left / rate if bytes_left is not None and rate else None
