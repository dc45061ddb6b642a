"""Queries: questions of Weir's on the client's connection, in order, in pieces, and when they go wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import pytest
from structlog.testing import capture_logs

from tests.proxy.broker_query import answer, asked, connection_of, delete, deleted, questions, result
from tests.proxy.playbook import Playbook
from tests.proxy.rigs import Rig
from tests.wire.frames import framed, padded
from tests.wire.messages import ping, pong
from weir.protocol.errors import EncodeError
from weir.protocol.messages import DeleteTopicsResponse, MetadataRequest, MetadataResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import BrokerQuery, ask

SMALL_BYTES: Final = 400


def two() -> BrokerQuery:
    return questions(2)


# Order


def test_later_requests_wait_behind_a_broker_query() -> None:
    with Playbook(connection=connection_of(two)) as play:
        play.client(ping(1), ping(2), delete(3), ping(4), delete(5))
        play.to_broker(ping(1), ping(2), asked(3, 0))
        play.returns(pong(1))
        play.broker(pong(2), answer(3))
        play.to_client(pong(2))
        play.to_broker(asked(3, 1))
        play.returns(answer(3), told=deleted(3, "c"))
        play.to_broker(ping(4), asked(5, 0))
        play.broker(pong(4), answer(5))
        play.to_client(pong(4))
        play.to_broker(asked(5, 1))
        play.returns(answer(5), told=deleted(5, "c"))


def test_a_request_is_decided_again_after_an_informative_broker_query() -> None:
    def find_out() -> BrokerQuery:
        yield from questions(1)
        return None

    with Playbook(connection=connection_of(find_out, again=True)) as play:
        play.client(delete(1), ping(2))
        play.to_broker(asked(1))
        play.broker(answer(1))
        play.to_broker(delete(1), ping(2))
        play.returns(deleted(1), pong(2))


@pytest.mark.parametrize("client_id", [None, b"", b"\xff\xfe", b"x" * 20_000])
def test_broker_queries_carry_the_clients_client_id(client_id: bytes | None) -> None:
    with Playbook(connection=connection_of(two)) as play:
        play.client(delete(1, client_id=client_id))
        play.to_broker(asked(1, 0, client_id))


def test_broker_queries_count_towards_the_in_flight_limit() -> None:
    with Playbook(connection=connection_of(two, in_flight_max=2)) as play:
        play.client(ping(1), delete(2), ping(3))
        play.to_broker(ping(1), asked(2, 0))
        play.broker(pong(1), answer(2))
        play.to_client(pong(1))
        play.to_broker(asked(2, 1))
        play.returns(answer(2), told=deleted(2, "c"))
        play.to_broker(ping(3))


# Pieces


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_request_with_broker_queries_is_buffered_up_to_a_bound(beyond: int) -> None:
    most = 2000
    large = padded(delete(1), most + beyond)
    with Playbook(connection=connection_of(two, buffer_bytes=SMALL_BYTES, held_bytes_max=most)) as play:
        play.client(large)
        if beyond:
            play.violation(CloseReason.REQUEST_TOO_LARGE, saying="limit 2000")
        else:
            play.to_broker(asked())


# What goes wrong


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (framed(struct.pack(">i", 1) + b"\x00\xff\xff\xff"), CloseReason.RESPONSE_MALFORMED),
        (framed(struct.pack(">i", 1)), CloseReason.RESPONSE_MALFORMED),
        (framed(answer(1)[4:] + b"more"), CloseReason.RESPONSE_MALFORMED),
        (framed(answer(1)[4:-2]), CloseReason.RESPONSE_MALFORMED),
        (answer(2), CloseReason.RESPONSE_UNEXPECTED),
        (b"\xff\xff\xff\xff" + answer(1), CloseReason.RESPONSE_LENGTH_WRONG),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", CloseReason.RESPONSE_UNEXPECTED),
    ],
)
def test_a_malformed_query_response_is_the_brokers_violation(broken: bytes, reason: CloseReason) -> None:
    with Playbook(connection=connection_of(two)) as play:
        play.client(delete())
        play.to_broker(asked())
        play.broker(broken)
        play.violation(reason)


def test_an_unexpected_query_response_is_the_brokers_violation() -> None:
    with Playbook(connection=connection_of(lambda: questions(1))) as play:
        play.client(delete())
        play.to_broker(asked())
        play.broker(answer(), answer())
        play.to_client(deleted(1, "c"))
        play.violation(CloseReason.RESPONSE_UNEXPECTED)


def test_a_broker_query_that_its_version_cannot_encode_raises_an_error() -> None:
    def unspeakable() -> BrokerQuery:
        try:
            yield from ask(MetadataRequest(topics=None), 0, MetadataResponse)
        except EncodeError as error:
            return DeleteTopicsResponse(responses=[result(error.field)])
        raise AssertionError("version 0 cannot ask for all by null")

    with Playbook(connection=connection_of(unspeakable)) as play:
        play.client(delete())
        play.to_client(deleted(1, "topics"))


def test_a_request_is_decided_again_while_draining() -> None:
    def find_out() -> BrokerQuery:
        yield from questions(1)
        return None

    with Playbook(connection=connection_of(find_out, again=True)) as play:
        play.client(delete(1))
        play.to_broker(asked(1))
        play.drain()
        play.broker(answer())
        play.to_broker(delete(1))
        play.returns(deleted(1))
        play.closed(CloseReason.DRAINED)


# On sockets


def test_a_bug_in_a_broker_query_ends_only_its_connection(new_rig: Callable[..., Rig]) -> None:
    def broken() -> BrokerQuery:
        yield from questions(1)
        raise ZeroDivisionError("a bug")

    rig = new_rig(connection=connection_of(broken))
    rig.send(rig.client, delete())
    rig.expect(rig.broker, asked(1, 0))
    with capture_logs() as logs:
        rig.send(rig.broker, answer())
        assert rig.end() is CloseReason.INTERNAL_ERROR
    assert [entry["log_level"] for entry in logs] == ["error"]


def test_an_unfinished_broker_query_is_closed_with_its_connection(new_rig: Callable[..., Rig]) -> None:
    heard = []

    def listening() -> BrokerQuery:
        try:
            return (yield from questions(2))
        finally:
            heard.append("end")

    rig = new_rig(connection=connection_of(listening))
    rig.send(rig.client, delete())
    rig.expect(rig.broker, asked(1, 0))
    rig.broker.close()
    rig.end()
    rig.connection.in_flight.clear()
    assert heard == ["end"]
