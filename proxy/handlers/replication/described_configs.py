"""Replication throttles in responses to DescribeConfigs (KIP-133), described as brokers do that keep them.

Weir adds the throttles that it keeps to the broker's response, in place of the broker's own entries. If none
of the described resources has a throttle, the response passes unchanged.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, LENGTH, request_body
from weir.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from weir.protocol.pieces import each
from weir.protocol.primitives import STRING_BYTES_MAX
from weir.proxy.handlers.broker_query import BrokerQuery
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.plan import Context, Plan, forward_unchanged
from weir.proxy.handlers.replication.throttle_changes import TYPES, ResourceId
from weir.proxy.handlers.unread import passed_unread
from weir.proxy.handlers.uplift.uplift import forward
from weir.proxy.handlers.whole_requests import whole_request
from weir.quotas.replication.throttles import KEYS_OF, REPLICAS_KEYS, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.quotas.replication.throttles import ConfigKey

_Result = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

DESCRIBED_BYTES_MAX: Final = 64 * 1024
"""Maximum length (bytes) of a request to whose response Weir adds throttles; that is more than a thousand
topics. The response to a longer request passes unchanged, because Weir would have to decode all of it.
"""


class ConfigSource(IntEnum):
    """Kafka's DescribeConfigsResponse.ConfigSource."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3


class ConfigType(IntEnum):
    """Kafka's DescribeConfigsResponse.ConfigType."""

    LONG = 5
    LIST = 7


class _ConfigValue(NamedTuple):
    text: str
    source: ConfigSource


def plan_describe(plan: Plan) -> None:
    """Add the throttles that Weir keeps to responses to DescribeConfigs."""
    pass_on, codec_ = plan.admit or forward_unchanged, codec(DescribeConfigsRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        stored = context.quota_admin.table.replication.values
        if not stored or LENGTH.unpack_from(data, frame)[0] > DESCRIBED_BYTES_MAX:
            return pass_on(context, data, frame, end, complete)
        body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
        if body == INCOMPLETE:
            return WAIT
        try:
            request = whole_request(context, codec_, data, body, end)
        except ProtocolError:  # no broker can read the request either, or it has too many resources
            return passed_unread(pass_on(context, data, frame, end, complete))
        if isinstance(request, Query):
            return request
        found = _Described(request, stored)
        if not found.is_needed:
            return pass_on(context, data, frame, end, complete)
        return Query(_describe(plan, request, found))

    plan.admit, plan.whole = admit, True


def _describe(plan: Plan, request: DescribeConfigsRequest, found: _Described) -> BrokerQuery:
    """Have the broker describe the resources; return its response with Weir's throttles."""
    response = yield from forward(plan, request, DescribeConfigsResponse)
    yield from each(found.add_to, response.results)
    return response


def _has_throttle(topic: str, stored: Mapping[ConfigKey, str]) -> bool:
    """Return True if the topic has a throttle. Called for each topic of a request, so it is quick."""
    return any((ResourceType.TOPIC, topic, name) in stored for name in REPLICAS_KEYS)


class _Described:
    """The throttles that a DescribeConfigs request asks for."""

    def __init__(self, request: DescribeConfigsRequest, stored: Mapping[ConfigKey, str]) -> None:
        self._stored = stored
        self._has_synonyms = request.include_synonyms
        self._names: dict[tuple[int, str], list[str]] = {}
        """Names of the throttles to add, by type id and name of a resource."""
        for resource in request.resources:
            kind, name = TYPES.get(resource.resource_type), resource.resource_name
            if kind is None or (kind is ResourceType.TOPIC and not _has_throttle(name, stored)):
                continue
            asked = resource.configuration_keys
            found = [
                key for key in KEYS_OF[kind] if not asked or key in asked
            ]  # empty asks for all, like null
            there = [key for key in found if self._values(ResourceId(kind, name), key)]
            if there:
                self._names[resource.resource_type, name] = there

    @property
    def is_needed(self) -> bool:
        """True if a resource of the request has a throttle that is asked for."""
        return bool(self._names)

    def add_to(self, result: DescribeConfigsResponse.DescribeConfigsResult) -> None:
        """Add a resource's throttles to the broker's result. A client that may not see the resource sees no
        throttles of it.
        """
        names = self._names.get((result.resource_type, result.resource_name))
        if names is None or result.error_code != ErrorCode.NONE:
            return
        resource = ResourceId(TYPES[result.resource_type], result.resource_name)
        own = [self._entry(resource, name) for name in names]
        result.configs = [config for config in result.configs if config.name not in names] + own

    def _entry(self, resource: ResourceId, name: str) -> _Result:
        values = self._values(resource, name)
        synonyms = [
            _Synonym(name=name, value=_said(value), source=value.source)
            for value in (values if self._has_synonyms else ())
        ]
        is_topic = resource.kind is ResourceType.TOPIC
        return _Result(
            name=name,
            value=_said(values[0]),
            read_only=False,
            is_default=False,
            config_source=values[0].source,
            is_sensitive=False,
            synonyms=synonyms,
            config_type=ConfigType.LIST if is_topic else ConfigType.LONG,
            documentation=None,
        )

    def _values(self, resource: ResourceId, name: str) -> list[_ConfigValue]:
        """Return the values of a throttle that apply to a resource, the one in force first."""
        own = self._stored.get(resource.key(name))
        if resource.kind is ResourceType.TOPIC:
            return [] if own is None else [_ConfigValue(own, ConfigSource.DYNAMIC_TOPIC_CONFIG)]
        common = self._stored.get(ResourceId(resource.kind, "").key(name))
        values = (
            []
            if own is None or not resource.name
            else [_ConfigValue(own, ConfigSource.DYNAMIC_BROKER_CONFIG)]
        )
        return (
            values
            if common is None
            else [*values, _ConfigValue(common, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
        )


def _said(value: _ConfigValue) -> str | None:
    """Return the value as a message can have it: null if it is too long, which only a quota file's can be."""
    return value.text if len(value.text) <= STRING_BYTES_MAX else None
