"""A follower's fetch session (KIP-227), and the session behind it at the leader, which differs.

The follower believes that its session has all partitions that it has named. The leader's session lacks the
partitions that are held back: Weir has the leader forget them, and names them again, with the follower's
fetch offset and epochs, when they may get records. Weir counts the epochs of both sessions, because it
answers some fetches itself.

Weir must know a session from its beginning. So whenever lists change, it answers the next incremental fetch
with FETCH_SESSION_ID_NOT_FOUND, and the follower sends a full fetch. A change of rates restarts nothing. A
follower discards a response to a full fetch in which a partition is missing. So Weir adds those that it has
held back, without records and with the last known high watermark. If that is unknown, it asks the leader for
one byte, and removes the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypedDict
from uuid import UUID

from msgspec.structs import replace

from weir.protocol.messages import FetchRequest, FetchResponse
from weir.proxy.handlers.replication.fetched_replicas import FetchedReplica, Key, LeaderAndFollower
from weir.proxy.handlers.replication.replication import FIRST_VERSION_WITH_IDS, Replication
from weir.quotas.replication.replication_quotas import Replica, ReplicaProgress
from weir.quotas.replication.throttles import Role

UNKNOWN: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class ReplicaSession:
    """The partitions that one follower fetches from one leader, and the epochs of their fetch session."""

    __slots__ = (
        "_forgotten",
        "_others",
        "_replication",
        "_version",
        "epoch",
        "generation",
        "id",
        "leader_epoch",
        "pair",
        "replicas",
    )

    def __init__(self, replication: Replication, pair: LeaderAndFollower, version: int) -> None:
        """Begin without partitions. `version` is the version of Fetch."""
        self._replication = replication
        self.pair = pair
        self._version = version
        self.generation = replication.generation
        """Generation of the throttles by which the partitions were divided into throttled and other ones."""
        self.id = UNKNOWN
        """Id of the session; UNKNOWN until the leader has sent it. 0 if the leader has made no session."""
        self.epoch = self.leader_epoch = 1
        """Epochs of the follower's next fetch (`epoch`) and of the next fetch to the leader (`leader_epoch`).
        """
        self.replicas: dict[Key, FetchedReplica] = {}
        """Throttled replicas in the session; those that the leader was last asked for come last."""
        self._others: set[Key] = set()
        """Partitions in the follower's session that are not throttled; the leader's session has them, too."""
        self._forgotten: set[Key] = set()
        """Partitions that the leader must forget."""

    def read(self, request: FetchRequest, now_ms: int) -> None:
        """Note the partitions that a fetch names and forgets. A second call for a fetch has no effect."""
        for key, asked in _named(request, self._version):
            self._ask(key, asked, now_ms)
        for key in _forgotten_keys(request, self._version):
            self._forget(key)

    def _ask(self, key: Key, asked: FetchRequest.FetchPartition, now_ms: int) -> None:
        known = self.replicas.get(key)
        if known is not None:
            known.ask(asked, now_ms)
        elif key not in self._others:
            topic, partition = key
            name = self._replication.name_of(topic, self._version)
            replica, quotas = Replica(name, partition, self.pair.follower), self._replication.quotas
            roles = quotas.roles(replica, self.pair.leader)
            if roles:
                progress = quotas.progress.get(replica)
                if progress is None:
                    progress = ReplicaProgress(self.pair.leader, asked.fetch_offset, now_ms)
                    quotas.progress[replica] = progress
                if progress.leader != self.pair.leader:
                    progress.leader, progress.high_watermark = self.pair.leader, -1
                budgets = {
                    Role.LEADER: quotas.budget(Role.LEADER, self.pair.leader),
                    Role.FOLLOWER: quotas.budget(Role.FOLLOWER, self.pair.follower),
                }
                charged = tuple(budgets[role] for role in roles)
                known = self.replicas[key] = FetchedReplica(asked, charged, progress)
                known.ask(asked, now_ms)
            else:
                self._others.add(key)

    def _forget(self, key: Key) -> None:
        replica = self.replicas.pop(key, None)
        if replica is not None:
            self._end_progress(replica.progress)
        if key in self._others or (replica is not None and replica.at_leader is not None):
            self._others.discard(key)
            self._forgotten.add(key)

    def _end_progress(self, progress: ReplicaProgress) -> None:
        """Note that the follower does not fetch a replica any more, unless it does from another leader."""
        if progress.leader == self.pair.leader:
            progress.is_fetched = progress.is_held_back = False

    @property
    def version(self) -> int:
        """Version of Fetch with which the session began."""
        return self._version

    @property
    def has_partitions_to_ask_for(self) -> bool:
        """True if a partition is not held back, so that the leader can be asked for it."""
        return bool(self._others) or not all(replica.is_held_back for replica in self.replicas.values())

    def request_for_leader(self, request: FetchRequest) -> FetchRequest:
        """Return the fetch that the leader is sent instead of the follower's, and note its partitions as
        those of the leader's session.
        """
        gone = set(_forgotten_keys(request, self._version))
        named = [
            (key, asked)
            for key, asked in _named(request, self._version)
            if key not in self.replicas and key not in gone
        ]
        held_back = False
        for key, replica in self.replicas.items():
            if replica.is_held_back:
                held_back = True
                if replica.at_leader is not None:
                    self._forgotten.add(key)
                replica.at_leader = None
            elif replica.is_mentioned or replica.at_leader != replica.max_bytes:
                replica.at_leader, replica.is_mentioned = replica.max_bytes, False
                named.append((key, replica.cut()))
        if held_back:  # otherwise the order stays as it is
            for key in [key for key, replica in self.replicas.items() if not replica.is_held_back]:
                self.replicas[key] = self.replicas.pop(key)
        forgotten, self._forgotten = self._forgotten.difference(key for key, _asked in named), set()
        return replace(
            request,
            session_epoch=self.leader_epoch if request.session_epoch > 0 else request.session_epoch,
            topics=_topics(named, self._version),
            forgotten_topics_data=_forgotten_topics(forgotten, self._version),
        )

    def answered(self, *, by_leader: bool) -> None:
        """Count the epochs of a fetch that is answered by the leader, or by Weir."""
        self.epoch = _next(self.epoch)
        if by_leader:
            self.leader_epoch = _next(self.leader_epoch)


def _next(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def identity(
    topic: FetchRequest.FetchTopic | FetchRequest.ForgottenTopic | FetchResponse.FetchableTopicResponse,
    version: int,
) -> bytes:
    """Return the name (UTF-8) or the id of a topic in a fetch of this version, or in its response."""
    return topic.topic_id.bytes if version >= FIRST_VERSION_WITH_IDS else topic.topic.encode()


def _named(request: FetchRequest, version: int) -> Iterator[tuple[Key, FetchRequest.FetchPartition]]:
    for topic in request.topics:
        name = identity(topic, version)
        for asked in topic.partitions:
            yield (name, asked.partition), asked


def _forgotten_keys(request: FetchRequest, version: int) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        name = identity(topic, version)
        for partition in topic.partitions:
            yield name, partition


def _topics(
    named: Iterable[tuple[Key, FetchRequest.FetchPartition]], version: int
) -> list[FetchRequest.FetchTopic]:
    grouped: dict[bytes, list[FetchRequest.FetchPartition]] = {}
    for (topic, _partition), asked in named:
        grouped.setdefault(topic, []).append(asked)
    return [
        FetchRequest.FetchTopic(**identified(topic, version), partitions=partitions)
        for topic, partitions in grouped.items()
    ]


def _forgotten_topics(keys: Iterable[Key], version: int) -> list[FetchRequest.ForgottenTopic]:
    grouped: dict[bytes, list[int]] = {}
    for topic, partition in sorted(keys):
        grouped.setdefault(topic, []).append(partition)
    return [
        FetchRequest.ForgottenTopic(**identified(topic, version), partitions=partitions)
        for topic, partitions in grouped.items()
    ]


class _Identified(TypedDict, total=False):
    topic: str
    topic_id: UUID


def identified(topic: bytes, version: int) -> _Identified:
    """Return the fields that identify a topic in a fetch of this version."""
    if version >= FIRST_VERSION_WITH_IDS:
        return {"topic_id": UUID(bytes=topic)}
    return {"topic": topic.decode("utf-8", "replace")}
