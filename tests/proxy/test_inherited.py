"""Listening sockets of another process: which ones are used, and that clients in their queues are served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from tests.kafka.ports import free_range
from weir.proxy.net import sockets
from weir.proxy.net.inherited import Inherited, from_systemd

HOST = "127.0.0.1"


def test_a_client_in_the_queue_of_an_inherited_socket_is_accepted() -> None:
    port = free_range(1)
    (old,) = sockets.listen([HOST], port)
    with old, socket.create_connection((HOST, port)) as client:
        inherited = Inherited([old.dup()])
        (new,) = inherited.listen([HOST], port)
        with new:
            old.close()
            accepted, address = new.accept()
            with accepted:
                assert address == client.getsockname()
                assert not new.getblocking()
        assert len(inherited) == 0


def test_addresses_without_an_inherited_socket_get_new_ones() -> None:
    port = free_range(2)
    with closing(sockets.listen([HOST], port)[0]) as old:
        inherited = Inherited([old.dup()])
        other = inherited.listen([HOST], port + 1)
        both = inherited.listen([HOST, "127.0.0.2"], port)
        assert [sock.getsockname() for sock in other] == [(HOST, port + 1)]
        assert [sock.getsockname() for sock in both] == [(HOST, port), ("127.0.0.2", port)]
        sockets.close_all([*other, *both])


@pytest.mark.parametrize("ip", ["0.0.0.0", "::"])
def test_a_socket_of_every_interface_is_inherited_for_the_empty_host(ip: str) -> None:
    port = free_range(1)
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family) as old:
        old.bind((ip, port))
        (new,) = Inherited([old.dup()]).listen([""], port)
        with new:
            assert new.getsockname()[:2] == (ip, port)
            socket.create_connection((HOST, port)).close()


def test_an_inherited_socket_that_refuses_connections_accepts_them_again() -> None:
    port = free_range(1)
    (old,) = sockets.listen([HOST], port)
    with old:
        old.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port))
        (new,) = Inherited([old.dup()]).listen([HOST], port)
        with new:
            socket.create_connection((HOST, port)).close()


def test_a_taken_port_beside_an_inherited_socket_raises_and_leaves_no_socket_open() -> None:
    port = free_range(1)
    with closing(sockets.listen([HOST], port)[0]) as old, closing(sockets.listen(["127.0.0.2"], port)[0]):
        given = old.dup()
        with pytest.raises(OSError, match="in use"):
            Inherited([given]).listen([HOST, "127.0.0.2"], port)
        assert given.fileno() == -1


def test_sockets_that_are_not_tcp_are_closed() -> None:
    with socket.socket(socket.AF_UNIX) as one, socket.socket(type=socket.SOCK_DGRAM) as two:
        given = [one.dup(), two.dup()]
        assert len(Inherited(given)) == 0
        assert [sock.fileno() for sock in given] == [-1, -1]


def test_unused_inherited_sockets_are_closed() -> None:
    port = free_range(1)
    with closing(sockets.listen([HOST], port)[0]) as old:
        given = old.dup()
        Inherited([given]).close()
        assert given.fileno() == -1


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_PID": str(os.getpid())},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "9" * 12},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "9" * 5000},
    ],
)
def test_without_sockets_for_this_process_systemd_has_passed_none(environment: dict[str, str]) -> None:
    assert from_systemd(environment) == []


def test_sockets_that_systemd_passes_are_found() -> None:
    """In a process of its own, because the descriptors have fixed numbers."""
    program = (
        "import os; from weir.proxy.net.inherited import from_systemd; "
        "found = from_systemd({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}); "
        "print(found[0].getsockname()[1], os.get_inheritable(3))"
    )
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        shell = f'exec {sys.executable} -c "{program}" 3<&{listening.fileno()}'
        done = subprocess.run(
            ["/bin/bash", "-c", shell],
            capture_output=True,
            text=True,
            check=True,
            pass_fds=[listening.fileno()],
        )
    assert done.stdout.split() == [str(port), "False"]
