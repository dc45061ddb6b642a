"""Share groups (KIP-932) under a fetch quota, at a real broker: rates, and redelivered records."""

from __future__ import annotations

import base64
import time
import uuid
from typing import Final

import pytest

from tests.clients import create_topic
from tests.clients.librdkafka import Librdkafka
from tests.integration.conftest import StartWeir
from tests.integration.coordinators import await_coordinator
from tests.kafka.fixtures import StartCluster
from tests.raw import Address, Answer, Behaviour, RawClient, Request, ask, drive, leaders
from tests.raw.requests import Outcome
from tests.wire import frames
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

pytestmark = [pytest.mark.broker, pytest.mark.measured]

QUOTA: Final = 200_000
"""bytes/s"""
SECONDS: Final = 50.0
PARTITIONS: Final = 4
BATCHES: Final = {"batch.num.messages": 2}
CONSUMERS: Final = (1, 4, 16)
"""Share consumers of one client, each with a connection."""
QUOTAS: Final = "".join(
    f'[[quota]]\nclient_id = "share-{number}"\nconsumer_byte_rate = {QUOTA}\n' for number in CONSUMERS
)
_GROUP: Final = 32
"""ConfigResource.Type of groups."""


class ShareConsumer(RawClient):
    """Polls, and acknowledges in the next poll all that it has got."""

    def __init__(self, client_id: str, group: str, address: Address, topic_id: uuid.UUID) -> None:
        self._client_id, self._group, self._topic_id = client_id, group, topic_id
        self._member = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._epoch = 0
        self._unacknowledged: dict[int, list[ShareFetchResponse.AcquiredRecords]] = {}
        self.acquired: list[tuple[int, ShareFetchResponse.AcquiredRecords]] = []
        """Partition and records."""
        super().__init__(client_id, address, Request(b"", lambda _frame: Outcome(0, 0)), Behaviour())

    def frame(self) -> bytes:
        named = self._unacknowledged if self._epoch else {key: [] for key in range(PARTITIONS)}
        partitions = [
            ShareFetchRequest.FetchPartition(
                partition_index=number,
                acknowledgement_batches=[
                    ShareFetchRequest.AcknowledgementBatch(
                        first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[1]
                    )
                    for each in acquired
                ],
            )
            for number, acquired in named.items()
        ]
        topic = ShareFetchRequest.FetchTopic(topic_id=self._topic_id, partitions=partitions)
        message = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=500,
            batch_size=500,
            topics=[topic] if partitions else [],
        )
        return frames.request(message, 2, client_id=self._client_id.encode())

    def note(self, at_s: float, frame: bytes) -> Answer:
        told = frames.body_of(frame, ShareFetchResponse, 2)
        partitions = [partition for topic in told.responses for partition in topic.partitions]
        errors = [told.error_code] + [p.error_code or p.acknowledge_error_code for p in partitions]
        assert not any(errors), told
        self._epoch += 1
        self._unacknowledged = {
            p.partition_index: p.acquired_records for p in partitions if p.acquired_records
        }
        for number, acquired in self._unacknowledged.items():
            self.acquired += [(number, each) for each in acquired]
        self.answers.append(Answer(at_s, len(frame) - 5, told.throttle_time_ms))
        return self.answers[-1]


def fill(bootstrap: str, topic: str) -> None:
    """Make a topic of 40 MB; a group may lock 2,000 records of a partition (record.locks): 20 MB."""
    create_topic(bootstrap, topic, PARTITIONS)
    for number in range(PARTITIONS):
        Librdkafka().produce(bootstrap, topic, [bytes(10_000)] * 1000, partition=number, config=BATCHES)


def begin_group(address: Address, group: str, topic: str) -> uuid.UUID:
    """Have a share group read the topic from its start; return the topic's id."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="share.auto.offset.reset", value="earliest")
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_GROUP, resource_name=group, configs=[config]
    )
    message = IncrementalAlterConfigsRequest(resources=[altered])
    told = ask(address, message, IncrementalAlterConfigsResponse, 1)
    assert [each.error_code for each in told.responses] == [ErrorCode.NONE]
    await_coordinator(address, group)
    member, epoch, deadline = str(uuid.uuid4()), 0, time.monotonic() + 30
    while True:
        names = None if epoch else [topic]
        beat = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        answer = ask(address, beat, ShareGroupHeartbeatResponse, 1)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer.assignment.topic_partitions[0].topic_id
        epoch = answer.member_epoch or epoch
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)  # between heartbeats


def consumers_of(address: Address, topic: str) -> dict[int, list[ShareConsumer]]:
    """Clients of one, four and sixteen consumers, each client with a group of its own."""
    at = leaders(address, topic)[0]
    found = {}
    for number in CONSUMERS:
        topic_id = begin_group(address, f"{topic}-{number}", topic)
        found[number] = [
            ShareConsumer(f"share-{number}", f"{topic}-{number}", at, topic_id) for _ in range(number)
        ]
    return found


def redelivered(consumers: list[ShareConsumer]) -> int:
    """Return how many records were delivered that had been delivered, or acquired in vain, before."""
    acquired = [each for consumer in consumers for _partition, each in consumer.acquired]
    return sum(each.last_offset - each.first_offset + 1 for each in acquired if each.delivery_count > 1)


def share_of_quota(consumers: list[ShareConsumer]) -> float:
    delivered = sum(answer.charged_bytes for each in consumers for answer in each.answers)
    return delivered / (QUOTA * SECONDS)


def test_parallel_share_consumers_share_their_quota_and_get_no_record_twice(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = kafka_cluster("4.2.0")
    weir = start_weir(cluster.bootstrap, QUOTAS)
    fill(cluster.bootstrap, topic)
    clients = consumers_of(("127.0.0.1", weir.port), topic)
    drive([each for consumers in clients.values() for each in consumers], SECONDS)
    got = {number: (share_of_quota(each), redelivered(each)) for number, each in clients.items()}
    print(got)
    assert all(0.9 < share < 1.5 and again == 0 for share, again in got.values()), got
