"""All plans of a process: made when an (API key, version) is first seen, by asking each capability in turn.

`CAPABILITIES` is the table that a new capability adds itself to: API key → functions that fill slots of its
plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.api import ApiKey, request_header_version, response_header_version, versions
from protocol.codec import response_type
from protocol.heads import REQUEST_HEAD
from protocol.places import place
from proxy import api_versions, bandwidth, rewrite
from proxy.counters import Counters
from proxy.plan import WAIT, Caller, Plan, Wait
from proxy.reasons import CloseReason

CAPABILITIES: Final[Mapping[int, tuple[Callable[[Plan], None], ...]]] = {
    ApiKey.PRODUCE: (bandwidth.plan_produce, rewrite.plan_produce_endpoints),
    ApiKey.FETCH: (bandwidth.plan_fetch, rewrite.plan_fetch_endpoints),
    ApiKey.METADATA: (rewrite.plan_metadata,),
    ApiKey.FIND_COORDINATOR: (rewrite.plan_find_coordinator,),
    ApiKey.DESCRIBE_CLUSTER: (rewrite.plan_describe_cluster,),
    ApiKey.SHARE_FETCH: (bandwidth.plan_share_fetch, rewrite.plan_share_fetch_endpoints),
    ApiKey.SHARE_ACKNOWLEDGE: (rewrite.plan_share_acknowledge_endpoints,),
    ApiKey.API_VERSIONS: (api_versions.plan_api_versions,),
}


class Plans(dict[tuple[int, int], Plan]):
    """(API key, version) → plan; `get` is what the sessions' loops call, `make` is for the first time."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters

    def make(self, api_key: int, version: int) -> Plan:
        """Make, and keep, the plan of an (API key, version) that the schemas know.

        The plan of one that they do not know is not kept: a peer can name four billion.
        """
        known = versions(api_key)
        if known is None or version not in known:
            self._counters.requests_not_understood += 1
            return _not_understood(api_key, version)
        plan = Plan(
            api_key,
            version,
            flexible_request=request_header_version(api_key, version) == 2,
            flexible_response=response_header_version(api_key, version) == 1,
            throttle=place(response_type(api_key), version, "throttle_time_ms"),
        )
        for fill in CAPABILITIES.get(api_key, ()):
            fill(plan)
        self[api_key, version] = plan
        return plan


def _not_understood(api_key: int, version: int) -> Plan:
    """Return the plan of a request that no schema describes: it is passed through untouched.

    Unless Weir has something to do with that API, which a version it cannot read must not be a way around. A
    broker closes the connection at a version that it does not know; ApiVersions is answered (KIP-511).
    """
    plan = Plan(api_key, version)
    if api_key == ApiKey.API_VERSIONS:
        plan.admit = api_versions.refuse_version
    elif api_key in CAPABILITIES:
        plan.admit = _refuse
    return plan


def _refuse(caller: Caller, data: bytearray, frame: int, _end: int, _complete: bool) -> Wait:
    _length, api_key, version, _id = REQUEST_HEAD.unpack_from(data, frame)
    detail = f"{ApiKey(api_key).name} v{version}, not offered in ApiVersions: Weir cannot read it"
    caller.violate(CloseReason.REQUEST_VERSION_UNKNOWN, detail)
    return WAIT
