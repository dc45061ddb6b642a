"""Requests that change nothing, for every API that can be asked so: most have empty lists, others name a
group or a transaction that does not exist, so that the answer is an error. A broker counts the time of both.

Not among them: APIs between brokers, SaslHandshake and SaslAuthenticate (their responses have no throttle
time), CreateDelegationToken (it creates a token), JoinGroup before v4 (it creates a group), ElectLeaders and
AlterPartitionReassignments (they begin work in the cluster), UpdateFeatures, and APIs without a throttle
time.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

from weir.protocol import messages as m
from weir.protocol.api import ApiKey
from weir.protocol.values import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.protocol.values import Message

ABSENT: Final = "weir-probe-nobody"
"""Group, member and transactional id that do not exist."""
_ANY: Final = 1

_REQUESTS: Final[Mapping[int, Message]] = {
    ApiKey.PRODUCE: m.ProduceRequest(acks=1, timeout_ms=100),
    ApiKey.FETCH: m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=[]),
    ApiKey.LIST_OFFSETS: m.ListOffsetsRequest(replica_id=-1, topics=[]),
    ApiKey.METADATA: m.MetadataRequest(topics=[]),
    ApiKey.OFFSET_COMMIT: m.OffsetCommitRequest(
        group_id=ABSENT, generation_id_or_member_epoch=1, member_id=ABSENT, topics=[]
    ),
    ApiKey.OFFSET_FETCH: m.OffsetFetchRequest(
        group_id=ABSENT,
        topics=[],
        groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=ABSENT, topics=[])],
    ),
    ApiKey.FIND_COORDINATOR: m.FindCoordinatorRequest(key=ABSENT),
    ApiKey.JOIN_GROUP: m.JoinGroupRequest(
        group_id=ABSENT,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1000,
        member_id=ABSENT,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    ApiKey.HEARTBEAT: m.HeartbeatRequest(group_id=ABSENT, generation_id=1, member_id=ABSENT),
    ApiKey.LEAVE_GROUP: m.LeaveGroupRequest(group_id=ABSENT, member_id=ABSENT, members=[]),
    ApiKey.SYNC_GROUP: m.SyncGroupRequest(group_id=ABSENT, generation_id=1, member_id=ABSENT),
    ApiKey.DESCRIBE_GROUPS: m.DescribeGroupsRequest(groups=[]),
    ApiKey.LIST_GROUPS: m.ListGroupsRequest(),
    ApiKey.API_VERSIONS: m.ApiVersionsRequest(client_software_name="weir-probe", client_software_version="1"),
    ApiKey.CREATE_TOPICS: m.CreateTopicsRequest(topics=[], timeout_ms=100),
    ApiKey.DELETE_TOPICS: m.DeleteTopicsRequest(timeout_ms=100),
    ApiKey.DELETE_RECORDS: m.DeleteRecordsRequest(topics=[], timeout_ms=100),
    ApiKey.INIT_PRODUCER_ID: m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[]),
    ApiKey.END_TXN: m.EndTxnRequest(
        transactional_id=ABSENT, producer_id=1, producer_epoch=0, committed=False
    ),
    ApiKey.DESCRIBE_ACLS: m.DescribeAclsRequest(
        resource_type_filter=_ANY, pattern_type_filter=_ANY, operation=_ANY, permission_type=_ANY
    ),
    ApiKey.CREATE_ACLS: m.CreateAclsRequest(creations=[]),
    ApiKey.DELETE_ACLS: m.DeleteAclsRequest(filters=[]),
    ApiKey.DESCRIBE_CONFIGS: m.DescribeConfigsRequest(resources=[]),
    ApiKey.ALTER_CONFIGS: m.AlterConfigsRequest(resources=[], validate_only=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: m.AlterReplicaLogDirsRequest(dirs=[]),
    ApiKey.DESCRIBE_LOG_DIRS: m.DescribeLogDirsRequest(topics=[]),
    ApiKey.CREATE_PARTITIONS: m.CreatePartitionsRequest(topics=[], timeout_ms=100),
    ApiKey.RENEW_DELEGATION_TOKEN: m.RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=1),
    ApiKey.EXPIRE_DELEGATION_TOKEN: m.ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=1),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: m.DescribeDelegationTokenRequest(owners=[]),
    ApiKey.DELETE_GROUPS: m.DeleteGroupsRequest(groups_names=[]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: m.IncrementalAlterConfigsRequest(resources=[], validate_only=True),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: m.ListPartitionReassignmentsRequest(topics=[], timeout_ms=100),
    ApiKey.OFFSET_DELETE: m.OffsetDeleteRequest(group_id=ABSENT, topics=[]),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: m.DescribeClientQuotasRequest(components=[], strict=True),
    ApiKey.ALTER_CLIENT_QUOTAS: m.AlterClientQuotasRequest(entries=[], validate_only=True),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: m.DescribeUserScramCredentialsRequest(
        users=[m.DescribeUserScramCredentialsRequest.UserName(name=ABSENT)]
    ),
    ApiKey.DESCRIBE_CLUSTER: m.DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: m.DescribeProducersRequest(topics=[]),
    ApiKey.DESCRIBE_TRANSACTIONS: m.DescribeTransactionsRequest(transactional_ids=[]),
    ApiKey.LIST_TRANSACTIONS: m.ListTransactionsRequest(),
    ApiKey.CONSUMER_GROUP_DESCRIBE: m.ConsumerGroupDescribeRequest(group_ids=[]),
    ApiKey.LIST_CONFIG_RESOURCES: m.ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: m.DescribeTopicPartitionsRequest(topics=[]),
}
_FROM: Final[Mapping[int, int]] = {ApiKey.JOIN_GROUP: 4}
"""First version that changes nothing, if not all do. From JoinGroup v4 on, a member needs an id (KIP-394)."""


def request(api_key: int, version: int) -> Message | None:
    """Return a request; None if this version of the API cannot be asked without a change."""
    full = _REQUESTS.get(api_key)
    if full is None or version < _FROM.get(api_key, 0):
        return None
    message, default = copy(full), type(full)()
    for field in schema_of(type(full)).layout(version).absent:
        setattr(message, field.name, getattr(default, field.name))
    return message
