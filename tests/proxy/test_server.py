"""The whole server between real sockets, in both ways of driving it, in front of fake brokers."""

from __future__ import annotations

import errno
import math
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import Connection, serve
from tests.proxy.rigs import open_descriptors
from tests.proxy.stage import PING, PONG, Play, Stage, until
from tests.proxy.wire import quota_table
from tests.scripted import staged
from tests.wire.frames import framed
from tests.wire.messages import produce
from weir.proxy.addresses import Address
from weir.proxy.admin.readiness import Readiness
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.control.cluster import discovery
from weir.proxy.net import sockets
from weir.proxy.net.drivers import monotonic_us
from weir.proxy.server import acceptor, establish, refusals
from weir.proxy.server.server import Server, Workers

# Clients and brokers


@staged(brokers=(0, 1, 5))
async def test_clients_get_weirs_addresses_and_reach_each_broker_there(stage: Stage) -> None:
    assert await stage.told() == {node_id: stage.port(node_id) for node_id in (0, 1, 5)}
    for node_id in (5, 0, 1):
        client = await stage.connect(node_id)
        assert await client.ask(PING) == PONG
        assert stage.cluster.asked[-1] == (node_id, PING)
        await client.stream.aclose()
    await stage.closed(CloseReason.CLIENT_CLOSED, 4)
    assert stage.plane.counters.sessions_open == 0
    assert stage.plane.counters.sessions_opened == 4


@staged()
async def test_a_new_broker_has_its_listener_before_a_client_sees_it(stage: Stage) -> None:
    assert set(await stage.told()) == {0}
    await stage.nursery.start(serve, stage.cluster, 3)
    assert await stage.told() == {0: stage.port(0), 3: stage.port(3)}
    client = await stage.connect(3)
    assert await client.ask(PING) == PONG
    assert stage.cluster.asked[-1] == (3, PING)


