"""ReplicationQuotas: the replication budgets of all brokers, and the progress of the throttled replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.single import SingleLimiter
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.replication.throttles import NO_THROTTLES, ReplicationThrottles, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK_MS: Final = 10_000
"""Shortest time (ms) between two marks of a replica's progress."""
LEADER_RATE: Final = "replication of leader"
FOLLOWER_RATE: Final = "replication of follower"
REPLICATION_RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
"""Names of the budgets (`ReplicationQuotas.named`)."""
TOLD_MAX: Final = 500
"""Maximum number of replicas in a list of `ReplicationQuotas.tell`."""
PAUSE_MS: Final = 300_000
"""Time (ms) without a fetch after which a replica's rate is measured from the start again."""


class Replica(NamedTuple):
    """A replica of a partition: the broker `node_id` follows the partition's leader."""

    topic: str
    partition: int
    node_id: int


class ProgressMark(NamedTuple):
    """A replica's progress at one of its fetches."""

    now_ms: int
    next_offset: int
    sent_bytes: int
    is_in_sync: bool


class ProgressState(NamedTuple):
    """The fields of a `ReplicaProgress`."""

    numbers: tuple[int, int, int, int, int | None]
    flags: tuple[bool, bool]
    times: tuple[int, int, int]
    marks: tuple[ProgressMark, ProgressMark, ProgressMark]


class ReplicaProgress:
    """Progress of a throttled replica, known from its fetches. Offsets are those of the partition's records.

    Marks divide the time into parts of at least `MARK_MS`. So a rate, and the start of the present copy, cost
    a fetch one comparison. A copy starts at the replica's first fetch, and again when it falls out of sync.
    """

    __slots__ = (
        "_before",
        "_mark",
        "_seen_bytes",
        "_seen_ms",
        "_sent_ms",
        "_start",
        "high_watermark",
        "is_fetched",
        "is_held_back",
        "leader",
        "leader_epoch",
        "next_offset",
        "sent_bytes",
    )

    def __init__(self, leader: int, next_offset: int, now_ms: int) -> None:
        self.leader = leader
        """Node id of the leader that was fetched from last."""
        self.next_offset = next_offset
        """First offset that the replica does not have."""
        self.high_watermark = -1
        """The leader's high watermark in the latest response; -1 before the first response."""
        self.sent_bytes = 0
        """Bytes of records sent to the replica since its first fetch."""
        self.leader_epoch: int | None = None
        """Leader epoch in the latest fetch (-1 if its version has none); None before the first."""
        self.is_fetched = True
        """False while the follower does not fetch the partition, such as after it has been moved away."""
        self.is_held_back = False
        """True if the latest fetch got no records of this partition, because a rate is exceeded."""
        self._seen_ms, self._seen_bytes, self._sent_ms = now_ms, 0, now_ms
        self._start = self._mark = self._before = ProgressMark(now_ms, next_offset, 0, is_in_sync=False)

    def state(self) -> ProgressState:
        """Return all that is known, for another process."""
        return ProgressState(
            (self.leader, self.next_offset, self.high_watermark, self.sent_bytes, self.leader_epoch),
            (self.is_fetched, self.is_held_back),
            (self._seen_ms, self._seen_bytes, self._sent_ms),
            (self._start, self._mark, self._before),
        )

    @staticmethod
    def restored(state: ProgressState) -> ReplicaProgress:
        """Return the progress that another process has told."""
        progress = ReplicaProgress(0, 0, 0)
        (
            progress.leader,
            progress.next_offset,
            progress.high_watermark,
            progress.sent_bytes,
            progress.leader_epoch,
        ) = state.numbers
        progress.is_fetched, progress.is_held_back = state.flags
        progress._seen_ms, progress._seen_bytes, progress._sent_ms = state.times
        progress._start, progress._mark, progress._before = state.marks
        return progress

    @property
    def seen_ms(self) -> int:
        """Time (ms) of the latest fetch. Set it after `next_offset`."""
        return self._seen_ms

    @seen_ms.setter
    def seen_ms(self, now_ms: int) -> None:
        self._seen_ms, self._seen_bytes = now_ms, self.sent_bytes
        if self.sent_bytes == self._start.sent_bytes and self.next_offset != self._start.next_offset:
            # A new replica asks for offset 0 first, which the leader may have deleted.
            self._start = ProgressMark(
                self._start.now_ms, self.next_offset, self.sent_bytes, is_in_sync=False
            )
        if now_ms - self._mark.now_ms >= MARK_MS:
            self._take_mark(now_ms)

    def _take_mark(self, now_ms: int) -> None:
        last, mark = self._mark, ProgressMark(now_ms, self.next_offset, self.sent_bytes, self.is_in_sync)
        self._start = mark if mark.next_offset < self._start.next_offset else self.start
        if mark.sent_bytes != last.sent_bytes:
            self._sent_ms = now_ms
        self._before = last if now_ms - last.now_ms < PAUSE_MS else mark
        self._mark = mark

    @property
    def start(self) -> ProgressMark:
        """Progress at the start of the present copy, or of the latest one if the replica is in sync."""
        return self._mark if self._mark.is_in_sync and not self.is_in_sync else self._start

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

    @property
    def share_done(self) -> float:
        """Share (0 to 1) of the present copy's offsets that the replica has; 0 while the high watermark is
        unknown, 1 in sync.
        """
        if self.is_in_sync:
            return 1.0
        first = self.start.next_offset
        whole, done = self.high_watermark - first, self.next_offset - first
        return done / whole if 0 < done < whole else 0.0

    @property
    def bytes_left(self) -> float | None:
        """Estimated bytes of records that the replica lacks: its lag, multiplied by the bytes per offset of
        the present copy; None while one of the two is unknown.
        """
        lag, start = self.lag, self.start
        offsets = self.next_offset - start.next_offset
        if lag <= 0:
            return None if lag < 0 else 0.0
        return lag * (self._seen_bytes - start.sent_bytes) / offsets if offsets > 0 else None

    def rate(self, now_ms: int) -> float:
        """Return the bytes/s of records sent to the replica: since the mark before the latest, 10 to 20 s
        ago in a steady copy; 0 after `PAUSE_MS` without a fetch.
        """
        if now_ms - self._seen_ms >= PAUSE_MS:
            return 0.0
        return (self.sent_bytes - self._before.sent_bytes) * 1000 / max(now_ms - self._before.now_ms, 1000)

    def stalled_ms(self, now_ms: int) -> int:
        """Return the time (ms) for which the replica has lacked records and got none; 0 in sync. It is
        exact to `MARK_MS`.
        """
        if self.lag <= 0:
            return 0
        sent_ms = self._seen_ms if self.sent_bytes != self._mark.sent_bytes else self._sent_ms
        return max(now_ms - max(sent_ms, self.start.now_ms), 0)


