"""Everything that a client may ask in versions that an old broker lacks: one story, told in any versions.

The same requests in the same order, about topics and groups with names of their own, so the answers of two
tellings can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from tests.raw import Address, ask
from tests.raw.requests import message_set
from weir.protocol import messages as m
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.values import Message, schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.api_versions.api_versions import ranges

R = TypeVar("R", bound="Message")

NOT_YET: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""The broker is still getting ready: it is asked again."""
LATEST, TOPIC, BROKER = -1, 2, 4
_TIMEOUT_S: Final = 30.0
_TIMEOUT_MS: Final = 30_000
_PRODUCE_VERSION: Final = 2
_POLL_S: Final = 0.05


def versions_at(address: Address) -> Mapping[int, VersionRange]:
    return ranges(ask(address, m.ApiVersionsRequest(), m.ApiVersionsResponse, 0))


class Teller:
    """A client that asks in chosen versions, and keeps the answers as plain values that can be compared."""

    def __init__(self, name: str, address: Address, versions: Mapping[int, int]) -> None:
        """`versions` by API key: those that the broker lacks are not in it."""
        self.name = name
        self.address = address
        self.versions = versions
        self.heard: list[tuple[str, object]] = []
        """The response's type, and what it said."""
        self.throttle_ms: set[int] = set()
        self.asked: set[int] = set()
        """API keys."""
        self._hidden: dict[str, str] = {name: "NAME"}

    def speaks(self, api_key: ApiKey) -> bool:
        return api_key in self.versions

    def hide(self, value: str) -> None:
        self._hidden[value] = "HIDDEN"

    def ask(self, request: Message, answer: type[R]) -> R:
        found = self.get(request, answer)
        self.throttle_ms.add(getattr(found, "throttle_time_ms", 0))
        self.heard.append(
            (answer.__name__, self._plain(msgspec.to_builtins(found, builtin_types=(bytes, UUID))))
        )
        return found

    def get(self, request: Message, answer: type[R]) -> R:
        api_key = schema_of(type(request)).api_key
        self.asked.add(api_key)
        version = self.versions[api_key]
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            found = ask(self.address, request, answer, version)
            if not NOT_YET & set(error_codes(msgspec.to_builtins(found, builtin_types=(bytes, UUID)))):
                return found
            assert time.monotonic() < deadline, f"{answer.__name__} is {found} after {_TIMEOUT_S:.0f} s"
            time.sleep(_POLL_S)

    def _plain(self, value: Any) -> object:
        """Without throttle times and addresses, which are Weir's to say, and with names replaced.

        Whether a list of configs, or a message, is empty or null is not compared: old brokers do not tell
        them, and what is not there is decoded as empty. Nor is the size of a partition, because a broker
        deletes the segments of deleted records after a while.
        """
        if isinstance(value, dict):
            left_out = {"throttle_time_ms", "host", "port", "client_host", "partition_size"}
            left_out |= {key for key in ("configs", "error_message") if not value.get(key)}
            return {key: self._plain(each) for key, each in value.items() if key not in left_out}
        if isinstance(value, list | tuple):
            return sorted((self._plain(each) for each in value), key=repr)  # some brokers' order is of hashes
        if isinstance(value, str):
            for hidden, told in self._hidden.items():
                value = value.replace(hidden, told)
        return value


def error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "error_code":
                yield each
            else:
                yield from error_codes(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from error_codes(each)


def tell(teller: Teller) -> None:
    _topics(teller)
    _group(teller)
    _configs(teller)
    if teller.speaks(ApiKey.INIT_PRODUCER_ID):
        _transaction(teller)
    if teller.speaks(ApiKey.CREATE_DELEGATION_TOKEN):
        _tokens(teller)
    _end(teller)


def _topics(teller: Teller) -> None:
    name = teller.name
    made = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    wrong = m.CreateTopicsRequest.CreatableTopic(name=f"{name}-2", num_partitions=1, replication_factor=9)
    create = m.CreateTopicsRequest(topics=[made, wrong], timeout_ms=_TIMEOUT_MS)
    for _once_more in range(2):
        teller.ask(create, m.CreateTopicsResponse)
    wanted = [m.MetadataRequest.MetadataRequestTopic(name=name)]
    teller.ask(m.MetadataRequest(topics=wanted), m.MetadataResponse)
    produce(teller.address, name)
    partition = m.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=0, timestamp=LATEST, max_num_offsets=1, current_leader_epoch=-1
    )
    asked = [m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])]
    teller.ask(m.ListOffsetsRequest(replica_id=-1, topics=asked), m.ListOffsetsResponse)
    if teller.speaks(ApiKey.CREATE_PARTITIONS):
        for count in (2, 1):
            grown = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
            request = m.CreatePartitionsRequest(topics=[grown], timeout_ms=_TIMEOUT_MS)
            teller.ask(request, m.CreatePartitionsResponse)
    if teller.speaks(ApiKey.DELETE_RECORDS):
        gone = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
        records = [m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[gone])]
        teller.ask(m.DeleteRecordsRequest(topics=records, timeout_ms=_TIMEOUT_MS), m.DeleteRecordsResponse)


def produce(address: Address, topic: str) -> None:
    """One record; the leader may still be told that it is one."""
    data = m.ProduceRequest.PartitionProduceData(index=0, records=message_set(b"record"))
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    deadline = time.monotonic() + _TIMEOUT_S
    while any(
        partition.error_code
        for answered in ask(address, request, m.ProduceResponse, _PRODUCE_VERSION).responses
        for partition in answered.partition_responses
    ):
        assert time.monotonic() < deadline, f"nobody takes a record for {topic} after {_TIMEOUT_S:.0f} s"
        time.sleep(_POLL_S)


