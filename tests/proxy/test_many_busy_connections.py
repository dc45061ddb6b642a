"""Many busy connections, and one that asks little: how long it waits, in simulated time."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import pytest

from tests.proxy.rigs import Clock, tcp_pair
from tests.proxy.wire import new_connection
from tests.wire.frames import request
from weir.protocol.messages import MetadataRequest
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.effects import TURN_FRAMES
from weir.proxy.handlers.plan import Plan
from weir.proxy.net.poll import WRITE
from weir.proxy.net.reactor import BUSY_FRAMES, BUSY_SOCKETS, EVENTS_MAX, Reactor
from weir.proxy.net.relay import Relay

if TYPE_CHECKING:
    import socket

BUSY: Final = 150
FRAMES: Final = 30
"""Requests that each busy client sends at a time: fewer than a turn takes in without a relays."""
FRAME_US: Final = 10
"""Simulated time that a request takes."""
ASKED: Final = request(MetadataRequest(topics=[]), 9)
WARM_TURNS: Final = 200
WAIT_US_MAX: Final = 12_000


class _Relays:
    """Relays on one reactor, whose clock goes on by the number of requests that were forwarded."""

    def __init__(self, stack: ExitStack) -> None:
        self._plans: list[Plan] = []
        self.reactor = Reactor(lambda: sum(plan.requests for plan in self._plans) * FRAME_US)
        stack.callback(self.reactor.close)
        self._stack = stack

    def relay(self) -> tuple[socket.socket, socket.socket]:
        (client, near), (broker, far) = (map(self._stack.enter_context, tcp_pair()) for _ in range(2))
        connection = new_connection(in_flight_max=1 << 20)
        connection.clock = self.reactor.clock
        self._plans.append(connection.plans.make(3, 9))
        made = Relay(self.reactor, near, far, connection, lambda *_: None)
        self._stack.callback(made.close, CloseReason.STOPPED)
        return client, broker


def _taken(sock: socket.socket) -> int:
    with suppress(BlockingIOError):
        return len(sock.recv(1 << 20))
    return 0


@pytest.mark.slow
def test_a_client_that_asks_little_waits_less_than_full_shares_of_all_busy_connections_take() -> None:
    with ExitStack() as stack:
        relays = _Relays(stack)
        busy = [relays.relay() for _ in range(BUSY)]
        client, broker = relays.relay()
        unanswered = dict.fromkeys(range(BUSY), 0)

        def turn() -> None:
            for number, (sender, receiver) in enumerate(busy):
                unanswered[number] -= _taken(receiver)
                if unanswered[number] <= 0:
                    sender.sendall(ASKED * FRAMES)
                    unanswered[number] += len(ASKED) * FRAMES
            relays.reactor.turn(0)

        for _ in range(WARM_TURNS):
            turn()
        began_us = relays.reactor.clock.now_us
        client.sendall(ASKED)
        while not _taken(broker):
            turn()
        assert BUSY * FRAMES * FRAME_US > 3 * WAIT_US_MAX
        assert relays.reactor.clock.now_us - began_us < WAIT_US_MAX


def test_many_ready_sockets_shorten_the_share_of_a_connection_until_they_are_gone() -> None:
    reactor = Reactor(Clock())
    with ExitStack() as stack:
        stack.callback(reactor.close)
        pairs = [tuple(map(stack.enter_context, tcp_pair())) for _ in range(BUSY_SOCKETS + EVENTS_MAX)]
        socks = [one for one, _other in pairs]
        for sock in socks:
            reactor.register(sock.fileno(), WRITE, lambda _events: None)
        for _ in range(2 * len(socks) // EVENTS_MAX):
            reactor.turn(0)
        assert reactor.clock.frames_max == BUSY_FRAMES
        for sock in socks:
            reactor.unregister(sock.fileno())
        reactor.turn(0)
        assert (reactor.clock.frames_max, reactor.read_bytes_max) == (TURN_FRAMES, 0)


def test_a_connection_gets_its_full_share_again_once_the_work_of_earlier_turns_is_done() -> None:
    """The sockets of the crowd may be quiet before Weir has processed all that it has read of them."""
    reactor = Reactor(Clock())
    with ExitStack() as stack:
        stack.callback(reactor.close)
        pairs = [tuple(map(stack.enter_context, tcp_pair())) for _ in range(EVENTS_MAX)]
        socks = [one for one, _other in pairs]
        for sock in socks:
            reactor.register(sock.fileno(), WRITE, lambda _events: None)
        for _ in range(BUSY_SOCKETS + 1):
            reactor.later(lambda: reactor.later(lambda: None))
        reactor.turn(0)
        for sock in socks:
            reactor.unregister(sock.fileno())
        reactor.turn(0)
        assert reactor.clock.frames_max == BUSY_FRAMES
        reactor.turn(0)
        assert (reactor.clock.frames_max, reactor.read_bytes_max) == (TURN_FRAMES, 0)


def test_a_connection_among_many_busy_ones_takes_few_requests_in_a_turn() -> None:
    connection = new_connection()
    connection.clock.frames_max = BUSY_FRAMES
    data = bytearray(ASKED * FRAMES)
    consumed = connection.receive(connection.client_end, data, memoryview(data), len(data), 7)
    assert consumed == BUSY_FRAMES * len(ASKED)
    assert connection.settle(7).again
