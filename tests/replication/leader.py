"""A model of a broker as leader: logs, in-sync replicas, fetch sessions (KIP-227) and long polls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from tests.replication.log import Batch, Log
from weir.protocol.messages import FetchRequest, FetchResponse

Partition: TypeAlias = tuple[str, int]
Asked: TypeAlias = FetchRequest.FetchPartition
Data: TypeAlias = FetchResponse.PartitionData
Send: TypeAlias = Callable[[FetchResponse], None]

SESSION_ID_NOT_FOUND: Final = 70
INVALID_SESSION_EPOCH: Final = 71
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 76
OFFSET_OUT_OF_RANGE: Final = 1


def topic_id(topic: str) -> UUID:
    return UUID(bytes=topic.encode().rjust(16, b"\1"))


def named(request: FetchRequest, version: int) -> dict[Partition, Asked]:
    return {
        (_name(topic, version), asked.partition): asked
        for topic in request.topics
        for asked in topic.partitions
    }


def _name(topic: FetchRequest.FetchTopic | FetchRequest.ForgottenTopic, version: int) -> str:
    return topic.topic if version < 13 else topic.topic_id.bytes.lstrip(b"\1").decode()


def replica_id(request: FetchRequest, version: int) -> int:
    return request.replica_id if version < 15 else request.replica_state.replica_id


@dataclass
class Hosted:
    log: Log = field(default_factory=Log)
    epoch: int = 0
    in_sync: dict[int, int] = field(default_factory=dict)
    """Follower in sync → offset of its latest fetch."""

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have all records."""
        return min([self.log.end, *self.in_sync.values()])


@dataclass
class Session:
    id: int
    epoch: int
    partitions: dict[Partition, Asked]
    sent: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    """Partition → high watermark and log start offset in the latest response."""


@dataclass
class Poll:
    request: FetchRequest
    version: int
    partitions: dict[Partition, Asked]
    session: Session | None
    is_full: bool
    send: Send
    owner: object
    until_ms: int


