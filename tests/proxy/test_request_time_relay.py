"""Request time between real sockets: nobody is stalled, nothing is lost, and what is cut is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.messages import ProduceRequest
from proxy.close_reasons import CloseReason
from quotas import QuotaTable
from tests.proxy.request_costs import EACH_US, LIMIT_US, charged_us, spend, time_table, timed
from tests.proxy.rigs import PAIRS, Rig
from tests.wire.frames import request, split
from tests.wire.messages import ping, pong, produce, produced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proxy.rigs import NewPair


@pytest.fixture(params=sorted(PAIRS))
def pair(request: pytest.FixtureRequest) -> NewPair:
    return PAIRS[request.param]


@pytest.fixture
def rig(pair: NewPair) -> Iterator[Rig]:
    """A client that may use 1000 µs in ten seconds, 50 µs for each request."""
    made = Rig(session=timed(), pair=pair)
    made.session.clock = made.reactor.clock
    yield made
    made.close()


def answer(rig: Rig, frames: list[bytes]) -> None:
    if frames:
        assert not rig.send(rig.broker, b"".join(pong(int.from_bytes(frame[8:12])) for frame in frames))


def run(rig: Rig, until_ms: int) -> tuple[int, int]:
    """A broker answers at once, for so long; return what it was asked, and what the client was answered."""
    asked = answered = 0
    for now_ms in range(rig.clock.now_ms, until_ms + 1, 50):
        rig.until(now_ms)
        for _turn in range(6):
            frames = split(rig.take(rig.broker))
            asked += len(frames)
            answer(rig, frames)
            rig.turn(3)
            answered += len(split(rig.take(rig.client)))
    return asked, answered


def test_a_pipelining_client_over_its_request_time_is_answered_in_full(rig: Rig) -> None:
    """100 at once: 20 are free, 12 more were under way; the others come one by one, 1 s apart at most."""
    rig.send(rig.client, b"".join(ping(number) for number in range(100)))
    asked, answered = run(rig, 11_000)
    assert asked == answered
    assert 32 + 11 <= asked <= 32 + 23
    assert rig.reason is None
    asked_later, answered_later = run(rig, 60_000)
    assert asked + asked_later == answered + answered_later == 100
    assert charged_us(rig.session) == 100 * EACH_US


def test_a_client_near_its_limit_continues_right_after_each_response(rig: Rig) -> None:
    spend(rig.session, LIMIT_US * 0.6)
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


def test_large_requests_of_a_client_near_its_limit_are_forwarded_in_full(rig: Rig) -> None:
    spend(rig.session, LIMIT_US * 0.6)
    for number in range(3):
        asked = produce(number, 700_000)
        assert rig.pass_on(asked, rig.client, rig.broker) == asked
        rig.send(rig.client, ping(9))
        rig.turn(3)
        assert rig.take(rig.broker) == b""
        assert rig.pass_on(produced(number), rig.broker, rig.client) == produced(number)
        rig.expect(rig.broker, ping(9))
        assert rig.pass_on(pong(9), rig.broker, rig.client) == pong(9)


def test_a_half_closed_client_near_its_limit_gets_every_response(rig: Rig) -> None:
    """Near its limit: one at a time, the last ones after it has said that it sends no more."""
    spend(rig.session, LIMIT_US * 0.6)
    rig.send(rig.client, b"".join(ping(number) for number in range(3)))
    rig.turn(2)
    rig.client.shutdown(1)
    asked, answered = run(rig, 200)
    assert (asked, answered) == (3, 3)
    assert rig.end() is CloseReason.CLIENT_CLOSED


def test_requests_to_a_broker_that_closed_are_charged_request_time(rig: Rig) -> None:
    rig.send(rig.client, b"".join(ping(number) for number in range(5)))
    rig.turn(3)
    rig.broker.close()
    assert rig.end() is not None
    assert charged_us(rig.session) == 5 * EACH_US


def test_draining_completes_a_serial_request_and_drops_the_held_one(rig: Rig) -> None:
    spend(rig.session, LIMIT_US * 0.6)
    rig.send(rig.client, ping(1) + ping(2))
    rig.turn(3)
    rig.relay.drain()
    rig.turn(3)
    assert rig.take(rig.broker) == ping(1)
    answer(rig, [ping(1)])
    rig.turn(4)
    assert rig.take(rig.client) == pong(1)
    assert rig.end() is CloseReason.DRAINED


def test_acks_0_requests_of_a_throttled_client_arrive_after_it_closed(rig: Rig) -> None:
    """At a client whose entity is told to wait: acks=0 costs no time."""
    spend(rig.session, LIMIT_US * 2)
    many = [request(ProduceRequest(acks=0), 7, number) for number in range(5)]
    rig.send(rig.client, b"".join(many))
    rig.client.close()
    rig.turn(4)
    assert rig.take(rig.broker) == b"".join(many)


def test_a_removed_request_time_quota_neither_shortens_nor_stalls_a_throttle(rig: Rig) -> None:
    spend(rig.session, LIMIT_US)
    rig.session.client.first_request_seen = True
    rig.send(rig.client, ping(1) + ping(2))
    rig.turn(3)
    answer(rig, split(rig.take(rig.broker)))
    rig.turn(3)
    assert rig.take(rig.client) == pong(1, 500)
    rig.session.quotas.update(QuotaTable())
    rig.until(499)
    assert rig.take(rig.broker) == b""
    rig.until(500)
    assert rig.take(rig.broker) == ping(2)
    rig.session.quotas.update(time_table())
    answer(rig, [ping(2)])
    rig.turn(3)
    assert rig.take(rig.client) == pong(2)
