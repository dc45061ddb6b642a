"""One follower and one leader that talk through a connection of Weir, fetch by fetch."""

from __future__ import annotations

from collections.abc import Mapping

from tests.proxy.wire import Wire, new_connection
from tests.replication.leader import named, topic_id
from tests.replication.script import LEADER, Throttles
from tests.wire.frames import body_of, head_of, request, request_body_of, response
from weir.protocol.messages import FetchRequest, FetchResponse
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher, ReplicaFetches
from weir.proxy.handlers.replication.replication import Replication
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import ReplicationThrottles, Role

FOLLOWER = 2
TOPIC = "t"
LIMIT = 1_000_000


class Conversation:
    """A follower's fetches of the topic `t`, partitions by number, and the leader's responses."""

    def __init__(self, version: int, throttles: Throttles) -> None:
        self.version = version
        self.quotas = ReplicationQuotas(ReplicationThrottles(dict(throttles)))
        replication = Replication(self.quotas)
        replication.topic_names = {topic_id(TOPIC).bytes: TOPIC}
        session = new_connection(node_id=LEADER, brokers=frozenset())
        session.state_of(ReplicaFetches).fetcher = ReplicaFetcher(replication, LEADER)
        self.wire = Wire(session)
        self.now_ms = 1_000_000
        self.session = (0, 0)
        """Id and epoch of the follower's next fetch."""
        self._correlation_id = 0
        self._at_leader = 0

    def use_up(self, role: Role = Role.LEADER, size: int = 10**12) -> None:
        """Charge a broker's budget, so that its rate is exceeded for 11 s."""
        self.quotas.budget(role, LEADER if role is Role.LEADER else FOLLOWER).charge(size, self.now_ms)

    def throttle(self, throttles: Throttles) -> None:
        self.quotas.use(ReplicationThrottles(dict(throttles)))

    def fetch(self, offsets: Mapping[int, int], forget: tuple[int, ...] = ()) -> dict[int, int] | None:
        """Send a fetch of these partitions, number -> offset. Return what the leader is asked for, number ->
        offset; None if the fetch does not reach the leader now.
        """
        asked = [
            FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=LIMIT)
            for index, offset in offsets.items()
        ]
        message = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=10 * LIMIT)
        if asked:
            message.topics = [
                FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=asked)
            ]
        if forget:
            message.forgotten_topics_data = [
                FetchRequest.ForgottenTopic(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=list(forget))
            ]
        return self.send(message)

    def send(self, message: FetchRequest) -> dict[int, int] | None:
        """Send this fetch, as the follower's next one; as `fetch`."""
        if self.version >= 7:
            message.session_id, message.session_epoch = self.session
        if self.version < 15:
            message.replica_id = FOLLOWER
        else:
            message.replica_state = FetchRequest.ReplicaState(replica_id=FOLLOWER)
        self._correlation_id += 1
        self.wire.feed(self.now_ms, client=request(message, self.version, self._correlation_id))
        return self.at_leader()

    def after(self, ms: int) -> dict[int, int] | None:
        """Let time pass. Return what the leader is asked for; None if nothing reaches it."""
        self.now_ms += ms
        self.wire.feed(self.now_ms)
        return self.at_leader()

    def at_leader(self) -> dict[int, int] | None:
        """Return what the leader is asked for, number -> offset; None if nothing has reached it."""
        frame = bytes(self.wire.to_broker)
        self.wire.to_broker.clear()
        if not frame:
            return None
        self.request = request_body_of(frame, FetchRequest, self.version)
        self._at_leader = head_of(frame).correlation_id
        asked = named(self.request, self.version)
        self.limits = {index: one.partition_max_bytes for (_topic, index), one in asked.items()}
        return {index: one.fetch_offset for (_topic, index), one in asked.items()}

    def answer(
        self, records: Mapping[int, int], high_watermark: int = 1000, session_id: int = 7
    ) -> dict[int, int]:
        """Answer the leader's fetch with these partitions, number -> bytes of records. Return what the
        follower gets.
        """
        told = [
            FetchResponse.PartitionData(
                partition_index=index, high_watermark=high_watermark, records=bytes(size)
            )
            for index, size in records.items()
        ]
        message = FetchResponse(session_id=session_id if self.version >= 7 else 0)
        if told:
            message.responses = [
                FetchResponse.FetchableTopicResponse(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=told)
            ]
        self.wire.feed(self.now_ms, broker=response(message, self.version, self._at_leader))
        found = self.told()
        assert found is not None, "the response does not reach the follower"
        return found

    def told(self) -> dict[int, int] | None:
        """Return what the follower got, number -> bytes of records; None if it got no response."""
        frame = bytes(self.wire.to_client)
        self.wire.to_client.clear()
        if not frame:
            return None
        self.response = body_of(frame, FetchResponse, self.version)
        self.session = self.response.session_id, self.session[1] + 1 if self.response.session_id else 0
        return {
            data.partition_index: len(data.records or b"")
            for topic in self.response.responses
            for data in topic.partitions
        }
