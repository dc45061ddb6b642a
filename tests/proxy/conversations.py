"""Conversations of a client with a broker, cut into chunks anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.proxy.wire import Wire
from tests.wire.frames import (
    framed,
    head_of,
    header,
    request,
    response,
    split,
    unknown_request,
    unknown_response,
)
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.proxy.connection.connection import Connection
from weir.quotas import Entity, QuotaKey, QuotaTable

SMALL_BYTES = 400
"""A buffer in which every head fits, and not much more."""
TABLE = QuotaTable(
    {
        (Entity(client_id="slow"), QuotaKey.PRODUCER_BYTE_RATE): 50,
        (Entity(client_id="slow"), QuotaKey.CONSUMER_BYTE_RATE): 50,
        (Entity(client_id="fast"), QuotaKey.PRODUCER_BYTE_RATE): 1e9,
        (Entity(client_id="fast"), QuotaKey.CONSUMER_BYTE_RATE): 1e9,
    }
)


@dataclass(frozen=True)
class Exchange:
    """A request, and what a broker answers to it; None if it does not, or never hears of it."""

    asked: bytes
    answer: bytes | None = None
    own: bool = False
    """Answered by Weir."""


SIZES = st.sampled_from([0, 1, 50, 380, 390, 400, 410, 900, 3000])
CLIENTS = st.sampled_from([b"slow", b"fast", b"free", b"", None, b"\xff"])


@st.composite
def exchanges(draw: st.DrawFn) -> list[Exchange]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=8))
    return [KINDS[kind](draw, number) for number, kind in enumerate(kinds, 100)]


def _produce(draw: st.DrawFn, number: int) -> Exchange:
    version = draw(st.sampled_from([0, 2, 3, 8, 9, 10, 12]))
    acks, size = draw(st.sampled_from([-1, 0, 1])), draw(SIZES)
    partition = ProduceRequest.PartitionProduceData(records=b"r" * size)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    asked = request(ProduceRequest(acks=acks, topic_data=[topic]), version, number, draw(CLIENTS))
    if not acks:
        return Exchange(asked)
    name = "n" * draw(SIZES)
    value = ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(name=name)],
        throttle_time_ms=draw(st.sampled_from([0, 10**6])) if version else 0,
    )
    if version >= 10 and len(name) < SMALL_BYTES // 2 and draw(st.booleans()):  # else they are masked
        value.node_endpoints = [ProduceResponse.NodeEndpoint(node_id=1, host="kafka", port=9092)]
    return Exchange(asked, response(value, version, number))


def _fetch(draw: st.DrawFn, number: int) -> Exchange:
    version = draw(st.sampled_from([0, 1, 3, 11, 12, 15, 16, 18]))
    partition = FetchResponse.PartitionData(records=b"r" * draw(SIZES))
    value = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    asked = request(FetchRequest(max_bytes=2**31 - 1), version, number, draw(CLIENTS))
    return Exchange(asked, response(value, version, number))


def _metadata(draw: st.DrawFn, number: int) -> Exchange:
    version = draw(st.sampled_from([0, 3, 8, 9, 12]))
    broker = MetadataResponse.MetadataResponseBroker
    value = MetadataResponse(
        brokers=[broker(node_id=n, host="k" * draw(st.integers(1, 6)), port=9092) for n in (1, 2, 5000)],
        topics=[MetadataResponse.MetadataResponseTopic(name="t" * draw(SIZES))],
    )
    return Exchange(request(MetadataRequest(topics=[]), version, number), response(value, version, number))


def _api_versions(draw: st.DrawFn, number: int) -> Exchange:
    version = draw(st.integers(0, 4))
    entry = ApiVersionsResponse.ApiVersion(api_key=1, max_version=draw(st.integers(0, 99)))
    value = ApiVersionsResponse(api_keys=[entry] * draw(st.integers(0, 60)))
    return Exchange(request(ApiVersionsRequest(), version, number), response(value, version, number))


def _too_new(draw: st.DrawFn, number: int) -> Exchange:
    body = draw(st.binary(max_size=50))
    return Exchange(framed(header(ApiKey.API_VERSIONS, 99, number, b"free", tags=None) + body), own=True)


def _heartbeat(draw: st.DrawFn, number: int) -> Exchange:
    asked = request(HeartbeatRequest(group_id="g" * draw(SIZES)), 4, number)
    return Exchange(asked, response(HeartbeatResponse(), 4, number))


def _unknown(draw: st.DrawFn, number: int) -> Exchange:
    body = draw(st.binary(max_size=20)) + bytes(draw(SIZES))
    return Exchange(unknown_request(999, 1, number, body), unknown_response(number, body))


KINDS: dict[str, Callable[[st.DrawFn, int], Exchange]] = {
    "produce": _produce,
    "fetch": _fetch,
    "metadata": _metadata,
    "api_versions": _api_versions,
    "too_new": _too_new,
    "heartbeat": _heartbeat,
    "unknown": _unknown,
}


@dataclass
class Conversation:
    """A client that sends all it has, a broker that answers whole requests, and the cuts between."""

    script: list[Exchange]
    cuts: Any
    """Draws how many bytes come next: an iterator of positive integers."""
    connection: Connection
    now_ms: int = 0
    outcome: dict[str, object] = field(default_factory=dict)

    def run(self) -> dict[str, object]:
        """Let it happen; time passes only when nothing else can."""
        wire, connection = Wire(self.connection), self.connection
        sent, answers, answered = b"".join(e.asked for e in self.script), b"", 0
        by_number = {head_of(e.asked).correlation_id: e.answer for e in self.script}
        while connection.effects.close_reason is None:
            complete = [
                f for f in split(bytes(wire.to_broker)) if len(f) >= 4 and len(f) == 4 + int.from_bytes(f[:4])
            ]
            for frame in complete[answered:]:
                answers += by_number[head_of(frame).correlation_id] or b""
            answered = len(complete)
            client, broker = next(self.cuts), next(self.cuts)
            if sent or answers:
                wire.feed(self.now_ms, sent[:client], answers[:broker])
                sent, answers = sent[client:], answers[broker:]
                continue
            deadlines = [
                t
                for t in (connection.throttled_until_ms, connection.broker_end.held_until_ms)
                if t > self.now_ms
            ]
            if not deadlines:
                break
            self.now_ms = min(deadlines)
            wire.feed(self.now_ms)
        return {
            "violation": connection.effects.close_reason,
            "to_broker": bytes(wire.to_broker),
            "to_client": bytes(wire.to_client),
            "left": wire.waiting_bytes,
            "in_flight": list(connection.in_flight),
            "rest": (connection.client_end.rest_bytes, connection.broker_end.rest_bytes),
            "charged": {
                (kind, b.tags.client_id): (b.charged, b.throttled)
                for kind in ("produce", "fetch")
                for b in getattr(connection.quotas, kind)
            },
            "idle": connection.idle,
        }


def cut(cuts: list[int]) -> Any:
    while True:
        yield from cuts
