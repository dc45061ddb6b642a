"""Response times in usage records: from a request's end to its response's beginning, without Weir's waits."""

from __future__ import annotations

from tests.proxy.usage_totals import Taken, counted_wire
from tests.proxy.wire import Wire, new_connection, quota_table
from tests.wire.frames import framed, header, padded, response
from tests.wire.messages import fetch, ping, pong, produce, produced
from weir.protocol.api import ApiKey
from weir.protocol.messages import FetchResponse


def feed(wire: Wire, now_ms: int, client: bytes = b"", broker: bytes = b"") -> None:
    wire.connection.clock.now_us = 1000 * now_ms
    wire.feed(now_ms, client, broker)


def response_times_ms(taken: Taken) -> dict[str, float]:
    return {record.api: record.response_time_us / 1000 for record in taken.drain()}


def test_response_time_of_a_large_request_begins_at_its_last_byte() -> None:
    taken, wire = counted_wire()
    frame = produce(length=200_000)
    feed(wire, 1, client=frame[:100_000])
    feed(wire, 50, client=frame[100_000:])
    feed(wire, 57, broker=produced())
    assert response_times_ms(taken) == {"produce": 7}


def test_response_time_ends_at_a_large_responses_first_bytes() -> None:
    taken, wire = counted_wire()
    answer = padded(response(FetchResponse(), 11), 1_000_000)
    feed(wire, 1, client=fetch())
    feed(wire, 4, broker=answer[:100_000])
    feed(wire, 90, broker=answer[100_000:])
    assert response_times_ms(taken) == {"fetch": 3}


def test_response_time_has_no_throttle_time_of_weir() -> None:
    taken, wire = counted_wire(new_connection(quota_table(produce=1000)))
    feed(wire, 1, client=produce(1, length=30_000) + ping(2))
    feed(wire, 3, broker=produced(1))
    until_ms = wire.connection.throttled_until_ms
    assert until_ms > 1000
    feed(wire, until_ms + 10)
    feed(wire, until_ms + 15, broker=pong(2))
    assert response_times_ms(taken) == {"produce": 2, "groups": 5}


def test_requests_without_a_brokers_response_add_no_response_time() -> None:
    taken, wire = counted_wire()
    too_new = framed(header(ApiKey.API_VERSIONS, 99, 1, b"app", tags=None))
    feed(wire, 1, client=too_new)
    feed(wire, 2, client=produce(2, acks=0))
    feed(wire, 9, client=ping(3))
    wire.connection.end(10)
    assert set(response_times_ms(taken).values()) == {0}
