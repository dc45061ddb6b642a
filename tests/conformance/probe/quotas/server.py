"""A small server with quotas, right or wrong in one way. It answers what the jobs of the profile ask."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

from tests.kfake.cluster import Asked, Cluster
from tests.kfake.threads import Brokers
from tests.wire.frames import head_of, response
from weir.conformance.probe.link import ProbeTarget
from weir.conformance.probe.quotas import bandwidth, mutations
from weir.conformance.probe.quotas.client import BrokerEndpoint
from weir.conformance.probe.quotas.jobs import Stage, has_throttle_field
from weir.protocol.api import ApiKey
from weir.protocol.codec import response_type
from weir.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.protocol.values import ZERO_UUID, Message
from weir.protocol.versions import VersionRange

PREFIX = "weir-probe-test-"
REQUEST_THROTTLE_MS = 120
"""Short, so that tests are fast: up to a window is permitted."""
LENGTH = struct.Struct(">i")


@dataclass
class Wrong:
    """Ways of a server to be wrong; all False is right."""

    no_quotas: bool = False
    """It does not know any quota."""
    no_mute: bool = False
    """It tells throttle times, and reads on."""
    holds: bool = False
    """It waits before its throttled response, and not after it, like brokers before 2.0."""
    everybody: bool = False
    """It throttles clients without a quota."""
    mutes_all: bool = False
    """A throttle time stops all connections."""
    keeps_records: bool = False
    """A throttled fetch has records."""
    refuses_old: bool = False
    """It answers error 89 in versions that do not know it."""
    never_refuses: bool = False
    """It never answers error 89."""
    zero_field: bool = False
    """The throttle time is 0, but the connection is muted."""


class Server(Brokers):
    def __init__(self, wrong: Wrong | None = None) -> None:
        super().__init__(Cluster())
        self.wrong = wrong or Wrong()
        self.used: dict[str, int] = {}
        """Bytes by client-id."""
        self.missing: dict[str, float] = {}
        """Time (s) at which the bucket of a client-id is filled to zero again."""
        self._stopped_until = 0.0

    def stage(self, **versions: str) -> Stage:
        """A stage for jobs; versions by the name of the API, Produce v9 among them."""
        offered = {"PRODUCE": "9", "METADATA": "1"} | versions
        endpoint = BrokerEndpoint(ProbeTarget("127.0.0.1", self.ports[0], 10.0))
        parsed = {int(ApiKey[name]): VersionRange.parse(text) for name, text in offered.items()}
        return Stage(endpoint, endpoint, parsed, "scratch", ZERO_UUID, PREFIX)

    def answer(self, connection: socket.socket, frame: bytes, _node_id: int) -> None:
        asked, head = Asked(0, frame), head_of(frame)
        key, version, request = head.api_key, head.version, asked.message
        told, throttle_ms = self._answer(key, version, asked.client_id, request, len(frame) - 4)
        until = time.monotonic() + throttle_ms / 1000
        if self.wrong.mutes_all:
            self._stopped_until = max(self._stopped_until, until)
        if self.wrong.holds:
            _wait(until)
        if has_throttle_field(key, version) and not self.wrong.zero_field:
            told.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # it has the field
        if isinstance(request, ProduceRequest) and request.acks == 0:
            _wait(0 if self.wrong.no_mute else until)
            return
        connection.sendall(response(told, version, head.correlation_id))
        if not self.wrong.no_mute:
            _wait(max(until, self._stopped_until))

    def _answer(
        self, key: int, version: int, client_id: str, request: Message, size: int
    ) -> tuple[Message, int]:
        """A response, and its throttle time (ms)."""
        if isinstance(request, ProduceRequest):
            part = ProduceResponse.PartitionProduceResponse(index=0)
            topic = ProduceResponse.TopicProduceResponse(name="scratch", partition_responses=[part])
            return ProduceResponse(responses=[topic]), self._bytes("produce", client_id, size)
        if isinstance(request, FetchRequest):
            return self._fetched(client_id)
        if isinstance(request, CreateTopicsRequest):
            return self._created(version, client_id, request)
        return self._other(key, client_id)

    def _other(self, key: int, client_id: str) -> tuple[Message, int]:
        throttle_ms = self._time(client_id)
        if key == ApiKey.METADATA:
            return MetadataResponse(brokers=[], topics=[]), throttle_ms
        return response_type(key)(), throttle_ms

    def _time(self, client_id: str) -> int:
        limited = client_id.startswith(PREFIX + "request-") and not self.wrong.no_quotas
        return REQUEST_THROTTLE_MS if limited or self.wrong.everybody else 0

    def _bytes(self, kind: str, client_id: str, size: int) -> int:
        """Throttle time (ms) for the bytes of a client-id, and for the time of the request."""
        if not client_id.startswith(PREFIX + kind) or self.wrong.no_quotas:
            return self._time(client_id)
        used = self.used[client_id] = self.used.get(client_id, 0) + size
        return max(0, int(used / bandwidth.RATE * 1000) - 10_000)

    def _fetched(self, client_id: str) -> tuple[Message, int]:
        throttle_ms = self._bytes("fetch", client_id, bandwidth.FETCH_BYTES)
        brings = not throttle_ms or self.wrong.keeps_records
        records = bytes(bandwidth.FETCH_BYTES) if brings else b""
        part = FetchResponse.PartitionData(partition_index=0, records=records)
        topic = FetchResponse.FetchableTopicResponse(topic="scratch", partitions=[part])
        return FetchResponse(responses=[topic]), throttle_ms

    def _created(self, version: int, client_id: str, request: CreateTopicsRequest) -> tuple[Message, int]:
        now = time.monotonic()
        refused, throttle_ms = False, 0
        strict = version >= 6
        if not self.wrong.no_quotas:
            left_ms = int((self.missing.get(client_id, now) - now) * 1000)
            wants = strict or self.wrong.refuses_old
            refused = left_ms > 0 and wants and not self.wrong.never_refuses
            if left_ms <= 0:
                owed = request.topics[0].num_partitions - mutations.RATE * 11
                self.missing[client_id] = now + owed / mutations.RATE
            throttle_ms = int((self.missing[client_id] - now) * 1000) if refused or not strict else 0
        made = CreateTopicsResponse.CreatableTopicResult(
            name=request.topics[0].name, error_code=89 if refused else 0
        )
        return CreateTopicsResponse(topics=[made]), throttle_ms


def _wait(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))  # the mute itself
