"""A model of a fetcher thread: the follower's logs, and its side of the session (FetchSessionHandler)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.replication.leader import (
    FENCED_LEADER_EPOCH,
    SESSION_ID_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    Asked,
    Data,
    Hosted,
    Partition,
    topic_id,
)
from tests.replication.log import Log, batches
from weir.protocol.messages import FetchRequest, FetchResponse

BACKOFF_MS: Final = 1000


@dataclass(frozen=True)
class FetchLimits:
    """The settings of replica fetches (replica.fetch.*)."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024


@dataclass
class Followed:
    log: Log = field(default_factory=Log)
    epoch: int = 0
    delayed_until_ms: int = 0


class Follower:
    """One broker as a follower of one leader, with one fetch in flight."""

    def __init__(self, node_id: int, version: int, limits: FetchLimits) -> None:
        self.node_id = node_id
        self.version = version
        self.limits = limits
        self.followed: dict[Partition, Followed] = {}
        self.session_id, self.session_epoch = 0, 0
        self.asked: dict[Partition, Asked] = {}
        """The partitions of the session, as they were last named."""
        self.discarded = 0
        """Number of responses that were discarded as a whole, because their partitions were wrong."""
        self.restarts = 0
        """Number of answers FETCH_SESSION_ID_NOT_FOUND."""

    def fetch(self, now_ms: int) -> FetchRequest | None:
        """Return the next fetch; None if there is no partition to fetch."""
        present = {
            partition: self._ask(partition, followed)
            for partition, followed in self.followed.items()
            if followed.delayed_until_ms <= now_ms
        }
        if not present:
            return None
        if self.version < 7 or self.session_epoch <= 0:
            self.asked = present
            return self._request(present, [])
        forgotten = [partition for partition in self.asked if partition not in present]
        changed = {
            partition: asked for partition, asked in present.items() if self.asked.get(partition) != asked
        }
        for partition in forgotten:
            del self.asked[partition]
        self.asked.update(changed)
        return self._request(changed, forgotten)

    def _ask(self, partition: Partition, followed: Followed) -> Asked:
        asked = FetchRequest.FetchPartition(
            partition=partition[1],
            fetch_offset=followed.log.end,
            partition_max_bytes=self.limits.partition_max_bytes,
        )
        if self.version >= 5:
            asked.log_start_offset = 0
        if self.version >= 9:
            asked.current_leader_epoch = followed.epoch
        if self.version >= 12:
            asked.last_fetched_epoch = followed.log.last_epoch
        return asked

    def _request(self, named: dict[Partition, Asked], forgotten: list[Partition]) -> FetchRequest:
        limits, topics, gone = self.limits, dict[str, list[Asked]](), dict[str, list[int]]()
        for (topic, _index), asked in named.items():
            topics.setdefault(topic, []).append(asked)
        for topic, index in forgotten:
            gone.setdefault(topic, []).append(index)
        request = FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            topics=[
                FetchRequest.FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id(topic), partitions=indexes)
                for topic, indexes in gone.items()
            ],
        )
        if self.version >= 7:
            request.session_id, request.session_epoch = self.session_id, self.session_epoch
        if self.version < 15:
            request.replica_id = self.node_id
        else:
            request.replica_state = FetchRequest.ReplicaState(replica_id=self.node_id, replica_epoch=1)
        return request

    def lost_connection(self, now_ms: int) -> None:
        """Pause, and close the session with the next fetch, on another connection."""
        self.session_epoch = 0
        for followed in self.followed.values():
            followed.delayed_until_ms = max(followed.delayed_until_ms, now_ms + BACKOFF_MS)

    def take(self, response: FetchResponse, hosted: dict[Partition, Hosted], now_ms: int) -> None:
        """Take a response. `hosted` are the leader's partitions, with which appended batches are compared."""
        if not self._accepts(response):
            return
        for partition, data in self._told(response).items():
            followed = self.followed.get(partition)
            if followed is not None:
                self._note(partition, followed, data, hosted[partition], now_ms)

    def _told(self, response: FetchResponse) -> dict[Partition, Data]:
        told = [
            (
                (
                    topic.topic if self.version < 13 else topic.topic_id.bytes.lstrip(b"\1").decode(),
                    data.partition_index,
                ),
                data,
            )
            for topic in response.responses
            for data in topic.partitions
        ]
        assert len(dict(told)) == len(told), "a response has a partition twice"
        return dict(told)

    def _accepts(self, response: FetchResponse) -> bool:
        """Continue, close or restart the session as the response says. Return False if it is discarded."""
        if response.error_code == SESSION_ID_NOT_FOUND:
            self.restarts += 1
            self.session_id, self.session_epoch = 0, 0
            return False
        if response.error_code:
            self.session_epoch = 0
            return False
        told = self._told(response).keys()
        is_full = self.version < 7 or self.session_epoch <= 0
        if told != self.asked.keys() if is_full else not told <= self.asked.keys():
            self.discarded += 1
            self.session_id, self.session_epoch = (0, 0) if is_full else (self.session_id, 0)
            return False
        if response.session_id == 0:
            self.session_id, self.session_epoch = 0, 0
        elif is_full:
            self.session_id, self.session_epoch = response.session_id, 1
        else:
            assert response.session_id == self.session_id
            self.session_epoch += 1
        return True

    def _note(
        self, partition: Partition, followed: Followed, data: Data, hosted: Hosted, now_ms: int
    ) -> None:
        if data.error_code in (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH):
            followed.epoch = hosted.epoch  # the controller tells it
            followed.delayed_until_ms = now_ms + BACKOFF_MS
            return
        assert not data.error_code, f"{partition} got error {data.error_code}"
        if data.diverging_epoch.end_offset >= 0:
            self._truncate(followed, data.diverging_epoch)
            return
        for batch in batches(data.records or b""):
            true = hosted.log.batches[hosted.log.position(batch.offset)]
            assert batch.data == true.data, (
                f"{partition} got a batch at {batch.offset} that is not the leader's"
            )
            followed.log.append(batch)
        if data.records and partition in self.followed:
            self.followed[partition] = self.followed.pop(partition)

    @staticmethod
    def _truncate(followed: Followed, diverging: FetchResponse.EpochEndOffset) -> None:
        epoch, end = followed.log.end_of_epoch(diverging.epoch)
        followed.log.truncate(min(end, diverging.end_offset) if epoch == diverging.epoch else end)
