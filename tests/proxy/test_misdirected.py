"""Brokers advertise addresses that lead back to Weir, or to no broker: Weir never connects to itself."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import trio
from structlog.testing import capture_logs

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.proxy.stage import PING, PONG, Play, Stage, until
from tests.scripted import staged
from tests.wire.frames import body_of, request
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.proxy.addresses import Address, AddressBook, PortRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.control.cluster import address_check
from weir.proxy.control.cluster.address_check import AddressCheck
from weir.proxy.handlers.api_versions.api_versions import OWN_REQUEST
from weir.proxy.net import own_listeners
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.server.problems import Problems

OWN_PORT = 9092
LAN = "10.9.8.7"


def listeners(*names: tuple[str, int]) -> OwnListeners:
    made = OwnListeners()
    made.add(names)
    return made


@pytest.fixture
def no_local_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host has the loopback addresses and `LAN`, whatever it has."""
    monkeypatch.setattr(own_listeners, "_can_bind", lambda ip: ip == LAN)


@pytest.mark.usefixtures("no_local_addresses")
@pytest.mark.parametrize(
    ("bound", "ip", "own"),
    [
        (LAN, LAN, True),
        (LAN, "::ffff:10.9.8.7", True),
        (LAN, "127.0.0.1", False),
        (LAN, "10.9.8.8", False),
        ("127.0.0.1", "0.0.0.0", True),
        (LAN, "0.0.0.0", True),
        ("0.0.0.0", LAN, True),
        ("::", "127.0.0.2", True),
        ("::", "::1", True),
        ("::", "10.9.8.8", False),
    ],
)
def test_a_listener_is_recognized_by_the_ip_addresses_that_reach_it(bound: str, ip: str, own: bool) -> None:
    assert listeners((bound, OWN_PORT)).has(ip, OWN_PORT) is own
    assert not listeners((bound, OWN_PORT)).has(ip, OWN_PORT + 1)


def test_a_system_that_binds_any_address_shows_no_local_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_listeners, "_can_bind", lambda _ip: True)
    assert not own_listeners.is_local(LAN)
    assert own_listeners.is_local("127.0.0.1")


def advertise(stage: Stage, **nodes: Address) -> None:
    for name, address in nodes.items():
        stage.cluster.nodes[int(name.removeprefix("n"))] = address


def problems(stage: Stage) -> list[object]:
    found = Problems(stage.server, None, lambda: 0.0, lambda: 0.0)
    return [condition.key[1] for condition in found.read()]


@staged()
async def test_the_only_broker_is_reached_at_upstream_if_it_advertises_weirs_address(stage: Stage) -> None:
    advertise(stage, n0=Address(HOST, stage.first_port))
    assert await stage.told() == {0: stage.port(0)}
    for node_id in (None, 0):
        client = await stage.connect(node_id)
        assert await client.ask(PING) == PONG
    counters = stage.plane.counters
    assert (counters.sessions_opened, counters.closed[CloseReason.BROKER_MISDIRECTED]) == (3, 0)
    await until(lambda: bool(stage.server.address_book.misdirected))
    assert problems(stage) == []


@staged(brokers=(0, 1))
async def test_a_broker_of_several_that_advertises_weirs_address_is_refused_until_it_is_corrected(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_check, "LOOK_S", 0.01)
    right, wrong = stage.cluster.nodes[1], Address(HOST, stage.first_port)
    with capture_logs() as logged:
        advertise(stage, n1=wrong)
        assert await stage.told() == {0: stage.port(0), 1: stage.port(1)}
        await until(lambda: wrong in stage.server.address_book.misdirected)
        assert await (await stage.connect(1)).frame() is None
        assert await (await stage.connect(0)).ask(PING) == PONG
        counters = stage.plane.counters
        assert counters.closed[CloseReason.BROKER_MISDIRECTED] >= 1
        assert counters.closed[CloseReason.CONNECTION_LIMIT] == 0
        assert not stage.server.broker_states.is_up(1)
        assert f"misdirected {wrong}" in problems(stage)
        advertise(stage, n1=right)
        await stage.told()
        await until(lambda: not stage.server.address_book.misdirected)
    said = [line for line in logged if line.get("address") == str(wrong)]
    assert [line["log_level"] for line in said] == ["error", "info"]
    assert said[0]["node_id"] == 1
    assert "advertised.listeners" in said[0]["remedy"]


def test_a_broker_behind_a_forwarder_that_leads_back_to_weir_is_found_by_weirs_own_request(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forwarder has an address of its own, as NAT, a load balancer or another Weir has."""
    monkeypatch.setattr(address_check, "LOOK_S", 0.01)

    async def script(stage: Stage) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        behind = Address(HOST, listener.socket.getsockname()[1])

        async def forward(client: trio.SocketStream) -> None:
            weir = await trio.open_tcp_stream(HOST, stage.first_port)
            async with client, weir, trio.open_nursery() as nursery:
                nursery.start_soon(copy, client, weir, nursery)
                nursery.start_soon(copy, weir, client, nursery)

        stage.nursery.start_soon(trio.serve_listeners, forward, [listener])
        advertise(stage, n0=behind)
        await stage.told()
        await until(lambda: stage.server.address_book.misdirected == {behind: address_check.LOOP})
        assert await (await stage.connect(0)).ask(PING) == PONG

    play(script)


async def copy(source: trio.SocketStream, target: trio.SocketStream, nursery: trio.Nursery) -> None:
    try:
        async for data in source:
            await target.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    nursery.cancel_scope.cancel()


@staged()
async def test_only_weirs_own_request_is_answered_by_weir(stage: Stage) -> None:
    def asked(client_id: str) -> bytes:
        return request(ApiVersionsRequest(), 0, client_id=client_id.encode())

    client = await stage.connect(0)
    codes = []
    for client_id in ("weir-other", stage.server.config.own_client_id):
        answer = await client.ask(asked(client_id))
        assert answer is not None
        codes.append(body_of(answer, ApiVersionsResponse, 0).error_code)
    assert codes == [0, OWN_REQUEST]


def checked(
    monkeypatch: pytest.MonkeyPatch, upstream: str, advertised: str, local: Callable[[str], bool]
) -> dict[Address, str]:
    """Return the misdirected addresses of a broker at this host, after one check."""
    monkeypatch.setattr(address_check, "is_local", local)
    addresses = AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    addresses.observe(0, Address(advertised, port))
    check = AddressCheck(config.load(None, {"upstream": upstream}), addresses, OwnListeners())
    trio.run(check.look)
    return dict(addresses.misdirected)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "localhost"])
def test_a_loopback_address_of_another_host_leads_to_no_broker(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    upstream = f"192.0.2.7:{free_range(1)}"
    monkeypatch.setattr(address_check, "ANSWER_S_MAX", 0.05)  # nobody answers at 192.0.2.7
    found = checked(monkeypatch, upstream, host, lambda _ip: False)
    assert list(found.values()) == [address_check.OTHER_HOST]


def test_a_loopback_address_beside_an_upstream_of_this_host_may_lead_to_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert checked(monkeypatch, f"{HOST}:{free_range(1)}", HOST, lambda ip: ip == HOST) == {}


def test_an_address_whose_check_is_not_clear_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_check, "LOOK_S", 0)
    upstream = Address(HOST, free_range(1))
    addresses = AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)
    addresses.misdirect({upstream: address_check.LOOP})
    check = AddressCheck(config.load(None, {"upstream": str(upstream)}), addresses, OwnListeners())
    trio.run(check.look)
    assert addresses.misdirected == {upstream: address_check.LOOP}
