"""Request time on the wire (KIP-124): who is charged what and when, what is reported, who waits.

The rules are those of ClientRequestQuotaManager, KafkaApis and SocketServer (2.8 to 4.2). Costs are made by
hand: 50 µs each, of which 20 pass at once (`request_costs`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

import tests.protocol
from protocol.api import ApiKey, versions
from protocol.codec import request_type, response_type
from protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
)
from proxy.counters import Counters
from proxy.rules.identity import Identities
from proxy.rules.plans import Plans
from proxy.rules.request_time import CLASSES, Charged
from proxy.session.session import ANONYMOUS
from quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from tests.protocol.generate import sample
from tests.proxy.frames import (
    body_of,
    framed,
    header,
    padded,
    request,
    response,
    split,
    unknown_request,
    unknown_response,
)
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import (
    EACH_US,
    LIMIT,
    LIMIT_US,
    budgets,
    charged_us,
    costs,
    everybody,
    percent,
    ping,
    pong,
    spend,
    time_table,
    timed,
)
from tests.proxy.sasl import (
    ILLEGAL_STATE,
    UNSUPPORTED_MECHANISM,
    authenticate,
    authenticated,
    bare,
    handshake,
    plain,
    shaken,
)
from tests.proxy.talk import produce
from tests.proxy.wire import APP, Wire, new_session

if TYPE_CHECKING:
    from proxy.session.session import Session

PARTS: Final = msgspec.json.decode(
    (Path(tests.protocol.__file__).parent / "data" / "throttle_fields.json").read_bytes()
)["responses"]
HAS_THROTTLE: Final = {
    (row["api_key"], found["version"]): found["present"] for row in PARTS for found in row["versions"]
}
"""As Kafka's own schemas have it."""


def every_api() -> list[Any]:
    """Each API and version that is charged."""
    return [
        pytest.param(key, version, id=f"{key.name}-v{version}")
        for key, kind in CLASSES.items()
        if kind is not Charged.IF_REFUSED
        for version in versions(key) or ()
    ]


def asked(key: int, version: int, number: int = 1) -> bytes:
    """A request with something in every field."""
    return request(sample(request_type(key), version), version, number)


def answered(key: int, version: int, throttle_ms: int, number: int = 1) -> bytes:
    """A response with something in every field, this throttle time among them if the version has it."""
    message = sample(response_type(key), version)
    if HAS_THROTTLE[key, version]:
        message.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # as the table says
    return response(message, version, number)


def throttle_ms_of(frame: bytes, key: int, version: int) -> int | None:
    """What a client reads in it."""
    message = body_of(frame, response_type(key), version)
    return message.throttle_time_ms if HAS_THROTTLE[key, version] else None  # type: ignore[attr-defined]  # as above


def session_at_its_limit(**kwargs: Any) -> Session:
    """One whose user has used all that there is, but not more."""
    session = timed(everybody(), **kwargs)
    spend(session)
    return session


# Every API


@pytest.mark.parametrize(("key", "version"), every_api())
@pytest.mark.parametrize("broker_ms", [0, 501], ids=lambda value: f"broker-{value}")
def test_every_request_is_charged_and_its_response_says_how_long_to_wait(
    key: int, version: int, broker_ms: int
) -> None:
    """500 ms; where the version cannot say it, the client waits all the same. The broker's own throttle time
    stays if it is longer.
    """
    session = session_at_its_limit()
    wire = Wire(session)
    wire.feed(0, client=asked(key, version))
    assert charged_us(session) == LIMIT_US
    wire.feed(0, broker=answered(key, version, broker_ms))
    assert session.violation is None
    assert charged_us(session) == LIMIT_US + EACH_US
    assert session.muted_until_ms == 500
    told = throttle_ms_of(bytes(wire.to_client), key, version)
    assert told == (max(500, broker_ms) if HAS_THROTTLE[key, version] else None)
    wire.feed(499, client=ping(2))
    assert len(split(bytes(wire.to_broker))) == 1
    wire.feed(500)
    assert len(split(bytes(wire.to_broker))) == 2


