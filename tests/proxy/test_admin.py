"""The admin endpoint over real sockets: what it answers, and that nothing said to it disturbs the proxy."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.admin.stage import Stage, get, play
from tests.cli.run_command import refused as refused_start
from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import Connection, serve
from tests.proxy.rigs import open_descriptors, unix_pair
from tests.proxy.stage import LONG_S, PING, PONG, until
from tests.proxy.supervised import NoWorkers, supervisor
from tests.proxy.wire import quota_table
from tests.scripted import scripted
from weir.proxy.addresses import Address
from weir.proxy.admin import endpoint, http, places, readiness
from weir.proxy.admin import stream as admin_stream
from weir.proxy.admin.api import events
from weir.proxy.admin.endpoint import Endpoint, listen
from weir.proxy.admin.entities import ENTITIES_MAX
from weir.proxy.admin.exposition import LINES, render
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.admin.places import RequestLimit
from weir.proxy.config import config
from weir.proxy.control.events.hub import WAITING_MAX, Hub
from weir.proxy.control.events.records import BrokerDown
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio
from weir.proxy.net.poll import WRITE
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server
from weir.quotas import DEFAULT, Entity, QuotaKey

LARGE = b"x" * (64 << 20)
"""More than the kernel holds for a client that does not read."""


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() <= before


# HTTP, whatever is behind it


def test_the_admin_endpoint_serves_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.proxy.control.supervisor.WAIT_S_MIN", 0.01)
    failures = [ZeroDivisionError]
    serve = trio.serve_listeners

    async def failing(*args: Any, **kwargs: Any) -> None:
        if failures:
            raise failures.pop()
        await serve(*args, **kwargs)

    monkeypatch.setattr(trio, "serve_listeners", failing)

    async def client(port: int) -> None:
        status, body, _ = await get(port, "/small")
        assert (status, body) == (200, b"small")

    served(client)
    assert not failures


async def _small(_request: Request) -> Response:
    return PlainTextResponse("small")


async def _large(_request: Request) -> Response:
    return Response(LARGE)


PAGES = RequestLimit(
    Starlette(routes=[Route(f"/{page.__name__.strip('_')}", page) for page in (_small, _large)])
)

Client = Callable[[int], Awaitable[None]]


def served(client: Client, app: ASGIApp = PAGES) -> None:
    """Run a client against an endpoint; it is given the port."""

    async def main() -> None:
        port = free_range(1)
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                listening = await listen(Address(HOST, port), LONG_S)
                nursery.start_soon(Endpoint(listening, app).serve, supervisor())
                await client(port)
                nursery.cancel_scope.cancel()

    trio.run(main)


async def small(port: int) -> bytes:
    status, body, _ = await get(port, "/small")
    assert status == 200
    return body


async def closed_without(connection: trio.SocketStream) -> bytes:
    """All that still comes until the other side closes."""
    received = bytearray()
    try:
        async for part in connection:
            received += part
    except trio.BrokenResourceError:
        pass
    return bytes(received)


def test_the_admin_endpoint_stops_while_a_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_stream, "SEND_S", float("inf"))
    with socket.socket() as stuck:

        async def client(port: int) -> None:
            stuck.connect((HOST, port))
            stuck.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            await trio.lowlevel.wait_readable(stuck)  # the answer has begun

        served(client)


def test_an_admin_client_that_does_not_read_is_closed_and_frees_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_stream, "SEND_S", 0.1)
    monkeypatch.setattr(places, "REQUESTS_MAX", 1)

    async def client(port: int) -> None:
        async with await trio.open_tcp_stream(HOST, port) as stuck:
            await stuck.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await stuck.receive_some(1), "the answer has begun"
            while (await get(port, "/small"))[0] == 503:  # no place yet
                pass
            assert len(await closed_without(stuck)) < len(LARGE)

    served(client)


def test_an_admin_connection_above_the_limit_replaces_the_oldest_without_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "IDLE_S", LONG_S)

    async def client(port: int) -> None:
        idle = [await trio.open_tcp_stream(HOST, port) for _ in range(endpoint.CONNECTIONS_MAX)]
        async with await trio.open_tcp_stream(HOST, port) as one_more:
            assert await closed_without(idle[0]) == b""
            for stream in (idle[1], one_more):
                await stream.send_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await closed_without(stream)).endswith(b"\r\n\r\nsmall")
        for stream in idle:
            await stream.aclose()
        assert await small(port) == b"small"

    served(client)


def test_an_admin_request_is_answered_although_slow_clients_came_before_it_was_sent() -> None:
    """As many slow clients as requests are answered at a time; closed ones would come again at once."""

    async def client(port: int) -> None:
        with ExitStack() as opened:
            async with await trio.open_tcp_stream(HOST, port) as polite:
                for _ in range(32):
                    sock = opened.enter_context(socket.create_connection((HOST, port)))
                    sock.sendall(b"GET /metr")
                assert await small(port) == b"small", "all connections before it are accepted"
                await polite.send_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await closed_without(polite)).endswith(b"\r\n\r\nsmall")

    served(client)


def test_an_admin_client_that_sends_its_request_byte_by_byte_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "IDLE_S", 0.2)

    async def client(port: int) -> None:
        async with await trio.open_tcp_stream(HOST, port) as slow, trio.open_nursery() as nursery:

            async def drip() -> None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    while True:
                        await slow.send_all(b"x")
                        await trio.sleep(0.01)  # less than IDLE_S: the whole request has a deadline

            await slow.send_all(b"GET /")
            nursery.start_soon(drip)
            assert b" 200 " not in await closed_without(slow)
            nursery.cancel_scope.cancel()

    served(client)


# The proxy's pages


@scripted(play)
async def test_readyz_is_200_between_start_and_drain(stage: Stage) -> None:
    assert await stage.ready() == (503, "not ready: starting\n")
    await stage.start()
    assert await stage.ready() == (200, "ready\n")
    client = Connection(await trio.open_tcp_stream(HOST, stage.clients))
    assert await client.ask(PING) == PONG
    stage.cluster.may_answer = trio.Event()
    await client.stream.send_all(PING)
    await until(lambda: len(stage.cluster.asked) == 2)
    stage.server.stop()
    assert await stage.ready() == (503, "not ready: draining\n")
    status, body, _ = await get(stage.admin, "/healthz")
    assert (status, body) == (200, b"ok\n")
    stage.cluster.may_answer.set()
    assert await client.frame() == PONG
    await client.stream.aclose()


def test_readyz_is_503_while_no_broker_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 0.0)

    async def script(stage: Stage) -> None:
        await stage.start()
        assert (await stage.ready())[0] == 200
        stage.broker.cancel()
        await until(lambda: refused(stage.cluster.nodes[0]))
        status, body = await stage.ready()
        assert status == 503
        assert body.startswith("not ready: no upstream broker could be reached: 127.0.0.1:")
        assert body.endswith("connection refused\n")
        _, metrics, _ = await get(stage.admin, "/metrics")
        assert b"\nweir_ready 0.0\n" in metrics
        stage.server.address_book.nodes[1] = (await back(stage)).nodes[1]
        assert await stage.ready() == (200, "ready\n"), "any broker will do"

    async def back(stage: Stage) -> Cluster:
        await stage.nursery.start(serve, stage.cluster, 1)
        return stage.cluster

    play(script)


def refused(address: Address) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(address) != 0


@scripted(play)
async def test_readyz_is_503_if_the_broker_never_answers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 0.0)
    monkeypatch.setattr(readiness, "PATIENCE_S", 0.2)
    await stage.start()
    with socket.create_server((HOST, 0)) as mute:
        stage.broker.cancel()
        await until(lambda: refused(stage.cluster.nodes[0]))
        stage.server.address_book.nodes[0] = Address(*mute.getsockname())
        status, body = await stage.ready()
        assert (status, "no upstream broker could be reached" in body) == (503, True)


@scripted(play)
async def test_readyz_is_200_if_the_broker_closes_an_unauthenticated_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that wants SASL or TLS closes the connection at the first request."""
    monkeypatch.setattr(readiness, "CHECK_S", 0.0)
    await stage.start()
    (listener,) = await trio.open_tcp_listeners(0, host=HOST)

    async def close(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    await stage.nursery.start(trio.serve_listeners, close, [listener])
    stage.broker.cancel()
    await until(lambda: refused(stage.cluster.nodes[0]))
    stage.server.address_book.nodes[0] = Address(HOST, listener.socket.getsockname()[1])
    assert await stage.ready() == (200, "ready\n")


@scripted(play)
async def test_readyz_does_not_ask_brokers_again_within_five_seconds(stage: Stage) -> None:
    await stage.start()
    assert await stage.ready() == (200, "ready\n")
    stage.broker.cancel()
    await until(lambda: refused(stage.cluster.nodes[0]))
    assert await stage.ready() == (200, "ready\n"), "asked less than CHECK_S ago"


@scripted(play)
async def test_brokers_are_asked_between_requests_only_while_events_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 0.0)
    await stage.start()
    checks = 0

    async def unreachable(*_args: object) -> str:
        nonlocal checks
        checks += 1
        return "no broker answers"

    monkeypatch.setattr(readiness, "_unreachable", unreachable)
    found = stage.state.readiness
    await found.refresh()
    assert checks == 0
    with stage.server.events.read():
        await found.refresh()
    assert checks == 1
    (condition,) = found.conditions()
    assert condition.what == "Not ready: no broker answers."
    monkeypatch.setattr(readiness, "KNOWN_S", -1.0)
    assert list(found.conditions()) == [], "nobody has asked for long"


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", False),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8", False),
        (
            "application/openmetrics-text; version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text",
            True,
        ),
    ],
)
@scripted(play)
async def test_metrics_have_the_requested_format(
    stage: Stage, accept: str, content_type: str, end: bool
) -> None:
    await stage.start()
    client = Connection(await trio.open_tcp_stream(HOST, stage.clients))
    assert await client.ask(PING) == PONG
    await until(lambda: bool(stage.server.counters.requests))
    status, text, headers = await get(stage.admin, "/metrics", accept=accept)
    assert status == 200
    assert headers["content-type"].startswith(content_type)
    assert text.endswith(b"\n# EOF\n") == end
    assert text.count(b"# EOF") == end
    assert b'\nweir_requests_total{api="Heartbeat",version="4"} 1.0\n' in text
    assert b"\nweir_sessions_open 1.0\n" in text
    await client.stream.aclose()


