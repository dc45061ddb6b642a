"""The log of throttles: one line per entity when it begins, one a minute, one at its end; shadow alike."""

from __future__ import annotations

import trio
from structlog.testing import capture_logs

from tests.quotas.changes import put_in_force
from weir.proxy.connection.client import Client
from weir.proxy.control.events.records import Event
from weir.proxy.control.events.throttle_log import NAMED_MAX, ThrottleLog
from weir.proxy.control.peers import Connected, local_peers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.scan import Scan
from weir.proxy.handlers.sasl.identity import Identities
from weir.quotas import DEFAULT, Budget, Entity, Prefix, QuotaKey, QuotaTable

ANY_APP = Entity(client_id=DEFAULT)
PRODUCE, MUTATIONS = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONTROLLER_MUTATION_RATE


Line = dict[str, object]


def registry_of(
    key: QuotaKey = PRODUCE, entity: Entity = ANY_APP, rate: float = 1000.0, *, shadow: bool = True
) -> QuotaRegistry:
    """A registry with one entry, in shadow unless told otherwise."""
    entries = {(entity, key): rate}
    return QuotaRegistry(QuotaTable(None, entries) if shadow else QuotaTable(entries))


def budget_of(registry: QuotaRegistry, client_id: str = "app", node_id: int = 0) -> Budget:
    """The produce budget of a client of alice's, of the shadow entry if there is one."""
    ledger = registry.of(node_id).ledger("alice", client_id, 0)
    budget = (ledger.shadow or ledger).produce
    assert isinstance(budget, Budget)
    return budget


def shadow_log(registry: QuotaRegistry) -> ThrottleLog:
    return ThrottleLog(Scan(registry), local_peers(list, registry), unheard, shadow=True)


def log_of(registry: QuotaRegistry, connected: Connected = list) -> ThrottleLog:
    return ThrottleLog(Scan(registry), local_peers(connected, registry), unheard)


def unheard(event: Event) -> None:
    """Publish to nobody."""


def said(log: ThrottleLog, now_ms: int = 0) -> list[Line]:
    with capture_logs() as lines:
        trio.run(log.look, now_ms)
    for line in lines:
        assert line.pop("log_level") == "info"
    return [dict(line) for line in lines]


def client(
    registry: QuotaRegistry, client_id: bytes = b"app", peer: str = "10.0.0.1:5", user: str = "alice"
) -> Client:
    found = Client(registry.of(1), Identities(), user=user, peer=peer, usage=None)
    head = b"\0\0\0\0\0\0\0\0\0\0\0\0" + len(client_id).to_bytes(2, "big") + client_id
    assert found.identify(bytearray(head), 0, len(head), 0) is not None
    return found


def test_the_log_says_when_throttling_begins_lasts_and_ends() -> None:
    """12,000 bytes at 1000 bytes/s, of which 10,000 pass at once: 2 s. 15,000 in 10 s: 5 s."""
    registry = registry_of(shadow=False)
    log = log_of(registry, lambda: [client(registry)])
    assert said(log) == []
    whose = {"quota": "producer_byte_rate", "client_id": "app", "entry": "client-id <default>"}
    budget_of(registry, node_id=1).charge(12_000, 0)
    assert said(log) == [
        {
            "event": "throttling begins",
            **whose,
            "count": 1,
            "seconds": 2.0,
            "rate": 1200,
            "limit": 1000.0,
            "connections": 1,
            "addresses": ["10.0.0.1"],
        }
    ]
    assert said(log, 5000) == []
    budget_of(registry, node_id=1).charge(3000, 10_000)
    assert said(log, 10_000) == []
    (line,) = said(log, 60_000)
    assert line == {"event": "throttling ended", **whose, "count": 2, "seconds": 7.0, "lasted_s": 15.0}
    assert said(log, 65_000) == []


def test_the_log_reminds_once_a_minute_of_throttling_that_lasts() -> None:
    registry = registry_of(shadow=False)
    log = log_of(registry)
    lines: list[Line] = []
    for now_ms in range(0, 150_000, 5000):
        budget_of(registry).charge(15_000, now_ms)
        lines += said(log, now_ms)
    assert [(line["event"], line.get("lasting_s"), line["count"]) for line in lines] == [
        ("throttling begins", None, 1),
        ("throttling goes on", 60.0, 12),
        ("throttling goes on", 120.0, 12),
    ]


