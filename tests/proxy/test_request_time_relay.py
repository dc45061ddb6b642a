"""Request time between real sockets: nobody is stalled, nothing is lost, and what is cut is charged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy.request_costs import EACH_US, LIMIT_US, charged_us, spend, time_table, timed
from tests.proxy.rigs import PAIRS, NewPair, Rig
from tests.quotas.changes import put_in_force
from tests.wire.frames import split
from tests.wire.messages import ping, pong
from weir.quotas import QuotaTable


@pytest.fixture(params=sorted(PAIRS))
def pair(request: pytest.FixtureRequest) -> NewPair:
    return PAIRS[request.param]


@pytest.fixture
def rig(pair: NewPair) -> Iterator[Rig]:
    """A client that may use 1000 µs in ten seconds, 50 µs for each request."""
    made = Rig(connection=timed(), pair=pair)
    made.connection.clock = made.reactor.clock
    yield made
    made.close()


def answer(rig: Rig, frames: list[bytes]) -> None:
    if frames:
        assert not rig.send(rig.broker, b"".join(pong(int.from_bytes(frame[8:12])) for frame in frames))


def test_a_client_near_its_limit_continues_right_after_each_response(rig: Rig) -> None:
    spend(rig.connection, LIMIT_US * 0.6)
    for number in range(3):
        rig.send(rig.client, ping(number))
        rig.turn(3)
        assert split(rig.take(rig.broker)) == [ping(number)]
        rig.send(rig.client, ping(10 + number))  # too early
        rig.turn(3)
        assert rig.take(rig.broker) == b""
        answer(rig, [ping(number)])
        rig.turn(4)
        assert rig.take(rig.client) == pong(number)
        assert rig.take(rig.broker) == ping(10 + number)
        answer(rig, [ping(10 + number)])
        rig.turn(4)
        assert rig.take(rig.client) == pong(10 + number)


def test_requests_to_a_broker_that_closed_are_charged_request_time(rig: Rig) -> None:
    rig.send(rig.client, b"".join(ping(number) for number in range(5)))
    rig.turn(3)
    rig.broker.close()
    assert rig.end() is not None
    assert charged_us(rig.connection) == 5 * EACH_US


def test_a_removed_request_time_quota_neither_shortens_nor_stalls_a_throttle(rig: Rig) -> None:
    spend(rig.connection, LIMIT_US)
    rig.connection.client.first_request_seen = True
    rig.send(rig.client, ping(1) + ping(2))
    rig.turn(3)
    answer(rig, split(rig.take(rig.broker)))
    rig.turn(3)
    assert rig.take(rig.client) == pong(1, 500)
    put_in_force(rig.connection.quotas, QuotaTable())
    rig.until(499)
    assert rig.take(rig.broker) == b""
    rig.until(500)
    assert rig.take(rig.broker) == ping(2)
    put_in_force(rig.connection.quotas, time_table())
    answer(rig, [ping(2)])
    rig.turn(3)
    assert rig.take(rig.client) == pong(2)
