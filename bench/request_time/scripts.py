"""Scripts whose next request depends on responses: group members, transactions, fetch sessions,
administrators.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

from bench.request_time.book import NEW_SESSION, Book
from bench.request_time.calls import Call, Script
from bench.request_time.topics import EMPTY, SMALL, WIDE
from weir.protocol import ApiKey, ErrorCode, Message
from weir.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MetadataRequest,
    MetadataResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from weir.protocol.values import ZERO_UUID

M = TypeVar("M", bound=Message)

HEARTBEATS: Final = 5
"""Number of heartbeats that a member sends before it leaves the group."""
METADATA_BYTES: Final = 60
"""Size (bytes) of a member's subscription and of its assignment, about as in a real consumer."""
_TOPIC_RESOURCE: Final = 2
_SERIAL: Final = count()
"""Numbers that make the names of groups and topics unique."""
_MEMBER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_MANY_LEAVE: Final = 3
"""First version of LeaveGroup that can name several members."""


def read(call: Call, frame: bytes, kind: type[M]) -> M:
    """Decode the response to a call. Raises ProtocolError."""
    answer = call.response(frame)
    assert isinstance(answer, kind)
    return answer


def membership(book: Book, client: str, group: str) -> Script:
    """Join a group as its only member, get the assignment, send heartbeats, and leave; repeat without end."""
    broker_versions, group = book.broker_versions, f"{group}-{next(_SERIAL)}"
    while True:
        member = ""
        while True:
            call = broker_versions.call(client, _join(group, member))
            joined = read(call, (yield call), JoinGroupResponse)
            member = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        generation = joined.generation_id
        yield broker_versions.call(client, _sync(group, member, generation))
        for _ in range(HEARTBEATS):
            yield book.heartbeat(client, group, member, generation)
        yield broker_versions.call(client, _leave(group, member, broker_versions.version(ApiKey.LEAVE_GROUP)))


def _join(group: str, member: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(METADATA_BYTES))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _sync(group: str, member: str, generation: int) -> SyncGroupRequest:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=member, assignment=bytes(METADATA_BYTES)
    )
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )


def _leave(group: str, member: str, version: int) -> LeaveGroupRequest:
    if version < _MANY_LEAVE:
        return LeaveGroupRequest(group_id=group, member_id=member)
    return LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id=member)])


def producer_ids(book: Book, client: str) -> Script:
    """Request a new producer id repeatedly, like an idempotent producer that restarts."""
    body = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    call = book.broker_versions.call(client, body)
    while True:
        yield call


def transactions(book: Book, client: str, name: str, partitions: int) -> Script:
    """Run transactions that add partitions and a group's offsets, then commit. After every ten transactions,
    request a new producer epoch.
    """
    broker_versions = book.broker_versions
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=WIDE, partitions=list(range(partitions)))
    begin = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    while True:
        call = broker_versions.call(client, begin)
        started = read(call, (yield call), InitProducerIdResponse)
        if started.error_code:
            continue
        producer, epoch = started.producer_id, started.producer_epoch
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        for _ in range(10):
            yield broker_versions.call(client, add)
            offsets = AddOffsetsToTxnRequest(
                transactional_id=name, group_id=name, producer_id=producer, producer_epoch=epoch
            )
            yield broker_versions.call(client, offsets)
            yield broker_versions.call(client, _txn_commit(name, partitions, producer, epoch))
            end = EndTxnRequest(
                transactional_id=name, committed=True, producer_id=producer, producer_epoch=epoch
            )
            yield broker_versions.call(client, end)


def _txn_commit(name: str, partitions: int, producer_id: int, producer_epoch: int) -> TxnOffsetCommitRequest:
    parts = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for index in range(partitions)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id_or_member_epoch=-1,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=WIDE, partitions=parts)],
    )


def fetch_session(book: Book, client: str, partitions: int, *, rest: str, max_wait_ms: int = 0) -> Script:
    """Begin a fetch session with this number of empty partitions, as the client `rest`; then send fetches in
    this session as `client`.

    The later requests do not list the partitions, but the broker still handles all of them. Their feature
    `us_per_session_kb` is the size (kB) by which they are smaller than the first request.
    """
    indexes = range(partitions)
    call = book.fetch(rest, EMPTY, indexes, session=(0, NEW_SESSION), max_wait_ms=0)
    listed_kb = call.known["us_per_request_kb"]
    session_id = read(call, (yield call), FetchResponse).session_id
    for epoch in count(1):
        more = book.fetch(client, EMPTY, (), session=(session_id, epoch), max_wait_ms=max_wait_ms)
        shorter_kb = listed_kb - more.known["us_per_request_kb"]
        yield replace(more, known={**more.known, "us_per_session_kb": shorter_kb})


