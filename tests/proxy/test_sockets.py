"""Listening and connecting: every address of a host, or one line about why not."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest
import trio

from tests.kafka.ports import free_range
from weir.proxy.addresses import Address
from weir.proxy.net import sockets


def test_a_listener_on_an_empty_host_accepts_ipv4_and_ipv6() -> None:
    port = free_range(1)
    (listening,) = sockets.listen([""], port)
    with ExitStack() as stack:
        stack.enter_context(listening)
        for host in ["127.0.0.1"] + (["::1"] if listening.family == socket.AF_INET6 else []):
            client = stack.enter_context(socket.create_connection((host, port)))
            accepted, peer = listening.accept()
            stack.enter_context(accepted)
            assert sockets.local_host(accepted) == host
            assert sockets.unmapped(peer[0]) == host
            assert client.getpeername()[1] == port


def test_a_listener_on_an_empty_host_without_ipv6_accepts_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port = free_range(1)
    (listening,) = sockets.listen([""], port)
    with listening:
        assert listening.getsockname() == ("0.0.0.0", port)


def test_listening_on_a_foreign_address_is_an_error() -> None:
    with pytest.raises(OSError, match="assign") as caught:
        sockets.listen(["192.0.2.1"], free_range(1))
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_listening_skips_one_missing_address_of_several() -> None:
    port = free_range(1)
    (listening,) = sockets.listen(["192.0.2.1", "127.0.0.1"], port)
    with listening:
        assert listening.getsockname() == ("127.0.0.1", port)


def test_a_taken_port_on_the_second_address_releases_the_first() -> None:
    port = free_range(1)
    with socket.create_server(("127.0.0.2", port)):
        with pytest.raises(OSError, match="in use"):
            sockets.listen(["127.0.0.1", "127.0.0.2"], port)
        socket.create_server(("127.0.0.1", port)).close()


def test_the_ip_addresses_of_a_host_are_each_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(*_args: object, **_kwargs: object) -> list[object]:
        targets = [("10.0.0.1", 0), ("10.0.0.2", 0), ("fd00::1", 0, 0, 0), ("10.0.0.1", 0)]
        return [(socket.AF_UNSPEC, socket.SOCK_STREAM, 6, "", target) for target in targets]

    assert trio.run(sockets.ip_addresses, "", 5.0) == [""]
    assert trio.run(sockets.ip_addresses, "::1", 5.0) == ["::1"]
    monkeypatch.setattr(trio.socket, "getaddrinfo", look_up)
    assert trio.run(sockets.ip_addresses, "weir", 5.0) == ["10.0.0.1", "10.0.0.2", "fd00::1"]


def test_connecting_tries_every_address_and_raises_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(targets: list[tuple[str, int]]) -> socket.socket:
        async def found(*_args: object, **_kwargs: object) -> list[object]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", target) for target in targets]

        monkeypatch.setattr(trio.socket, "getaddrinfo", found)
        return await sockets.connect(Address("kafka", 9092))

    closed = free_range(1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with trio.run(main, [("127.0.0.1", closed), address]) as sock:
            assert sock.getpeername() == address
            assert not sock.getblocking()
    with pytest.raises(ConnectionRefusedError):
        trio.run(main, [("127.0.0.1", closed)])
    with pytest.raises(OSError, match="has no address"):
        trio.run(main, [])


@pytest.mark.parametrize(
    "address",
    [Address("a" * 300, 9092), Address("a\0b", 9092), Address("127.0.0.1", 65_536), Address("127.0.0.1", -1)],
)
def test_connecting_to_a_malformed_address_is_an_oserror(address: Address) -> None:
    """A broker may say anything of its host and port."""
    with pytest.raises(OSError, match=r"\S"):
        trio.run(sockets.connect, address)
