"""An admin endpoint whose API answers with prepared records, for tests of the page and of `weir top`.

    api = FakeApi()
    with served(api) as url: ...

`python -m tests.admin.fake_api [PORT]` serves it until interrupted, to look at the page.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.proxy.supervised import supervisor
from weir.proxy.addresses import Address
from weir.proxy.admin.endpoint import Endpoint, listen
from weir.proxy.admin.page.routes import routes as page_routes
from weir.proxy.control.snapshots.records import (
    Broker,
    Brokers,
    Certificate,
    ChangedQuota,
    ClientGroup,
    ClientGroups,
    ConnectionRecord,
    Connections,
    Entities,
    EntityRecord,
    ErrorDetails,
    Preview,
    PreviewedEntity,
    Problem,
    Quota,
    QuotaChange,
    QuotaOptions,
    Quotas,
    Rates,
    Status,
    Store,
    Totals,
    Usage,
    WorkerRecord,
)
from weir.quotas.table.options import Pacing, Scope

NOW_MS: Final = 1_795_435_200_000
"""Time of all records: 2026-11-23 12:00:00 UTC."""
HOSTILE: Final = '<script>document.title="broken"</script><img src=x onerror=alert(1)>'
"""A client-id that would run a script in a page that made HTML of it."""


def wave(mean: float, share: float, *, known: int = 60) -> Rates:
    """Return ten minutes of rates around `mean`; only the latest `known` of them are known."""
    rates = [round(mean * (1 + share * math.sin(i / 3) * math.cos(i / 7)), 1) for i in range(60)]
    return (*(None for _ in range(60 - known)), *rates[60 - known :])


def entity(id_: str, **changes: Any) -> EntityRecord:
    """Return the record of alice's client `etl`, over its quota, with these fields changed."""
    its: dict[str, Any] = {
        "id": id_,
        "user": "alice",
        "client_id": "etl",
        "client_id_prefix": None,
        "topic": None,
        "ip": None,
        "group": None,
        "topic_prefix": None,
        "quota": "producer_byte_rate",
        "unit": "bytes/s",
        "broker": 2,
        "shadow": False,
        "entry": "user=alice, client-id=etl",
        "limit": 1_000_000.0,
        "rate": 1_310_000.0,
        "usage": 1.31,
        "throttled": True,
        "throttled_since_ms": NOW_MS - 83_000,
        "throttle_ms": 310,
        "throttles": 212,
        "throttled_ms": 61_400,
        "connections": 4,
        "peers": ("10.0.0.7",),
        "software": ("librdkafka 2.5.0",),
        "client_ids": ("etl",),
        "history": wave(1_050_000.0, 0.5),
        "sentence": "user=alice, client-id=etl is at 131 % of producer_byte_rate 1 MB/s on broker 2, "
        "waits 310 ms, 4 connections from 10.0.0.7 (librdkafka 2.5.0)",
    }
    return EntityRecord(**{**its, **changes})


def calm(id_: str, **changes: Any) -> EntityRecord:
    """Return the record of a client below its quota, with these fields changed."""
    its = {
        "user": "bob",
        "client_id": "reports",
        "quota": "consumer_byte_rate",
        "broker": 1,
        "entry": "user=bob",
        "limit": 5_000_000.0,
        "rate": 1_234_567.0,
        "usage": 0.2469134,
        "throttled": False,
        "throttled_since_ms": None,
        "throttle_ms": 0,
        "throttles": 0,
        "throttled_ms": 0,
        "connections": 2,
        "peers": ("10.0.0.9", "10.0.0.12"),
        "software": ("apache-kafka-java 3.9.1",),
        "client_ids": ("reports",),
        "history": wave(1_200_000.0, 0.3, known=40),
        "sentence": "user=bob, client-id=reports is at 25 % of consumer_byte_rate 5 MB/s on broker 1, "
        "2 connections from 10.0.0.9 and 10.0.0.12 (apache-kafka-java 3.9.1)",
    }
    return entity(id_, **{**its, **changes})


def hostile(id_: str) -> EntityRecord:
    """Return the record of a throttled client with a hostile client-id."""
    return entity(
        id_,
        user=None,
        client_id=HOSTILE,
        quota="request_percentage",
        unit="percent",
        entry="client-id=<default>",
        limit=25.0,
        rate=26.4,
        usage=1.056,
        throttled_since_ms=NOW_MS - 3_725_000,
        throttle_ms=48,
        connections=1,
        peers=("192.0.2.66",),
        software=(),
        client_ids=(),
        history=wave(24.0, 0.4),
        sentence=f"client-id={HOSTILE} is at 106 % of request_percentage 25 % on broker 2, waits 48 ms, "
        "1 connection from 192.0.2.66",
    )


