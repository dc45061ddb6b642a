"""All plans of a process. A plan is made when its (API key, version) is first seen.

A new capability adds itself to `ON_THE_WIRE` or `QUERYING_HANDLERS`: API key → functions that fill slots of
its plans. `ON_THE_WIRE` sees frames in the broker's version. `FOR_CLIENTS` then changes addresses and
versions in responses; replication listeners, where brokers are the clients, use `FOR_BROKERS` instead. Uplift
then makes plans of other versions for the client. `QUERYING_HANDLERS` sees requests in the client's version,
and may replace them by queries. `CHANGES_OF_TOPICS` then guards Weir's own topics, if there are any.

There is one table of plans per set of broker versions. A connection begins with the table for brokers whose
versions are unknown, and changes to its broker's table when the broker has answered ApiVersions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

from weir.protocol.api import ApiKey, request_header_version, response_header_version, versions
from weir.protocol.codec import response_type
from weir.protocol.framing import REQUEST_HEAD
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.counters import Counters
from weir.proxy.handlers.addresses import rewrite
from weir.proxy.handlers.api_versions import api_versions
from weir.proxy.handlers.bandwidth import bandwidth
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Wait
from weir.proxy.handlers.mutations import auto_creation, mutations, streams_groups
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.old_reads import old_reads
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.protected_topics import between_brokers, changed_topics, produced_topics
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.proxy.handlers.quota_api import client_quotas
from weir.proxy.handlers.quota_api.quota_admin import NoQuotaAdmin, QuotaAdmin
from weir.proxy.handlers.replication import configs, described_configs, fetches
from weir.proxy.handlers.request_time import request_time
from weir.proxy.handlers.sasl import authentication
from weir.proxy.handlers.sasl.identity import Identities
from weir.proxy.handlers.topic_counts import counted_mutations, created_topics
from weir.proxy.handlers.topics import learned_names, topic_rates
from weir.proxy.handlers.uplift import outdated_clients, uplift, uplift_rule
from weir.proxy.handlers.uplift.outdated_clients import OutdatedClients
from weir.proxy.handlers.usage_groups import group_index
from weir.quotas.costs.request_costs import CostTable, Overrides, shipped

Fill: TypeAlias = Callable[[Plan], None]


def _refuse(context: Context, data: bytearray, frame: int, end: int, _complete: bool) -> Decision | Wait:
    """Close the connection of a client. Forward a broker's request: no quota applies to it, and brokers may
    be newer than Weir.
    """
    if context.client.is_broker:
        return FORWARD
    _length, api_key, version, _id = REQUEST_HEAD.unpack_from(data, frame)
    who = outdated_clients.name_of(context.client, context.client.client_id(data, frame, end) or "")
    detail = f"{ApiKey(api_key).name} v{version} of {who}, not offered in ApiVersions: Weir cannot read it"
    context.violate(CloseReason.REQUEST_VERSION_UNKNOWN, detail)
    return WAIT


def _plan_envelope(plan: Plan) -> None:
    """Forward Envelope requests of brokers, and close the connections of other clients that send them."""
    plan.admit = _refuse


ON_THE_WIRE: Final[Mapping[int, tuple[Fill, ...]]] = {
    ApiKey.PRODUCE: (bandwidth.plan_produce, topic_rates.plan_produce),
    ApiKey.FETCH: (bandwidth.plan_fetch, topic_rates.plan_fetch, old_reads.plan_fetch),
    ApiKey.SHARE_FETCH: (bandwidth.plan_share_fetch, topic_rates.plan_share_fetch),
    ApiKey.SASL_HANDSHAKE: (authentication.plan_sasl_handshake,),
    ApiKey.SASL_AUTHENTICATE: (authentication.plan_sasl_authenticate,),
    ApiKey.CREATE_DELEGATION_TOKEN: (authentication.plan_create_delegation_token,),
}
FOR_CLIENTS: Final[Mapping[int, tuple[Fill, ...]]] = {
    ApiKey.PRODUCE: (rewrite.plan_produce_endpoints,),
    ApiKey.FETCH: (rewrite.plan_fetch_endpoints,),
    ApiKey.METADATA: (rewrite.plan_metadata,),
    ApiKey.FIND_COORDINATOR: (rewrite.plan_find_coordinator,),
    ApiKey.DESCRIBE_CLUSTER: (rewrite.plan_describe_cluster,),
    ApiKey.SHARE_FETCH: (rewrite.plan_share_fetch_endpoints,),
    ApiKey.SHARE_ACKNOWLEDGE: (rewrite.plan_share_acknowledge_endpoints,),
    ApiKey.API_VERSIONS: (api_versions.plan_api_versions,),
}
"""Functions, by API key, that change addresses and versions in responses, except at replication listeners."""
FOR_BROKERS: Final[Mapping[int, tuple[Fill, ...]]] = {
    ApiKey.FETCH: (fetches.plan_fetch,),
    ApiKey.API_VERSIONS: (api_versions.plan_learn_versions,),
    ApiKey.ENVELOPE: (_plan_envelope,),
}
"""Functions, by API key, that are used only at replication listeners."""
QUERYING_HANDLERS: Final[Mapping[int, tuple[Fill, ...]]] = {
    ApiKey.METADATA: (auto_creation.plan_metadata, created_topics.plan_metadata),
    ApiKey.CREATE_TOPICS: (mutations.plan_create_topics, counted_mutations.plan_create_topics),
    ApiKey.CREATE_PARTITIONS: (mutations.plan_create_partitions, counted_mutations.plan_create_partitions),
    ApiKey.DELETE_TOPICS: (mutations.plan_delete_topics, counted_mutations.plan_delete_topics),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        streams_groups.plan_streams_group_heartbeat,
        created_topics.plan_streams_group_heartbeat,
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (authentication.plan_describe_delegation_token,),
}
QUOTA_APIS: Final[Mapping[int, Fill]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.plan_describe,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.plan_alter,
}
"""Functions that fill the plans of APIs that Weir answers itself, by API key. They are used unless the
brokers store the quotas.
"""
QUOTA_APIS_PASSED: Final[Mapping[int, Fill]] = {
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.plan_pass_alter,
}
"""Functions that fill the plans of client-quota APIs that are forwarded, because the brokers store the
quotas; by API key.
"""
THROTTLE_APIS: Final[Mapping[int, Fill]] = {
    ApiKey.DESCRIBE_CONFIGS: described_configs.plan_describe,
    ApiKey.ALTER_CONFIGS: configs.plan_alter,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.plan_alter,
}
"""Functions that fill the plans of APIs whose replication throttles Weir keeps, by API key. They are used
unless the brokers keep the throttles.
"""
THROTTLE_APIS_PASSED: Final[Mapping[int, Fill]] = {
    ApiKey.ALTER_CONFIGS: configs.plan_pass_alter,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.plan_pass_alter,
}
"""Functions that fill the plans of APIs that alter replication throttles at the brokers, which keep them; by
API key.
"""
CHANGES_OF_TOPICS: Final[Mapping[int, Callable[[Plan, ProtectedTopics], None]]] = {
    ApiKey.PRODUCE: produced_topics.plan_produce,
    ApiKey.CREATE_TOPICS: changed_topics.plan_change,
    ApiKey.DELETE_TOPICS: changed_topics.plan_change,
    ApiKey.DELETE_RECORDS: changed_topics.plan_change,
    ApiKey.CREATE_PARTITIONS: changed_topics.plan_change,
    ApiKey.ALTER_CONFIGS: changed_topics.plan_change,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: changed_topics.plan_change,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: changed_topics.plan_change,
    ApiKey.ELECT_LEADERS: changed_topics.plan_change,
    ApiKey.ADD_PARTITIONS_TO_TXN: changed_topics.plan_change,
    ApiKey.WRITE_TXN_MARKERS: changed_topics.plan_change,
    ApiKey.ALTER_REPLICA_LOG_DIRS: changed_topics.plan_change,
    ApiKey.LEADER_AND_ISR: between_brokers.plan_refuse,
    ApiKey.STOP_REPLICA: between_brokers.plan_refuse,
    ApiKey.UPDATE_METADATA: between_brokers.plan_refuse,
    ApiKey.ALTER_PARTITION: between_brokers.plan_refuse,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: between_brokers.plan_refuse,
}
"""Functions, by API key, that refuse changes of Weir's own topics. They come before all other capabilities
while topics are protected.
"""
UNREADABLE_APIS: Final = frozenset({ApiKey.ENVELOPE})
"""APIs that Weir does not offer, and whose requests close the connection. An Envelope request (KIP-590)
contains another request and the principal that has sent that request; if forwarded, it would bypass all
quotas and protected topics. Only brokers send it, and only at replication listeners. A broker, too, closes a
client's connection at an Envelope (except on the brokers' own listener).
"""
READ_APIS: Final = (ON_THE_WIRE, FOR_CLIENTS, QUERYING_HANDLERS, UNREADABLE_APIS)
"""Tables and sets of the APIs that Weir must read. A request of such an API in a version unknown to Weir
closes the connection, unless a broker has sent it at a replication listener.
"""
BROKER_VERSIONS_MAX: Final = 100
"""Maximum number of sets of broker versions for which tables of plans are kept. A cluster has one set, and
two during an upgrade.
"""


class Plans(dict[tuple[int, int], Plan]):
    """The plans for one set of broker versions: (API key, version) → plan. Connections call `get`, and `make`
    if `get` finds no plan.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        uplift: bool = False,
        cluster: ClusterState | None = None,
        manages_quotas: bool = False,
        throttles: Literal["weir", "brokers"] | None = None,
        identities: Identities | None = None,
        costs: Overrides | None = None,
        protected: ProtectedTopics | None = None,
        replication: bool = False,
        own_client_id: str | None = None,
        outdated: OutdatedClients | None = None,
    ) -> None:
        """Begin with the table for brokers whose versions are unknown. With `replication`, the plans are for
        replication listeners: leave out `uplift` then, because brokers must see each other's own versions.
        """
        super().__init__()
        self.own_client_id = own_client_id
        """Client-id of Weir's own requests that must not reach a listener of Weir; None for no such requests.
        """
        self.uplift = uplift
        self.outdated = outdated
        """Object that counts requests in versions which only Weirs with other settings offer; None to forward
        such requests to the broker, which closes the connection. Set it before the first connection.
        """
        self.replication = replication
        self.manages_quotas = manages_quotas
        """True if Weir answers the APIs in `QUOTA_APIS` itself."""
        self.throttles = throttles
        """Side that stores the replication throttles which clients set over Kafka's protocol (the setting
        `replication_throttles`); None if Weir throttles no replication. Replication listeners ignore it.
        """
        self.cluster = cluster or ClusterState()
        self.identities = identities or Identities()
        self.costs = costs or Overrides()
        """Request costs that the operator has set. They replace the costs that Weir is shipped with."""
        self.protected = protected or ProtectedTopics()
        self.broker: Mapping[int, VersionRange] | None = None
        """Version ranges of the broker, by API key; None if unknown."""
        self._latest: Mapping[int, VersionRange] = {}
        """Version ranges, by API key, of the broker that `for_broker` was last called for; kept in the table
        for unknown brokers.
        """
        self._like: Mapping[int, VersionRange] | None = None
        """Version ranges, by API key, of the broker whose request costs this table uses. If the versions of
        this table's broker are unknown, the broker that `for_broker` was last called for with new versions;
        None if there was no such call.
        """
        self._table: CostTable | None = None
        self._unknown = self
        """Table of plans for brokers whose versions are unknown."""
        self.counters = counters
        """Counters of the process."""
        self.quota_admin: QuotaAdmin = NoQuotaAdmin()
        """Access to the quota table and its store. Set it before the first connection."""
        self._by_broker_versions: dict[frozenset[tuple[int, VersionRange]], Plans] = {}

    def for_broker(self, broker: Mapping[int, VersionRange]) -> Plans:
        """Return the table of plans for brokers with these versions (API key → range)."""
        self._unknown._latest = broker
        key = frozenset(broker.items())
        found = self._by_broker_versions.get(key)
        if found is None:
            found = Plans(
                self.counters,
                uplift=self.uplift,
                cluster=self.cluster,
                manages_quotas=self.manages_quotas,
                throttles=self.throttles,
                identities=self.identities,
                costs=self.costs,
                protected=self.protected,
                replication=self.replication,
                own_client_id=self.own_client_id,
                outdated=self.outdated,
            )
            found.broker = found._like = broker
            found.quota_admin = self.quota_admin
            found._by_broker_versions, found._unknown = self._by_broker_versions, self._unknown
            self._unknown._cost_like(broker)
            if len(self._by_broker_versions) < BROKER_VERSIONS_MAX:
                self._by_broker_versions[key] = found
        return found

    @property
    def expected(self) -> Mapping[int, VersionRange]:
        """Version ranges of the broker, by API key. If they are unknown: the latest that a broker has sent,
        because the brokers of a cluster differ only during an upgrade; empty if none has told any.
        """
        return self._unknown._latest if self.broker is None else self.broker

    def offered(self, *, added: bool = True) -> dict[int, VersionRange]:
        """Return the versions offered to clients of this broker, by API key. With `added`, they include
        `QUOTA_APIS` if Weir answers these.
        """
        own = QUOTA_APIS if self.manages_quotas and added else ()
        offered = uplift_rule.offered(self.broker or {}, uplift=self.uplift, own=own)
        return {key: both for key, both in offered.items() if key not in UNREADABLE_APIS}

    def make(self, api_key: int, version: int) -> Plan:
        """Make the plan of an (API key, version). Keep the plan only if Weir's schemas describe that version.

        Other plans are not kept, because a peer can send four billion different (API key, version) pairs.
        """
        known = versions(api_key)
        unreadable = api_key in UNREADABLE_APIS and not self.replication
        if known is None or version not in known or unreadable:
            if api_key != ApiKey.API_VERSIONS:  # Weir answers an unknown ApiVersions like a broker
                self.counters.requests_not_understood += 1
            return self._not_understood(api_key, version)
        plan = self[api_key, version] = self._made(api_key, version)
        return plan

    def requests(self) -> Counter[tuple[int, int]]:
        """Return the number of requests by (API key, version), over all tables."""
        counted: Counter[tuple[int, int]] = Counter()
        for table in (self, *self._by_broker_versions.values()):
            for key, plan in table.items():
                counted[key] += plan.requests
        return counted

    def _made(self, api_key: int, version: int) -> Plan:
        broker = (self.broker or {}).get(api_key)
        route = uplift_rule.route(api_key, version, broker) if self.uplift and broker is not None else None
        plan = _plain(api_key, version if route is None else route.broker_version)
        for fill in ON_THE_WIRE.get(api_key, ()):
            fill(plan)
        for fill in (FOR_BROKERS if self.replication else FOR_CLIENTS).get(api_key, ()):
            fill(plan)
        if route is not None:
            plan = uplift.raised(plan, version, route)
        for fill in QUERYING_HANDLERS.get(api_key, ()):
            fill(plan)
        quota_api = (QUOTA_APIS if self.manages_quotas else QUOTA_APIS_PASSED).get(api_key)
        if quota_api is not None:
            quota_api(plan)
        if (throttle_api := self._throttle_apis().get(api_key)) is not None:
            throttle_api(plan)
        if self.protected and (guard := CHANGES_OF_TOPICS.get(api_key)) is not None:
            guard(plan, self.protected)
        if api_key in learned_names.TAUGHT_BY and not self.replication:
            learned_names.plan_learn(plan, always=bool(self.protected))
        if self.own_client_id is not None and (api_key, version) == (ApiKey.API_VERSIONS, 0):
            api_versions.plan_own_request(plan, self.own_client_id)
        if self.outdated is not None and self._withholds(api_key, version):
            outdated_clients.plan_withheld(plan, self.outdated)
        if self._must_ask(api_key, version):
            uplift.plan_unknown(plan)
        self._fill_cost(plan)
        plan.group = group_index(api_key)
        return plan

    def _throttle_apis(self) -> Mapping[int, Fill]:
        """Return the functions for APIs that alter or describe replication throttles, by API key."""
        if self.throttles is None or self.replication:
            return {}
        return THROTTLE_APIS if self.throttles == "weir" else THROTTLE_APIS_PASSED

    def _fill_cost(self, plan: Plan) -> None:
        """Set the cost of a plan's requests at this table's brokers.

        The costs of all APIs are looked up once and then cached, because the plan of an unknown (API key,
        version) is made again for each such request.
        """
        if self._table is None:
            self._table = self.costs.over(shipped(request_time.generation(self._like)))
        request_time.fill(plan, self._table, self._like)

    def _cost_like(self, broker: Mapping[int, VersionRange]) -> None:
        """Charge requests, from now on, the costs of a broker with the version ranges `broker`. Called on the
        table for brokers whose versions are unknown: some clients never send ApiVersions, and use that table
        for all their requests.
        """
        self._like, self._table = broker, None
        for plan in self.values():
            self._fill_cost(plan)

    def _not_understood(self, api_key: int, version: int) -> Plan:
        """Return the plan of a request that the schemas do not describe: the request is forwarded unchanged.

        Requests of APIs that Weir has to read are refused instead, so that an unknown version cannot bypass
        Weir. As at a broker, the connection closes at an unknown version; only ApiVersions is answered
        (KIP-511).
        """
        plan = Plan(api_key, version)
        self._fill_cost(plan)
        plan.group = group_index(api_key)
        quota_api = self.manages_quotas and api_key in QUOTA_APIS
        keeps_throttles = self.throttles == "weir" and api_key in THROTTLE_APIS
        guarded = bool(self.protected) and api_key in CHANGES_OF_TOPICS
        if api_key == ApiKey.API_VERSIONS and not self.replication:
            plan.admit = api_versions.refuse_version
        elif quota_api or keeps_throttles or guarded or any(api_key in apis for apis in READ_APIS):
            plan.admit = _refuse
        return plan

    def _must_ask(self, api_key: int, version: int) -> bool:
        """Return True if the plan depends on the broker's versions and Weir does not know these yet. Without
        uplift, the broker may lack the version, though other Weirs offer it.

        The result for ApiVersions is False: a client's ApiVersions is forwarded unchanged, because before
        SASL a broker allows only one.
        """
        return (
            (self.uplift or self.outdated is not None)
            and not self.replication
            and self.broker is None
            and api_key != ApiKey.API_VERSIONS
            and uplift_rule.may_be_uplifted(api_key, version)
        )

    def _withholds(self, api_key: int, version: int) -> bool:
        """Return True if Weirs with other settings offer this version to clients of the broker, and this one
        does not. The result for ApiVersions is False: a broker answers the versions that it lacks.
        """
        if api_key == ApiKey.API_VERSIONS:
            return False
        if (
            self.broker is None
            or self.replication
            or version in self.broker.get(api_key, VersionRange(0, -1))
        ):
            return False
        elsewhere = uplift_rule.offered(self.broker, own=QUOTA_APIS).get(api_key)
        here = self.offered().get(api_key)
        return elsewhere is not None and version in elsewhere and (here is None or version not in here)


@cache
def prepare() -> None:
    """Read all schemas and compile the scanners of all versions, once per process: 0.2 s of CPU and 6 MB.
    Made for a client's first requests, they would take up to 5 ms for each version, in a turn of the reactor.
    """
    plans = Plans(Counters())
    for api_key in ApiKey:
        known = versions(api_key)
        for version in range(known.min, known.max + 1) if known is not None else ():
            plans.make(int(api_key), version)
    topic_rates.prepare()
    old_reads.prepare()


def _plain(api_key: int, version: int) -> Plan:
    return Plan(
        api_key,
        version,
        flexible_request=request_header_version(api_key, version) == 2,
        flexible_response=response_header_version(api_key, version) == 1,
        throttle=field_offset(response_type(api_key), version, "throttle_time_ms"),
    )