class ReplicationQuotas:
    """The replication throttles in force, and each broker's usage under them. One per cluster."""

    __slots__ = ("_budgets", "_num_samples", "_window_s", "enforced", "generation", "progress", "throttles")

    def __init__(
        self,
        throttles: ReplicationThrottles = NO_THROTTLES,
        *,
        enforced: bool = True,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
    ) -> None:
        """Begin with `throttles` in force, and no usage. With `enforced` False the usage is counted, but
        nothing is held back (shadow mode). A rate has `num_samples` samples of `window_s` seconds.
        """
        self._num_samples, self._window_s = num_samples, window_s
        self.throttles = throttles
        self.enforced = enforced
        self.generation = 0
        """A number that grows when other replicas are throttled than before."""
        self.progress: dict[Replica, ReplicaProgress] = {}
        """Progress of each throttled replica that has fetched."""
        self._budgets: dict[tuple[Role, int], SingleLimiter[ReplicationBudget]] = {}

    def use(self, throttles: ReplicationThrottles) -> None:
        """Put other throttles in force. Usage stays charged; replicas that are no longer listed are
        forgotten.
        """
        if not throttles.same_lists(self.throttles):
            self.generation += 1
        self.throttles = throttles
        for (role, node_id), budget in self.budgets.items():
            budget.limit = throttles.rate(role, node_id)
        self.progress = {
            replica: progress
            for replica, progress in self.progress.items()
            if self.roles(replica, progress.leader)
        }

    def roles(self, replica: Replica, leader: int) -> tuple[Role, ...]:
        """Return the roles in which a replica is throttled while it fetches from the broker `leader`."""
        topic, partition, node_id = replica
        if topic not in self.throttles.topics:  # most partitions of a full fetch
            return ()
        listed = self.throttles.is_listed
        nodes = {Role.LEADER: leader, Role.FOLLOWER: node_id}
        return tuple(role for role in Role if listed(role, topic, partition, nodes[role]))

    def budget(self, role: Role, node_id: int) -> ReplicationBudget:
        """Return the budget of a broker in a role; created at the first call."""
        known = self._budgets.get((role, node_id))
        if known is None:
            known = self._budgets[role, node_id] = SingleLimiter(lambda _now_ms: self._made(role, node_id))
        return known.at(0)

    def _made(self, role: Role, node_id: int) -> ReplicationBudget:
        return ReplicationBudget(self.throttles.rate(role, node_id), self._num_samples, self._window_s)

    @property
    def budgets(self) -> dict[tuple[Role, int], ReplicationBudget]:
        """Budgets by role and node id, of the brokers that have replicated throttled partitions."""
        return {key: each.limiter for key, each in self._budgets.items() if each.limiter is not None}

    @property
    def number(self) -> int:
        return len(self._budgets)

    def named(self) -> Iterator[tuple[tuple[int | None, str, bool], SingleLimiter[ReplicationBudget]]]:
        """Yield all budgets by their names: (node id of the broker, one of `REPLICATION_RATES`, False)."""
        for (role, node_id), budget in self._budgets.items():
            yield (node_id, _name(role), False), budget

    def tell(self, told: dict[Replica, tuple[int, bool]]) -> Iterator[list[tuple[Replica, ProgressState]]]:
        """Yield the progress that is new since the last call, in lists of at most `TOLD_MAX` replicas. `told`
        has what was told before, and is updated.
        """
        some: list[tuple[Replica, ProgressState]] = []
        for number, (replica, progress) in enumerate(list(self.progress.items()), 1):
            present = progress.seen_ms, progress.is_fetched
            if told.get(replica) != present:
                told[replica] = present
                some.append((replica, progress.state()))
            if number % TOLD_MAX == 0:
                yield some
                some = []
        yield some
        for replica in told.keys() - self.progress.keys():
            del told[replica]

    def hear(self, some: Iterable[tuple[Replica, ProgressState]]) -> None:
        """Take the progress of replicas that another process has seen, unless this one has seen them later.
        The processes must have one clock.
        """
        for replica, state in some:
            heard, known = ReplicaProgress.restored(state), self.progress.get(replica)
            if (known is None or known.seen_ms <= heard.seen_ms) and self.roles(replica, heard.leader):
                self.progress[replica] = heard


def _name(role: Role) -> str:
    return LEADER_RATE if role is Role.LEADER else FOLLOWER_RATE


def role_of(name: str) -> Role:
    """Return the role of the budgets with this name, one of `REPLICATION_RATES`."""
    return Role.LEADER if name == LEADER_RATE else Role.FOLLOWER
