"""The group of each API in usage records, such as metadata, groups or transactions. A usage record counts the
requests of one client in one group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.usage.groups import GROUPS, ApiGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

K = ApiKey

APIS: Final[Mapping[ApiGroup, tuple[ApiKey, ...]]] = {
    ApiGroup.PRODUCE: (K.PRODUCE,),
    ApiGroup.FETCH: (
        K.FETCH,
        K.SHARE_FETCH,
    ),
    ApiGroup.METADATA: (
        K.LIST_OFFSETS,
        K.METADATA,
        K.FIND_COORDINATOR,
        K.API_VERSIONS,
        K.OFFSET_FOR_LEADER_EPOCH,
        K.DESCRIBE_CLUSTER,
        K.GET_TELEMETRY_SUBSCRIPTIONS,
        K.PUSH_TELEMETRY,
        K.DESCRIBE_TOPIC_PARTITIONS,
    ),
    ApiGroup.GROUPS: (
        K.OFFSET_COMMIT,
        K.OFFSET_FETCH,
        K.JOIN_GROUP,
        K.HEARTBEAT,
        K.LEAVE_GROUP,
        K.SYNC_GROUP,
        K.DESCRIBE_GROUPS,
        K.LIST_GROUPS,
        K.DELETE_GROUPS,
        K.OFFSET_DELETE,
        K.CONSUMER_GROUP_HEARTBEAT,
        K.CONSUMER_GROUP_DESCRIBE,
        K.SHARE_GROUP_HEARTBEAT,
        K.SHARE_GROUP_DESCRIBE,
        K.SHARE_ACKNOWLEDGE,
        K.STREAMS_GROUP_HEARTBEAT,
        K.STREAMS_GROUP_DESCRIBE,
        K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        K.ALTER_SHARE_GROUP_OFFSETS,
        K.DELETE_SHARE_GROUP_OFFSETS,
    ),
    ApiGroup.TRANSACTIONS: (
        K.INIT_PRODUCER_ID,
        K.ADD_PARTITIONS_TO_TXN,
        K.ADD_OFFSETS_TO_TXN,
        K.END_TXN,
        K.TXN_OFFSET_COMMIT,
        K.DESCRIBE_PRODUCERS,
        K.DESCRIBE_TRANSACTIONS,
        K.LIST_TRANSACTIONS,
    ),
    ApiGroup.MUTATIONS: (
        K.CREATE_TOPICS,
        K.DELETE_TOPICS,
        K.CREATE_PARTITIONS,
    ),
    ApiGroup.ADMIN: (
        K.DELETE_RECORDS,
        K.DESCRIBE_ACLS,
        K.CREATE_ACLS,
        K.DELETE_ACLS,
        K.DESCRIBE_CONFIGS,
        K.ALTER_CONFIGS,
        K.ALTER_REPLICA_LOG_DIRS,
        K.DESCRIBE_LOG_DIRS,
        K.ELECT_LEADERS,
        K.INCREMENTAL_ALTER_CONFIGS,
        K.ALTER_PARTITION_REASSIGNMENTS,
        K.LIST_PARTITION_REASSIGNMENTS,
        K.DESCRIBE_CLIENT_QUOTAS,
        K.ALTER_CLIENT_QUOTAS,
        K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        K.ALTER_USER_SCRAM_CREDENTIALS,
        K.DESCRIBE_QUORUM,
        K.UPDATE_FEATURES,
        K.UNREGISTER_BROKER,
        K.UNREGISTER_CONTROLLER,
        K.LIST_CONFIG_RESOURCES,
        K.ADD_RAFT_VOTER,
        K.REMOVE_RAFT_VOTER,
        K.UPDATE_RAFT_VOTER,
    ),
    ApiGroup.SECURITY: (
        K.SASL_HANDSHAKE,
        K.SASL_AUTHENTICATE,
        K.CREATE_DELEGATION_TOKEN,
        K.RENEW_DELEGATION_TOKEN,
        K.EXPIRE_DELEGATION_TOKEN,
        K.DESCRIBE_DELEGATION_TOKEN,
    ),
    ApiGroup.BROKERS: (
        K.LEADER_AND_ISR,
        K.STOP_REPLICA,
        K.UPDATE_METADATA,
        K.CONTROLLED_SHUTDOWN,
        K.WRITE_TXN_MARKERS,
        K.VOTE,
        K.BEGIN_QUORUM_EPOCH,
        K.END_QUORUM_EPOCH,
        K.ALTER_PARTITION,
        K.ENVELOPE,
        K.FETCH_SNAPSHOT,
        K.BROKER_REGISTRATION,
        K.BROKER_HEARTBEAT,
        K.ALLOCATE_PRODUCER_IDS,
        K.CONTROLLER_REGISTRATION,
        K.ASSIGN_REPLICAS_TO_DIRS,
        K.INITIALIZE_SHARE_GROUP_STATE,
        K.READ_SHARE_GROUP_STATE,
        K.WRITE_SHARE_GROUP_STATE,
        K.DELETE_SHARE_GROUP_STATE,
        K.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
}
"""Group → APIs whose requests usage records count under that group. Every API of the schemas is in one group
(a test checks this).
"""
_GROUP_OF: Final = {int(key): GROUPS.index(group) for group, keys in APIS.items() for key in keys}
_OTHER: Final = GROUPS.index(ApiGroup.OTHER)


def group_index(api_key: int) -> int:
    """Return the group of an API, as an index of `GROUPS`."""
    return _GROUP_OF.get(api_key, _OTHER)
