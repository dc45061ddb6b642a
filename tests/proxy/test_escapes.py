"""Ways around a quota, tried one by one: whoever a client is, what is its entity's stays its entity's."""

from __future__ import annotations

import base64
import gc
from typing import Final

import pytest

from tests.proxy.sasl import (
    AP_REQ,
    PROOF,
    REFUSED,
    SALT,
    SECRET,
    VERIFIED,
    authenticate,
    authenticated,
    bare,
    bearer,
    handshake,
    plain,
    scram_first,
    shaken,
)
from tests.proxy.wire import FIRST_HOLD_MS, Wire, new_connection
from tests.wire.frames import padded, request, response
from weir.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.effects import End
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import DEFAULT, BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.table.bounded_names import EMPTY

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
RATE: Final = 1000
BURST: Final = 10 * RATE
"""What a budget that has rested lets pass without a wait: at least ten windows are measured (KIP-13)."""
TEN_MINUTES_MS: Final = 600_000
PRODUCED = response(ProduceResponse(), 7, 9)
EMPTY_BYTES: Final = 66


def quotas(*entities: Entity, unnamed: str = "") -> BrokerQuotas:
    rates = {(entity, key): float(RATE) for entity in entities for key in (PRODUCE, FETCH)}
    return BrokerQuotas.create(QuotaTable(rates), unnamed=unnamed)


def produce(size: int, client_id: bytes | None = b"app", acks: int = 1) -> bytes:
    """A request whose frame length, which is what it is charged, is `size`."""
    return padded(request(ProduceRequest(acks=acks), 7, 9, client_id), size)


def fetch(client_id: bytes | None = b"app", replica_id: int = -1, version: int = 11) -> bytes:
    return request(FetchRequest(replica_id=replica_id, max_bytes=BURST), version, 9, client_id)


def fetched(size: int, throttle_ms: int = 0, version: int = 11) -> bytes:
    """A response whose frame length in v11, which is what it is charged, is `size`; EMPTY_BYTES without
    records.
    """
    topic = FetchResponse.FetchableTopicResponse(
        partitions=[FetchResponse.PartitionData(records=bytes(size - EMPTY_BYTES))]
    )
    return response(FetchResponse(responses=[topic], throttle_time_ms=throttle_ms), version, 9)


def visit(shared: BrokerQuotas, *asked: bytes, user: str = "alice", now_ms: int = 0) -> Connection:
    """A new connection of a user's that sends these and is answered at once."""
    connection = new_connection(quotas=shared)
    connection.client.become(user)
    wire = Wire(connection)
    for frame in asked:
        wire.exchange(now_ms, frame, PRODUCED)
    return connection


def charged(shared: BrokerQuotas) -> dict[tuple[str, str], float]:
    return {(budget.tags.user, budget.tags.client_id): budget.charged for budget in shared.produce}


# Names


@pytest.mark.parametrize("user", ["alice", "ANONYMOUS"])
@pytest.mark.parametrize("forged", [b"bobs-app", b"app", b"", None, b"\xff" * 32_767, b"a" * 32_767])
def test_a_borrowed_client_id_is_charged_to_the_authenticated_user(user: str, forged: bytes | None) -> None:
    """Bob's client-id has a quota under bob; mallory who takes it has her own."""
    shared = quotas(Entity(user=user), Entity(user="bob", client_id="bobs-app"), Entity(user="bob"))
    connection = visit(shared, produce(40_000, forged), user=user)
    assert charged(shared) == {(user, ""): 40_000}
    assert connection.throttled_until_ms == 30_000  # 40,000 bytes are worth 40 s, of which 10 have passed


def test_a_mute_holds_for_the_next_request_with_any_client_id() -> None:
    shared = quotas(Entity(client_id="app"), Entity(client_id=DEFAULT))
    connection = new_connection(quotas=shared)
    wire = Wire(connection)
    wire.feed(0, client=produce(11_000, b"app") + produce(100, b"other") + fetch(b"third"))
    assert bytes(wire.to_broker) == produce(11_000, b"app")
    wire.feed(999)
    assert wire.waiting_bytes == len(produce(100, b"other") + fetch(b"third"))
    wire.feed(1000)
    assert wire.waiting_bytes == 0


@pytest.mark.parametrize("name", [b"", None])
@pytest.mark.parametrize(("unnamed", "expected"), [("", {}), (EMPTY, {("", EMPTY): 40_000})])
def test_an_empty_client_id_escapes_default_quotas_only_as_in_kafka(
    name: bytes | None, unnamed: str, expected: dict[tuple[str, str], float]
) -> None:
    """Kafka's default client-id means nobody without one; `empty_client_id = "default"`."""
    shared = quotas(Entity(client_id=DEFAULT), unnamed=unnamed)
    connection = visit(shared, produce(40_000, name))
    assert charged(shared) == expected
    assert connection.throttled_until_ms == (30_000 if unnamed else 0)


def test_a_name_spelled_in_broken_utf_8_has_no_budget_of_another_name() -> None:
    """What is no UTF-8 is replaced, as in Java: it never becomes a name that somebody has."""
    shared = quotas(Entity(client_id="app"), Entity(client_id=DEFAULT))
    for odd in (b"app\x00", b"\xc1\xa1pp", b"ap\xed\xa0\x80p", b" app", b"app ", b"\xef\xbb\xbfapp", b"APP"):
        visit(shared, produce(1000, odd))
    assert ("", "app") not in charged(shared)
    assert sum(charged(shared).values()) == 7000


# Connections


@pytest.mark.slow
def test_a_thousand_connections_of_a_user_share_a_byte_rate() -> None:
    shared = quotas(Entity(user="alice"))
    sessions = [visit(shared, produce(100, b"%d" % number)) for number in range(1000)]
    (budget,) = shared.produce
    assert budget.charged == 10_100  # the burst is 100 of them, one more was not known to be too much
    assert sum(connection.throttled_until_ms == 100 for connection in sessions) == 900