def test_the_listeners_host_name_is_looked_up_once_and_off_the_loops_thread(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up may take seconds, in which no connection would be served."""
    name, first_port, loop = "weir.example.org", free_range(12), threading.get_ident()
    looked_up: list[bool] = []
    really = socket.getaddrinfo

    def look_up(host: str | bytes | None, *args: Any, **kwargs: Any) -> Any:
        if host in (name, name.encode()) and not kwargs.get("flags", args[-1]) & socket.AI_NUMERICHOST:
            looked_up.append(threading.get_ident() == loop)
            host = HOST
        return really(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def script(stage: Stage) -> None:
        assert looked_up == [False]
        await stage.nursery.start(serve, stage.cluster, 3)
        assert set(await stage.told()) == {0, 3}
        client = await stage.connect(3)
        assert await client.ask(PING) == PONG
        assert looked_up == [False]

    play(script, first_port=first_port, listen=f"{name}:{first_port}")


def test_a_host_name_that_is_not_looked_up_in_time_stops_the_start(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = trio.socket.getaddrinfo

    async def look_up(host: str, *args: Any, **kwargs: Any) -> Any:
        if host == "a.example":
            await trio.sleep_forever()
        return await really(host, *args, **kwargs)

    monkeypatch.setattr(trio.socket, "getaddrinfo", look_up)
    with pytest.raises(
        config.ConfigError, match=r"cannot listen on a\.example:9092: .* within 0\.05 s: .*--listen"
    ):
        play(None, listen="a.example:9092", connect_timeout_s=0.05)


@staged(brokers=(0, 1))
async def test_a_brokers_changed_address_is_followed(stage: Stage) -> None:
    client = await stage.connect(1)
    assert await client.ask(PING) == PONG
    stage.brokers[1].cancel()
    await stage.nursery.start(serve, stage.cluster, 1)
    assert await stage.told() == {0: stage.port(0), 1: stage.port(1)}
    again = await stage.connect(1)
    assert await again.ask(PING) == PONG


@staged(refresh_s=0.02)
async def test_brokers_are_followed_while_no_client_asks(stage: Stage) -> None:
    await stage.nursery.start(serve, stage.cluster, 2)
    await until(lambda: 2 in stage.server.address_book.nodes)
    client = await stage.connect(2)
    assert await client.ask(PING) == PONG


@staged()
async def test_a_broker_outside_the_port_range_is_omitted_and_logged_once(stage: Stage) -> None:
    stage.cluster.nodes[77] = Address(HOST, 1)
    with capture_logs() as logged:
        for _ in range(3):
            assert set(await stage.told()) == {0}
    assert [line["node_id"] for line in logged if "removed" in line["event"]] == [77]


def test_brokers_that_the_upstream_omits_are_learnt_from_client_traffic(play: Play) -> None:
    async def script(stage: Stage) -> None:
        assert stage.server.address_book.nodes == {}
        assert await stage.told() == {0: stage.port(0)}
        client = await stage.connect(0)
        assert await client.ask(PING) == PONG

    play(script, cluster=Cluster(shy=True))


# Starting


def test_node_ids_out_of_range_are_an_error_that_names_the_settings(play: Play) -> None:
    with pytest.raises(config.ConfigError) as caught:
        play(None, brokers=(1001, 1011))
    text = str(caught.value)
    assert "\n" not in text
    assert "node ids are 1001 to 1011" in text
    assert "@1001" in text


@pytest.mark.parametrize(
    ("offset", "option", "shy"), [(0, "--listen", False), (0, "--listen", True), (2, "--broker-ports", False)]
)
def test_a_taken_port_stops_the_start_with_one_line(play: Play, offset: int, option: str, shy: bool) -> None:
    """One line in all: the command prints the error, and nothing is logged before it."""
    first = free_range(12)
    with (
        capture_logs() as logged,
        socket.create_server((HOST, first + offset)),
        pytest.raises(config.ConfigError) as caught,
    ):
        play(None, brokers=(0, 1), first_port=first, cluster=Cluster(shy=shy))
    assert logged == []
    assert str(first + offset) in str(caught.value)
    assert option in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "begins with b'HTTP'"),
        (framed(b"\0\0\0\x07" + bytes(10)), "request 7"),
        (framed(b"\0\0\0\0" + b"\xff\xff\xff\xf0" * 3), "no Metadata response"),
    ],
)
def test_an_upstream_that_is_not_kafka_stops_the_start_with_one_line(
    play: Play, garbage: bytes, said: str
) -> None:
    with capture_logs() as logged, pytest.raises(config.ConfigError) as caught:
        play(None, cluster=Cluster(garbage=garbage))
    assert logged == []
    text = str(caught.value)
    assert text.startswith(f"upstream is no Kafka broker: {HOST}:")
    assert said in text
    assert text.endswith("check --upstream")
    assert "\n" not in text


def test_an_upstream_that_speaks_tls_is_reported_as_such(play: Play) -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x50"
    with pytest.raises(config.ConfigError) as caught:
        play(None, cluster=Cluster(garbage=alert))
    assert str(caught.value).startswith(f"cannot connect to the brokers: {HOST}:")
    assert str(caught.value).endswith(": it speaks TLS: set upstream_tls, or name its PLAINTEXT listener")


@staged(brokers=(), upstream=f"{HOST}:1,no.such.host.invalid:9092", admin="127.0.0.1:1")
async def test_weir_starts_while_brokers_are_away_and_refuses_clients_meanwhile(stage: Stage) -> None:
    client = await stage.connect()
    assert await client.frame() is None
    await stage.closed(CloseReason.BROKER_UNREACHABLE)
    problem = await Readiness(stage.server, _set_event()).problem()
    assert problem is not None
    assert f"{HOST}:1: connection refused" in problem


def test_weir_still_waits_for_brokers_while_another_program_answers_at_their_address(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "WAITING_S", 0.02)
    upstream = Address(HOST, free_range(1))

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()  # else the end would be a reset
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()
        with suppress(trio.WouldBlock):
            answers.send_nowait(None)

    answers, received = trio.open_memory_channel[None](1)

    async def script(stage: Stage) -> None:
        await stage.nursery.start(partial(trio.serve_tcp, answer, upstream.port, host=HOST))
        for _ in range(3):
            await received.receive()

    with capture_logs() as logged:
        play(script, brokers=(), upstream=str(upstream))
    said = [line["event"] for line in logged]
    assert "waiting for brokers, clients are refused" in said
    assert "brokers answer, clients can connect" not in said


@staged(brokers=(3,), cluster=Cluster(shy=True))
async def test_readiness_names_unknown_brokers_until_a_client_has_bootstrapped(stage: Stage) -> None:
    """Else clients that remember the brokers' ports at Weir would be refused by a Weir that says it is ready
    (kroxylicious#416).
    """
    readiness = Readiness(stage.server, _set_event())
    problem = await readiness.problem()
    assert problem is not None
    assert "state_dir" in problem
    assert await is_refused(stage, 3)
    assert set(await stage.told()) == {3}
    assert await readiness.problem() is None
    assert await (await stage.connect(3)).ask(PING) == PONG


def test_listeners_of_remembered_brokers_are_open_at_the_start(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: dict[int, Address] = {}
    really = Server.serve

    async def serve(self: Server, workers: Workers, **kwargs: Any) -> None:
        self.remembered = remembered
        await really(self, workers, **kwargs)

    async def script(stage: Stage) -> None:
        remembered.update(stage.cluster.nodes)
        problem = await Readiness(stage.server, _set_event()).problem()
        assert problem == "no listener for brokers 4, 99, see the log for the remedy"
        assert await (await stage.connect(3)).ask(PING) == PONG
        assert await is_refused(stage, 4), "its port is another program's, and stops no start"

    cluster, port = Cluster(shy=True), free_range(12)
    monkeypatch.setattr(Server, "serve", serve)
    with socket.socket() as taken, capture_logs() as logged:
        taken.bind((HOST, port + 5))
        remembered.update({3: Address(HOST, 1), 4: Address(HOST, 2), 99: Address(HOST, 3)})
        play(partial(_moved, script), brokers=(3,), cluster=cluster, first_port=port)
    said = [line["event"] for line in logged]
    left_out = {
        line["node_id"] for line in logged if line["event"].startswith("broker removed from responses")
    }
    assert left_out == {4, 99}
    assert "no broker lists the brokers, using the last known ones" in said


async def _moved(script: Callable[[Stage], Awaitable[None]], stage: Stage) -> None:
    """Play after a client has bootstrapped: its response corrects an address that was remembered."""
    assert set(await stage.told()) == {3}
    await script(stage)


def _set_event() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


# Refusals


@staged(connections_max=1)
async def test_connections_above_the_limit_are_refused_and_counted(stage: Stage) -> None:
    first = await stage.connect()
    assert await first.ask(PING) == PONG
    second = await stage.connect()
    assert await second.frame() is None
    assert stage.plane.counters.closed[CloseReason.CONNECTION_LIMIT] == 1
    await first.stream.aclose()
    await stage.closed(CloseReason.CLIENT_CLOSED)
    third = await stage.connect()
    assert await third.ask(PING) == PONG


@staged(brokers=(0, 1))
async def test_an_unreachable_broker_is_counted_and_other_brokers_are_served(stage: Stage) -> None:
    stage.brokers[1].cancel()
    await trio.testing.wait_all_tasks_blocked()
    with capture_logs() as logged:
        client = await stage.connect(1)
        assert await client.frame() is None
    assert stage.plane.counters.closed[CloseReason.BROKER_UNREACHABLE] == 1
    (line,) = [line for line in logged if line["event"] == "connection refused"]
    assert re.fullmatch(r"broker 127\.0\.0\.1:\d+: connection refused", line["detail"])
    other = await stage.connect()
    assert await other.ask(PING) == PONG
    assert stage.plane.counters.sessions_open == 1


async def is_refused(stage: Stage, node_id: int | None) -> bool:
    """Whether the kernel refuses a connection."""
    try:
        await stage.connect(node_id)
    except OSError:
        return True
    return False


async def comes_back(stage: Stage, node_id: int) -> None:
    """Start a broker again, at another port, and let Weir learn it."""
    await stage.nursery.start(serve, stage.cluster, node_id)
    stage.server.address_book.observe(node_id, stage.cluster.nodes[node_id])


async def accepts_again(stage: Stage, node_id: int | None) -> None:
    """Wait until a connection is accepted; the time limit is the stage's."""
    while await is_refused(stage, node_id):  # noqa: ASYNC110  # as in `until`
        await trio.sleep(0.005)


@staged(brokers=(0, 1))
async def test_a_listener_refuses_connections_while_its_broker_is_unreachable(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "PROBE_S", 0.01)
    monkeypatch.setattr(refusals, "HOLD_S", math.inf)
    stage.brokers[1].cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert await (await stage.connect(1)).frame() is None
    assert await is_refused(stage, 1)
    for node_id in (None, 0):
        assert await (await stage.connect(node_id)).ask(PING) == PONG
    await stage.closed(CloseReason.BROKER_UNREACHABLE, 3)
    assert await is_refused(stage, 1), "also after Weir has tried again"
    await comes_back(stage, 1)
    await accepts_again(stage, 1)
    assert await stage.clients[-1].ask(PING) == PONG
    assert stage.cluster.asked[-1] == (1, PING)


@staged(brokers=(0, 1))
async def test_the_bootstrap_listener_refuses_connections_while_no_broker_is_reachable(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "PROBE_S", 0.01)
    for scope in stage.brokers.values():
        scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert await (await stage.connect()).frame() is None
    assert await is_refused(stage, None)
    await comes_back(stage, 1)
    await accepts_again(stage, None)
    assert await stage.clients[-1].ask(PING) == PONG


@staged(brokers=(0, 1))
async def test_clients_accepted_together_while_their_broker_is_unreachable_are_all_closed(
    stage: Stage,
) -> None:
    stage.brokers[1].cancel()
    await trio.testing.wait_all_tasks_blocked()
    plain = [socket.create_connection((HOST, stage.port(1).port)) for _ in range(20)]  # in the backlog
    for sock in plain:
        with sock, suppress(ConnectionResetError):
            sock.setblocking(False)
            assert await trio.socket.from_stdlib_socket(sock).recv(1) == b""
    assert await is_refused(stage, 1)


def test_a_bug_while_trying_an_unreachable_broker_again_opens_its_listener(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "PROBE_S", 0)
    answers: list[Exception] = [OSError(errno.ECONNREFUSED, ""), ValueError("a bug")]
    really = sockets.connect

    async def connect(address: Address, refuse: sockets.Refuse | None = None) -> socket.socket:
        if answers and refuse is not None:  # a client's connection, not Weir's own
            raise answers.pop(0)
        return await really(address, refuse)

    async def script(stage: Stage) -> None:
        monkeypatch.setattr(sockets, "connect", connect)
        assert await (await stage.connect(1)).frame() is None
        await accepts_again(stage, 1)
        assert await stage.clients[-1].ask(PING) == PONG
        assert stage.plane.counters.closed[CloseReason.INTERNAL_ERROR] == 1

    play(script, brokers=(0, 1))


@staged(brokers=(0, 1))
async def test_a_port_taken_while_its_listener_refuses_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "PROBE_S", 0)
    monkeypatch.setattr(acceptor, "RETRY_S", 0)
    really, failures = sockets.listen_again, [OSError(errno.EADDRINUSE, "Address already in use")]

    def listen_again(bound: Sequence[socket.socket]) -> None:
        if failures:
            raise failures.pop()
        really(bound)

    monkeypatch.setattr(sockets, "listen_again", listen_again)
    stage.brokers[1].cancel()
    await trio.testing.wait_all_tasks_blocked()
    with capture_logs() as logged:
        assert await (await stage.connect(1)).frame() is None
        await comes_back(stage, 1)
        await accepts_again(stage, 1)
    assert [line["node_id"] for line in logged if line["event"].startswith("cannot listen again")] == [1]
    assert await stage.clients[-1].ask(PING) == PONG


@staged(brokers=(0, 1), connections_max=1)
async def test_the_number_of_held_refused_clients_is_bounded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "HELD_MAX", 3)
    monkeypatch.setattr(refusals, "HOLD_S", math.inf)
    await stage.connect(1)
    await until(lambda: stage.plane.counters.sessions_opened == 1)
    held = [await stage.connect(1) for _ in range(3)]
    await stage.closed(CloseReason.CONNECTION_LIMIT, 3)
    for _ in range(5):
        assert await (await stage.connect(1)).frame() is None
    with trio.move_on_after(0) as peeking:
        await held[0].frame()
    assert peeking.cancelled_caught, "the first ones are held still"
    assert stage.plane.counters.closed[CloseReason.CONNECTION_LIMIT] == 8
    assert stage.plane.counters.sessions_open == 1


