"""The clients of a worker: connected, refused, caught by a drain."""

from __future__ import annotations

import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import Connection, serve
from tests.proxy.stage import METADATA, PING, PONG, until
from tests.proxy.worker_rigs import Rig, end_of, link_pair, running_worker
from tests.wire.frames import body_of
from weir.protocol.messages import MetadataResponse
from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net import sockets
from weir.proxy.server.target import Target
from weir.proxy.workers.messages import (
    BrokerAddresses,
    BrokerFound,
    ConnectionsChanged,
    Drain,
    Drained,
    Listen,
)

pytestmark = [pytest.mark.trio]

NOWHERE = Address("127.0.0.1", 1)


@contextmanager
def no_new_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def tell(rig: Rig, brokers: dict[int, Address]) -> None:
    rig.link.post(BrokerAddresses([(node_id, *address) for node_id, address in brokers.items()]))


def is_refused(rig: Rig) -> bool:
    try:
        rig.connect(Target(0)).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it began to refuse meanwhile
        return False
    return False


def stream_of(client: socket.socket) -> Connection:
    return Connection(trio.SocketStream(trio.socket.from_stdlib_socket(client)))


@asynccontextmanager
async def serving(cluster: Cluster, *node_ids: int) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for node_id in node_ids:
            await nursery.start(serve, cluster, node_id)
        yield
        nursery.cancel_scope.cancel()


async def test_an_unreachable_broker_with_a_listener_of_its_own_has_that_listener_refuse() -> None:
    async with running_worker() as rig:
        tell(rig, {0: NOWHERE})
        assert await end_of(rig.connect(Target(0))) == b""
        await until(lambda: is_refused(rig))


async def test_a_message_arrives_without_its_socket_if_no_descriptor_is_free() -> None:
    ours, theirs = link_pair()
    near, far = socket.socketpair()
    listen = Listen(0, False, 1)
    ours.post(listen, [near])
    near.close()
    with no_new_descriptors():
        assert await theirs.receive() == (listen, [])
    assert far.recv(1) == b""
    for each in (far, ours, theirs):
        each.close()


async def test_a_drain_closes_clients_that_are_not_connected_to_their_broker_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a client could be connected while others are drained, and nobody would drain it."""
    cluster = Cluster(may_answer=trio.Event())
    may_connect = trio.Event()
    really = sockets.connect

    async def connect(address: Address, _refuse: sockets.Refuse | None = None) -> socket.socket:
        if address == NOWHERE:
            await may_connect.wait()
        return await really(address if address != NOWHERE else cluster.nodes[0])

    async with running_worker() as rig, serving(cluster, 0):
        tell(rig, {**cluster.nodes, 1: NOWHERE})
        busy = rig.connect(Target(0))
        busy.sendall(PING)
        await until(lambda: bool(cluster.asked))
        monkeypatch.setattr(sockets, "connect", connect)
        connecting = rig.connect(Target(1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        rig.link.post(Drain())
        with trio.fail_after(5):
            assert await end_of(connecting) == b""
        assert rig.of(Drained) == []
        assert cluster.may_answer is not None
        cluster.may_answer.set()
        assert await end_of(busy) == PONG
        await rig.hear(Drained)
        changed = rig.of(ConnectionsChanged)
        assert [sum(len(each.opened) for each in changed), sum(len(each.closed) for each in changed)] == [
            2,
            2,
        ]


async def test_a_worker_names_a_new_broker_to_clients_once_the_supervisor_has_confirmed_it() -> None:
    """Before that, the broker may have no listener."""
    cluster = Cluster()
    async with running_worker(listen="127.0.0.1:9092") as rig, serving(cluster, 0, 1):
        tell(rig, {0: cluster.nodes[0]})
        client = stream_of(rig.connect(Target(0)))
        assert await told(client) == {0}
        assert await rig.hear(BrokerFound) == [BrokerFound(1, *cluster.nodes[1])]
        tell(rig, cluster.nodes)
        while await told(client) != {0, 1}:
            assert len(rig.of(BrokerFound)) == 1
        await client.stream.aclose()


async def test_a_worker_connects_to_no_address_that_leads_back_to_weir() -> None:
    cluster, loop = Cluster(), Address(HOST, 1)
    async with running_worker() as rig, serving(cluster, 0):
        own = cluster.nodes[0]
        nodes = [(0, *own), (1, *loop)]
        rig.link.post(BrokerAddresses(nodes, False, [(*loop, "a loop")], [(own.host, own.port)]))
        for node_id in (0, 1):
            assert await end_of(rig.connect(Target(node_id))) == b""
        assert rig.worker.plane.counters.closed == {CloseReason.BROKER_MISDIRECTED: 2}
        assert cluster.received == []


async def test_a_worker_reaches_the_only_broker_at_upstream_if_its_address_leads_back_to_weir() -> None:
    cluster = Cluster()
    async with serving(cluster, 0):
        upstream, own = cluster.nodes[0], Address(HOST, 1)
        async with running_worker(upstream=str(upstream)) as rig:
            rig.link.post(BrokerAddresses([(0, *own)], True, [], [(own.host, own.port)]))
            client = stream_of(rig.connect(Target(0)))
            assert await client.ask(PING) == PONG
            await client.stream.aclose()


async def told(client: Connection) -> set[int]:
    answer = await client.ask(METADATA)
    assert answer is not None
    return {broker.node_id for broker in body_of(answer, MetadataResponse, 9).brokers}
