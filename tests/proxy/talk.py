"""What clients and brokers say in tests of relays."""

from __future__ import annotations

from protocol.messages import HeartbeatRequest, HeartbeatResponse, ProduceRequest, ProduceResponse
from tests.proxy.frames import padded, request, response
from tests.proxy.rigs import tcp_pair, unix_pair

PAIRS = {"unix": unix_pair, "tcp": tcp_pair}
MEGABYTE = 1 << 20


def ping(correlation_id: int = 1, group_id: str = "g") -> bytes:
    return request(HeartbeatRequest(group_id=group_id), 4, correlation_id)


def pong(correlation_id: int = 1) -> bytes:
    return response(HeartbeatResponse(), 4, correlation_id)


def produce(correlation_id: int = 1, length: int = 12_106, acks: int = 1) -> bytes:
    return padded(request(ProduceRequest(acks=acks), 7, correlation_id), length)


def produced(correlation_id: int = 1, throttle_ms: int = 0) -> bytes:
    return response(ProduceResponse(throttle_time_ms=throttle_ms), 7, correlation_id)


def large(frame: bytes, length: int = MEGABYTE) -> bytes:
    return padded(frame, length)