@staged(brokers=(0, 1, 2), connections_max=1)
async def test_refusals_are_logged_at_once_then_once_a_second_with_a_count(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "HOLD_S", 0)
    await stage.connect(0)
    await until(lambda: stage.plane.counters.sessions_opened == 1)
    with capture_logs() as logged:

        def counts(node_id: int) -> list[int]:
            return [line["count"] for line in logged if line.get("node_id") == node_id]

        started_ms = monotonic_us() // 1000
        for _ in range(30):
            assert await (await stage.connect(1)).frame() is None
        assert await (await stage.connect(2)).frame() is None
        await until(lambda: sum(counts(1)) == 30)
        lasted_ms = monotonic_us() // 1000 - started_ms
    assert counts(1)[0] == 1
    assert len(counts(1)) <= 2 + lasted_ms // 1000
    assert counts(2) == [1], "each broker has its own lines"


@staged()
async def test_running_out_of_descriptors_is_not_counted_as_an_unreachable_broker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_left(_address: Address, _refuse: sockets.Refuse | None = None) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(sockets, "connect", none_left)
    assert await (await stage.connect(0)).frame() is None
    assert stage.plane.counters.closed == {CloseReason.OUT_OF_RESOURCES: 1}


@staged()
async def test_a_bug_while_connecting_to_a_broker_ends_only_that_client(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = sockets.connect

    async def broken(address: Address, refuse: sockets.Refuse | None = None) -> socket.socket:
        if refuse is None:  # Weir's own connection
            return await really(address)
        raise ValueError("a bug")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(sockets, "connect", broken)
        client = await stage.connect(0)
        assert await client.frame() is None
    assert stage.plane.counters.closed == {CloseReason.INTERNAL_ERROR: 1}
    assert stage.plane.counters.sessions_open == 0
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert await (await stage.connect(0)).ask(PING) == PONG


@staged()
async def test_a_client_still_connecting_when_weir_stops_is_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_address: Address, _refuse: sockets.Refuse | None = None) -> socket.socket:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(sockets, "connect", never)
    client = await stage.connect(0)
    await until(lambda: stage.plane.counters.sessions_open == 1)
    stage.server.stop()
    assert await client.frame() is None
    assert stage.plane.counters.closed == {CloseReason.STOPPED: 1}
    assert stage.plane.counters.sessions_open == 0


