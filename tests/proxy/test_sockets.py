"""Listening and connecting: every address of a host, or one line about why not."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest
import trio

from proxy.addresses import Address
from proxy.transport import sockets
from tests.kafka.ports import free_range


def test_a_listener_on_an_empty_host_accepts_ipv4_and_ipv6() -> None:
    port = free_range(1)
    (listening,) = sockets.listen(Address("", port))
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
    (listening,) = sockets.listen(Address("", port))
    with listening:
        assert listening.getsockname() == ("0.0.0.0", port)


def test_listening_on_a_foreign_address_is_an_error() -> None:
    with pytest.raises(OSError, match="assign") as caught:
        sockets.listen(Address("192.0.2.1", free_range(1)))
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_listening_skips_one_missing_address_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_range(1)
    both = [(socket.AF_INET, 1, 6, "", ("192.0.2.1", port)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: both)
    (listening,) = sockets.listen(Address("two.addresses.invalid", port))
    with listening:
        assert listening.getsockname() == ("127.0.0.1", port)


def test_a_taken_port_on_the_second_address_releases_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_range(1)
    both = [(socket.AF_INET, 1, 6, "", (host, port)) for host in ("127.0.0.1", "127.0.0.2")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: both)
    with socket.create_server(("127.0.0.2", port)):
        with pytest.raises(OSError, match="in use"):
            sockets.listen(Address("two.addresses.invalid", port))
        socket.create_server(("127.0.0.1", port)).close()


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
