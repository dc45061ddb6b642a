"""Calls of a connection's door in any order: bad bytes close the connection, and nothing raises."""

from random import Random

from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import request, response
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.waits import waits_because
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

KINDS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
APIS = {
    0: (ProduceRequest(acks=1), ProduceResponse(), 7),
    1: (FetchRequest(), FetchResponse(), 11),
    3: (MetadataRequest(), MetadataResponse(), 9),
    18: (ApiVersionsRequest(), ApiVersionsResponse(), 3),
    17: (SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(), 0),
}


def some_of(rng: Random, frame: bytes) -> bytes:
    """Mostly the frame, else one that is cut, or has a wrong byte."""
    cut, chance = rng.randrange(len(frame)), rng.random()
    return (
        frame if chance < 0.9 else frame[:cut] if chance < 0.95 else frame[:cut] + b"\x07" + frame[cut + 1 :]
    )


def test_no_order_of_calls_raises() -> None:
    ends: set[bool] = set()
    for seed in range(150):
        rng = Random(seed)
        values = {(Entity(client_id=DEFAULT), kind): rng.choice((0.01, 1e6)) for kind in KINDS}
        connection = new_connection(QuotaTable(values), in_flight_max=3, buffer_bytes=300)
        call_in_any_order(rng, connection)
        connection.end(connection.now_ms)
        ends.add(connection.effects.close_reason is None)
    assert ends == {True, False}


def call_in_any_order(rng: Random, connection: Connection) -> None:
    wire, now_ms, number = Wire(connection), 0, 0
    for _ in range(40):
        now_ms += rng.choice((0, 0, 1, 500, 31_000))
        asked, answered, version = rng.choice(list(APIS.values()))
        match rng.choices(range(8), (30, 30, 5, 5, 5, 5, 1, 1))[0]:
            case 0:
                number += 1
                wire.feed(now_ms, client=some_of(rng, request(asked, version, number)))
            case 1:
                oldest = connection.in_flight[0] if connection.in_flight else None
                if oldest is not None and oldest.plan.api_key in APIS:
                    _asked, answered, version = APIS[oldest.plan.api_key]
                correlation_id = number if oldest is None else oldest.correlation_id
                wire.feed(now_ms, broker=some_of(rng, response(answered, version, correlation_id)))
            case 2:
                connection.wake(now_ms)
            case 3:
                connection.settle(now_ms)
            case 4:
                connection.end_wait(now_ms)
            case 5:
                waits_because(connection, now_ms)
            case 6:
                rng.choice((wire.client_ends, wire.broker_ends))()
            case _:
                connection.drain(rng.choice((CloseReason.DRAINED, CloseReason.CONNECTION_AGE)))
