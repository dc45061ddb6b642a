"""A simulated broker with known request costs and Kafka's request quotas, in memory, on Trio's clock."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import trio
from trio.testing import memory_stream_pair

from tests.kfake.client_quotas import QuotaCluster
from tests.kfake.cluster import Answer, Asked, Handler, up_to
from tests.kfake.controller import Controller
from tests.kfake.in_trio import Connection as Frames
from tests.wire.frames import Head, body_of, head_of, response
from weir.protocol.api import ApiKey
from weir.protocol.codec import response_type
from weir.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ProduceRequest,
)
from weir.protocol.values import Message
from weir.protocol.versions import VersionRange
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.connection import OwnConnection
from weir.quotas.costs.cost_fitting import UNPACKED
from weir.quotas.limiters.budgets import UNLIMITED, Budget
from weir.quotas.table.entities import Tags

ADDRESS: Final = Address("broker", 9092)
NODE_ID: Final = 7
WINDOW_MS: Final = 1000
COLD_FROM_S: Final = 0.0003
US: Final = 1e-6
PERCENT_PER_US: Final = 1e-4
VERSIONS: Final = up_to(
    {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 9,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 7,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 5,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 7,
        ApiKey.DELETE_TOPICS: 6,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
        ApiKey.ALTER_CLIENT_QUOTAS: 1,
    }
)
"""Versions of a 2.8 broker, without APIs that calibration does not use."""


@dataclass(kw_only=True)
class CalibratedBroker(Controller, QuotaCluster):
    """A broker whose requests take time, and are charged to quotas."""

    costs: Mapping[ApiKey, Mapping[str, float]]
    """Coefficients (µs) by API; requests of other APIs cost 30 µs."""
    cold_us: float = 0.0
    nodes: dict[int, Address] = field(
        default_factory=lambda: {node: Address(f"kafka-{node}", 9092) for node in (1, NODE_ID)}
    )
    spoken: dict[int, VersionRange] = field(default_factory=lambda: dict(VERSIONS))
    creates: bool = False
    accepts_configs: bool = True
    breaks_after: frozenset[int] = frozenset()
    """Numbers of requests, counted over all connections, at which the broker closes the connection."""
    groups: set[str] = field(default_factory=set)
    nursery: trio.Nursery | None = None
    used_us: Counter[str] = field(default_factory=Counter)
    """Request time (µs) by client-id."""
    budgets: dict[str, Budget] = field(default_factory=dict)
    _idle_since_s: float = 0.0

    def __post_init__(self) -> None:
        known: dict[int, Handler | Message] = {
            ApiKey.JOIN_GROUP: self._joined,
            ApiKey.DELETE_GROUPS: self._groups_deleted,
            ApiKey.FETCH: _fetched,
        }
        self.handlers = known | self.handlers
        super().__post_init__()

    @property
    def leader(self) -> int:
        return NODE_ID

    @property
    def quotas(self) -> dict[str, dict[str, float]]:
        return {entity["client-id"] or "": values for entity, values in self.stored}

    async def connect(self, address: Address, timeout_s: float) -> OwnConnection:
        """Open a connection, like `proxy.control.cluster.access.Access`."""
        assert self.nursery is not None
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self._serve, theirs)
        return OwnConnection(ours, address, timeout_s)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        frames = Frames(stream)
        try:
            while (frame := await frames.frame()) is not None:
                number = len(self.received)
                answer = self.answer(frame, int(1000 * trio.current_time()))
                if number in self.breaks_after:
                    return
                throttle_ms = await self._work(Asked(NODE_ID, frame), len(answer) - 4)
                await stream.send_all(with_throttle_ms(head_of(frame), answer, throttle_ms))
                await trio.sleep(throttle_ms / 1000)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionAbortedError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _work(self, asked: Asked, response_bytes: int) -> int:
        """Take the time that a request costs; return its throttle time (ms)."""
        api = ApiKey(head_of(asked.frame).api_key)
        us = self._us(api, asked.message, len(asked.frame) - 4, response_bytes)
        await trio.sleep(us * US)
        self._idle_since_s = trio.current_time()
        return self._charge(asked.client_id, us)

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

    def describe(self, request: DescribeConfigsRequest, *_: int) -> Answer:
        resource = request.resources[0]
        own = resource.resource_type != 4 or resource.resource_name == str(NODE_ID)
        configs = [
            DescribeConfigsResponse.DescribeConfigsResourceResult(name=name, value=value)
            for name, value in (("quota.window.num", "11"), ("quota.window.size.seconds", "1"))
        ]
        result = DescribeConfigsResponse.DescribeConfigsResult(
            error_code=0 if own else 42, configs=configs if own else []
        )
        return DescribeConfigsResponse(results=[result])

    def _joined(self, request: JoinGroupRequest, *_: int) -> Answer:
        self.groups.add(request.group_id)
        return JoinGroupResponse(member_id="member", generation_id=1)

    def _groups_deleted(self, request: DeleteGroupsRequest, *_: int) -> Answer:
        self.groups -= set(request.groups_names)
        return DeleteGroupsResponse()


def _fetched(request: FetchRequest, *_: int) -> Answer:
    (topic,) = request.topics
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


def with_throttle_ms(head: Head, frame: bytes, throttle_ms: int) -> bytes:
    """The response with this throttle time, if its version has the field."""
    message = body_of(frame, response_type(head.api_key), head.version)
    if hasattr(message, "throttle_time_ms"):
        message.throttle_time_ms = throttle_ms
    return response(message, head.version, head.correlation_id)


def _unpacked(records: bytes) -> int:
    """Return the uncompressed size (bytes) of gzip records (codec 1 in the attributes of format 2) and three
    times the compressed one, else 0.
    """
    packed = records[61:]
    return len(gzip.decompress(packed)) + 3 * len(packed) if records[22] & 7 == 1 else 0
