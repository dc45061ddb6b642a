"""The JSON API over real sockets: what it answers about quotas, connections and brokers, and its errors."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
from structlog.testing import capture_logs

from tests.admin.stage import Stage, asked, get, play, play_with, produce
from tests.cli.quotas_command import done
from tests.kfake.cluster import HOST
from tests.kfake.in_trio import Connection
from tests.proxy.stage import PING, PONG, until
from tests.scripted import scripted
from weir.proxy.admin.api.operation import BODY_BYTES_MAX
from weir.proxy.control.snapshots import records

ALL = '\n[[quota]]\ngroup = "<all>"\nproducer_byte_rate = 6\n'
PAST, FAR = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
FLOORS = (
    "the floors of group <all> are 7 bytes/s, above its producer_byte_rate of 6; lower producer_byte_floor"
)
TOKEN = "0123456789abcdef-token"  # noqa: S105
ALICE = """
[[quota]]
user = "alice"
producer_byte_rate = 1000
until = 2999-01-01T01:00:00+01:00

[[quota]]
client_id = "<default>"
consumer_byte_rate = 5000
mode = "shadow"
"""

GROUPS = """
[[group]]
name = "data"

[[group]]
name = "etl"
users = ["alice", "svc-*"]
client_ids = ["etl-1"]
parent = "data"
"""


@pytest.fixture
def quotas(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.toml"
    file.write_text(ALICE)
    return file


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def content(file: Path) -> str:
    return file.read_text()


def throttle(stage: Stage, user: str = "alice", size: int = 12_000) -> None:
    """Charge 12,000 bytes: a quota of 1000 bytes/s lets 10,000 pass, and throttles for 2 s."""
    budget = stage.server.quotas.of(0).ledger(user, "etl", stage.server.now_ms).produce
    assert budget is not None
    assert budget.charge(size, stage.server.now_ms) == size - 10_000


def test_a_throttled_entity_is_listed_at_once_with_its_numbers_and_a_sentence(quotas: Path) -> None:
    async def script(stage: Stage) -> None:
        assert (await stage.json("/api/throttled"))["entities"] == []
        throttle(stage)
        for path in ("/api/throttled", "/api/entities", "/api/entities?sort=throttled&q=ALI"):
            found = msgspec.convert(await stage.json(path), records.Entities)
            (entity,) = found.entities
            assert (entity.user, entity.client_id, entity.broker) == ("alice", None, 0)
            assert (entity.quota, entity.unit, entity.limit) == ("producer_byte_rate", "bytes/s", 1000)
            assert (entity.throttled, entity.throttles, entity.throttled_ms) == (True, 1, 2000)
            assert entity.usage is not None
            assert 1.0 < entity.usage <= 1.2
            assert 0 < entity.throttle_ms <= 2000
            assert entity.throttled_since_ms is not None
            assert abs(entity.throttled_since_ms - found.now_ms) < 60_000
            assert entity.entry == "user alice"
            assert entity.history == (None,) * 60
            assert entity.sentence.startswith("user=alice is at 1")
            assert " % of producer_byte_rate 1 kB/s on broker 0, waits " in entity.sentence
            assert entity.sentence.endswith(", 0 connections")

    play_with(script, quotas)


def test_lists_of_entities_are_filtered_sorted_and_cut(quotas: Path) -> None:
    quotas.write_text('[[quota]]\nuser = "<default>"\nproducer_byte_rate = 1000\n')

    async def script(stage: Stage) -> None:
        for user, size in (("bob", 11_000), ("alice", 13_000), ("carol", 12_000)):
            throttle(stage, user, size)

        async def users(query: str) -> list[object]:
            answer = await stage.json(f"/api/entities?{query}")
            return [entity["user"] for entity in answer["entities"]] + [answer["hidden"]]

        assert await users("sort=rate") == ["alice", "carol", "bob", 0]
        assert await users("sort=name") == ["alice", "bob", "carol", 0]
        assert await users("limit=1") == ["alice", 2]
        assert await users("q=RO") == ["carol", 0]
        assert await users("quota=consumer_byte_rate") == [0]
        assert await users("broker=1") == [0]
        assert await users("broker=0&limit=1000&sort=usage") == ["alice", "carol", "bob", 0]
        assert await users("shadow=true") == [0]
        throttled = await stage.json("/api/throttled?limit=2")
        assert [entity["user"] for entity in throttled["entities"]] == ["alice", "carol"]
        assert throttled["hidden"] == 1

    play_with(script, quotas)


def test_shadow_quotas_are_listed_apart_and_would_have_throttled(quotas: Path) -> None:
    async def script(stage: Stage) -> None:
        shadow = stage.server.quotas.of(0).ledger("bob", "app", stage.server.now_ms).shadow
        assert shadow is not None
        assert shadow.fetch is not None
        shadow.fetch.charge(60_000, stage.server.now_ms)
        assert (await stage.json("/api/throttled"))["entities"] == []
        (entity,) = (await stage.json("/api/throttled?shadow=true"))["entities"]
        assert (entity["shadow"], entity["client_id"], entity["throttled"]) == (True, "app", True)
        assert ", would wait " in entity["sentence"]
        assert not (await stage.json("/api/status"))["all_in_shadow"]
        stage.server.quotas.in_shadow = True
        stage.server.quotas.use(stage.server.quotas.table)
        assert (await stage.json("/api/status"))["all_in_shadow"]

    play_with(script, quotas)


@scripted(play)
async def test_open_connections_are_listed_with_their_bytes_and_states(stage: Stage) -> None:
    await stage.start()
    clients = [Connection(await trio.open_tcp_stream(HOST, stage.clients)) for _ in range(2)]
    for client in clients:
        assert await client.ask(PING) == PONG
    answer = await stage.json("/api/connections")
    first, second = (msgspec.convert(found, records.ConnectionRecord) for found in answer["connections"])
    assert (first.id, second.id) == (1, 2)
    assert (first.listener, first.broker, first.tls, first.state) == ("bootstrap", 0, False, "OPEN")
    assert (first.user, first.software, first.mechanism) == ("ANONYMOUS", None, None)
    assert (first.in_bytes, first.out_bytes, first.in_flight) == (len(PING), len(PONG), 0)
    assert (first.waits_for, first.waits_until_ms) == (None, None)
    assert abs(first.opened_ms - answer["now_ms"]) < 60_000
    limited = await stage.json("/api/connections?limit=1&sort=in_bytes&broker=0&user=ANONYMOUS&state=OPEN")
    assert (len(limited["connections"]), limited["hidden"]) == (1, 1)
    for none in ("user=bob", "broker=7", "state=THROTTLED", "client_id=x", "q=no-such-name"):
        assert (await stage.json(f"/api/connections?{none}"))["connections"] == []
    for client in clients:
        await client.stream.aclose()


@scripted(play)
async def test_brokers_and_status_show_connections_and_a_broker_that_is_down(stage: Stage) -> None:
    await stage.start()
    client = Connection(await trio.open_tcp_stream(HOST, stage.clients))
    assert await client.ask(PING) == PONG
    await stage.reported()
    (broker,) = (await stage.json("/api/brokers"))["brokers"]
    assert (broker["node_id"], broker["up"], broker["connections"]) == (0, True, 1)
    assert broker["address"] == str(stage.cluster.nodes[0])
    status = await stage.json("/api/status")
    assert (status["ready"], status["problems"], status["compiled"]) == (True, [], False)
    assert status["totals"]["connections"] == 1
    stage.server.broker_states.failed(0, "connection refused")
    (broker,) = (await stage.json("/api/brokers"))["brokers"]
    assert (broker["up"], broker["error"]) == (False, "connection refused")
    assert broker["since_ms"] is not None
    (problem,) = (await stage.json("/api/status"))["problems"]
    assert (problem["what"], problem["since_ms"]) == (
        "Broker 0 is down: connection refused.",
        broker["since_ms"],
    )
    stage.server.broker_states.reached(0)
    (broker,) = (await stage.json("/api/brokers"))["brokers"]
    assert (broker["up"], broker["error"]) == (True, None)
    await client.stream.aclose()


@scripted(play)
async def test_the_status_names_a_quota_store_that_cannot_be_read(stage: Stage) -> None:
    await stage.start()
    stage.state.sources.store.outage.record("line 3: not TOML")
    status = await stage.json("/api/status")
    assert status["stores"][0]["error"] == "line 3: not TOML"
    assert [problem["what"] for problem in status["problems"]] == [
        "The quota store (file) cannot be read: line 3: not TOML."
    ]
    stage.state.sources.store.outage.over()
    assert (await stage.json("/api/status"))["problems"] == []


def test_configured_quotas_are_listed_with_their_options(quotas: Path) -> None:
    async def script(stage: Stage) -> None:
        answer = await stage.json("/api/quotas")
        enforced = {"mode": "enforce", "pacing": None, "scope": "broker", "until": "2999-01-01T00:00:00Z"}
        assert answer["quotas"] == [
            {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1000.0}, "options": enforced},
            {
                "entity": {"client-id": None},
                "quotas": {"consumer_byte_rate": 5000.0},
                "options": {**enforced, "mode": "shadow", "until": None},
            },
        ]
        assert (answer["store"], answer["writable"]) == ("file", False)
        assert len((await stage.json("/api/quotas?q=alice"))["quotas"]) == 1

    play_with(script, quotas)


def test_groups_are_listed_with_their_members(quotas: Path) -> None:
    quotas.write_text(GROUPS)

    async def script(stage: Stage) -> None:
        answer = await stage.json("/api/groups")
        etl = {"name": "etl", "users": ["alice", "svc-*"], "client_ids": ["etl-1"], "parent": "data"}
        data = {"name": "data", "users": [], "client_ids": [], "parent": ""}
        assert (answer["groups"], answer["hidden"]) == ([data, etl], 0)
        for q, found in {"SVC": [etl], "data": [data], "ice": [etl], "none": []}.items():
            assert (await stage.json(f"/api/groups?q={q}"))["groups"] == found
        answer = await stage.json("/api/groups?limit=1&offset=1")
        assert (answer["groups"], answer["hidden"]) == ([etl], 0)
        assert (await stage.json("/api/groups?limit=1"))["hidden"] == 1

    play_with(script, quotas)


def test_a_change_of_quotas_is_stored_in_the_file_and_in_the_audit_log(
    quotas: Path, token_file: Path
) -> None:
    change = {"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 2000}}

    async def script(stage: Stage) -> None:
        assert (await stage.json("/api/quotas"))["writable"]
        status, dry = await stage.post("/api/quotas", {**change, "dry_run": True}, TOKEN)
        assert (status, dry["quota"]["quotas"]) == (200, {"producer_byte_rate": 2000.0})
        assert "bob" not in content(quotas)
        with capture_logs() as logs:
            status, answer = await stage.post("/api/quotas", change, TOKEN)
        assert (status, answer["quota"]) == (200, dry["quota"])
        assert "bob" in content(quotas)
        (line,) = [line for line in logs if line["event"] == "quota altered"]
        assert (line["principal"], line["entity"], line["after"]) == ("User:admin-token", "user bob", 2000)
        assert line["client"].startswith("127.0.0.1:")
        ops = {"producer_byte_rate": None, "request_percentage": "unlimited"}
        status, answer = await stage.post("/api/quotas", {**change, "ops": ops}, TOKEN)
        assert (status, answer["quota"]["quotas"]) == (200, {"request_percentage": 2.0**63})
        assert 'request_percentage = "unlimited"' in content(quotas)

    play_with(script, quotas, admin_token_file=str(token_file))


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"entity": {"user": "a", "ip": "::1"}, "ops": {"producer_byte_rate": 1}}, 422, "stand alone"),
        ({"entity": {"user": "a"}, "ops": {"producer_byte_rate": 0.5}}, 422, "whole number"),
        ({"entity": {"ip": "x"}, "ops": {"connection_creation_rate": 1}}, 422, "IPv4 or IPv6"),
        ({"entity": {"topic": "t"}, "ops": {"request_percentage": 1}}, 422, "cannot be set for a topic"),
        ({"entity": {}, "ops": {"producer_byte_rate": 1}}, 400, "length >= 1"),
        ({"entity": {"user": "a"}, "ops": {"speed": 1}}, 400, "speed"),
        ({"entity": {"user": "a"}, "ops": {"producer_byte_rate": 1}, "more": 1}, 400, "more"),
        ({"entity": {"user": "a"}, "ops": {"producer_byte_floor": 7}, "dry_run": True}, 422, FLOORS),
        ({"entity": {"user": "a"}, "ops": {"producer_byte_floor": 7}}, 422, FLOORS),
        (
            {"entity": {"group": "x"}, "ops": {"producer_byte_rate": 7}, "dry_run": True},
            422,
            "which is none; add",
        ),
        ({"entity": {"group": "All"}, "ops": {"producer_byte_rate": 7}}, 422, 'write group = "<all>"'),
        ({"entity": {"user": "a"}, "ops": {"producer_byte_rate": 1}, "until": "soon"}, 422, "with its zone"),
        ({"entity": {"user": "a"}, "ops": {"producer_byte_rate": 1}, "until": PAST}, 422, "later than now"),
        ({"entity": {"group": "<all>"}, "ops": {"request_percentage": 1}, "until": FAR}, 422, "end, too"),
        (b"{", 400, "body is not allowed"),
        (b'{"entity":"\xff"}', 400, "body is not allowed"),
        (b" " * (BODY_BYTES_MAX + 1), 413, "more than 65536 bytes"),
    ],
)
def test_changes_of_quotas_that_cannot_be_are_refused_with_the_reason(
    change: object, status: int, detail: str, quotas: Path, token_file: Path
) -> None:
    async def script(stage: Stage) -> None:
        before = content(quotas)
        found, answer = await stage.post("/api/quotas", change, TOKEN)
        assert found == answer["status"] == status
        assert detail in answer["detail"]
        assert content(quotas) == before

    quotas.write_text(ALICE + ALL)
    play_with(script, quotas, admin_token_file=str(token_file))


def test_a_change_that_the_store_refuses_is_a_conflict_with_the_stores_reason(token_file: Path) -> None:
    async def script(stage: Stage) -> None:
        change = {"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 2000}}
        status, answer = await stage.post("/api/quotas", change, TOKEN)
        assert (status, "there is no quota file" in answer["detail"]) == (409, True)

    play_with(script, admin_token_file=str(token_file))


def test_a_release_ends_the_waits_of_a_client_whose_quota_was_raised(quotas: Path, token_file: Path) -> None:
    quotas.write_text('[[quota]]\nclient_id = "app"\nproducer_byte_rate = 1\n')
    raised = {"entity": {"client-id": "app"}, "ops": {"producer_byte_rate": 1_000_000}}
    path = "/api/connections/release"
    released = {"connections": 1, "waiting": 0, "wait_ms": 0}

    async def script(stage: Stage) -> None:
        await stage.start()
        client = Connection(await trio.open_tcp_stream(HOST, stage.clients))
        await client.stream.send_all(produce("app"))

        async def waits() -> bool:
            return bool((await stage.json("/api/connections?state=THROTTLED"))["connections"])

        while not await waits():
            await trio.lowlevel.checkpoint()
        command = ["--admin", f"{HOST}:{stage.admin}", "--admin-token-file", str(token_file), "--json"]
        set_ = partial(done, "set", *command, "--client-id", "app", "--release")
        assert json.loads(await trio.to_thread.run_sync(set_))["waiting"] == 1
        assert await waits(), "a release keeps to the present quota"
        assert (await stage.post("/api/quotas", raised, TOKEN))[0] == 200
        assert await waits()
        assert (await stage.post(path, {}, TOKEN))[0] == 422
        for other in ({"client_id": "other"}, {"group": "other"}):
            assert (await stage.post(path, other, TOKEN))[1] == {"connections": 0, "waiting": 0, "wait_ms": 0}
        with capture_logs() as logs:
            assert (await stage.post(path, {"group": "<all>"}, TOKEN)) == (200, released)
        assert not await waits()
        (line,) = [line for line in logs if line["event"] == "waits ended"]
        assert (line["group"], line["connections"]) == ("<all>", 1)
        assert (await stage.json("/api/throttled"))["entities"][0]["throttled"] is False
        await client.stream.aclose()

    play_with(script, quotas, admin_token_file=str(token_file))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("GET", "/api/entities/", 404),
        ("POST", "/api/entities", 405),
        ("DELETE", "/api/quotas", 405),
        ("GET", "/api/entities?limit=1001", 400),
        ("GET", "/api/entities?limit=1&limit=2", 400),
        ("GET", "/api/entities?sort=charm", 400),
        ("GET", "/api/entities?broker=x", 400),
        ("GET", "/api/connections?colour=red", 400),
        ("POST", "/api/quotas/preview", 415),
    ],
)
@scripted(play)
async def test_errors_are_problem_details(stage: Stage, method: str, path: str, status: int) -> None:
    answered, body, headers = await asked(stage.admin, method, path, {})
    problem = msgspec.json.decode(body, type=records.ErrorDetails)
    assert answered == problem.status == status
    assert headers["content-type"] == "application/problem+json"
    assert problem.detail
    if status == 405:
        assert headers["allow"]


@scripted(play)
async def test_a_preview_is_of_the_entry_with_the_mode_of_the_request(stage: Stage) -> None:
    """Storage is not read: a budget that is enforced may throttle somebody; one in shadow does not."""
    for mode, upper_s in {"enforce": None, "shadow": 0}.items():
        wanted = {"entity": {"topic": "a"}, "ops": {"stored_bytes_max": 9, "over_byte_rate": 1}}
        _status, answer = await stage.post("/api/quotas/preview", {**wanted, "mode": mode})
        assert [one["throttled_s_upper"] for one in answer["entities"]] == [upper_s]


def test_a_preview_is_refused_if_the_change_would_be(quotas: Path) -> None:
    quotas.write_text(f'{ALL}[[quota]]\nuser = "a"\nproducer_byte_floor = 5\n')

    async def script(stage: Stage) -> None:
        for value, options, status in (
            (4, {}, 422),
            (4, {"mode": "shadow"}, 200),
            (6, {"scope": "cluster"}, 422),
        ):
            wanted = {"entity": {"group": "<all>"}, "ops": {"producer_byte_rate": value}, **options}
            assert (await stage.post("/api/quotas/preview", wanted))[0] == status

    play_with(script, quotas)


@scripted(play)
async def test_a_bug_in_the_api_is_a_problem_with_status_500(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.state.traffic, "look", lambda _now_ms: 1 / 0)
    with capture_logs() as logs:
        status, body, headers = await get(stage.admin, "/api/brokers")
        await until(lambda: bool(logs))
    assert (status, headers["content-type"]) == (500, "application/problem+json")
    assert b"division" not in body
    assert "internal error in an admin page; please report this" in [line["event"] for line in logs]
