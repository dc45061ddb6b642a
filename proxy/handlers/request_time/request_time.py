"""The requests that are charged request time, and their costs (KIP-124).

`CLASSES` has every API of the schemas. Requests that brokers exempt are exempt here: the SASL exchange, and
requests between brokers. Requests between brokers are exempt only for the brokers' own principals
(`super_users` at replication listeners), because any client can pretend to be a broker. Produce requests are
exempt if they have acks=0. All other requests are charged, even unknown ones.

Costs depend on the broker's release, which is derived from its ApiVersions: Fetch got a new version in most
releases.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.proxy.handlers.request_time.request_features import converted, extra
from weir.quotas import Cost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.protocol.versions import VersionRange
    from weir.proxy.handlers.plan import Plan
    from weir.quotas.costs.request_costs import CostTable

K = ApiKey


class Charged(Enum):
    """The way in which request time of an API is charged."""

    MEASURED = "by coefficients of this API, measured at real brokers"
    GUESSED = "by the coefficients `rest` of the cost table, a guess"
    UNLESS_A_BROKER = "by the coefficients `rest`, a guess; exempt for brokers' principals, as at a broker"
    IF_REFUSED = (
        "exempt, because a broker's network layer answers it; without SASL, by the coefficients `rest`"
    )


CLASSES: Final[Mapping[ApiKey, Charged]] = {
    K.PRODUCE: Charged.MEASURED,
    K.FETCH: Charged.MEASURED,
    K.LIST_OFFSETS: Charged.MEASURED,
    K.METADATA: Charged.MEASURED,
    K.LEADER_AND_ISR: Charged.UNLESS_A_BROKER,
    K.STOP_REPLICA: Charged.UNLESS_A_BROKER,
    K.UPDATE_METADATA: Charged.UNLESS_A_BROKER,
    K.CONTROLLED_SHUTDOWN: Charged.UNLESS_A_BROKER,
    K.OFFSET_COMMIT: Charged.MEASURED,
    K.OFFSET_FETCH: Charged.MEASURED,
    K.FIND_COORDINATOR: Charged.MEASURED,
    K.JOIN_GROUP: Charged.MEASURED,
    K.HEARTBEAT: Charged.MEASURED,
    K.LEAVE_GROUP: Charged.MEASURED,
    K.SYNC_GROUP: Charged.MEASURED,
    K.DESCRIBE_GROUPS: Charged.MEASURED,
    K.LIST_GROUPS: Charged.MEASURED,
    K.SASL_HANDSHAKE: Charged.IF_REFUSED,
    K.API_VERSIONS: Charged.MEASURED,
    K.CREATE_TOPICS: Charged.MEASURED,
    K.DELETE_TOPICS: Charged.MEASURED,
    K.DELETE_RECORDS: Charged.MEASURED,
    K.INIT_PRODUCER_ID: Charged.MEASURED,
    K.OFFSET_FOR_LEADER_EPOCH: Charged.MEASURED,
    K.ADD_PARTITIONS_TO_TXN: Charged.MEASURED,
    K.ADD_OFFSETS_TO_TXN: Charged.MEASURED,
    K.END_TXN: Charged.MEASURED,
    K.WRITE_TXN_MARKERS: Charged.UNLESS_A_BROKER,
    K.TXN_OFFSET_COMMIT: Charged.MEASURED,
    K.DESCRIBE_ACLS: Charged.GUESSED,
    K.CREATE_ACLS: Charged.GUESSED,
    K.DELETE_ACLS: Charged.GUESSED,
    K.DESCRIBE_CONFIGS: Charged.MEASURED,
    K.ALTER_CONFIGS: Charged.MEASURED,
    K.ALTER_REPLICA_LOG_DIRS: Charged.GUESSED,
    K.DESCRIBE_LOG_DIRS: Charged.GUESSED,
    K.SASL_AUTHENTICATE: Charged.IF_REFUSED,
    K.CREATE_PARTITIONS: Charged.MEASURED,
    K.CREATE_DELEGATION_TOKEN: Charged.GUESSED,
    K.RENEW_DELEGATION_TOKEN: Charged.GUESSED,
    K.EXPIRE_DELEGATION_TOKEN: Charged.GUESSED,
    K.DESCRIBE_DELEGATION_TOKEN: Charged.GUESSED,
    K.DELETE_GROUPS: Charged.GUESSED,
    K.ELECT_LEADERS: Charged.GUESSED,
    K.INCREMENTAL_ALTER_CONFIGS: Charged.MEASURED,
    K.ALTER_PARTITION_REASSIGNMENTS: Charged.GUESSED,
    K.LIST_PARTITION_REASSIGNMENTS: Charged.GUESSED,
    K.OFFSET_DELETE: Charged.GUESSED,
    K.DESCRIBE_CLIENT_QUOTAS: Charged.GUESSED,
    K.ALTER_CLIENT_QUOTAS: Charged.GUESSED,
    K.DESCRIBE_USER_SCRAM_CREDENTIALS: Charged.GUESSED,
    K.ALTER_USER_SCRAM_CREDENTIALS: Charged.GUESSED,
    K.VOTE: Charged.UNLESS_A_BROKER,
    K.BEGIN_QUORUM_EPOCH: Charged.UNLESS_A_BROKER,
    K.END_QUORUM_EPOCH: Charged.UNLESS_A_BROKER,
    K.DESCRIBE_QUORUM: Charged.UNLESS_A_BROKER,
    K.ALTER_PARTITION: Charged.UNLESS_A_BROKER,
    K.UPDATE_FEATURES: Charged.GUESSED,
    K.ENVELOPE: Charged.GUESSED,
    K.FETCH_SNAPSHOT: Charged.UNLESS_A_BROKER,
    K.DESCRIBE_CLUSTER: Charged.MEASURED,
    K.DESCRIBE_PRODUCERS: Charged.GUESSED,
    K.BROKER_REGISTRATION: Charged.GUESSED,
    K.BROKER_HEARTBEAT: Charged.GUESSED,
    K.UNREGISTER_BROKER: Charged.GUESSED,
    K.DESCRIBE_TRANSACTIONS: Charged.GUESSED,
    K.LIST_TRANSACTIONS: Charged.GUESSED,
    K.ALLOCATE_PRODUCER_IDS: Charged.GUESSED,
    K.CONSUMER_GROUP_HEARTBEAT: Charged.MEASURED,
    K.CONSUMER_GROUP_DESCRIBE: Charged.GUESSED,
    K.CONTROLLER_REGISTRATION: Charged.GUESSED,
    K.GET_TELEMETRY_SUBSCRIPTIONS: Charged.GUESSED,
    K.PUSH_TELEMETRY: Charged.GUESSED,
    K.ASSIGN_REPLICAS_TO_DIRS: Charged.GUESSED,
    K.LIST_CONFIG_RESOURCES: Charged.GUESSED,
    K.DESCRIBE_TOPIC_PARTITIONS: Charged.GUESSED,
    K.SHARE_GROUP_HEARTBEAT: Charged.MEASURED,
    K.SHARE_GROUP_DESCRIBE: Charged.GUESSED,
    K.SHARE_FETCH: Charged.MEASURED,
    K.SHARE_ACKNOWLEDGE: Charged.GUESSED,
    K.ADD_RAFT_VOTER: Charged.UNLESS_A_BROKER,
    K.REMOVE_RAFT_VOTER: Charged.UNLESS_A_BROKER,
    K.UPDATE_RAFT_VOTER: Charged.UNLESS_A_BROKER,
    K.INITIALIZE_SHARE_GROUP_STATE: Charged.GUESSED,
    K.READ_SHARE_GROUP_STATE: Charged.GUESSED,
    K.WRITE_SHARE_GROUP_STATE: Charged.GUESSED,
    K.DELETE_SHARE_GROUP_STATE: Charged.GUESSED,
    K.READ_SHARE_GROUP_STATE_SUMMARY: Charged.GUESSED,
    K.STREAMS_GROUP_HEARTBEAT: Charged.GUESSED,
    K.STREAMS_GROUP_DESCRIBE: Charged.GUESSED,
    K.DESCRIBE_SHARE_GROUP_OFFSETS: Charged.GUESSED,
    K.ALTER_SHARE_GROUP_OFFSETS: Charged.GUESSED,
    K.DELETE_SHARE_GROUP_OFFSETS: Charged.GUESSED,
    K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Charged.GUESSED,
    K.UNREGISTER_CONTROLLER: Charged.GUESSED,
}
"""Way of charging request time, for every API (a test checks that no API is missing). In spite of this table,
produce requests with acks=0 and brokers' replica fetches are exempt.
"""

_CONVERTED_BELOW: Final = 4
"""First version of Fetch that brokers from 4.0 on accept. A broker that accepts earlier versions converts
records to older formats for fetches in these versions.
"""
_ASKED_BY_BROKERS_ONLY: Final = 1
"""Last version of OffsetForLeaderEpoch that only brokers could send (up to Kafka 2.0, it needed the
permission ClusterAction). Consumers use later versions.
"""
_NEWEST_FETCH: Final = ((7, "1.1"), (12, "2.8"))
"""Pairs (version of Fetch, release), in ascending order: a broker whose last version of Fetch is not above
`version` has the request costs of that release.
"""


def generation(broker: Mapping[int, VersionRange] | None) -> str:
    """Return the release whose shipped cost table applies to a broker with these versions (API key
    → range).
    """
    fetch = (broker or {}).get(K.FETCH)
    if fetch is None:
        return "3.9"
    for newest, release in _NEWEST_FETCH:
        if fetch.max <= newest:
            return release
    return "3.9" if fetch.min < _CONVERTED_BELOW else "4.2"  # 4.0 dropped the old formats


def fill(plan: Plan, table: CostTable, broker: Mapping[int, VersionRange] | None) -> None:
    """Set the request costs of a plan, for the API version that Weir uses towards the broker."""
    known = schema.api(plan.api_key)
    kind = Charged.GUESSED if known is None else CLASSES[ApiKey(plan.api_key)]
    api = table.rest if known is None else table.of(known.name)
    fetch = (broker or {}).get(K.FETCH)
    older = plan.api_key == K.FETCH and converted(plan.broker_version, None if fetch is None else fetch.max)
    plan.cost = Cost(api, table.cold, converted=older)
    plan.extra_us = extra(plan, api)
    plan.between_brokers = kind is Charged.UNLESS_A_BROKER or _was_cluster_action(plan.api_key, broker)
    plan.has_client_id = not (plan.api_key == K.CONTROLLED_SHUTDOWN and plan.version == 0)


def _was_cluster_action(api_key: int, broker: Mapping[int, VersionRange] | None) -> bool:
    """Return True if only brokers could send this API to a broker with these versions, because the broker's
    release asks for the permission ClusterAction.
    """
    epochs = (broker or {}).get(K.OFFSET_FOR_LEADER_EPOCH)
    return (
        api_key == K.OFFSET_FOR_LEADER_EPOCH and epochs is not None and epochs.max <= _ASKED_BY_BROKERS_ONLY
    )