def visits_in_a_minute(shared: BrokerQuotas, asked: bytes, answered: bytes) -> list[Wire]:
    """A client that makes a connection for each request, 20 a second, and ignores waits."""
    made = []
    for now_ms in range(0, 60_000, 50):
        wire = Wire(visit(shared))
        wire.feed(now_ms, client=asked)
        if len(wire.to_broker) == len(asked):
            wire.feed(now_ms, broker=answered)
        made.append(wire)
    return made


def test_a_connection_per_fetch_gets_only_its_byte_rate() -> None:
    wires = visits_in_a_minute(quotas(Entity(user="alice")), fetch(), fetched(2000))
    sizes = [len(wire.to_client) - 4 for wire in wires]
    assert set(sizes) == {EMPTY_BYTES, 2000}
    got = 2000 * sizes.count(2000)
    assert 60 * RATE - 2000 <= got <= 60 * RATE + BURST + 2000


@pytest.mark.parametrize("version", [3, 11])
def test_parallel_long_polls_get_hardly_more_than_the_byte_rate(version: int) -> None:
    """A hundred fetches under way at once: what a broker gives them is a burst and one response."""
    shared = quotas(Entity(user="alice"))
    wires = []
    for _ in range(100):
        connection = visit(shared)
        wires.append(Wire(connection))
        wires[-1].feed(0, client=fetch(version=version))
        assert bytes(wires[-1].to_broker) == fetch(version=version)
    got = 0
    for wire in wires:
        wire.feed(400, broker=fetched(2000, version=version))
        got += len(wire.to_client) - 4 > EMPTY_BYTES
    assert BURST <= 2000 * got <= BURST + 2000


@pytest.mark.parametrize("most_ms", [0, 1, 700])
def test_a_first_produce_request_is_held_at_most_as_long_as_configured(most_ms: int) -> None:
    shared = quotas(Entity(user="alice"))
    visit(shared, produce(BURST + TEN_MINUTES_MS))
    again = new_connection(quotas=shared, first_hold_ms_max=most_ms)
    again.client.become("alice")
    wire = Wire(again)
    wire.feed(1000, client=produce(1000))
    assert bytes(wire.to_broker) == (b"" if most_ms else produce(1000))
    wire.feed(1000 + most_ms)
    assert bytes(wire.to_broker) == produce(1000)


def test_a_connection_per_produce_request_that_does_not_wait_gets_only_its_byte_rate() -> None:
    wires = visits_in_a_minute(quotas(Entity(user="alice")), produce(2000), PRODUCED)
    assert 2000 * sum(bool(wire.to_broker) for wire in wires) <= 60 * RATE + BURST + 2000


def test_a_connection_per_produce_request_that_waits_gets_one_request_per_hold() -> None:
    """One connection after the other. At a broker each gets its request through at once."""
    shared, now_ms, passed = quotas(Entity(user="alice")), 0, 0
    visit(shared, produce(BURST + TEN_MINUTES_MS))
    while now_ms < 60_000:
        connection = visit(shared)
        wire = Wire(connection)
        wire.feed(now_ms, client=produce(2000))
        assert not wire.to_broker
        now_ms = connection.throttled_until_ms
        wire.feed(now_ms)
        passed += bytes(wire.to_broker) == produce(2000)
    assert passed == 60_000 / FIRST_HOLD_MS


# What is left of credentials


def reachable(root: object) -> list[object]:
    """Everything that an object of ours holds on to, but for modules, classes and functions' globals."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type) or type(found).__name__ == "module":
            continue
        seen[id(found)] = found
        if isinstance(found, memoryview):
            waiting.append(found.obj)
        waiting += [part for part in gc.get_referents(found) if not _is_globals(part)]
    return list(seen.values())


def _is_globals(part: object) -> bool:
    return isinstance(part, dict) and "__builtins__" in part


SECRETS: Final = (SECRET.decode(), base64.b64encode(SECRET).decode())
DIALOGUES: Final = {
    "PLAIN": [(plain("alice"), b"")],
    "SCRAM-SHA-512": [(scram_first("alice"), SALT), (PROOF, VERIFIED)],
    "OAUTHBEARER": [(bearer({"sub": "alice", "also": SECRET.decode()}), b"")],
    "GSSAPI": [(AP_REQ, b"x" + SECRET)],
}


@pytest.mark.parametrize("mechanism", DIALOGUES)
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("error_code", [0, REFUSED])
def test_no_long_lived_object_holds_a_credential(mechanism: str, raw: bool, error_code: int) -> None:
    connection = new_connection(plans=Plans(Counters()))
    requests, responses = connection.client_end, connection.broker_end

    def feed(end: End, sent: bytes) -> None:
        data = bytearray(sent)
        assert connection.receive(end, data, memoryview(data), len(data), 0) == len(data)
        connection.effects.to_broker.clear()
        connection.effects.to_client.clear()

    feed(requests, handshake(mechanism, 0 if raw else 1))
    feed(responses, shaken(0, 0 if raw else 1))
    for token, answer in DIALOGUES[mechanism]:
        feed(requests, bare(token) if raw else authenticate(token))
        if not raw:
            feed(responses, authenticated(answer, error_code))
        elif error_code:
            break  # the broker closes
        else:
            feed(responses, bare(answer))
    kept = reachable((connection, requests, responses))
    assert any(isinstance(part, Plans) for part in kept)
    for part in kept:
        if isinstance(part, bytes | bytearray | str):
            text = part if isinstance(part, str) else part.decode("latin-1")
            assert not any(secret in text for secret in SECRETS)