def test_a_scrape_of_metrics_lets_other_sockets_run() -> None:
    turns = 0

    def count(_events: int) -> None:
        nonlocal turns
        turns += 1

    async def main() -> int:
        limits = quota_table(produce=1.0, entity=Entity(client_id=DEFAULT))
        mutations = {(Entity(client_id=DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 1.0}
        registry = QuotaRegistry(limits.altered(mutations))
        for number in range(ENTITIES_MAX):
            registry.of(0).ledger("ANONYMOUS", f"app-{number}", 0)
            registry.of(0).mutations.budget("ANONYMOUS", f"app-{number}", 0)
        server = Server(config.load(None, {"upstream": "a:1"}), registry)
        sources = Sources(server, NoWorkers(), registry, StoreHealth(lambda: 0.0), lambda: 0)
        before = turns
        await render(families(sources, ready=True), "")
        return turns - before

    reactor = Reactor(monotonic_us)
    writable, other_end = unix_pair()
    reactor.register(writable.fileno(), WRITE, count)
    try:
        assert run_hosting_trio(reactor, main) >= (5 + 6) * ENTITIES_MAX / LINES, "metrics of each entity"
    finally:
        reactor.unregister(writable.fileno())
        reactor.close()
        writable.close()
        other_end.close()


# Configuration


def test_weir_run_reports_a_taken_admin_port_in_one_line() -> None:
    with socket.create_server((HOST, 0)) as taken:
        admin = f"{HOST}:{taken.getsockname()[1]}"
        line = refused_start("--upstream", f"{HOST}:1", "--admin", admin, "--log-level", "error")
    assert line == f"weir: cannot listen on {admin}: address already in use: choose another --admin"


# Events


def test_events_are_streamed_for_longer_than_other_connections_last_and_resume_after_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "IDLE_S", 0.05)
    monkeypatch.setattr(endpoint, "CONNECTION_S", 0.1)
    hub = Hub(lambda: 5)

    async def client(port: int) -> None:
        hub.publish(BrokerDown(node_id=1, reason=None))
        hub.publish(BrokerDown(node_id=2, reason=None))
        async with await trio.open_tcp_stream(HOST, port) as stream:
            await stream.send_all(b"GET /api/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 5\r\n\r\n")
            first = await received_until(stream, b'"node_id":2')
            assert b"content-type: text/event-stream" in first
            assert b"id: 6\ndata: {" in first
            assert b'"node_id":1' not in first
            with pytest.raises(trio.TooSlowError):
                with trio.fail_after(0.3):  # three times the time that another connection has
                    await received_until(stream, b"closed")
            assert hub.readers == 1
            hub.publish(BrokerDown(node_id=3, reason=None))
            assert b"id: 7\n" in await received_until(stream, b'"node_id":3')
        await until(lambda: hub.readers == 0)

    served(client, Starlette(routes=[events.route(hub)]))


def test_wrong_and_superfluous_readers_of_events_get_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.proxy.control.events.hub.READERS_MAX", 0)

    async def client(port: int) -> None:
        for path, status in (("/api/events?after=x", 400), ("/api/events", 503)):
            found, body, headers = await get(port, path)
            assert (found, headers["content-type"]) == (status, "application/problem+json")
            assert json.loads(body)["status"] == status

    served(client, Starlette(routes=[events.route(Hub(lambda: 5))]))


@pytest.mark.trio
async def test_a_stream_of_events_tells_a_slow_reader_that_it_is_closed() -> None:
    hub = Hub(lambda: 5)
    with hub.read() as reader:
        parts = events.stream(reader, lost=True, alive_s=0)
        told = [await anext(parts) for _ in range(3)]
        assert told[1].startswith(b"event: lost\n")
        assert told[2] == b": alive\n\n"
        for _ in range(WAITING_MAX + 1):
            hub.publish(BrokerDown(node_id=1, reason=None))
        last = [part async for part in parts][-1]
    assert last == b'event: closed\ndata: {"reason":"the reader is too slow"}\n\n'


async def received_until(stream: trio.SocketStream, part: bytes) -> bytes:
    """Return the bytes received until they contain `part`."""
    received = b""
    while part not in received:
        more = await stream.receive_some()
        assert more, "closed by the endpoint"
        received += more
    return received
