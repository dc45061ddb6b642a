"""A simulated broker with known request costs and Kafka's request quotas, in memory, on Trio's clock."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio
from trio.testing import memory_stream_pair

from tests.kfake.in_trio import Connection as Wire
from tests.wire.frames import head_of, request_body_of, response
from weir.protocol.api import ApiKey
from weir.protocol.codec import request_type, response_type
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorResponse,
    JoinGroupResponse,
    MetadataResponse,
    ProduceRequest,
)
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.connection import Connection
from weir.quotas.costs.cost_fitting import UNPACKED
from weir.quotas.limiters.budgets import UNLIMITED, Budget
from weir.quotas.table.entities import Tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.protocol.values import Message

ADDRESS: Final = Address("broker", 9092)
NODE_ID: Final = 7
WINDOW_MS: Final = 1000
COLD_FROM_S: Final = 0.0003
US: Final = 1e-6
PERCENT_PER_US: Final = 1e-4
VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.PRODUCE: (0, 9),
    ApiKey.FETCH: (0, 12),
    ApiKey.LIST_OFFSETS: (0, 6),
    ApiKey.METADATA: (0, 9),
    ApiKey.OFFSET_COMMIT: (0, 8),
    ApiKey.OFFSET_FETCH: (0, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.JOIN_GROUP: (0, 7),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 4),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (0, 7),
    ApiKey.DELETE_TOPICS: (0, 6),
    ApiKey.DESCRIBE_CONFIGS: (0, 4),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
}
"""Versions of a 2.8 broker, without APIs that calibration does not use."""


@dataclass
class CalibratedBroker:
    """The broker's costs, its quotas, topics and groups, and the requests that it received."""

    costs: Mapping[ApiKey, Mapping[str, float]]
    """Coefficients (µs) by API; requests of other APIs cost 30 µs."""
    cold_us: float = 0.0
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: VERSIONS)
    error_code: int = 0
    """Error code of responses to DescribeClientQuotas and AlterClientQuotas."""
    breaks_after: set[int] = field(default_factory=set)
    """Numbers of requests, counted over all connections, at which the broker closes the connection."""
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    """Limits by client-id and quota."""
    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    asked: Counter[ApiKey] = field(default_factory=Counter)
    nursery: trio.Nursery | None = None
    used_us: Counter[str] = field(default_factory=Counter)
    """Request time (µs) by client-id."""
    budgets: dict[str, Budget] = field(default_factory=dict)
    _idle_since_s: float = 0.0

    async def connect(self, address: Address, timeout_s: float) -> Connection:
        """Open a connection, like `proxy.control.cluster.access.Access`."""
        assert self.nursery is not None
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self._serve, theirs)
        return Connection(ours, address, timeout_s)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        wire = Wire(stream)
        try:
            while (frame := await wire.frame()) is not None:
                if sum(self.asked.values()) in self.breaks_after:
                    self.asked[ApiKey.API_VERSIONS] += 1
                    return
                throttle_ms, answer = await self._answer(frame)
                await stream.send_all(answer)
                await trio.sleep(throttle_ms / 1000)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, frame: bytes) -> tuple[int, bytes]:
        head = head_of(frame)
        api = ApiKey(head.api_key)
        self.asked[api] += 1
        body = request_body_of(frame, request_type(api), head.version)
        message = self._message(api, body)
        length = len(response(message, head.version)) - 4
        us = self._us(api, body, len(frame) - 4, length)
        await trio.sleep(us * US)
        self._idle_since_s = trio.current_time()
        throttle_ms = self._charge(_client_id(frame), us)
        if hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = throttle_ms
        return throttle_ms, response(message, head.version, head.correlation_id)

    def _charge(self, client_id: str, us: float) -> int:
        now_ms = int(trio.current_time() * 1000)
        limit = self.quotas.get(client_id, {}).get("request_percentage", UNLIMITED)
        self.used_us[client_id] += us  # type: ignore[assignment]  # Counter works with floats, too
        if client_id not in self.budgets:
            self.budgets[client_id] = Budget(Tags("", client_id), limit, now_ms, throttle_ms_max=WINDOW_MS)
        return self.budgets[client_id].charge(us * PERCENT_PER_US, now_ms)

    def _us(self, api: ApiKey, body: Message, request_bytes: int, response_bytes: int) -> float:
        features = {
            "us": 1.0,
            "us_per_request_kb": request_bytes / 1000,
            "us_per_response_kb": response_bytes / 1000,
        }
        if isinstance(body, ProduceRequest):
            parts = [part for topic in body.topic_data for part in topic.partition_data]
            features["us_per_partition"] = len(parts) - 1.0
            features["us_acks_all"] = float(body.acks == -1)
            features[UNPACKED["gzip"]] = sum(_unpacked(part.records or b"") for part in parts) / 1000
        cold = self.cold_us if trio.current_time() - self._idle_since_s > COLD_FROM_S else 0.0
        costs = self.costs.get(api, {"us": 30.0})
        return sum(costs.get(name, 0.0) * amount for name, amount in features.items()) + cold

    # Responses

    def _message(self, api: ApiKey, body: Message) -> Message:
        make = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_CONFIGS: self._configs,
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self._described,
            ApiKey.ALTER_CLIENT_QUOTAS: self._altered,
            ApiKey.CREATE_TOPICS: self._created,
            ApiKey.DELETE_TOPICS: self._deleted,
            ApiKey.FIND_COORDINATOR: lambda _body: FindCoordinatorResponse(node_id=NODE_ID),
            ApiKey.JOIN_GROUP: self._joined,
            ApiKey.DELETE_GROUPS: self._groups_deleted,
            ApiKey.FETCH: self._fetched,
        }.get(api)
        return response_type(api)() if make is None else make(body)

    def _api_versions(self, _body: Message) -> Message:
        entry = ApiVersionsResponse.ApiVersion
        keys = [entry(api_key=k, min_version=v[0], max_version=v[1]) for k, v in self.versions.items()]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, _body: Message) -> Message:
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host=f"kafka-{node}", port=9092)
            for node in (1, NODE_ID)
        ]
        partitions = [MetadataResponse.MetadataResponsePartition(replica_nodes=[NODE_ID])] * 34
        topics = [MetadataResponse.MetadataResponseTopic(name=name) for name in sorted(self.topics)]
        asked = getattr(_body, "topics", None)
        for topic in topics:
            topic.partitions = partitions if asked else []
        return MetadataResponse(brokers=brokers, topics=[] if asked == [] else topics)

    def _configs(self, body: Message) -> Message:
        assert isinstance(body, DescribeConfigsRequest)
        resource = body.resources[0]
        own = resource.resource_type != 4 or resource.resource_name == str(NODE_ID)
        configs = [
            DescribeConfigsResponse.DescribeConfigsResourceResult(name=name, value=value)
            for name, value in (("quota.window.num", "11"), ("quota.window.size.seconds", "1"))
        ]
        result = DescribeConfigsResponse.DescribeConfigsResult(
            error_code=0 if own else 42, configs=configs if own else []
        )
        return DescribeConfigsResponse(results=[result])

    def _described(self, _body: Message) -> Message:
        entry = DescribeClientQuotasResponse.EntryData
        entries = [
            entry(
                entity=[
                    DescribeClientQuotasResponse.EntityData(entity_type="client-id", entity_name=client_id)
                ],
                values=[
                    DescribeClientQuotasResponse.ValueData(key=key, value=value)
                    for key, value in values.items()
                ],
            )
            for client_id, values in self.quotas.items()
        ]
        return DescribeClientQuotasResponse(error_code=self.error_code, entries=entries)

    def _altered(self, body: Message) -> Message:
        assert isinstance(body, AlterClientQuotasRequest)
        for entry in body.entries if not self.error_code else []:
            (client_id,) = (part.entity_name or "" for part in entry.entity)
            for op in entry.ops:
                values = self.quotas.setdefault(client_id, {})
                if op.remove:
                    values.pop(op.key, None)
                else:
                    values[op.key] = op.value
                if not values:
                    del self.quotas[client_id]
        done = [AlterClientQuotasResponse.EntryData(error_code=self.error_code)]
        return AlterClientQuotasResponse(entries=done)

    def _created(self, body: Message) -> Message:
        assert isinstance(body, CreateTopicsRequest)
        if not body.validate_only:
            self.topics |= {topic.name for topic in body.topics}
        return CreateTopicsResponse(
            topics=[CreateTopicsResponse.CreatableTopicResult(name=topic.name) for topic in body.topics]
        )

    def _deleted(self, body: Message) -> Message:
        assert isinstance(body, DeleteTopicsRequest)
        names = [topic.name for topic in body.topics] or body.topic_names
        self.topics -= set(names)
        return DeleteTopicsResponse(
            responses=[DeleteTopicsResponse.DeletableTopicResult(name=name) for name in names]
        )

    def _joined(self, body: Message) -> Message:
        self.groups.add(str(getattr(body, "group_id", "")))
        return JoinGroupResponse(member_id="member", generation_id=1)

    def _groups_deleted(self, body: Message) -> Message:
        assert isinstance(body, DeleteGroupsRequest)
        self.groups -= set(body.groups_names)
        return DeleteGroupsResponse()

    def _fetched(self, body: Message) -> Message:
        assert isinstance(body, FetchRequest)
        (topic,) = body.topics
        sizes = {1: 170, 2: min(topic.partitions[0].partition_max_bytes, 500_000)}
        partitions = [
            FetchResponse.PartitionData(
                partition_index=part.partition, records=bytes(sizes.get(part.partition, 0))
            )
            for part in topic.partitions
        ]
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=partitions)]
        )


def _client_id(frame: bytes) -> str:
    length = int.from_bytes(frame[12:14])
    return frame[14 : 14 + length].decode()


def _unpacked(records: bytes) -> int:
    """Return the uncompressed size (bytes) of gzip records (codec 1 in the attributes of format 2), else
    0.
    """
    return len(gzip.decompress(records[61:])) if records[22] & 7 == 1 else 0
