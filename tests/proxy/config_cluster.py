"""A fake cluster that keeps topics with ids, and configurations of topics and brokers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from tests.proxy.fake_broker import FakeCluster
from tests.wire.frames import head_of, request_body_of, response
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    ApiVersionsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)

TOPIC, BROKER = 2, 4
"""Types of resources in DescribeConfigs."""
Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = DescribeConfigsResponse.DescribeConfigsResourceResult


@dataclass
class ConfigCluster(FakeCluster):
    """Brokers that answer Metadata and DescribeConfigs."""

    topics: dict[str, uuid.UUID] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    """Topics that the client may not describe."""
    configs: dict[tuple[int, str], dict[str, tuple[str | None, int]]] = field(default_factory=dict)
    """(Type, name) → configuration → (value, source)."""
    versions: dict[int, int] = field(
        default_factory=lambda: {ApiKey.METADATA: 12, ApiKey.DESCRIBE_CONFIGS: 4, ApiKey.API_VERSIONS: 3}
    )
    """API key → highest version."""
    questions: list[tuple[int, int]] = field(default_factory=list)
    """(API key, version) of each request."""
    described: list[list[tuple[int, str]]] = field(default_factory=list)
    """Resources of each DescribeConfigs request."""
    failing: set[str] = field(default_factory=set)
    """Names of resources that are answered with an error."""

    async def _answer(self, frame: bytes) -> bytes:
        head = head_of(frame)
        self.questions.append((head.api_key, head.version))
        if head.api_key == ApiKey.API_VERSIONS:
            version = ApiVersionsResponse.ApiVersion
            keys = [version(api_key=key, max_version=highest) for key, highest in self.versions.items()]
            return response(ApiVersionsResponse(api_keys=keys), head.version, head.correlation_id)
        if head.api_key == ApiKey.METADATA:
            asked = request_body_of(frame, MetadataRequest, head.version)
            return response(self._metadata(asked), head.version, head.correlation_id)
        if head.api_key == ApiKey.DESCRIBE_CONFIGS:
            question = request_body_of(frame, DescribeConfigsRequest, head.version)
            return response(self._describe(question), head.version, head.correlation_id)
        return await super()._answer(frame)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        broker = MetadataResponse.MetadataResponseBroker
        names = (
            list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        )
        return MetadataResponse(
            brokers=[broker(node_id=n, host=a.host, port=a.port) for n, a in self.nodes.items()],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        topic = MetadataResponse.MetadataResponseTopic
        if name in self.denied:
            return topic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name not in self.topics:
            return topic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic(name=name, topic_id=self.topics[name])

    def _describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        resources = [(resource.resource_type, resource.resource_name) for resource in request.resources]
        self.described.append(resources)
        return DescribeConfigsResponse(results=[self._result(*resource) for resource in resources])

    def _result(self, kind: int, name: str) -> Result:
        if name in self.failing:
            return Result(resource_type=kind, resource_name=name, error_code=31, error_message="may not")
        configs = self.configs.get((kind, name), {})
        entries = [Entry(name=key, value=value, config_source=at) for key, (value, at) in configs.items()]
        return Result(resource_type=kind, resource_name=name, configs=entries)
