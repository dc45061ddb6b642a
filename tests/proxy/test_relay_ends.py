"""How relays on loopback sockets end: from either side, with what reason, and what is still done."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from tests.proxy.rigs import PAIRS, Rig, reset, tcp_pair, unix_pair
from tests.proxy.wire import new_connection, quota_table
from tests.wire.frames import framed, padded
from tests.wire.messages import ping, pong, produce
from weir.proxy.close_reasons import CloseReason


@pytest.mark.parametrize("pair", PAIRS)
def test_a_half_closed_client_gets_a_large_response_whole(new_rig: Callable[..., Rig], pair: str) -> None:
    """Its request leaves the queue as soon as the answer begins: that must not look like the end."""
    rig = new_rig(pair=PAIRS[pair])
    rig.send(rig.client, ping(1))
    rig.client.shutdown(socket.SHUT_WR)
    rig.expect(rig.broker, ping(1))
    assert rig.pass_on(padded(pong(1)), rig.broker, rig.client) == padded(pong(1))
    assert rig.end() is CloseReason.CLIENT_CLOSED


def test_acks_0_data_unread_before_a_mute_arrives_after_the_client_closed(
    new_rig: Callable[..., Rig],
) -> None:
    first, second = produce(1, acks=0), produce(2, acks=0)
    rig = new_rig(quota_table(produce=1000), pair=tcp_pair)
    rig.send(rig.client, first)
    rig.expect(rig.broker, first)
    rig.send(rig.client, second)
    rig.client.close()
    rig.until(2105)
    rig.expect(rig.broker, b"")
    rig.until(2106)
    rig.expect(rig.broker, second)
    rig.until(60_000)
    assert rig.end() is CloseReason.CLIENT_CLOSED


def test_a_clients_reset_is_counted_as_client_reset(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(pair=tcp_pair)
    rig.pass_on(ping(), rig.client, rig.broker)
    reset(rig.client)
    assert rig.end() is CloseReason.CLIENT_RESET
    assert rig.at_end(rig.broker)


def test_a_muted_client_that_resets_is_noticed(new_rig: Callable[..., Rig]) -> None:
    """At once: epoll reports broken connections unasked."""
    rig = new_rig(quota_table(produce=1000), pair=tcp_pair)
    rig.send(rig.client, produce())
    rig.expect(rig.broker, produce())
    reset(rig.client)
    assert rig.end() is CloseReason.CLIENT_RESET
    assert rig.clock.now_ms == 0


def test_a_brokers_reset_is_counted_as_broker_reset(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(pair=tcp_pair)
    rig.pass_on(ping(), rig.client, rig.broker)
    reset(rig.broker)
    assert rig.end() is CloseReason.BROKER_RESET
    assert rig.at_end(rig.client)


def test_data_sent_before_the_broker_closed_reaches_a_slow_client(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(pair=unix_pair, broker_pair=tcp_pair)
    rig.pass_on(ping(1), rig.client, rig.broker)
    answer = rest = padded(pong(1), 100_000)
    for _ in range(100):
        rest = rig.send(rig.broker, rest) if rest else b""
        rig.turn()
    assert not rest
    assert rig.relay._client.unsent
    rig.broker.close()
    rig.turn(2)
    assert rig.reason is None
    rig.expect(rig.client, answer)
    assert rig.end() is CloseReason.BROKER_CLOSED


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 32, CloseReason.TLS_ON_PLAIN_PORT),
        (b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n", CloseReason.REQUEST_TOO_LARGE),
        (b"\xff" * 64, CloseReason.REQUEST_TOO_SHORT),
        (bytes(64), CloseReason.REQUEST_TOO_SHORT),
        (framed(b"\0\0\0\x07\0\0\0\x01\x7f\x00" + bytes(50)), CloseReason.REQUEST_MALFORMED),
    ],
    ids=["tls", "http", "ones", "zeros", "client-id beyond the frame"],
)
def test_a_connection_that_does_not_speak_kafka_is_closed_with_a_reason(
    new_rig: Callable[..., Rig], sent: bytes, reason: CloseReason
) -> None:
    rig = new_rig(quota_table(produce=1000))
    assert rig.pass_on(sent, rig.client, rig.broker) == b""
    assert rig.reason is reason
    assert rig.at_end(rig.client)
    assert rig.at_end(rig.broker)


def test_a_bug_in_a_plan_ends_only_its_connection(new_rig: Callable[..., Rig]) -> None:
    def admit(*_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    connection = new_connection()
    connection.plans.make(12, 4).admit = admit  # type: ignore[assignment]  # that is the point
    rig = new_rig(connection=connection)
    with capture_logs() as logged:
        rig.pass_on(ping(), rig.client, rig.broker)
    assert rig.ends == [(CloseReason.INTERNAL_ERROR, "ZeroDivisionError: a bug")]
    assert ["please report this" in line["event"] for line in logged] == [True]


# Who is gone


UNDELIVERED_BYTES = 2_000_000
"""More than the kernel takes for a client that does not read, less than it takes from a sender."""


def test_a_drained_client_that_keeps_sending_gets_every_response(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(pair=tcp_pair)
    answer = padded(pong(1), UNDELIVERED_BYTES)
    rig.send(rig.client, ping(1))
    rig.expect(rig.broker, ping(1))
    rig.relay.drain()
    rig.send(rig.client, ping(2) * 100)
    received, rest = bytearray(), rig.send(rig.broker, answer)
    while rig.reason is None:  # the client reads only while the relay has unsent bytes
        rest = rig.send(rig.broker, rest) if rest else rest
        rig.turn()
        if rig.relay._client.unsent:
            received += rig.take(rig.client)
    assert rig.reason is CloseReason.DRAINED
    assert rig.at_end(rig.broker)
    rig.send(rig.client, ping(3) * 100)
    rig.turn(4)
    assert len(received) < len(answer), "some is still on its way"
    received += rig.take(rig.client)
    while len(received) < len(answer) and (part := rig.take(rig.client)):
        received += part
    assert received == answer
    assert rig.at_end(rig.client)


def test_the_bytes_of_a_drained_client_are_discarded_until_it_closes(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(pair=tcp_pair)
    rig.relay.drain()
    assert rig.reason is CloseReason.DRAINED
    assert rig.client.recv(1) == b""
    closed: list[int] = []
    assert rig.relay.lingering is not None
    rig.relay.lingering.on_close = lambda: closed.append(1)
    for _ in range(10):
        assert rig.send(rig.client, ping(1)) == b""
        rig.turn()
    assert closed == []
    rig.client.close()
    for _ in range(4):
        rig.turn()
    assert closed == [1]


def test_a_drained_client_that_never_closes_is_closed_after_a_second(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(pair=tcp_pair)
    rig.relay.drain()
    closed: list[int] = []
    assert rig.relay.lingering is not None
    rig.relay.lingering.on_close = lambda: closed.append(1)
    rig.until(999)
    assert closed == []
    rig.until(1000)
    assert closed == [1]
    assert rig.reactor.timeout_s() is None
