"""Request time on the wire (KIP-124): who is charged what and when, what is reported, who waits.

The rules are those of ClientRequestQuotaManager, KafkaApis and SocketServer (2.8 to 4.2). Costs are made by
hand: 50 µs each, of which 20 pass at once (`request_costs`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import tests.protocol
from tests.matrix import in_one_test
from tests.protocol.generate import sample
from tests.proxy.broker_versions import broker_of
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import (
    EACH_US,
    LIMIT,
    LIMIT_US,
    VARIOUS,
    budgets,
    charged_us,
    costs,
    everybody,
    exempt_us,
    percent,
    spend,
    time_table,
    timed,
)
from tests.proxy.sasl import (
    ILLEGAL_STATE,
    UNSUPPORTED_MECHANISM,
    authenticate,
    authenticated,
    handshake,
    log_in,
    shaken,
)
from tests.proxy.wire import APP, Wire, new_connection, quota_table
from tests.quotas.changes import put_in_force
from tests.wire.frames import body_of, framed, header, padded, request, response, split
from tests.wire.messages import ping, pong, produce
from weir.protocol.api import ApiKey, versions
from weir.protocol.codec import request_type, response_type
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.proxy.connection.connection import ANONYMOUS, Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.request_time.request_time import CLASSES, Charged
from weir.proxy.handlers.sasl.identity import Identities
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.costs.request_costs import ApiCost, ColdCost

PARTS: Final = msgspec.json.decode(
    (Path(tests.protocol.__file__).parent / "data" / "throttle_fields.json").read_bytes()
)["responses"]
HAS_THROTTLE: Final = {
    (row["api_key"], found["version"]): found["present"] for row in PARTS for found in row["versions"]
}
"""As Kafka's own schemas have it."""


def every_api() -> list[Any]:
    """Each API and version that is charged. Envelope closes the connection."""
    return [
        pytest.param(key, version, id=f"{key.name}-v{version}")
        for key, kind in CLASSES.items()
        if kind is not Charged.IF_REFUSED and key is not ApiKey.ENVELOPE
        for version in versions(key) or ()
    ]


def asked(key: int, version: int, number: int = 1) -> bytes:
    return request(sample(request_type(key), version), version, number)


def answered(key: int, version: int, throttle_ms: int, number: int = 1) -> bytes:
    """A response with something in every field, this throttle time among them if the version has it."""
    message = sample(response_type(key), version)
    if HAS_THROTTLE[key, version]:
        message.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # as the table says
    return response(message, version, number)


def throttle_ms_of(frame: bytes, key: int, version: int) -> int | None:
    message = body_of(frame, response_type(key), version)
    return message.throttle_time_ms if HAS_THROTTLE[key, version] else None  # type: ignore[attr-defined]  # as above


def connection_at_its_limit(**kwargs: Any) -> Connection:
    """One whose user has used all that there is, but not more."""
    connection = timed(everybody(), **kwargs)
    spend(connection)
    return connection


# Every API


@in_one_test
@pytest.mark.parametrize(("key", "version"), every_api())
@pytest.mark.parametrize("broker_ms", [0, 501], ids=lambda value: f"broker-{value}")
def test_every_request_is_charged_request_time_and_its_response_has_the_throttle_time(
    key: int, version: int, broker_ms: int
) -> None:
    """500 ms; where the version cannot say it, the client waits all the same. The broker's own throttle time
    stays if it is longer.
    """
    connection = connection_at_its_limit()
    wire = Wire(connection)
    wire.feed(0, client=asked(key, version))
    assert charged_us(connection) == LIMIT_US
    wire.feed(0, broker=answered(key, version, broker_ms))
    assert connection.effects.close_reason is None
    assert charged_us(connection) == LIMIT_US + EACH_US
    assert connection.throttled_until_ms == 500
    told = throttle_ms_of(bytes(wire.to_client), key, version)
    assert told == (max(500, broker_ms) if HAS_THROTTLE[key, version] else None)
    wire.feed(499, client=ping(2))
    assert len(split(bytes(wire.to_broker))) == 1
    wire.feed(500)
    assert len(split(bytes(wire.to_broker))) == 2


def test_a_too_new_apiversions_request_is_charged_request_time() -> None:
    """As a broker charges its UNSUPPORTED_VERSION; the answer, in version 0, cannot say it."""
    too_new = framed(header(ApiKey.API_VERSIONS, 99, 1, b"app", tags=None) + b"?")
    connection = timed()
    wire = Wire(connection)
    wire.feed(0, client=too_new)
    plain = bytes(wire.to_client)
    assert body_of(plain, ApiVersionsResponse, 0).error_code == 35
    assert charged_us(connection) == EACH_US
    spend(connection, LIMIT_US)
    wire.to_client.clear()
    wire.feed(0, client=too_new)
    assert bytes(wire.to_client) == plain
    assert charged_us(connection) == LIMIT_US + 2 * EACH_US
    assert connection.throttled_until_ms == 1000


