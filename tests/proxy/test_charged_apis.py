"""Every API, and what charges the topics that it makes or the bytes that it moves, or why nothing does.

Request time is charged for all of them (`proxy.handlers.request_time`), so it is not named here. A new API of
a new Kafka release needs an entry: find out whether it creates, deletes or enlarges topics, or moves bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from tests.matrix import in_one_test
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import charged_us, time_table, timed
from tests.proxy.wire import new_connection
from tests.wire.frames import request
from weir.protocol.api import ApiKey, versions
from weir.protocol.messages import EnvelopeRequest, Message, StopReplicaRequest, WriteTxnMarkersRequest
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.counters import Counters
from weir.proxy.handlers import mutations
from weir.proxy.handlers.bandwidth.bandwidth import begin_share_fetch
from weir.proxy.handlers.plan import Plan
from weir.proxy.handlers.plans import QUERYING_HANDLERS, Plans

K = ApiKey

CHARGED_ON_ARRIVAL: Final = frozenset({K.PRODUCE})
"""Bytes of requests: `producer_byte_rate`."""
CHARGED_ON_RESPONSE: Final = frozenset({K.FETCH, K.SHARE_FETCH})
"""Bytes of responses: `consumer_byte_rate`."""
CHARGED_MUTATIONS: Final = frozenset(
    {K.METADATA, K.CREATE_TOPICS, K.CREATE_PARTITIONS, K.DELETE_TOPICS, K.STREAMS_GROUP_HEARTBEAT}
)
"""Partitions: `controller_mutation_rate`."""

READS: Final = "only tells something; its bytes are charged by no quota of a broker's either"
GROUPS: Final = "changes groups: their records go into topics of the cluster's own, free at a broker too"
TRANSACTIONS: Final = (
    "changes transactions: their records go into a topic of the cluster's own, free there too"
)
SETTINGS: Final = "changes settings, ACLs, tokens or features: no topics, and KIP-599 leaves it free"
BROKERS: Final = "brokers and controllers among themselves: a client needs CLUSTER_ACTION"
CLUSTER: Final = "moves or elects replicas: ALTER on the cluster is needed, and a broker charges nobody"
CLOSES: Final = "Weir closes the connection: the request within would be charged by nothing"
LOGIN: Final = "logging in: charged by no quota"

FREE: Final[Mapping[ApiKey, str]] = {
    **dict.fromkeys(
        (
            K.LIST_OFFSETS,
            K.OFFSET_FETCH,
            K.DESCRIBE_GROUPS,
            K.LIST_GROUPS,
            K.OFFSET_FOR_LEADER_EPOCH,
            K.DESCRIBE_ACLS,
            K.DESCRIBE_CONFIGS,
            K.DESCRIBE_LOG_DIRS,
            K.DESCRIBE_DELEGATION_TOKEN,
            K.LIST_PARTITION_REASSIGNMENTS,
            K.DESCRIBE_CLIENT_QUOTAS,
            K.DESCRIBE_USER_SCRAM_CREDENTIALS,
            K.DESCRIBE_QUORUM,
            K.DESCRIBE_CLUSTER,
            K.DESCRIBE_PRODUCERS,
            K.DESCRIBE_TRANSACTIONS,
            K.LIST_TRANSACTIONS,
            K.CONSUMER_GROUP_DESCRIBE,
            K.GET_TELEMETRY_SUBSCRIPTIONS,
            K.LIST_CONFIG_RESOURCES,
            K.DESCRIBE_TOPIC_PARTITIONS,
            K.SHARE_GROUP_DESCRIBE,
            K.STREAMS_GROUP_DESCRIBE,
            K.DESCRIBE_SHARE_GROUP_OFFSETS,
        ),
        READS,
    ),
    **dict.fromkeys(
        (
            K.OFFSET_COMMIT,
            K.JOIN_GROUP,
            K.HEARTBEAT,
            K.LEAVE_GROUP,
            K.SYNC_GROUP,
            K.DELETE_GROUPS,
            K.OFFSET_DELETE,
            K.CONSUMER_GROUP_HEARTBEAT,
            K.SHARE_GROUP_HEARTBEAT,
            K.SHARE_ACKNOWLEDGE,
            K.ALTER_SHARE_GROUP_OFFSETS,
            K.DELETE_SHARE_GROUP_OFFSETS,
            K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        ),
        GROUPS,
    ),
    **dict.fromkeys(
        (K.INIT_PRODUCER_ID, K.ADD_PARTITIONS_TO_TXN, K.ADD_OFFSETS_TO_TXN, K.END_TXN, K.TXN_OFFSET_COMMIT),
        TRANSACTIONS,
    ),
    **dict.fromkeys(
        (
            K.CREATE_ACLS,
            K.DELETE_ACLS,
            K.ALTER_CONFIGS,
            K.INCREMENTAL_ALTER_CONFIGS,
            K.CREATE_DELEGATION_TOKEN,
            K.RENEW_DELEGATION_TOKEN,
            K.EXPIRE_DELEGATION_TOKEN,
            K.ALTER_CLIENT_QUOTAS,
            K.ALTER_USER_SCRAM_CREDENTIALS,
            K.UPDATE_FEATURES,
            K.UNREGISTER_BROKER,
            K.UNREGISTER_CONTROLLER,
            K.ADD_RAFT_VOTER,
            K.REMOVE_RAFT_VOTER,
        ),
        SETTINGS,
    ),
    **dict.fromkeys(
        (
            K.LEADER_AND_ISR,
            K.STOP_REPLICA,
            K.UPDATE_METADATA,
            K.CONTROLLED_SHUTDOWN,
            K.WRITE_TXN_MARKERS,
            K.VOTE,
            K.BEGIN_QUORUM_EPOCH,
            K.END_QUORUM_EPOCH,
            K.ALTER_PARTITION,
            K.FETCH_SNAPSHOT,
            K.BROKER_REGISTRATION,
            K.BROKER_HEARTBEAT,
            K.ALLOCATE_PRODUCER_IDS,
            K.CONTROLLER_REGISTRATION,
            K.ASSIGN_REPLICAS_TO_DIRS,
            K.UPDATE_RAFT_VOTER,
            K.INITIALIZE_SHARE_GROUP_STATE,
            K.READ_SHARE_GROUP_STATE,
            K.WRITE_SHARE_GROUP_STATE,
            K.DELETE_SHARE_GROUP_STATE,
            K.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        BROKERS,
    ),
    **dict.fromkeys((K.ALTER_REPLICA_LOG_DIRS, K.ELECT_LEADERS, K.ALTER_PARTITION_REASSIGNMENTS), CLUSTER),
    **dict.fromkeys((K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE, K.API_VERSIONS), LOGIN),
    K.ENVELOPE: CLOSES,
    K.FIND_COORDINATOR: "creates at most the cluster's own three topics, once; KRaft charges nobody for them",
    K.DELETE_RECORDS: "deletes records, no topics; KIP-599 leaves it free",
    K.PUSH_TELEMETRY: "a broker bounds it by itself: telemetry.max.bytes in each push interval",
}


def plan_of(api_key: ApiKey, version: int) -> tuple[bool, bool, bool]:
    """What a plan charges: the request's bytes, the response's bytes, partitions."""
    plan = Plans(Counters()).make(api_key, version)
    fills = QUERYING_HANDLERS.get(api_key, ())
    charges = [charge for charge in plan.on_arrival if charge is not begin_share_fetch]
    return bool(charges), bool(plan.on_response), any(is_mutation(fill) for fill in fills)


def is_mutation(fill: Callable[[Plan], None]) -> bool:
    return fill.__module__.startswith(f"{mutations.__name__}.")


def test_every_api_is_charged_or_free_for_a_reason() -> None:
    charged = CHARGED_ON_ARRIVAL | CHARGED_ON_RESPONSE | CHARGED_MUTATIONS
    assert set(ApiKey) == charged | FREE.keys()
    assert not charged & FREE.keys()


@in_one_test
@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_every_version_of_an_api_is_charged_as_listed(api_key: ApiKey) -> None:
    known = versions(api_key)
    assert known is not None
    listed = (api_key in CHARGED_ON_ARRIVAL, api_key in CHARGED_ON_RESPONSE, api_key in CHARGED_MUTATIONS)
    for version in range(known.min, known.max + 1):
        assert plan_of(api_key, version) == listed, version


def test_an_envelope_is_not_offered_and_closes_the_connection() -> None:
    """Its request would be unseen: a CreateTopics within would cost no mutation quota."""
    broker = {int(K.ENVELOPE): VersionRange(0, 0), int(K.STOP_REPLICA): VersionRange(0, 4)}
    plans = Plans(Counters()).for_broker(broker)
    assert plans.offered() == {int(K.STOP_REPLICA): VersionRange(0, 4)}
    with Playbook(connection=new_connection(plans=plans)) as play:
        play.client(request(EnvelopeRequest(request_data=b"x" * 40), 0))
        play.violation(CloseReason.REQUEST_VERSION_UNKNOWN, saying="ENVELOPE")


@pytest.mark.parametrize(
    ("message", "version"), [(StopReplicaRequest, 3), (WriteTxnMarkersRequest, 1)], ids=["stop", "markers"]
)
def test_a_clients_request_between_brokers_passes_and_costs_request_time(
    message: type[Message], version: int
) -> None:
    """Brokers decide who may send it: ClusterAction."""
    connection = timed(time_table(1e9))
    with Playbook(connection=connection) as play:
        play.forwards(request(message(), version))
        play.wire.closed(0)
        connection.end(0)
        assert charged_us(connection) > 0
