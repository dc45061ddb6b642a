"""The gate: connections late, refused, and counted per address; what the configuration says of it."""

from __future__ import annotations

import socket

import pytest
import trio
from trio.testing import MockClock

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.proxy.stage import PING, PONG, Stage
from tests.proxy.supervised import supervisor
from tests.scripted import staged
from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError, plain_ip
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.server.acceptor import NEXT_S, Acceptor
from weir.proxy.server.connection_limiter import ConnectionLimiter
from weir.proxy.server.listeners import Listeners
from weir.proxy.server.target import Target
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.connections import ConnectionQuotas

RATE = QuotaKey.CONNECTION_CREATION_RATE


def ip_table(rate: float, ip: str | None = None) -> QuotaTable:
    return QuotaTable({(Entity(ip=ip or DEFAULT), RATE): rate})


def limiter(table: QuotaTable | None = None, **settings: object) -> ConnectionLimiter:
    loaded = config.load(None, {"upstream": "broker:9092", **settings})
    return ConnectionLimiter(loaded, ConnectionQuotas(table), lambda: 0)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1%eth0", "fe80::1"),
    ],
)
def test_ip_addresses_are_normalized(written: str, meant: str) -> None:
    assert plain_ip(written) == meant


def test_a_connection_above_max_connections_per_ip_is_refused_by_that_name() -> None:
    at = limiter(max_connections_per_ip="1, [::1]:2, 10.0.0.9:0")
    assert at.enter(None, "10.0.0.1") is None
    rejection = at.enter(1, "10.0.0.1")
    assert rejection is not None
    assert rejection.reason is CloseReason.CONNECTIONS_PER_IP
    assert [at.enter(None, "::1") is None for _ in range(3)] == [True, True, False]
    assert at.enter(None, "10.0.0.9") is not None
    at.leave("10.0.0.1")
    assert at.enter(1, "10.0.0.1") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_connection_creation_rate", -1),
        ("max_connections_per_ip", -1),
        ("max_connections_per_ip", "9,10.0.0.1"),
        ("max_connections_per_ip", "9,kafka-1:5"),
        ("max_connections_per_ip", "9,::1:5"),
        ("max_connections_per_ip", "9,10.0.0.1:-5"),
    ],
)
def test_invalid_connection_limits_are_one_line_that_names_the_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{key} .*must") as raised:
        config.load(None, {"upstream": "broker:9092", key: value})
    assert "\n" not in str(raised.value)


@staged(table=ip_table(1))
async def test_a_connection_above_its_addresss_rate_is_held_unread_and_closed(stage: Stage) -> None:
    for _ in range(10):
        client = await stage.connect(0)
        assert await client.ask(PING) == PONG
    refused = await stage.connect(0)
    assert await refused.ask(PING) is None
    assert stage.plane.counters.closed[CloseReason.CONNECTION_RATE] == 1
    other = await stage.connect(None)
    assert await other.ask(PING) == PONG  # the bootstrap listener has a rate of its own


@staged(max_connection_creation_rate=1)
async def test_a_listener_above_its_rate_accepts_every_connection_late(stage: Stage) -> None:
    for _ in range(11):
        assert await (await stage.connect(0)).ask(PING) == PONG
    late = {
        node_id: budget.throttled for node_id, budget in stage.local.started[0].limiter.quotas.listeners()
    }
    assert late == {0: 1}


class SlowGate(ConnectionLimiter):
    """Connections come too early by these times."""

    ahead = 0

    def __init__(self, *delays_s: float, processes: int = 1) -> None:
        self.delays_s = iter(delays_s)
        self._others = processes - 1

    def delay_s(self, node_id: int | None) -> float:
        assert node_id == 7
        return next(self.delays_s)


async def accepted_after_s(gate: SlowGate) -> list[float]:
    """Return the times (s) after which three connections are accepted."""
    taken: list[float] = []
    all_taken = trio.Event()

    async def receive(client: socket.socket, _target: Target, _peer: Address) -> None:
        client.close()
        taken.append(trio.current_time() - started)
        if len(taken) == 3:
            all_taken.set()

    acceptor = Acceptor(gate, supervisor())
    listeners = Listeners(OwnListeners())
    listeners.on_open.append(acceptor.take)
    address = Address(HOST, free_range(1))
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        listeners.open([address.host], address.port, Target(7))
        nursery.start_soon(acceptor.accept_forever, receive)
        clients = [await trio.open_tcp_stream(*address) for _ in range(3)]
        await all_taken.wait()
        nursery.cancel_scope.cancel()
    for client in clients:
        await client.aclose()
    return taken


@pytest.mark.trio
async def test_delayed_connections_are_accepted_in_order_after_the_delay(autojump_clock: MockClock) -> None:
    first, second, third = await accepted_after_s(SlowGate(0, 5, 0))
    assert first < 5 <= second <= third


@pytest.mark.trio
async def test_a_worker_lets_others_accept_connections_that_come_at_the_same_time(
    autojump_clock: MockClock,
) -> None:
    first, second, third = await accepted_after_s(SlowGate(0, 0, 0, processes=2))
    assert first + NEXT_S <= second <= third - NEXT_S
    assert await accepted_after_s(SlowGate(0, 0, 0)) == [0, 0, 0]


@staged(max_connections_per_ip=1)
async def test_an_ended_connection_frees_its_slot(stage: Stage) -> None:
    first = await stage.connect(0)
    assert await first.ask(PING) == PONG
    assert await (await stage.connect(0)).ask(PING) is None
    assert stage.plane.counters.closed[CloseReason.CONNECTIONS_PER_IP] == 1
    await first.stream.aclose()
    await stage.closed(CloseReason.CLIENT_CLOSED)
    assert await (await stage.connect(0)).ask(PING) == PONG


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6_and_ipv4_clients_of_one_listener_have_separate_budgets() -> None:
    at = limiter(ip_table(1, "::1"))
    assert [at.enter(None, "::1") for _ in range(11)][-1] is not None
    assert all(at.enter(None, "::ffff:127.0.0.1") is None for _ in range(100))
