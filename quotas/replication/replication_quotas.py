"""ReplicationQuotas: the replication budgets of all brokers, and the progress of the throttled replicas."""

from __future__ import annotations

from typing import NamedTuple

from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.replication.throttles import NO_THROTTLES, ReplicationThrottles, Role


class Replica(NamedTuple):
    """A replica of a partition: the broker `node_id` follows the partition's leader."""

    topic: str
    partition: int
    node_id: int


class Progress:
    """Progress of a throttled replica, known from its fetches."""

    __slots__ = (
        "first_ms",
        "first_offset",
        "high_watermark",
        "is_held_back",
        "leader",
        "next_offset",
        "seen_ms",
        "sent_bytes",
    )

    def __init__(self, leader: int, next_offset: int, now_ms: int) -> None:
        """Begin at the replica's first fetch."""
        self.leader = leader
        """Node id of the leader that was fetched from last."""
        self.first_offset = next_offset
        self.first_ms = now_ms
        self.next_offset = next_offset
        """First offset that the replica does not have."""
        self.high_watermark = -1
        """The leader's high watermark in the latest response; -1 before the first response."""
        self.sent_bytes = 0
        """Bytes of records sent to the replica since `first_ms`."""
        self.seen_ms = now_ms
        """Time (ms) of the latest fetch."""
        self.is_held_back = False
        """True if the latest fetch got no records of this partition, because a rate is exceeded."""

    @property
    def lag(self) -> int:
        """Number of offsets that the replica lacks; -1 if unknown."""
        return -1 if self.high_watermark < 0 else max(self.high_watermark - self.next_offset, 0)

    @property
    def is_in_sync(self) -> bool:
        """True if the replica has all records below the high watermark. A leader adds such a replica to the
        in-sync replicas, and KIP-73 never throttles those. False while the high watermark is unknown.
        """
        return 0 <= self.high_watermark <= self.next_offset


class ReplicationQuotas:
    """The replication throttles in force, and each broker's usage under them. One per cluster."""

    __slots__ = ("_budgets", "_num_samples", "_window_s", "enforced", "generation", "progress", "throttles")

    def __init__(
        self,
        throttles: ReplicationThrottles = NO_THROTTLES,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        *,
        enforced: bool = True,
    ) -> None:
        """Begin with `throttles` in force, and no usage. `num_samples` and `window_s` are Kafka's
        `replication.quota.window.num` and `replication.quota.window.size.seconds`. With `enforced` False the
        usage is counted, but nothing is held back (shadow mode).
        """
        self.throttles = throttles
        self.enforced = enforced
        self.generation = 0
        """A number that grows when other replicas are throttled than before."""
        self.progress: dict[Replica, Progress] = {}
        """Progress of each throttled replica that has fetched."""
        self._num_samples, self._window_s = num_samples, window_s
        self._budgets: dict[tuple[Role, int], ReplicationBudget] = {}

    def use(self, throttles: ReplicationThrottles) -> None:
        """Put other throttles in force. Usage stays charged; replicas that are no longer listed are
        forgotten.
        """
        if not throttles.same_lists(self.throttles):
            self.generation += 1
        self.throttles = throttles
        for (role, node_id), budget in self._budgets.items():
            budget.limit = throttles.rate(role, node_id)
        self.progress = {
            replica: progress
            for replica, progress in self.progress.items()
            if self.roles(replica, progress.leader)
        }

    def roles(self, replica: Replica, leader: int) -> tuple[Role, ...]:
        """Return the roles in which a replica is throttled while it fetches from the broker `leader`."""
        listed = self.throttles.is_listed
        topic, partition, node_id = replica
        nodes = {Role.LEADER: leader, Role.FOLLOWER: node_id}
        return tuple(role for role in Role if listed(role, topic, partition, nodes[role]))

    def budget(self, role: Role, node_id: int) -> ReplicationBudget:
        """Return the budget of a broker in a role; created at the first call."""
        budget = self._budgets.get((role, node_id))
        if budget is None:
            limit = self.throttles.rate(role, node_id)
            budget = ReplicationBudget(limit, self._num_samples, self._window_s)
            self._budgets[role, node_id] = budget
        return budget

    @property
    def budgets(self) -> dict[tuple[Role, int], ReplicationBudget]:
        """Budgets by role and node id, of the brokers that have replicated throttled partitions."""
        return self._budgets