def _group(teller: Teller) -> None:
    name = teller.name
    teller.ask(m.FindCoordinatorRequest(key=name), m.FindCoordinatorResponse)
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"what I read")
    join = m.JoinGroupRequest(
        group_id=name,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    member = teller.get(join, m.JoinGroupResponse).member_id
    teller.hide(member)
    join.member_id = member
    generation = teller.ask(join, m.JoinGroupResponse).generation_id
    share = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"my share")
    sync = m.SyncGroupRequest(group_id=name, generation_id=generation, member_id=member, assignments=[share])
    teller.ask(sync, m.SyncGroupResponse)
    for number in (generation, generation + 1):
        beat = m.HeartbeatRequest(group_id=name, generation_id=number, member_id=member)
        teller.ask(beat, m.HeartbeatResponse)
    _offsets(teller, generation, member)
    teller.ask(m.DescribeGroupsRequest(groups=[name, f"{name}-2"]), m.DescribeGroupsResponse)
    listed = teller.get(m.ListGroupsRequest(), m.ListGroupsResponse)
    listed.groups = [group for group in listed.groups if group.group_id == name]
    teller.heard.append(("ListGroupsResponse", (listed.error_code, len(listed.groups))))
    teller.throttle_ms.add(listed.throttle_time_ms)
    for _once_more in range(2):
        teller.ask(m.LeaveGroupRequest(group_id=name, member_id=member), m.LeaveGroupResponse)
    if teller.speaks(ApiKey.DELETE_GROUPS):
        teller.ask(m.DeleteGroupsRequest(groups_names=[name, f"{name}-2"]), m.DeleteGroupsResponse)


def _offsets(teller: Teller, generation: int, member: str) -> None:
    name = teller.name
    done = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="so far"
    )
    commit = m.OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[done])],
    )
    teller.ask(commit, m.OffsetCommitResponse)
    asked = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1])]
    for topics in (asked, None):
        teller.ask(m.OffsetFetchRequest(group_id=name, topics=topics), m.OffsetFetchResponse)


def _configs(teller: Teller) -> None:
    name = teller.name
    if teller.speaks(ApiKey.DESCRIBE_CONFIGS):
        altered = m.AlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[m.AlterConfigsRequest.AlterableConfig(name="retention.ms", value="60000")],
        )
        teller.ask(m.AlterConfigsRequest(resources=[altered]), m.AlterConfigsResponse)
        described = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name="0", configuration_keys=["num.partitions"]
        )
        teller.ask(m.DescribeConfigsRequest(resources=[described]), m.DescribeConfigsResponse)
    if teller.speaks(ApiKey.DESCRIBE_LOG_DIRS):
        nowhere = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
            path="/nowhere",
            topics=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[0])],
        )
        teller.ask(m.AlterReplicaLogDirsRequest(dirs=[nowhere]), m.AlterReplicaLogDirsResponse)
        held = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[0])
        teller.ask(m.DescribeLogDirsRequest(topics=[held]), m.DescribeLogDirsResponse)


def _transaction(teller: Teller) -> None:
    name = teller.name
    begin = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    teller.get(m.FindCoordinatorRequest(key=name, key_type=1), m.FindCoordinatorResponse)
    producer = teller.get(begin, m.InitProducerIdResponse)
    again = teller.get(begin, m.InitProducerIdResponse)
    teller.throttle_ms.add(again.throttle_time_ms)
    teller.heard.append(("InitProducerIdResponse", (again.error_code, again.producer_epoch)))
    assert again.producer_id == producer.producer_id, f"{producer}, then {again}"
    number, epoch = again.producer_id, again.producer_epoch
    add = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=number,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0])],
    )
    teller.ask(add, m.AddPartitionsToTxnResponse)
    offsets = m.AddOffsetsToTxnRequest(
        transactional_id=name, group_id=f"{name}-txn", producer_id=number, producer_epoch=epoch
    )
    teller.ask(offsets, m.AddOffsetsToTxnResponse)
    done = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = m.TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=f"{name}-txn",
        topics=[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=[done])],
        producer_id=number,
        producer_epoch=epoch,
    )
    teller.ask(commit, m.TxnOffsetCommitResponse)
    teller.ask(
        m.EndTxnRequest(transactional_id=name, committed=True, producer_id=number, producer_epoch=epoch),
        m.EndTxnResponse,
    )


def _tokens(teller: Teller) -> None:
    """Refused without SASL: the errors are compared."""
    teller.ask(m.CreateDelegationTokenRequest(max_lifetime_ms=-1), m.CreateDelegationTokenResponse)
    teller.ask(m.RenewDelegationTokenRequest(hmac=b"no"), m.RenewDelegationTokenResponse)
    teller.ask(m.ExpireDelegationTokenRequest(hmac=b"no"), m.ExpireDelegationTokenResponse)
    teller.ask(m.DescribeDelegationTokenRequest(owners=None), m.DescribeDelegationTokenResponse)


def _end(teller: Teller) -> None:
    names = [teller.name, f"{teller.name}-2"]
    teller.ask(m.DeleteTopicsRequest(topic_names=names, timeout_ms=_TIMEOUT_MS), m.DeleteTopicsResponse)