@staged()
async def test_both_sockets_of_a_connection_use_tcp_keepalive(stage: Stage) -> None:
    """Half-open connections end by keepalive, within minutes."""
    client = await stage.connect(0)
    assert await client.ask(PING) == PONG
    assert isinstance(client.stream, trio.SocketStream)
    for peer in (client.stream.socket.getsockname(), stage.cluster.nodes[0]):
        assert keep_alive_of_socket_to(peer) == (1, 60, 10, 6)


def keep_alive_of_socket_to(peer: tuple[str, int]) -> tuple[int, int, int, int]:
    """(on, idle s, interval s, count) of the one socket of this process that is connected to `peer`."""
    found = []
    for entry in open_descriptors():
        number, what = entry.split(" ")
        if "socket:" in what:
            with socket.socket(fileno=os.dup(int(number))) as sock, suppress(OSError):
                if sock.getpeername() == peer:
                    found.append(
                        (
                            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                        )
                    )
    (only,) = found
    return only


@staged(connect_timeout_s=0.05)
async def test_a_broker_that_does_not_accept_is_a_connect_timeout(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_address: Address, _refuse: sockets.Refuse | None = None) -> socket.socket:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(sockets, "connect", never)
    client = await stage.connect(0)
    assert await client.frame() is None
    assert stage.plane.counters.closed[CloseReason.CONNECT_TIMEOUT] == 1
    assert stage.plane.counters.sessions_open == 0