def test_the_log_counts_connections_of_the_throttled_entity_alone_and_names_five_addresses() -> None:
    registry = registry_of(shadow=False)
    clients = [client(registry, peer=f"10.0.0.{n // 2}:{n}") for n in range(16)]
    clients += [client(registry, b"other", "10.9.9.9:1")]
    log = log_of(registry, lambda: clients)
    budget_of(registry, node_id=1).charge(12_000, 0)
    (line,) = said(log)
    assert line["connections"] == 16
    assert line["addresses"] == [f"10.0.0.{n}" for n in range(5)]


def test_the_log_names_the_longest_throttles_and_counts_all_others_once_a_minute() -> None:
    registry = registry_of()
    log = shadow_log(registry)
    for number in range(NAMED_MAX + 3):
        budget_of(registry, f"app-{number:02}").charge(11_000 + 1000 * number, 0)
    *named, others = said(log)
    assert [line["client_id"] for line in named] == [f"app-{n:02}" for n in range(NAMED_MAX + 2, 2, -1)]
    event = "shadow throttling of others"
    assert others == {"event": event, "entities": 3, "count": 3, "seconds": 1.0 + 2.0 + 3.0}
    budget_of(registry, "app-00").charge(11_000, 5000)
    assert said(log, 5000) == []
    budget_of(registry, "app-01").charge(11_000, 6000)
    found = [line for line in said(log, 60_000) if line["event"] == event]
    assert [(line["entities"], line["count"]) for line in found] == [(1, 2)]


def test_the_shadow_log_counts_mutations_that_would_have_been_refused() -> None:
    registry = registry_of(MUTATIONS, Entity("alice", Prefix("a")), rate=1.0)
    ledger = registry.of(0).mutation_ledger("alice", "app", 0)
    assert ledger is not None
    assert ledger.shadow is not None
    charge = ledger.shadow.begin(strict=True)
    for _topic in range(4):
        charge.admit(12, 0)
    charge.finish(0)
    assert said(shadow_log(registry)) == [
        {
            "event": "shadow throttling begins",
            "quota": "controller_mutation_rate",
            "user": "alice",
            "client_id_prefix": "a",
            "entry": "user alice, client-id prefix a",
            "count": 1,
            "seconds": 1.0,
            "refused": 3,
            "limit": 1.0,
            "connections": 0,
            "addresses": [],
        }
    ]


def test_the_shadow_log_shows_request_time_in_percent_of_a_thread() -> None:
    """1.23 s of one thread in the window of 10 s are 12.3 %; of them 2 % were allowed."""
    registry = registry_of(QuotaKey.REQUEST_PERCENTAGE, Entity("alice"), rate=2.0)
    quotas = registry.of(0)
    assert quotas.ledger("alice", "app", 0).charge_request(3, 1_234_567.0, 0) == 0
    assert said(shadow_log(registry)) == [
        {
            "event": "shadow throttling begins",
            "quota": "request_percentage",
            "user": "alice",
            "entry": "user alice",
            "count": 1,
            "seconds": 1.0,
            "rate": 12.35,
            "limit": 2.0,
            "connections": 0,
            "addresses": [],
        }
    ]


def test_the_shadow_log_names_topics_and_addresses() -> None:
    registry = QuotaRegistry(QuotaTable())
    rates = {
        (Entity(topic="orders"), QuotaKey.PRODUCER_BYTE_RATE): 10.0,
        (Entity(ip="10.0.0.1"), QuotaKey.CONNECTION_CREATION_RATE): 1.0,
    }
    table = QuotaTable(None, rates)
    put_in_force(registry, table)
    topics = registry.of(1).topics
    assert topics is not None
    topics.produce.charge({b"orders": 5000}, 0)
    for _ in range(15):
        registry.connections.admit(1, "10.0.0.1", 0)
    lines = said(shadow_log(registry))
    assert [(line["quota"], line.get("topic"), line.get("ip"), line["count"]) for line in lines] == [
        ("producer_byte_rate", "orders", None, 1),
        ("connection_creation_rate", None, "10.0.0.1", 5),
    ]