class Leader:
    """One broker. `send` of a fetch is called with its response."""

    def __init__(self, partitions: list[Partition], cache_slots: int) -> None:
        self.hosted = {partition: Hosted() for partition in partitions}
        self.cache_slots = cache_slots
        self.sessions: dict[int, Session] = {}
        self.polls: list[Poll] = []
        self.refusals: list[int] = []
        """Error codes with which fetches were refused as a whole."""
        self._serial = 0

    def produce(self, partition: Partition, size: int, now_ms: int) -> None:
        hosted, self._serial = self.hosted[partition], self._serial + 1
        count = 1 + self._serial % 3
        hosted.log.append(Batch.create(hosted.log.end, count, hosted.epoch, self._serial, size))
        self.complete(now_ms)

    def restart(self, truncated: dict[Partition, int]) -> None:
        """Lose sessions and polls. Partitions in `truncated` lose these numbers of batches, and followers."""
        self.sessions.clear()
        self.polls.clear()
        for partition, hosted in self.hosted.items():
            hosted.epoch += 1
            if partition in truncated:
                hosted.in_sync.clear()
                del hosted.log.batches[max(len(hosted.log.batches) - truncated[partition], 0) :]

    def fetch(
        self, request: FetchRequest, version: int, send: Send, owner: object, now_ms: int
    ) -> Poll | None:
        """Take a fetch of `owner`; return what is read for it, None if it is refused."""
        asked, session = named(request, version), None
        is_full = version < 7 or request.session_epoch <= 0
        if is_full:
            self.sessions.pop(request.session_id, None)
            partitions = asked
            if (
                version >= 7
                and request.session_epoch == 0
                and asked
                and len(self.sessions) < self.cache_slots
            ):
                session = self._create_session(asked)
        else:
            session = self.sessions.get(request.session_id)
            if session is None or session.epoch != request.session_epoch:
                self._refuse(session, send)
                return None
            session.epoch += 1
            session.partitions.update(asked)
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    session.partitions.pop((_name(topic, version), index), None)
                    session.sent.pop((_name(topic, version), index), None)
            partitions = session.partitions
            if not partitions:
                del self.sessions[session.id]
                session, is_full = None, True
        poll = Poll(request, version, partitions, session, is_full, send, owner, now_ms + request.max_wait_ms)
        self._note_progress(poll)
        self.polls.append(poll)
        self.complete(now_ms)
        return poll

    def _create_session(self, asked: dict[Partition, Asked]) -> Session:
        self._serial += 1
        session = self.sessions[self._serial] = Session(self._serial, 1, dict(asked))
        return session

    def _refuse(self, session: Session | None, send: Send) -> None:
        error = SESSION_ID_NOT_FOUND if session is None else INVALID_SESSION_EPOCH
        self.refusals.append(error)
        send(FetchResponse(error_code=error))

    def _note_progress(self, poll: Poll) -> None:
        follower = replica_id(poll.request, poll.version)
        for partition, asked in poll.partitions.items():
            hosted = self.hosted[partition]
            if self._problem(partition, asked, poll.version) is None and (
                follower in hosted.in_sync or asked.fetch_offset >= hosted.high_watermark
            ):
                hosted.in_sync[follower] = asked.fetch_offset

    def _problem(self, partition: Partition, asked: Asked, version: int) -> Data | None:
        """Return the response about a partition that cannot be read; None if it can."""
        hosted, epoch = self.hosted[partition], asked.current_leader_epoch
        if version >= 9 and epoch >= 0 and epoch != hosted.epoch:
            error = FENCED_LEADER_EPOCH if epoch < hosted.epoch else UNKNOWN_LEADER_EPOCH
            return FetchResponse.PartitionData(
                partition_index=partition[1], error_code=error, high_watermark=-1
            )
        if version >= 12 and asked.last_fetched_epoch >= 0:
            found, end = hosted.log.end_of_epoch(asked.last_fetched_epoch)
            if found < asked.last_fetched_epoch or end < asked.fetch_offset:
                diverging = FetchResponse.EpochEndOffset(epoch=found, end_offset=end)
                return FetchResponse.PartitionData(
                    partition_index=partition[1],
                    high_watermark=hosted.high_watermark,
                    log_start_offset=0,
                    diverging_epoch=diverging,
                    records=b"",
                )
        if asked.fetch_offset > hosted.log.end:
            error = OFFSET_OUT_OF_RANGE
            return FetchResponse.PartitionData(
                partition_index=partition[1], error_code=error, high_watermark=-1
            )
        return None

    def complete(self, now_ms: int) -> None:
        """Answer the polls that have enough bytes, or have waited long enough."""
        for poll in list(self.polls):
            if poll.until_ms <= now_ms or self._is_ready(poll):
                self.polls.remove(poll)
                poll.send(self._answer(poll))

    def _is_ready(self, poll: Poll) -> bool:
        size = 0
        for partition, asked in poll.partitions.items():
            if self._problem(partition, asked, poll.version) is not None:
                return True
            readable = self.hosted[partition].log.readable_bytes(asked.fetch_offset)
            size += min(readable, asked.partition_max_bytes)
        return not poll.partitions or size >= poll.request.min_bytes

    def _answer(self, poll: Poll) -> FetchResponse:
        version, session = poll.version, poll.session
        left, one_batch = poll.request.max_bytes if version >= 3 else 1 << 40, version >= 3
        topics: dict[str, list[Data]] = {}
        for partition, asked in list(poll.partitions.items()):
            data = self._problem(partition, asked, version)
            if data is None:
                hosted = self.hosted[partition]
                limit = min(left, asked.partition_max_bytes)
                records = hosted.log.read(asked.fetch_offset, limit, one_batch=one_batch, whole=version >= 3)
                left, one_batch = max(left - len(records), 0), one_batch and not records
                data = FetchResponse.PartitionData(
                    partition_index=partition[1],
                    high_watermark=hosted.high_watermark,
                    last_stable_offset=hosted.high_watermark,
                    log_start_offset=0,
                    records=records,
                )
            if session is None or self._must_tell(session, partition, data) or poll.is_full:
                topics.setdefault(partition[0], []).append(data)
                if session is not None and data.records:
                    session.partitions[partition] = session.partitions.pop(partition)
        return FetchResponse(
            session_id=session.id if session else 0,
            responses=[
                FetchResponse.FetchableTopicResponse(topic=topic, topic_id=topic_id(topic), partitions=told)
                for topic, told in topics.items()
            ],
        )

    @staticmethod
    def _must_tell(session: Session, partition: Partition, data: Data) -> bool:
        """Return True if an incremental response has the partition, and note its state."""
        state = data.high_watermark, data.log_start_offset
        changed = session.sent.get(partition) != state
        session.sent[partition] = state
        if data.error_code:
            session.sent.pop(partition)
        return changed or bool(data.records) or data.error_code != 0 or data.diverging_epoch.end_offset >= 0