@pytest.mark.parametrize(("number", "said"), [(errno.EMFILE, 1), (errno.ECONNABORTED, 0)])
def test_a_failed_accept_is_retried(
    play: Play, monkeypatch: pytest.MonkeyPatch, number: int, said: int
) -> None:
    """Out of descriptors is said and waited out; a client that gave up is nobody's matter."""
    failures = [OSError(number, "accept failed")]

    class Failing(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if failures:
                raise failures.pop()
            return super().accept()

    monkeypatch.setattr("weir.proxy.net.sockets.socket.socket", Failing)

    async def script(stage: Stage) -> None:
        with capture_logs() as logged:
            client = await stage.connect()
            assert await client.ask(PING) == PONG
        assert not failures
        assert len([line for line in logged if "ulimit -n" in line["event"]]) <= said

    play(script)


@staged()
async def test_garbage_from_a_client_ends_only_its_connection(stage: Stage) -> None:
    kept = await stage.connect()
    for sent in (b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        client = await stage.connect()
        assert await client.ask(sent + bytes(20)) is None
    assert await kept.ask(PING) == PONG
    closed = stage.plane.counters.closed
    assert closed == {CloseReason.REQUEST_TOO_LARGE: 1, CloseReason.TLS_ON_PLAIN_PORT: 1}


# Stopping


@staged()
async def test_stopping_lets_requests_in_flight_finish(stage: Stage) -> None:
    client, idle = await stage.connect(), await stage.connect()
    assert await idle.ask(PING) == PONG
    stage.cluster.may_answer = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect, client, PING, PONG)
        await until(lambda: len(stage.cluster.asked) == 2)
        stage.server.stop()
        assert await idle.frame() is None
        with pytest.raises(OSError, match=r"refused|all attempts"):
            await stage.connect()
        stage.cluster.may_answer.set()
    assert await client.frame() is None
    assert stage.plane.counters.closed[CloseReason.DRAINED] == 2
    assert stage.plane.counters.sessions_open == 0


async def _expect(client: Connection, asked: bytes, answer: bytes) -> None:
    assert await client.ask(asked) == answer


@staged(drain_timeout_s=0.05)
async def test_stopping_takes_no_longer_than_the_drain_time(stage: Stage) -> None:
    client, idle = await stage.connect(), await stage.connect()
    assert await idle.ask(PING) == PONG
    stage.cluster.may_answer = trio.Event()
    await client.stream.send_all(PING)
    await until(lambda: len(stage.cluster.asked) == 2)
    with capture_logs() as logged:
        stage.server.stop()
        assert await client.frame() is None
        assert stage.plane.counters.closed[CloseReason.DRAIN_TIMEOUT] == 1
        await until(lambda: "stopped" in [line["event"] for line in logged])
    assert [line for line in logged if line["event"] in {"draining", "stopped"}] == [
        {"event": "draining", "log_level": "info", "connections": 2, "timeout_s": 0.05},
        {"event": "stopped", "log_level": "info", "ended": 1, "cut": 1, "unforwarded_bytes": 0},
    ]


@staged(table=quota_table(produce=1))
async def test_stopping_forwards_what_was_read_of_a_throttled_client_and_says_what_the_kernel_holds(
    stage: Stage,
) -> None:
    """Issue 40, point 16: a take-over dropped both in silence."""
    read, unread = ([produce(n, 1000, acks=0) for n in numbers] for numbers in (range(4), range(4, 7)))
    client = await stage.connect(0)
    await client.stream.send_all(b"".join(read))
    await until(lambda: bool(stage.cluster.asked))
    await client.stream.send_all(b"".join(unread))
    with capture_logs() as logged:
        stage.server.stop()
        assert await client.frame() is None
        await until(lambda: "stopped" in [line["event"] for line in logged])
    assert [each.frame for each in stage.cluster.asked] == read
    assert [line["unforwarded_bytes"] for line in logged if line["event"] == "stopped"] == [3 * 1004]


@staged(brokers=(0, 1))
async def test_a_silent_broker_makes_only_the_first_bootstrap_client_wait(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "RIVAL_S", 0.01)
    silent, begun = stage.cluster.nodes[0], list[Address]()
    really = sockets.connect

    async def connect(address: Address, refuse: sockets.Refuse | None = None) -> socket.socket:
        if refuse is not None:  # a client's connection, not Weir's own
            begun.append(address)
            if address == silent:
                await trio.sleep_forever()
        return await really(address, refuse)

    monkeypatch.setattr(sockets, "connect", connect)
    stage.server.address_book.nodes.clear()
    firsts = []
    for _ in range(3):
        attempts = len(begun)
        assert await (await stage.connect()).ask(PING) == PONG
        firsts.append(begun[attempts])
        for node_id, address in stage.cluster.nodes.items():  # a discovery at the worst moment
            stage.server.address_book.learn(node_id, address)
    assert [address == silent for address in firsts] == [True, False, False]
    assert {node_id for node_id, _frame in stage.cluster.asked} == {1}