ENTITIES: Final = (
    entity("e1"),
    hostile("e2"),
    calm("e3"),
    calm(
        "e4",
        user="carol",
        client_id=None,
        entry="user=<default>",
        quota="producer_byte_rate",
        limit=2_000_000.0,
        rate=1_710_000.0,
        usage=0.855,
        history=wave(1_500_000.0, 0.2),
    ),
    calm(
        "e5",
        user="ops",
        client_id="topics",
        quota="controller_mutation_rate",
        unit="partitions/s",
        broker="cluster",
        limit=10.0,
        rate=0.4,
        usage=0.04,
        history=wave(0.5, 0.9),
    ),
)
SHADOW: Final = (
    calm(
        "s1",
        user="alice",
        client_id="etl",
        shadow=True,
        quota="request_percentage",
        unit="percent",
        limit=50.0,
        rate=61.0,
        usage=1.22,
        throttles=18,
        throttled_ms=9_000,
        history=wave(55.0, 0.3),
    ),
)


def connection(id_: int, **changes: Any) -> ConnectionRecord:
    """Return the record of a connection of alice's client, with these fields changed."""
    its: dict[str, Any] = {
        "id": id_,
        "peer": f"10.0.0.7:{50_000 + id_}",
        "listener": "broker 2",
        "broker": 2,
        "user": "alice",
        "client_id": "etl",
        "software": "librdkafka 2.5.0",
        "mechanism": "SCRAM-SHA-512",
        "tls": True,
        "state": "THROTTLED",
        "waits_for": "producer_byte_rate of user=alice, client-id=etl",
        "waits_until_ms": NOW_MS + 310,
        "opened_ms": NOW_MS - 5_025_000,
        "in_bytes": 4_812_345_678,
        "out_bytes": 21_034_567,
        "in_bytes_per_s": 957_680.5,
        "out_bytes_per_s": 4186.0,
        "in_flight": 1,
    }
    return ConnectionRecord(**{**its, **changes})


CONNECTIONS: Final = (
    *(connection(number) for number in range(1, 5)),
    connection(
        5, peer="192.0.2.66:41000", user=None, client_id=HOSTILE, software=None, mechanism=None, tls=False
    ),
    connection(
        6,
        peer="10.0.0.9:38122",
        listener="broker 1",
        broker=1,
        user="bob",
        client_id="reports",
        software="apache-kafka-java 3.9.1",
        state="OPEN",
        waits_for=None,
        waits_until_ms=None,
        in_flight=0,
    ),
)
BROKERS: Final = tuple(
    Broker(
        node_id=node_id,
        address=f"kafka-{node_id}.internal:9092",
        port=19092 + node_id,
        up=node_id != 3,
        since_ms=NOW_MS - 95_000 if node_id == 3 else None,
        error="connection refused" if node_id == 3 else None,
        connections={1: 1, 2: 5, 3: 0}[node_id],
        throttled_entities={1: 0, 2: 2, 3: 0}[node_id],
        in_bytes_per_s={1: 1_720_000.0, 2: 1_335_000.0, 3: 0.0}[node_id],
        out_bytes_per_s={1: 1_234_567.0, 2: 42_000.0, 3: 0.0}[node_id],
        rack=None,
    )
    for node_id in (1, 2, 3)
)
QUOTAS: Final = (
    Quota(
        entity={"user": "alice", "client-id": "etl"},
        quotas={"producer_byte_rate": 1_000_000.0},
        options=QuotaOptions(mode="enforce", pacing=Pacing.SMOOTH, scope=Scope.BROKER),
    ),
    Quota(
        entity={"user": None},
        quotas={"producer_byte_rate": 2_000_000.0, "consumer_byte_rate": 5_000_000.0},
        options=QuotaOptions(mode="enforce", pacing=None, scope=Scope.BROKER),
    ),
    Quota(
        entity={"group": "payments"},
        quotas={"producer_byte_rate": 9_000_000.0},
        options=QuotaOptions(mode="enforce", pacing=None, scope=Scope.CLUSTER),
    ),
)
GROUPS: Final = (
    ClientGroup(name="payments", users=("alice", "svc-pay-*"), client_ids=(HOSTILE,), parent="retail"),
    ClientGroup(name="retail"),
)
STATUS: Final = Status(
    name="weir-1:9092",
    upstream="kafka-1:9092",
    weirs=2,
    others=("weir-2:9092",),
    version="1.0.0",
    compiled=True,
    python="3.11.2",
    started_ms=NOW_MS - 400_000_000,
    now_ms=NOW_MS,
    ready=True,
    all_in_shadow=False,
    problems=(
        Problem(
            what="Broker 3 cannot be reached: connection refused.",
            since_ms=NOW_MS - 95_000,
            remedy="Look at the broker and its network. Its clients are refused, so that they back off.",
        ),
    ),
    stores=(Store(name="file", quotas=3, updated_ms=NOW_MS - 61_000, failing_since_ms=None, error=None),),
    workers=(WorkerRecord(id=0, pid=4711, connections=6, beat_ms=NOW_MS - 400),),
    usage=Usage(enabled=True, dropped=0, error=None),
    certificates=(Certificate(name="listener", expires_ms=NOW_MS + 9 * 86_400_000),),
    totals=Totals(
        connections=6,
        requests_per_s=1843.5,
        in_bytes_per_s=3_055_000.0,
        out_bytes_per_s=1_276_567.0,
        throttled_entities=2,
        throttled_connections=5,
    ),
)


