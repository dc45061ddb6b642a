"""All plans of a process: made when an (API key, version) is first seen, by asking each capability in turn.

`ON_THE_WIRE` and `QUERYING_HANDLERS` are the tables that a new capability adds itself to: API key → functions
that fill slots of its plans. The former see frames in the broker's version; then uplift makes that another
version for the client; the latter see requests as the client means them, and may take over.

There is a table of plans per *dialect*: what versions a broker speaks. A session begins with the table of
brokers that have not said so yet, and gets its broker's as soon as that has answered ApiVersions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from protocol.api import ApiKey, request_header_version, response_header_version, versions
from protocol.codec import response_type
from protocol.heads import REQUEST_HEAD
from protocol.places import place
from protocol.versions import VersionRange
from proxy.close_reasons import CloseReason
from proxy.counters import Counters
from proxy.handlers.addresses import rewrite
from proxy.handlers.api_versions import api_versions
from proxy.handlers.bandwidth import bandwidth
from proxy.handlers.decisions import WAIT, Wait
from proxy.handlers.mutations import auto_creation, mutations, streams_groups
from proxy.handlers.mutations.cluster_state import ClusterState
from proxy.handlers.plan import Context, Plan
from proxy.handlers.quota_api import client_quotas
from proxy.handlers.request_time import request_time
from proxy.handlers.sasl import authentication
from proxy.handlers.sasl.identity import Identities
from proxy.handlers.topics import topic_rates
from proxy.handlers.uplift import uplift, uplift_rule
from proxy.handlers.usage_groups import group_index
from quotas.request_costs import CostTable, Overrides, shipped

Fill: TypeAlias = Callable[[Plan], None]

ON_THE_WIRE: Final[Mapping[int, tuple[Fill, ...]]] = {
    ApiKey.PRODUCE: (bandwidth.plan_produce, topic_rates.plan_produce, rewrite.plan_produce_endpoints),
    ApiKey.FETCH: (bandwidth.plan_fetch, topic_rates.plan_fetch, rewrite.plan_fetch_endpoints),
    ApiKey.METADATA: (rewrite.plan_metadata,),
    ApiKey.FIND_COORDINATOR: (rewrite.plan_find_coordinator,),
    ApiKey.DESCRIBE_CLUSTER: (rewrite.plan_describe_cluster,),
    ApiKey.SHARE_FETCH: (bandwidth.plan_share_fetch, rewrite.plan_share_fetch_endpoints),
    ApiKey.SHARE_ACKNOWLEDGE: (rewrite.plan_share_acknowledge_endpoints,),
    ApiKey.API_VERSIONS: (api_versions.plan_api_versions,),
    ApiKey.SASL_HANDSHAKE: (authentication.plan_sasl_handshake,),
    ApiKey.SASL_AUTHENTICATE: (authentication.plan_sasl_authenticate,),
    ApiKey.CREATE_DELEGATION_TOKEN: (authentication.plan_create_delegation_token,),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (authentication.plan_describe_delegation_token,),
}
QUERYING_HANDLERS: Final[Mapping[int, tuple[Fill, ...]]] = {
    ApiKey.METADATA: (auto_creation.plan_metadata,),
    ApiKey.CREATE_TOPICS: (mutations.plan_create_topics,),
    ApiKey.CREATE_PARTITIONS: (mutations.plan_create_partitions,),
    ApiKey.DELETE_TOPICS: (mutations.plan_delete_topics,),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (streams_groups.plan_streams_group_heartbeat,),
}
QUOTA_APIS: Final[Mapping[int, Fill]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.plan_describe,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.plan_alter,
}
"""What Weir answers by itself, unless the brokers store the quotas."""
QUOTA_APIS_PASSED: Final[Mapping[int, Fill]] = {
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.plan_pass_alter,
}
"""What is done about them then."""
DIALECTS_MAX: Final = 100
"""A cluster has one, two while it is being upgraded."""


class Plans(dict[tuple[int, int], Plan]):
    """(API key, version) → plan, for one dialect; `get` is what the sessions' loops call, `make` is for the
    first time.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        uplift: bool = False,
        cluster: ClusterState | None = None,
        manages_quotas: bool = False,
        identities: Identities | None = None,
        costs: Overrides | None = None,
    ) -> None:
        """Begin with the table of brokers that have not said what they speak."""
        super().__init__()
        self.uplift = uplift
        self.manages_quotas = manages_quotas
        """Whether Weir answers `QUOTA_APIS`."""
        self.cluster = cluster or ClusterState()
        self.identities = identities or Identities()
        self.costs = costs or Overrides()
        """What the operator says that requests cost."""
        self.broker: Mapping[int, VersionRange] | None = None
        """What the broker speaks, by API key; None if that is not known."""
        self._like: Mapping[int, VersionRange] | None = None
        """What costs are looked up for: what it speaks, else what the newest dialect is that was met."""
        self._table: CostTable | None = None
        self._unknown = self
        """The table of brokers that have not said what they speak."""
        self._counters = counters
        self._dialects: dict[frozenset[tuple[int, VersionRange]], Plans] = {}

    def for_broker(self, broker: Mapping[int, VersionRange]) -> Plans:
        """Return the plans for brokers that speak this."""
        key = frozenset(broker.items())
        found = self._dialects.get(key)
        if found is None:
            found = Plans(
                self._counters,
                uplift=self.uplift,
                cluster=self.cluster,
                manages_quotas=self.manages_quotas,
                identities=self.identities,
                costs=self.costs,
            )
            found.broker = found._like = broker
            found._dialects, found._unknown = self._dialects, self._unknown
            self._unknown._cost_like(broker)
            if len(self._dialects) < DIALECTS_MAX:
                self._dialects[key] = found
        return found

    def offered(self, *, added: bool = True) -> dict[int, VersionRange]:
        """What clients of this broker are told that it speaks; with `QUOTA_APIS`, or without."""
        own = QUOTA_APIS if self.manages_quotas and added else ()
        return uplift_rule.offered(self.broker or {}, uplift=self.uplift, own=own)

    def make(self, api_key: int, version: int) -> Plan:
        """Make, and keep, the plan of an (API key, version) that the schemas know.

        The plan of one that they do not know is not kept: a peer can name four billion.
        """
        known = versions(api_key)
        if known is None or version not in known:
            if api_key != ApiKey.API_VERSIONS:  # which is answered as a broker answers it
                self._counters.requests_not_understood += 1
            return self._not_understood(api_key, version)
        plan = self[api_key, version] = self._made(api_key, version)
        return plan

    def requests(self) -> Counter[tuple[int, int]]:
        """How many requests there were, in all dialects, by (API key, version)."""
        counted: Counter[tuple[int, int]] = Counter()
        for table in (self, *self._dialects.values()):
            for key, plan in table.items():
                counted[key] += plan.requests
        return counted

    def _made(self, api_key: int, version: int) -> Plan:
        broker = (self.broker or {}).get(api_key)
        route = uplift_rule.route(api_key, version, broker) if self.uplift and broker is not None else None
        plan = _plain(api_key, version if route is None else route.broker_version)
        for fill in ON_THE_WIRE.get(api_key, ()):
            fill(plan)
        if route is not None:
            plan = uplift.raised(plan, version, route)
        for fill in QUERYING_HANDLERS.get(api_key, ()):
            fill(plan)
        quota_api = (QUOTA_APIS if self.manages_quotas else QUOTA_APIS_PASSED).get(api_key)
        if quota_api is not None:
            quota_api(plan)
        if self._must_ask(api_key, version):
            uplift.plan_unknown(plan)
        self._fill_cost(plan)
        plan.group = group_index(api_key)
        return plan

    def _fill_cost(self, plan: Plan) -> None:
        """Say what the requests of a plan cost this dialect's brokers.

        Their table is kept: the plan of what is not understood is made with each request.
        """
        if self._table is None:
            self._table = self.costs.over(shipped(request_time.generation(self._like)))
        request_time.fill(plan, self._table, self._like)

    def _cost_like(self, broker: Mapping[int, VersionRange]) -> None:
        """Take brokers that have not said what they speak for ones like this, as far as costs go: some
        clients never ask.
        """
        self._like, self._table = broker, None
        for plan in self.values():
            self._fill_cost(plan)

    def _not_understood(self, api_key: int, version: int) -> Plan:
        """Return the plan of a request that no schema describes: it is passed through untouched.

        Unless Weir has something to do with that API, which a version it cannot read must not be a way
        around. A broker closes the connection at a version that it does not know; ApiVersions is answered
        (KIP-511).
        """
        plan = Plan(api_key, version)
        self._fill_cost(plan)
        plan.group = group_index(api_key)
        quota_api = self.manages_quotas and api_key in QUOTA_APIS
        if api_key == ApiKey.API_VERSIONS:
            plan.admit = api_versions.refuse_version
        elif api_key in ON_THE_WIRE or api_key in QUERYING_HANDLERS or quota_api:
            plan.admit = _refuse
        return plan

    def _must_ask(self, api_key: int, version: int) -> bool:
        """Whether what to do depends on what the broker speaks, which it has not said.

        ApiVersions goes as it is: before SASL it may be asked only once.
        """
        return (
            self.uplift
            and self.broker is None
            and api_key != ApiKey.API_VERSIONS
            and uplift_rule.may_be_uplifted(api_key, version)
        )


def _plain(api_key: int, version: int) -> Plan:
    return Plan(
        api_key,
        version,
        flexible_request=request_header_version(api_key, version) == 2,
        flexible_response=response_header_version(api_key, version) == 1,
        throttle=place(response_type(api_key), version, "throttle_time_ms"),
    )


def _refuse(context: Context, data: bytearray, frame: int, _end: int, _complete: bool) -> Wait:
    _length, api_key, version, _id = REQUEST_HEAD.unpack_from(data, frame)
    detail = f"{ApiKey(api_key).name} v{version}, not offered in ApiVersions: Weir cannot read it"
    context.violate(CloseReason.REQUEST_VERSION_UNKNOWN, detail)
    return WAIT
