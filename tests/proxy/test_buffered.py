"""The limit of the bytes that all relays together keep or have not sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.proxy.rigs import Clock, Rig
from tests.proxy.stage import PING, PONG
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.buffered import AGAIN_MS, GRACE_MS, BufferedBytes
from weir.proxy.net.reactor import Reactor


class Relay:
    """A relay as `BufferedBytes` sees it."""

    def __init__(self, buffered: BufferedBytes) -> None:
        self.held_bytes = 0
        self.buffered = buffered
        self.resumed = self.slowed = 0
        self.ended: CloseReason | None = None
        buffered.relays.add(self)

    def hold(self, held: int) -> None:
        change, self.held_bytes = held - self.held_bytes, held
        self.buffered.change(self, change)

    def slow_down(self) -> None:
        self.slowed += 1

    def resume(self) -> None:
        self.resumed += 1

    def close(self, reason: CloseReason, detail: str = "") -> None:
        del detail
        self.ended = reason
        self.buffered.leave(self)

    def reads(self, *, client: bool = True) -> bool:
        return not self.buffered.full or self.buffered.may_read(self, client=client)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reactor(clock: Clock) -> Iterator[Reactor]:
    reactor = Reactor(clock)
    reactor.buffered.limit(1000)
    yield reactor
    reactor.close()


def test_above_the_limit_only_the_largest_relay_reads_from_its_client(reactor: Reactor) -> None:
    buffered = reactor.buffered
    small, large = Relay(buffered), Relay(buffered)
    small.hold(400)
    large.hold(600)
    assert buffered.stops == 0
    small.hold(401)
    reactor.turn(0)
    assert buffered.stops == 1
    assert (small.slowed, large.slowed) == (1, 1)
    assert (small.reads(), large.reads()) == (False, True)
    assert small.reads(client=False)
    large.hold(725)  # an eighth above the limit
    assert not small.reads(client=False)
    assert large.reads(client=False)


def test_reading_goes_on_when_an_eighth_of_the_limit_is_free(reactor: Reactor) -> None:
    buffered = reactor.buffered
    said: list[bool] = []
    buffered.on_change = lambda: said.append(buffered.full)
    small, large = Relay(buffered), Relay(buffered)
    small.hold(400)
    large.hold(601)
    reactor.turn(0)
    assert not small.reads()
    large.hold(476)
    assert said == [True]
    large.hold(475)
    reactor.turn(0)
    assert (small.resumed, said, reactor.timeout_s()) == (1, [True, False], None)


def test_a_relay_that_has_freed_its_bytes_leaves_its_turn_to_the_next_largest(reactor: Reactor) -> None:
    relays = [Relay(reactor.buffered) for _ in range(20)]
    for relay, held in zip(relays, range(200, 400, 10), strict=True):
        relay.hold(held)
    for largest in reversed(relays[8:]):
        reactor.turn(0)
        assert [relay.reads() for relay in relays].count(True) == 1
        assert largest.reads()
        largest.hold(0)


def test_the_largest_relays_are_closed_if_the_sum_stays_above_the_limit(
    reactor: Reactor, clock: Clock
) -> None:
    relays = [Relay(reactor.buffered) for _ in range(20)]
    for held, relay in enumerate(relays, 100):
        relay.hold(held)

    def closed_at(now_ms: int) -> int:
        clock.now_ms = now_ms
        reactor.turn(0)
        return sum(relay.ended is CloseReason.BUFFERED_BYTES for relay in relays)

    assert [closed_at(now_ms) for now_ms in (GRACE_MS - 1, GRACE_MS, GRACE_MS + AGAIN_MS)] == [0, 1, 3]
    assert [closed_at(GRACE_MS + times * AGAIN_MS) for times in (2, 3, 4)] == [7, 12, 12]
    assert all(relay.ended is None for relay in relays[:8])
    assert reactor.buffered.bytes == sum(range(100, 108))
    assert reactor.timeout_s() is None or reactor.timeout_s() == 0


def test_a_stop_soon_after_connections_were_closed_has_no_grace(reactor: Reactor, clock: Clock) -> None:
    def stop_at(now_ms: int) -> Relay:
        clock.now_ms = now_ms
        reactor.turn(0)
        relay = Relay(reactor.buffered)
        relay.hold(1001)
        return relay

    def lasts_ms(relay: Relay) -> int:
        began_ms = clock.now_ms
        while relay.ended is None:
            clock.now_ms += AGAIN_MS
            reactor.turn(0)
        return clock.now_ms - began_ms

    assert [lasts_ms(stop_at(now_ms)) for now_ms in (0, 3000, 30_000, 100_000)] == [
        GRACE_MS,
        AGAIN_MS,
        AGAIN_MS,
        GRACE_MS,
    ]


# Relays


def test_the_bytes_of_a_relay_count_until_they_are_consumed_or_sent(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    buffered = rig.reactor.buffered
    rig.send(rig.client, PING[:6])
    rig.turn(3)
    assert buffered.bytes == 6
    rig.send(rig.client, PING[6:])
    rig.expect(rig.broker, PING)
    assert buffered.bytes == 0
    rig.send(rig.broker, PONG[:5])
    rig.turn(3)
    assert buffered.bytes == 5
    rig.relay.close(CloseReason.STOPPED)
    assert (buffered.bytes, buffered.relays) == (0, set())


def test_a_client_is_not_read_above_the_limit_and_loses_nothing(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    buffered = rig.reactor.buffered
    buffered.limit(1000)
    other = Relay(buffered)
    other.hold(1001)
    rig.send(rig.client, PING)
    rig.turn(4)
    assert rig.take(rig.broker) == b""
    other.hold(0)
    rig.expect(rig.broker, PING)
    rig.send(rig.broker, PONG)
    rig.expect(rig.client, PONG)
    other.close(CloseReason.STOPPED)


def test_an_answer_passes_while_no_client_is_read(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    buffered = rig.reactor.buffered
    buffered.limit(1000)
    rig.send(rig.client, PING)
    rig.expect(rig.broker, PING)
    other = Relay(buffered)
    other.hold(1001)
    rig.send(rig.broker, PONG)
    rig.expect(rig.client, PONG)
    other.close(CloseReason.STOPPED)