@dataclass
class FakeApi:
    """The records to answer, and the requests that came. Tests change the fields while it serves."""

    status: Status = STATUS
    entities: tuple[EntityRecord, ...] = ENTITIES
    shadow: tuple[EntityRecord, ...] = SHADOW
    connections: tuple[ConnectionRecord, ...] = CONNECTIONS
    brokers: tuple[Broker, ...] = BROKERS
    outside: tuple[int, ...] = ()
    quotas: tuple[Quota, ...] = QUOTAS
    events: list[dict[str, Any]] = field(default_factory=list)
    token: str | None = None
    """Token of changes, and of reading if `private`."""
    private: bool = False
    """True to ask for the token for reading, too."""
    failing: bool = False
    """True to answer everything under `/api` with 503."""
    late: set[str] = field(default_factory=set)
    """Paths whose GET is answered as soon as the path is no longer here."""
    requests: list[str] = field(default_factory=list)
    """Method and URL of each request to `/api`."""
    bodies: list[Any] = field(default_factory=list)
    """Bodies of POST requests."""

    def application(self) -> Starlette:
        gets = {
            "/api/status": self._status,
            "/api/entities": self._entities,
            "/api/throttled": self._throttled,
            "/api/connections": self._connections,
            "/api/brokers": self._brokers,
            "/api/quotas": self._quotas,
            "/api/groups": self._groups,
        }
        posts = {"/api/quotas": self._change, "/api/quotas/preview": self._preview}
        return Starlette(
            routes=[
                *page_routes(),
                *(Route(path, self._page(answer), methods=["GET"]) for path, answer in gets.items()),
                *(Route(path, self._page(answer), methods=["POST"]) for path, answer in posts.items()),
                Route("/api/events", self._events, methods=["GET"]),
            ]
        )

    def _page(self, answer: Any) -> Any:
        async def page(request: Request) -> Response:
            url = request.url
            self.requests.append(f"{request.method} {url.path}{'?' if url.query else ''}{url.query}")
            while request.method == "GET" and url.path in self.late:  # noqa: ASYNC110  # set by a thread
                await trio.sleep(0.02)
            return self._refusal(request) or _json(answer(request, await request.body()))

        return page

    def _refusal(self, request: Request) -> Response | None:
        if self.failing:
            return _error(503, "the fake API fails")
        given = request.headers.get("authorization")
        if given is not None and given != f"Bearer {self.token}":
            return _error(401, "the token is wrong")
        if given is None and self.private:
            return _error(401, "reading needs the header Authorization: Bearer TOKEN")
        if given is None and request.method == "POST" and request.url.path == "/api/quotas":
            need = "" if self.token else ": set admin_token_file, and restart Weir"
            return _error(403, f"changes need the header Authorization: Bearer TOKEN{need}")
        return None

    def _status(self, _request: Request, _body: bytes) -> Status:
        return self.status

    def _chosen(self, request: Request, records: tuple[EntityRecord, ...]) -> Entities:
        q = request.query_params.get("q", "").casefold()
        limit = int(request.query_params.get("limit", "100"))
        found = [each for each in records if q in f"{each.user} {each.client_id}".casefold()]
        return Entities(now_ms=NOW_MS, hidden=max(len(found) - limit, 0), entities=tuple(found[:limit]))

    def _entities(self, request: Request, _body: bytes) -> Entities:
        shadow = request.query_params.get("shadow") == "true"
        return self._chosen(request, self.shadow if shadow else self.entities)

    def _throttled(self, request: Request, _body: bytes) -> Entities:
        records = self.shadow if request.query_params.get("shadow") == "true" else self.entities
        return self._chosen(request, tuple(each for each in records if each.throttled_since_ms))

    def _connections(self, request: Request, _body: bytes) -> Connections:
        q = request.query_params.get("q", "").casefold()
        found = tuple(each for each in self.connections if q in f"{each.user} {each.client_id}".casefold())
        return Connections(now_ms=NOW_MS, hidden=0, connections=found)

    def _brokers(self, _request: Request, _body: bytes) -> Brokers:
        return Brokers(now_ms=NOW_MS, hidden=0, brokers=self.brokers, outside=self.outside)

    def _quotas(self, _request: Request, _body: bytes) -> Quotas:
        writable = self.token is not None
        return Quotas(now_ms=NOW_MS, hidden=0, quotas=self.quotas, store="file", writable=writable)

    def _groups(self, _request: Request, _body: bytes) -> ClientGroups:
        return ClientGroups(now_ms=NOW_MS, hidden=0, groups=GROUPS)

    def _change(self, _request: Request, body: bytes) -> ChangedQuota:
        change = msgspec.json.decode(body, type=QuotaChange)
        self.bodies.append(change)
        values: dict[str, float] = {
            key.value: value for key, value in change.rates.items() if value is not None
        }
        changed = Quota(
            entity={str(key): its for key, its in change.entity.items()},
            quotas=values,
            options=QUOTAS[1].options,
        )
        self.quotas = (*(each for each in self.quotas if each.entity != change.entity), changed)
        return ChangedQuota(quota=changed, dry_run=change.dry_run)

    def _preview(self, _request: Request, body: bytes) -> Preview:
        change = msgspec.json.decode(body, type=QuotaChange)
        self.bodies.append(change)
        (limit,) = change.rates.values()
        its = PreviewedEntity(
            id="e1",
            limit=limit,
            throttled_s_lower=184.0,
            throttled_s_upper=None,
            share_over=0.52,
            history=self.entities[0].history,
            sentence="user=alice, client-id=etl would have been throttled on broker 2 for at least 184 s",
        )
        budget = msgspec.structs.replace(
            its, id="e2", share_over=1.0, history=(None,) * 60, sentence="is over"
        )
        return Preview(now_ms=NOW_MS, hidden=0, entities=(its, budget))

    async def _events(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        after = int(request.headers.get("last-event-id", "0"))
        return StreamingResponse(self._stream(after), media_type="text/event-stream")

    async def _stream(self, after: int) -> Any:
        yield b"retry: 1000\n\n"
        while True:
            for event in [each for each in self.events if each["id"] > after]:
                after = event["id"]
                yield b"id: %d\ndata: %b\n\n" % (after, msgspec.json.encode(event))
            await trio.sleep(0.05)


def _json(record: object) -> Response:
    return Response(
        msgspec.json.encode(record), headers={"cache-control": "no-store"}, media_type="application/json"
    )


def _error(status: int, detail: str) -> Response:
    body = msgspec.json.encode(ErrorDetails(title="Error", status=status, detail=detail))
    return Response(body, status, media_type="application/problem+json")


@contextmanager
def served(api: FakeApi, port: int | None = None, base_path: str = "") -> Iterator[str]:
    chosen = free_range(1) if port is None else port
    ready = threading.Event()
    ends: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await listen(Address(HOST, chosen), 10)
            ends.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            app = api.application()

            async def below(scope: AsgiScope, receive: Receive, send: Send) -> None:
                """Remove `base_path`, as an ingress does."""
                path = str(scope.get("path", "")).removeprefix(base_path) or "/"
                await app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

            endpoint = Endpoint(listening, below)
            nursery.start_soon(endpoint.serve, supervisor())
            ready.set()

    thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
    thread.start()
    assert ready.wait(120)
    try:
        yield f"http://{HOST}:{chosen}"
    finally:
        token, scope = ends[0]
        token.run_sync_soon(scope.cancel)
        thread.join(20)


if __name__ == "__main__":
    with served(FakeApi(token=HOST), int(sys.argv[1]) if sys.argv[1:] else None) as url_served:
        print(url_served, flush=True)
        threading.Event().wait()