def test_what_is_within_the_quota_is_charged_and_passes_as_it_is() -> None:
    with Playbook(session=timed()) as play:
        for number in range(20):
            play.client(ping(number))
            play.to_broker(ping(number))
            play.broker(pong(number))
            play.to_client(pong(number))
        assert charged_us(play.session) == 20 * EACH_US
        play.client(ping(21))
        play.to_broker(ping(21))
        play.broker(pong(21))
        play.to_client(pong(21, 500))
        play.muted_until(500)


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (-5, 3), (32767, 32767), (ApiKey.HEARTBEAT, 99)])
def test_what_no_schema_knows_is_charged(api_key: int, version: int) -> None:
    """And the wait is silent: nobody knows where to write it."""
    with Playbook(session=timed()) as play:
        spend(play.session)
        play.client(unknown_request(api_key, version), ping(2))
        play.to_broker(unknown_request(api_key, version), ping(2)[:0])
        play.broker(unknown_response())
        play.to_client(unknown_response())
        play.muted_until(500)
        play.at(500)
        play.to_broker(ping(2))
    assert charged_us(play.session) == LIMIT_US + EACH_US


def test_errors_cost_what_success_costs() -> None:
    session = timed()
    wire = Wire(session)
    wire.feed(0, client=asked(ApiKey.METADATA, 9))
    wire.feed(0, broker=response(MetadataResponse(), 9))
    wire.feed(0, client=asked(ApiKey.FETCH, 11, 2))
    wire.feed(0, broker=response(FetchResponse(error_code=70), 11, 2))
    assert charged_us(session) == 2 * EACH_US


def test_a_version_of_api_versions_that_is_too_new_is_charged_though_weir_answers_it() -> None:
    """As a broker charges its UNSUPPORTED_VERSION; the answer, in version 0, cannot say it."""
    too_new = framed(header(ApiKey.API_VERSIONS, 99, 1, b"app", tags=None) + b"?")
    session = timed()
    wire = Wire(session)
    wire.feed(0, client=too_new)
    plain = bytes(wire.to_client)
    assert body_of(plain, ApiVersionsResponse, 0).error_code == 35
    assert charged_us(session) == EACH_US
    spend(session, LIMIT_US)
    wire.to_client.clear()
    wire.feed(0, client=too_new)
    assert bytes(wire.to_client) == plain
    assert charged_us(session) == LIMIT_US + 2 * EACH_US
    assert session.muted_until_ms == 1000