@pytest.mark.parametrize("cut", [6, 8, 9, 10, 13])
def test_an_unsupported_apiversions_response_has_the_layout_of_version_0(cut: int) -> None:
    """Which has no throttle time to write into; 0.10.2.2 does so to whoever asks in v3."""
    connection = timed()
    wire = Wire(connection)
    wire.feed(0, client=request(ApiVersionsRequest(), 3, 1))
    spend(connection)
    refusal = response(ApiVersionsResponse(error_code=35), 0, 1)
    wire.feed(0, broker=refusal[:cut])
    wire.feed(0, broker=refusal[cut:])
    assert connection.effects.close_reason is None
    assert bytes(wire.to_client) == refusal
    assert connection.throttled_until_ms > 0


# Exempt


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_produce_with_acks_0_is_charged_bytes_and_no_request_time(version: int) -> None:
    table = QuotaTable({**time_table().values, (APP, QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
    with Playbook(connection=timed(table)) as play:
        unanswered = padded(request(ProduceRequest(acks=0), version), 12_106)
        play.forwards(unanswered)
        assert charged_us(play.connection) == 0
        assert exempt_us(play.connection) == EACH_US
        play.muted_until(2106)  # measured on a broker
        play.at(2106)
        play.relays(ping(2), pong(2))
        assert charged_us(play.connection) == EACH_US


def test_acks_0_requests_do_not_stall_serial_requests() -> None:
    """Near the limit: each waits for what is before it, and for nothing else."""
    connection = timed()
    spend(connection, LIMIT_US * 0.6)
    unanswered = request(ProduceRequest(acks=0), 7, 5)
    with Playbook(connection=connection) as play:
        play.client(unanswered, ping(1), unanswered, unanswered, ping(2))
        play.to_broker(unanswered, ping(1))
        play.returns(pong(1))
        play.to_broker(unanswered, unanswered, ping(2))
        play.returns(pong(2))
        assert play.connection.idle


def of_a_broker(table: QuotaTable | None = None, user: str = "kafka") -> Connection:
    """A connection on a listener that brokers use, whose principal is `kafka`."""
    connection = timed(everybody() if table is None else table, brokers=frozenset({"kafka"}))
    connection.client.become(user)
    return connection


@in_one_test
@pytest.mark.parametrize("version", list(versions(ApiKey.FETCH) or ()))
@pytest.mark.parametrize("user", ["kafka", "mallory"])
def test_replica_fetches_are_exempt_from_request_time_for_brokers_only(version: int, user: str) -> None:
    wanted = FetchRequest(max_bytes=1000)
    if version < 15:
        wanted.replica_id = 2
    else:
        wanted.replica_state = FetchRequest.ReplicaState(replica_id=2, replica_epoch=5)
    with Playbook(connection=of_a_broker(user=user)) as play:
        for number in (1, 2):
            frame = request(wanted, version, number)
            play.relays(frame, response(FetchResponse(), version, number))
        assert charged_us(play.connection) == (0 if user == "kafka" else 2 * EACH_US)
        assert exempt_us(play.connection) == (2 * EACH_US if user == "kafka" else 0)
        consumers = request(FetchRequest(max_bytes=1000), version, 3)
        play.relays(consumers, response(FetchResponse(), version, 3))
        assert charged_us(play.connection) == (1 if user == "kafka" else 3) * EACH_US


AMONG_BROKERS: Final = [key for key, kind in CLASSES.items() if kind is Charged.UNLESS_A_BROKER]


@in_one_test
@pytest.mark.parametrize("user", ["kafka", "mallory"])
@pytest.mark.parametrize("key", AMONG_BROKERS, ids=lambda key: key.name)
def test_inter_broker_requests_are_exempt_from_request_time_for_brokers_only(key: ApiKey, user: str) -> None:
    connection = of_a_broker(user=user)
    wire, count = Wire(connection), 0
    for version in versions(key) or ():
        wire.exchange(0, asked(key, version, version), answered(key, version, 0, version))
        count += 1
    assert connection.effects.close_reason is None
    assert charged_us(connection) == (0 if user == "kafka" else count * EACH_US)
    assert exempt_us(connection) == (count * EACH_US if user == "kafka" else 0)


def test_exempt_time_counts_the_response_and_the_speed_of_the_broker() -> None:
    """Also of a broker without a request quota, and of a response that never came."""
    others = time_table(entity=Entity(client_id="others"))
    connection = timed(others, VARIOUS, brokers=frozenset({"kafka"}), node_id=2)
    connection.client.become("kafka")
    connection.quotas.percent_per_us *= 2
    answer = padded(response(FetchResponse(), 11, 1), 5000)
    wire = Wire(connection)
    wire.exchange(0, request(FetchRequest(replica_id=2), 11, 1), answer)
    wire.feed(0, client=request(FetchRequest(replica_id=2), 11, 2))
    connection.end(0)
    assert connection.counters.exempt_us == {2: 2 * (30 + 5 * 7) + 2 * 30}
    assert charged_us(connection) == 0


def test_exempt_requests_of_brokers_are_not_held_on_new_connections() -> None:
    """A broker over its quota goes on replicating, on new connections too."""
    for frame in (
        request(FetchRequest(replica_id=2), 11, 1),
        asked(ApiKey.UPDATE_METADATA, 6),
        asked(ApiKey.CONTROLLED_SHUTDOWN, 0),
    ):
        connection = of_a_broker()
        spend(connection, 2 * LIMIT_US, user="kafka")
        with Playbook(connection=connection) as play:
            play.forwards(frame)


def test_a_header_without_client_id_is_charged_to_its_user() -> None:
    """ControlledShutdown v0 says none: where others have it, its body begins, with the broker's id."""
    table = QuotaTable(
        {
            (Entity(user=ANONYMOUS), QuotaKey.REQUEST_PERCENTAGE): LIMIT,
            (Entity(user=ANONYMOUS, client_id=DEFAULT), QuotaKey.REQUEST_PERCENTAGE): 2 * LIMIT,
        }
    )
    connection = timed(table)
    with Playbook(connection=connection) as play:
        shutdown = asked(ApiKey.CONTROLLED_SHUTDOWN, 0)
        play.forwards(shutdown, ping(2))
        told = answered(ApiKey.CONTROLLED_SHUTDOWN, 0, 0)
        play.returns(told, pong(2))
        charged = {(b.tags.user, b.tags.client_id): b.charged for b in budgets(connection)}
        assert charged == {(ANONYMOUS, ""): percent(EACH_US), (ANONYMOUS, "app"): percent(EACH_US)}


# SASL


OF_USERS: Final = everybody()


def behind(identities: Identities, table: QuotaTable = OF_USERS) -> Connection:
    plans = Plans(Counters(), costs=costs(), identities=identities)
    return new_connection(table, plans=plans)


def negotiate(play: Playbook, number: int = 1) -> None:
    play.relays(
        request(ApiVersionsRequest(), 0, number), response(ApiVersionsResponse(error_code=-1), 0, number)
    )


def by_user(connection: Connection) -> dict[str, float]:
    """What each user was charged, in µs."""
    return {budget.tags.user: round(10_000 * budget.charged, 3) for budget in budgets(connection)}


def test_a_sasl_exchange_costs_no_request_time_and_later_requests_are_its_users() -> None:
    with Playbook(connection=timed(everybody())) as play:
        log_in(play)
        assert charged_us(play.connection) == 0
        play.relays(ping(), pong())
        log_in(play, "bob")  # authenticates anew
        play.relays(ping(), pong())
        assert by_user(play.connection) == {ANONYMOUS: 0, "alice": EACH_US, "bob": EACH_US}


def test_a_new_connection_waits_for_the_throttle_of_its_authenticated_user() -> None:
    """A mute is not got rid of by connecting and logging in anew."""
    with Playbook(connection=timed(everybody())) as play:
        spend(play.connection, LIMIT_US + EACH_US, user="alice")
        log_in(play)
        play.client(ping())
        play.muted_until(500)
        assert play.connection.throttled_by is QuotaKey.REQUEST_PERCENTAGE
        play.at(500)
        play.to_broker(ping())


def test_requests_before_sasl_authentication_are_charged_to_no_user() -> None:
    """A broker's network layer answers ApiVersions then, and nothing else. What a broker is, the first client
    shows that it lets in: for that one alone ANONYMOUS pays.
    """
    identities = Identities()
    with Playbook(connection=behind(identities)) as play:
        negotiate(play)
        log_in(play)
        assert by_user(play.connection) == {ANONYMOUS: EACH_US}
    with Playbook(connection=behind(identities)) as play:
        spend(play.connection, 2 * LIMIT_US)  # what those have used whose names are hidden
        negotiate(play)
        assert by_user(play.connection) == {ANONYMOUS: 2 * LIMIT_US}
        log_in(play)
        negotiate(play, 2)
        assert by_user(play.connection) == {ANONYMOUS: 2 * LIMIT_US, "alice": EACH_US}


@pytest.mark.parametrize("refusal", [ILLEGAL_STATE, UNSUPPORTED_MECHANISM])
def test_a_refused_handshake_does_not_mark_the_listener_as_sasl(refusal: int) -> None:
    identities = Identities()
    with Playbook(connection=behind(identities)) as play:
        play.relays(handshake("PLAIN"), shaken(refusal))
    with Playbook(connection=behind(identities)) as play:
        negotiate(play)
        assert by_user(play.connection) == {ANONYMOUS: EACH_US}


def test_sasl_requests_at_a_broker_without_sasl_are_charged_request_time() -> None:
    """Answered ILLEGAL_SASL_STATE, by the broker's handlers; neither answer can tell a throttle time."""
    with Playbook(connection=timed()) as play:
        spend(play.connection)
        play.relays(handshake("PLAIN"), shaken(ILLEGAL_STATE))
        play.muted_until(500)
        play.at(500).relays(authenticate(b"?"), authenticated(error_code=ILLEGAL_STATE))
        play.muted_until(1000)
        assert charged_us(play.connection) == LIMIT_US + 2 * EACH_US


# Beside bandwidth


def both(produce: float | None = None, fetch: float | None = None, limit: float = LIMIT) -> QuotaTable:
    return QuotaTable({**time_table(limit).values, **quota_table(produce=produce, fetch=fetch).values})


@pytest.mark.parametrize(
    ("length", "until_ms"),
    [(10_300, 500), (10_500, 500), (10_700, 700)],
    ids=["time is longer", "alike", "bytes are longer"],
)
def test_produce_is_throttled_by_the_longer_of_byte_rate_and_request_time(length: int, until_ms: int) -> None:
    """Never the sum. At 1000 bytes/s these are 300, 500, 700 ms too many; the time is 500 ms too much."""
    connection = timed(both(produce=1000))
    spend(connection)
    wire = Wire(connection)
    wire.exchange(0, produce(1, length), response(ProduceResponse(), 7))
    assert connection.throttled_until_ms == until_ms
    assert body_of(bytes(wire.to_client), ProduceResponse, 7).throttle_time_ms == until_ms


@pytest.mark.parametrize(
    ("size", "until_ms"),
    [(10_300, 500), (10_500, 500), (10_700, 700)],
    ids=["time is longer", "alike", "bytes are longer"],
)
def test_fetch_is_throttled_by_the_longer_of_byte_rate_and_request_time(size: int, until_ms: int) -> None:
    connection = timed(both(fetch=1000))
    spend(connection)
    wire = Wire(connection)
    wire.exchange(0, request(FetchRequest(max_bytes=1000), 11), padded_fetch(size))
    assert connection.throttled_until_ms == until_ms
    told = body_of(bytes(wire.to_client), FetchResponse, 11)
    assert told.throttle_time_ms == until_ms


def padded_fetch(length: int, number: int = 1) -> bytes:
    def of(size: int) -> bytes:
        partition = FetchResponse.PartitionData(records=b"r" * size)
        topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
        return response(FetchResponse(responses=[topic]), 11, number)

    found = of(length - (len(of(0)) - 4))
    assert len(found) == length + 4
    return found


# Changes while something is under way


def test_a_changed_request_time_limit_applies_at_the_next_charge() -> None:
    connection = timed()
    spend(connection)
    with Playbook(connection=connection) as play:
        play.forwards(ping(1))
        put_in_force(connection.quotas, time_table(0.02))
        play.returns(pong(1))
        put_in_force(connection.quotas, time_table(0.01))
        play.forwards(ping(2))
        play.broker(pong(2))
        play.to_client(pong(2, 1000))  # twice 0.5 s too many
        play.muted_until(1000)
        put_in_force(connection.quotas, time_table(1.0))  # who was told to wait does
        play.at(999)
        play.client(ping(3))
        play.silent()
        play.at(1000)
        play.to_broker(ping(3))


# Costs


def test_a_fetch_with_record_conversion_costs_more_request_time() -> None:
    """Of brokers that store newer records, and for each kB that is answered."""
    own = ApiCost(us=10.0, us_per_response_kb=1.0, us_per_converted_kb=50.0)
    for release, version, per_kb in (((2, 8), 3, 51), ((2, 8), 4, 1), ((0, 10, 2), 3, 1)):
        connection = timed(time_table(100.0), costs({"Fetch": own}), broker=broker_of(release))
        wire = Wire(connection)
        wire.exchange(0, request(FetchRequest(), version), padded(response(FetchResponse(), version), 3000))
        assert charged_us(connection) == 10 + 3 * per_kb


def test_exempt_requests_also_end_a_brokers_idleness() -> None:
    cold = ColdCost(us=55.0, from_us=300.0, full_us=1500.0)
    connection = timed(time_table(100.0), costs(cold=cold))
    wire = Wire(connection)
    connection.clock.now_us = 2_000_000
    wire.feed(2000, client=request(ProduceRequest(acks=0), 7))
    connection.clock.now_us = 2_000_200
    wire.exchange(2000, ping(1), pong(1))
    assert charged_us(connection) == EACH_US
