"""DescribeConfigs requests for replication throttles, and the throttles in the responses (KIP-133, KIP-226).

A response also has inherited values: a broker's own values have the source DYNAMIC_BROKER_CONFIG, those of
all brokers DYNAMIC_DEFAULT_BROKER_CONFIG, a topic's own values DYNAMIC_TOPIC_CONFIG
(DescribeConfigsResponse.ConfigSource). Version 0 tells no sources, and brokers with version 0 alone (before
1.1) do not tell the rates. Brokers 1.1.1 tell that a rate is set, but hide its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.replication.described_configs import ConfigSource
from weir.quotas.replication.throttles import KEYS_OF, ConfigKey, ResourceType

VERSIONS: Final = VersionRange(1, 4)
"""Versions of DescribeConfigs that Weir uses."""


class Described(NamedTuple):
    """The throttles in a response."""

    values: dict[ConfigKey, str]
    errors: dict[str, str]
    """Name of each resource that the broker did not describe → reason."""
    hidden: list[ConfigKey]
    """Throttles that are set, but whose value the broker does not tell."""


def request_for(kind: ResourceType, names: Iterable[str]) -> DescribeConfigsRequest:
    """Return a request for the replication throttles of these topics or brokers."""
    keys = list(KEYS_OF[kind])
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind.value, resource_name=name, configuration_keys=keys) for name in names
        ]
    )


def read(answer: DescribeConfigsResponse, kind: ResourceType) -> Described:
    """Return the throttles of topics or brokers in a response. Topics that do not exist have no throttles."""
    described = Described({}, {}, [])
    for result in answer.results:
        name = result.resource_name
        if result.error_code != ErrorCode.NONE:
            if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                described.errors[name] = _reason(result)
            continue
        for entry in result.configs:
            key = ConfigKey(kind, name, entry.name)
            if entry.name not in KEYS_OF[kind] or not _is_own(key, entry):
                continue
            if entry.value is None:
                described.hidden.append(key)
            else:
                described.values[key] = entry.value
    return described


def _is_own(key: ConfigKey, entry: DescribeConfigsResponse.DescribeConfigsResourceResult) -> bool:
    """Return True if the value was set for this resource, and is not inherited."""
    if key.resource_type is ResourceType.TOPIC:
        return entry.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    return entry.config_source == (
        ConfigSource.DYNAMIC_BROKER_CONFIG
        if key.resource_name
        else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )


def _reason(result: DescribeConfigsResponse.DescribeConfigsResult) -> str:
    match result.error_code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return "Weir's principal may not see it: allow it DescribeConfigs on the topic"
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return "Weir's principal may not see it: allow it DescribeConfigs on the cluster"
        case code:
            return " ".join((result.error_message or f"error {code}").split())