def topic_admin(book: Book, client: str, prefix: str, partitions: int) -> Script:
    """Create a topic, add a partition, and delete the topic; repeat with new topics."""
    broker_versions = book.broker_versions
    for number in _SERIAL:
        name = f"{prefix}-{number}"
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        body = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        yield broker_versions.call(client, body)
        more = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=partitions + 1, assignments=None
        )
        grow = CreatePartitionsRequest(topics=[more], timeout_ms=30_000)
        yield broker_versions.call(client, grow)
        gone = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        yield broker_versions.call(client, gone)


def config_admin(book: Book, client: str) -> Script:
    """Change a topic's setting with AlterConfigs and, if the broker supports it, with
    IncrementalAlterConfigs; repeat.
    """
    broker_versions = book.broker_versions
    for number in count():
        value = str(10**9 + number)
        old = AlterConfigsRequest.AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=SMALL,
            configs=[AlterConfigsRequest.AlterableConfig(name="flush.messages", value=value)],
        )
        yield broker_versions.call(client, AlterConfigsRequest(resources=[old]))
        if broker_versions.speaks(ApiKey.INCREMENTAL_ALTER_CONFIGS):
            setting = IncrementalAlterConfigsRequest.AlterableConfig(
                name="flush.messages", config_operation=0, value=value
            )
            new = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=SMALL, configs=[setting]
            )
            body = IncrementalAlterConfigsRequest(resources=[new])
            yield broker_versions.call(client, body)


def record_deleter(book: Book, client: str) -> Script:
    """Send DeleteRecords for a partition without records, repeatedly."""
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=EMPTY, partitions=[part])
    call = book.broker_versions.call(client, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000))
    while True:
        yield call


def consumer_heartbeats(book: Book, client: str, group: str) -> Script:
    """Join a group of the consumer protocol (KIP-848), and send heartbeats as its member without end."""
    broker_versions = book.broker_versions
    member, epoch = _MEMBER_ID, 0
    body = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[SMALL],
        topic_partitions=[],
    )
    while True:
        call = broker_versions.call(client, body)
        answer = read(call, (yield call), ConsumerGroupHeartbeatResponse)
        member, epoch = answer.member_id or member, answer.member_epoch or epoch
        body = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None,
            topic_partitions=None,
        )


def share_heartbeats(book: Book, client: str, group: str) -> Script:
    """Join a share group (KIP-932), and send heartbeats as its member without end."""
    broker_versions = book.broker_versions
    body = ShareGroupHeartbeatRequest(
        group_id=group, member_id=_MEMBER_ID, member_epoch=0, subscribed_topic_names=[SMALL]
    )
    while True:
        call = broker_versions.call(client, body)
        answer = read(call, (yield call), ShareGroupHeartbeatResponse)
        body = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=_MEMBER_ID,
            member_epoch=answer.member_epoch,
            subscribed_topic_names=None,
        )


def share_fetches(book: Book, client: str, group: str, *, rest: str) -> Script:
    """Join a share group (KIP-932), and fetch from an empty partition in a share session without end. The
    requests that prepare this come from the client `rest`.
    """
    broker_versions = book.broker_versions
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=EMPTY)])
    call = broker_versions.call(rest, asked)
    topic_id = read(call, (yield call), MetadataResponse).topics[0].topic_id
    assert topic_id != ZERO_UUID
    joining = ShareGroupHeartbeatRequest(
        group_id=group, member_id=_MEMBER_ID, member_epoch=0, subscribed_topic_names=[EMPTY]
    )
    yield broker_versions.call(rest, joining)
    part = ShareFetchRequest.FetchPartition(partition_index=0)
    topics = [ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])]
    epoch = 0
    while True:
        body = ShareFetchRequest(
            group_id=group,
            member_id=_MEMBER_ID,
            share_session_epoch=epoch,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_KB * 1000,
            max_records=500,
            batch_size=500,
            topics=topics if epoch == 0 else [],
        )
        call = broker_versions.call(client if epoch else rest, body)
        answer = read(call, (yield call), ShareFetchResponse)
        epoch = 0 if answer.error_code else epoch + 1


FETCH_KB: Final = 500