# Exempt


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_produce_with_acks_0_costs_no_time_but_its_bytes_count(version: int) -> None:
    table = QuotaTable({**time_table().values, (APP, QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
    with Playbook(session=timed(table)) as play:
        unanswered = padded(request(ProduceRequest(acks=0), version), 12_106)
        play.client(unanswered)
        play.to_broker(unanswered)
        assert charged_us(play.session) == 0
        play.muted_until(2106)  # measured on a broker
        play.at(2106)
        play.client(ping(2))
        play.to_broker(ping(2))
        play.broker(pong(2))
        play.to_client(pong(2))
        assert charged_us(play.session) == EACH_US


def test_between_requests_that_go_one_at_a_time_those_without_an_answer_stall_nothing() -> None:
    """Near the limit: each waits for what is before it, and for nothing else."""
    session = timed()
    spend(session, LIMIT_US * 0.6)
    unanswered = request(ProduceRequest(acks=0), 7, 5)
    with Playbook(session=session) as play:
        play.client(unanswered, ping(1), unanswered, unanswered, ping(2))
        play.to_broker(unanswered, ping(1))
        play.broker(pong(1))
        play.to_client(pong(1))
        play.to_broker(unanswered, unanswered, ping(2))
        play.broker(pong(2))
        play.to_client(pong(2))
        assert play.session.idle


def of_a_broker(table: QuotaTable | None = None, user: str = "kafka") -> Session:
    """A session on a listener that brokers use, whose principal is `kafka`."""
    session = timed(everybody() if table is None else table)
    session.brokers = frozenset({"kafka"})
    session.become(user)
    return session


@pytest.mark.parametrize("version", list(versions(ApiKey.FETCH) or ()))
@pytest.mark.parametrize("user", ["kafka", "mallory"])
def test_what_brokers_fetch_as_replicas_is_exempt_and_what_others_claim_is_not(
    version: int, user: str
) -> None:
    wanted = FetchRequest(max_bytes=1000)
    if version < 15:
        wanted.replica_id = 2
    else:
        wanted.replica_state = FetchRequest.ReplicaState(replica_id=2, replica_epoch=5)
    with Playbook(session=of_a_broker(user=user)) as play:
        for number in (1, 2):
            frame = request(wanted, version, number)
            play.client(frame)
            play.to_broker(frame)
            play.broker(response(FetchResponse(), version, number))
            play.to_client(response(FetchResponse(), version, number))
        assert charged_us(play.session) == (0 if user == "kafka" else 2 * EACH_US)
        consumers = request(FetchRequest(max_bytes=1000), version, 3)
        play.client(consumers)
        play.to_broker(consumers)
        play.broker(response(FetchResponse(), version, 3))
        play.to_client(response(FetchResponse(), version, 3))
        assert charged_us(play.session) == (1 if user == "kafka" else 3) * EACH_US


AMONG_BROKERS: Final = [key for key, kind in CLASSES.items() if kind is Charged.UNLESS_A_BROKER]


@pytest.mark.parametrize("user", ["kafka", "mallory"])
@pytest.mark.parametrize("key", AMONG_BROKERS, ids=lambda key: key.name)
def test_what_brokers_ask_of_each_other_is_exempt_for_them_alone(key: ApiKey, user: str) -> None:
    session = of_a_broker(user=user)
    wire, count = Wire(session), 0
    for version in versions(key) or ():
        wire.feed(0, client=asked(key, version, version))
        wire.feed(0, broker=answered(key, version, 0, version))
        count += 1
    assert session.violation is None
    assert charged_us(session) == (0 if user == "kafka" else count * EACH_US)


def test_brokers_are_charged_for_what_everybody_may_ask() -> None:
    session = of_a_broker()
    wire = Wire(session)
    wire.feed(0, client=ping(1) + asked(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 2))
    wire.feed(0, broker=pong(1) + answered(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 2))
    assert charged_us(session) == 2 * EACH_US


def test_what_is_exempt_for_brokers_does_not_wait_at_the_door() -> None:
    """A broker over its quota goes on replicating, on new connections too."""
    for frame in (
        request(FetchRequest(replica_id=2), 11, 1),
        asked(ApiKey.UPDATE_METADATA, 6),
        asked(ApiKey.CONTROLLED_SHUTDOWN, 0),
    ):
        session = of_a_broker()
        spend(session, 2 * LIMIT_US, user="kafka")
        with Playbook(session=session) as play:
            play.client(frame)
            play.to_broker(frame)


def test_a_header_without_client_id_is_charged_to_its_user() -> None:
    """ControlledShutdown v0 says none: where others have it, its body begins, with the broker's id."""
    table = QuotaTable(
        {
            (Entity(user=ANONYMOUS), QuotaKey.REQUEST_PERCENTAGE): LIMIT,
            (Entity(user=ANONYMOUS, client_id=DEFAULT), QuotaKey.REQUEST_PERCENTAGE): 2 * LIMIT,
        }
    )
    session = timed(table)
    with Playbook(session=session) as play:
        shutdown = asked(ApiKey.CONTROLLED_SHUTDOWN, 0)
        play.client(shutdown, ping(2))
        play.to_broker(shutdown, ping(2))
        told = answered(ApiKey.CONTROLLED_SHUTDOWN, 0, 0)
        play.broker(told, pong(2))
        play.to_client(told, pong(2))
        charged = {(b.tags.user, b.tags.client_id): b.charged for b in budgets(session)}
        assert charged == {(ANONYMOUS, ""): percent(EACH_US), (ANONYMOUS, "app"): percent(EACH_US)}


# SASL


OF_USERS: Final = everybody()


def behind(identities: Identities, table: QuotaTable = OF_USERS) -> Session:
    """A session of a process that has learnt this."""
    plans = Plans(Counters(), costs=costs(), identities=identities)
    return new_session(table, plans=plans)


def relay(play: Playbook, question: bytes, answer: bytes) -> None:
    """Both untouched."""
    play.client(question)
    play.to_broker(question)
    play.broker(answer)
    play.to_client(answer)


def negotiate(play: Playbook, number: int = 1) -> None:
    relay(
        play,
        request(ApiVersionsRequest(), 0, number),
        response(ApiVersionsResponse(error_code=-1), 0, number),
    )


def log_in(play: Playbook, user: str = "alice") -> None:
    relay(play, handshake("PLAIN"), shaken())
    relay(play, authenticate(plain(user)), authenticated())
    assert play.session.user == user


def by_user(session: Session) -> dict[str, float]:
    """What each user was charged, in µs."""
    return {budget.tags.user: round(10_000 * budget.charged, 3) for budget in budgets(session)}


def test_the_sasl_exchange_costs_nothing_and_what_follows_is_its_user_s() -> None:
    with Playbook(session=timed(everybody())) as play:
        log_in(play)
        assert charged_us(play.session) == 0
        relay(play, ping(), pong())
        log_in(play, "bob")  # authenticates anew
        relay(play, ping(), pong())
        assert by_user(play.session) == {ANONYMOUS: 0, "alice": EACH_US, "bob": EACH_US}


def test_bare_tokens_cost_nothing() -> None:
    with Playbook(session=timed(everybody())) as play:
        relay(play, handshake("PLAIN", 0), shaken(version=0))
        relay(play, bare(plain("alice")), bare(b""))
        relay(play, ping(), pong())
        assert by_user(play.session) == {ANONYMOUS: 0, "alice": EACH_US}


def test_the_user_that_a_connection_becomes_is_waited_for() -> None:
    """A mute is not got rid of by connecting and logging in anew."""
    with Playbook(session=timed(everybody())) as play:
        spend(play.session, LIMIT_US + EACH_US, user="alice")
        log_in(play)
        play.client(ping())
        play.muted_until(500)
        play.at(500)
        play.to_broker(ping())


def test_behind_sasl_nobody_pays_before_it_is_known_who_asks() -> None:
    """A broker's network layer answers ApiVersions then, and nothing else. What a broker is, the first client
    shows that it lets in: for that one alone ANONYMOUS pays.
    """
    identities = Identities()
    with Playbook(session=behind(identities)) as play:
        negotiate(play)
        log_in(play)
        assert by_user(play.session) == {ANONYMOUS: EACH_US}
    with Playbook(session=behind(identities)) as play:
        spend(play.session, 2 * LIMIT_US)  # what those have used whose names are hidden
        negotiate(play)
        assert by_user(play.session) == {ANONYMOUS: 2 * LIMIT_US}
        log_in(play)
        negotiate(play, 2)
        assert by_user(play.session) == {ANONYMOUS: 2 * LIMIT_US, "alice": EACH_US}


def test_what_is_asked_without_logging_in_is_not_anonymous_s() -> None:
    """The broker closes the connection: that is no reason to let others wait."""
    identities = Identities()
    with Playbook(session=behind(identities)) as play:
        log_in(play)
    with Playbook(session=behind(identities)) as play:
        many = [produce(number) for number in range(100)] + [ping(number) for number in range(100)]
        play.client(*many)
        play.to_broker(*many)
        play.session.end(0)
        assert charged_us(play.session) == 0


@pytest.mark.parametrize("refusal", [ILLEGAL_STATE, UNSUPPORTED_MECHANISM])
def test_a_handshake_that_is_refused_does_not_show_that_clients_log_in(refusal: int) -> None:
    identities = Identities()
    with Playbook(session=behind(identities)) as play:
        relay(play, handshake("PLAIN"), shaken(refusal))
    with Playbook(session=behind(identities)) as play:
        negotiate(play)
        assert by_user(play.session) == {ANONYMOUS: EACH_US}


def test_where_there_is_no_sasl_its_requests_are_charged_like_others() -> None:
    """Answered ILLEGAL_SASL_STATE, by the broker's handlers; neither answer can tell a throttle time."""
    with Playbook(session=timed()) as play:
        spend(play.session)
        relay_muted(play, handshake("PLAIN"), shaken(ILLEGAL_STATE), 500)
        play.at(500)
        relay_muted(play, authenticate(b"?"), authenticated(error_code=ILLEGAL_STATE), 1000)
        assert charged_us(play.session) == LIMIT_US + 2 * EACH_US


def relay_muted(play: Playbook, question: bytes, answer: bytes, until_ms: int) -> None:
    """Both untouched, and the client has to wait."""
    play.client(question)
    play.to_broker(question)
    play.broker(answer)
    play.to_client(answer)
    play.muted_until(until_ms)
