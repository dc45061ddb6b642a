"""SASL followed: who the client is after each answer of the broker, and that nothing else makes it anybody.

Kafka's SaslServerAuthenticator, PlainSaslServer, ScramSaslServer and OAuthBearerSaslServer say what brokers
answer; every dialogue here is one of theirs, or one that a bad client or broker would have.
"""

from __future__ import annotations

import struct
from typing import Final

import pytest
from structlog.testing import capture_logs

from tests.proxy.playbook import Playbook
from tests.proxy.sasl import (
    AP_REQ,
    CHALLENGE,
    DIALOGUES,
    HEAVY,
    OF_ALICE,
    PING,
    PONG,
    PRODUCED,
    PROOF,
    REFUSED,
    SALT,
    SECRET,
    VERIFIED,
    WRAPPED,
    authenticate,
    authenticated,
    bearer,
    handshake,
    log_in,
    plain,
    scram_first,
    shaken,
)
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import framed, request, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    CreateTopicsRequest,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceResponse,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import ANONYMOUS, Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.sasl.identity import Identities, IdentityRules
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

MUTATIONS: Final = {(Entity(user=DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 1.0}
KERBEROS: Final = Identities(IdentityRules(unreadable="kerberos"))


def with_rules(identities: Identities, table: QuotaTable | None = None) -> Connection:
    return new_connection(table, plans=Plans(Counters(), identities=identities))


def shake(play: Playbook, mechanism: str = "PLAIN", error_code: int = 0) -> None:
    play.relays(handshake(mechanism), shaken(error_code))


def step(play: Playbook, token: bytes, answer: bytes = b"", error_code: int = 0) -> str:
    play.relays(authenticate(token), authenticated(answer, error_code))
    return play.connection.client.user


# Success


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", DIALOGUES)
def test_the_principal_is_the_user_that_the_broker_authenticated(mechanism: str, version: int) -> None:
    with Playbook() as play:
        shake(play, mechanism)
        for token, answer in DIALOGUES[mechanism]:
            play.forwards(authenticate(token, version))
            assert play.connection.client.user == ANONYMOUS
            play.returns(authenticated(answer, version=version))
        assert play.connection.client.user == "alice"
        assert play.connection.client.exchange is None
        play.relays(PING, PONG)
    assert play.connection.counters.authentications_succeeded == {mechanism: 1}
    assert play.connection.counters.names_hidden == 0


def test_the_oauthbearer_claim_is_configurable() -> None:
    with Playbook(connection=with_rules(Identities(IdentityRules(claim="azp")))) as play:
        shake(play, "OAUTHBEARER")
        assert step(play, bearer({"sub": "7d1f", "azp": "alice"})) == "alice"


def test_a_certificates_principal_stays_until_sasl_has_succeeded() -> None:
    connection = new_connection()
    connection.client.become("CN=a")
    with Playbook(connection=connection) as play:
        shake(play, "SCRAM-SHA-512")
        assert step(play, scram_first("alice"), SALT) == "CN=a"
        assert step(play, PROOF, VERIFIED) == "alice"


# Failure


def test_a_client_that_fails_to_authenticate_stays_anonymous() -> None:
    with Playbook() as play:
        shake(play)
        assert step(play, plain("alice"), error_code=REFUSED) == ANONYMOUS
        play.relays(PING, PONG)
        assert play.connection.client.user == ANONYMOUS
        assert "alice" not in repr(
            play.connection.client.exchange and play.connection.client.exchange.claimed
        )
    assert play.connection.counters.authentications_failed == {"PLAIN": 1}
    assert not play.connection.counters.authentications_succeeded


def test_an_oauthbearer_challenge_refuses_and_the_next_token_counts() -> None:
    """OAuthBearerSaslServer answers a bad token without an error; it then takes %x01, or another token."""
    with Playbook() as play:
        shake(play, "OAUTHBEARER")
        assert step(play, bearer({"sub": "admin"}), CHALLENGE) == ANONYMOUS
        assert step(play, b"\x01", error_code=REFUSED) == ANONYMOUS
    with Playbook() as play:
        shake(play, "OAUTHBEARER")
        step(play, bearer({"sub": "admin"}), CHALLENGE)
        assert step(play, bearer({"sub": "alice"})) == "alice"


# Another exchange on a live connection: KIP-368


def test_reauthentication_waits_for_responses_in_flight_and_for_the_throttle() -> None:
    with Playbook(OF_ALICE) as play:
        log_in(play)
        play.at(1000).client(HEAVY, handshake("PLAIN"))
        play.to_broker(HEAVY)
        play.muted_until(3106)
        play.returns(PRODUCED, told=response(ProduceResponse(throttle_time_ms=2106), 7, 9))
        play.at(3105).silent()
        play.at(3106)
        play.to_broker(handshake("PLAIN"))
        play.returns(shaken())
        step(play, plain("alice"))


# Pipelined


def test_requests_behind_an_authentication_wait_and_are_charged_to_its_principal() -> None:
    with Playbook(OF_ALICE) as play:
        play.client(handshake("PLAIN"), authenticate(plain("alice")), HEAVY, PING)
        play.to_broker(handshake("PLAIN"))
        play.returns(shaken())
        play.to_broker(authenticate(plain("alice")))
        play.returns(authenticated())
        play.to_broker(HEAVY)
        play.muted_until(2106)
        play.at(2106)
        play.to_broker(PING)


def test_a_new_principals_budget_is_used_for_requests_of_the_same_client_id() -> None:
    """Produce requests of one client-id are remembered; the principal is not among their bytes."""
    with Playbook(OF_ALICE) as play:
        for _ in range(2):
            play.relays(HEAVY, PRODUCED)
        log_in(play)
        play.forwards(HEAVY)
        play.muted_until(2106)


def test_sasl_requests_are_never_charged() -> None:
    table = QuotaTable(
        {(Entity(user=ANONYMOUS), key): 1.0 for key in QuotaKey if key.value.endswith("_rate")}
    )
    with Playbook(table) as play:
        shake(play)
        step(play, plain("a" * 10_000))
    assert play.connection.counters.throttles == 0


# Names that cannot be seen


def test_a_gssapi_client_has_the_configured_name_from_its_first_request_on() -> None:
    with Playbook(connection=with_rules(KERBEROS)) as play:
        shake(play, "GSSAPI")
        assert step(play, AP_REQ, b"\x60reply") == ANONYMOUS
        assert step(play, b"", WRAPPED) == ANONYMOUS
        assert step(play, WRAPPED) == ANONYMOUS
        asked = request(ApiVersionsRequest(), 0, 5)
        play.forwards(asked)
        assert play.connection.client.user == ANONYMOUS
        play.returns(response(ApiVersionsResponse(), 0, 5))
        play.relays(PING, PONG)
        assert play.connection.client.user == "kerberos"
        assert play.connection.client.exchange is None
    assert play.connection.counters.authentications_succeeded == {"GSSAPI": 1}
    assert play.connection.counters.names_hidden == 1


def test_a_gssapi_exchange_ends_at_a_response_with_a_session_lifetime() -> None:
    with Playbook(connection=with_rules(KERBEROS)) as play:
        shake(play, "GSSAPI")
        answer = authenticated(session_lifetime_ms=60_000)
        play.relays(authenticate(AP_REQ), answer)
        assert play.connection.client.user == "kerberos"


@pytest.mark.parametrize("byte_by_byte", [False, True])
def test_a_gssapi_clients_first_request_may_arrive_in_parts(byte_by_byte: bool) -> None:
    wire = Wire(
        with_rules(KERBEROS, QuotaTable({(Entity(user="kerberos"), QuotaKey.PRODUCER_BYTE_RATE): 1.0}))
    )
    wire.exchange(0, handshake("GSSAPI"), shaken())
    wire.exchange(0, authenticate(AP_REQ), authenticated(WRAPPED))
    stream = request(ApiVersionsRequest(), 0, 5) + HEAVY
    for part in [stream[at : at + 1] for at in range(len(stream))] if byte_by_byte else [stream]:
        wire.feed(0, client=part)
    assert wire.connection.client.user == "kerberos"
    assert wire.connection.throttled_until_ms > 0


def test_an_authenticated_client_with_an_unreadable_name_is_anonymous_and_logged_once() -> None:
    identities = Identities(IdentityRules())
    with capture_logs() as lines:
        for _ in range(2):
            connection = with_rules(identities)
            connection.client.become("CN=a")
            with Playbook(connection=connection) as play:
                shake(play, "OAUTHBEARER")
                assert step(play, b"n,,\x01auth=Bearer opaque-" + SECRET + b"\x01\x01") == ANONYMOUS
            assert connection.counters.names_hidden == 1
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "cannot see the names of authenticated clients"
    ]
    assert SECRET.decode() not in str(lines)


OPAQUE: Final = b"n,,\x01auth=Bearer opaque-" + SECRET + b"\x01\x01"


@pytest.mark.parametrize("error_code", [0, 58])
def test_a_client_with_an_unreadable_name_is_closed_once_accepted_if_no_name_is_configured(
    error_code: int,
) -> None:
    connection = with_rules(Identities(IdentityRules(unreadable="")))
    with Playbook(connection=connection) as play:
        shake(play, "OAUTHBEARER")
        play.forwards(authenticate(OPAQUE))
        play.broker(authenticated(b"", error_code))
        if error_code:
            play.to_client(authenticated(b"", error_code))
            assert connection.client.user == ANONYMOUS
        else:
            play.wire.to_client.clear()
            play.violation(CloseReason.NAME_UNREADABLE)


def test_logins_by_gssapi_and_unknown_tokens_are_closed_if_no_name_is_configured() -> None:
    wire = Wire(with_rules(Identities(IdentityRules(unreadable=""))))
    wire.exchange(0, handshake("GSSAPI"), shaken())
    wire.exchange(0, authenticate(AP_REQ), authenticated(WRAPPED))
    wire.feed(0, client=HEAVY)
    assert wire.connection.effects.close_reason is CloseReason.NAME_UNREADABLE
    wire = Wire(with_rules(Identities(IdentityRules(unreadable=""))))
    wire.exchange(0, handshake("SCRAM-SHA-256"), shaken())
    wire.exchange(0, authenticate(scram_first("token-1", ",tokenauth=true")), authenticated(SALT))
    wire.feed(0, client=authenticate(PROOF))
    wire.feed(0, broker=authenticated(VERIFIED))
    assert wire.connection.effects.close_reason is CloseReason.NAME_UNREADABLE


# Delegation tokens


IDS: Final = [f"token-{number}" for number in range(5)]


def owner_of(play: Playbook, token_id: str) -> str:
    shake(play, "SCRAM-SHA-256")
    step(play, scram_first(token_id, ",tokenauth=true"), SALT)
    return step(play, PROOF, VERIFIED)


def test_a_delegation_tokens_owner_is_not_shown() -> None:
    with Playbook(connection=with_rules(Identities(IdentityRules(unreadable="tokens")))) as play:
        assert owner_of(play, "token-1") == "tokens"
    assert play.connection.counters.names_hidden == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_delegation_tokens_owner_is_learnt_from_responses_through_weir(version: int) -> None:
    identities = Identities(IdentityRules(unreadable="tokens"))
    with Playbook(connection=with_rules(identities)) as play:
        created = CreateDelegationTokenResponse(
            principal_type="User", principal_name="alice", token_id=IDS[0], hmac=SECRET
        )
        play.relays(request(CreateDelegationTokenRequest(), version, 3), response(created, version, 3))
        failed = CreateDelegationTokenResponse(error_code=61, principal_name="bob", token_id=IDS[1])
        play.relays(request(CreateDelegationTokenRequest(), version, 3), response(failed, version, 3))
        told = DescribeDelegationTokenResponse.DescribedDelegationToken
        described = DescribeDelegationTokenResponse(
            tokens=[
                told(principal_name="carol", token_id=IDS[2]),
                told(principal_name="dave", token_id=IDS[3]),
            ]
        )
        play.relays(request(DescribeDelegationTokenRequest(), version, 3), response(described, version, 3))
        described.error_code, described.tokens[0].token_id = 65, IDS[4]
        play.relays(request(DescribeDelegationTokenRequest(), version, 3), response(described, version, 3))
    for token_id, owner in zip(IDS, ("alice", "tokens", "carol", "dave", "tokens"), strict=True):
        with Playbook(connection=with_rules(identities)) as play:
            assert owner_of(play, token_id) == owner


def test_owners_of_any_number_of_delegation_tokens_are_learnt() -> None:
    told = DescribeDelegationTokenResponse.DescribedDelegationToken
    tokens = [told(principal_name="a" * 1000, token_id=f"token-{number}") for number in range(3000)]
    answer = response(DescribeDelegationTokenResponse(tokens=tokens), 2, 3)
    identities = Identities()
    with Playbook(connection=with_rules(identities)) as play:
        play.relays(request(DescribeDelegationTokenRequest(), 2, 3), answer)
    assert {identities.owner(token.token_id) for token in tokens} == {"a" * 1000}


def test_a_describedelegationtoken_request_that_no_broker_can_read_is_forwarded() -> None:
    with Playbook() as play:
        play.forwards(request(DescribeDelegationTokenRequest(), 2, 3)[:-2] + b"\x7f\x00")


# Uplift


def test_weir_sends_no_query_during_a_sasl_exchange() -> None:
    """A broker takes ApiVersions once before SASL, and never within."""
    with Playbook(connection=new_connection(plans=Plans(Counters(), uplift=True))) as play:
        shake(play, "SCRAM-SHA-256")
        ping = request(HeartbeatRequest(), 2, 7)
        play.relays(ping, response(HeartbeatResponse(), 2, 7))
        step(play, scram_first("alice"), SALT)
        assert step(play, PROOF, VERIFIED) == "alice"
        play.client(ping)
        play.to_broker(request(ApiVersionsRequest(), 0, 7))


# Garbage, cuts


def answered_in_pieces(signature_bytes: int) -> Wire:
    """A SCRAM exchange whose last answer is that long, and arrives piece by piece."""
    wire = Wire(new_connection())
    for asked, told in (
        (handshake("SCRAM-SHA-256"), shaken()),
        (authenticate(scram_first("alice")), authenticated(SALT)),
        (authenticate(PROOF), authenticated(b"v=" + b"x" * (signature_bytes - 2))),
    ):
        wire.feed(0, client=asked)
        wire.to_client.clear()
        for at in range(0, len(told), 100_000):
            wire.feed(0, broker=told[at : at + 100_000])
    return wire


def test_an_answer_to_sasl_below_one_mebibyte_is_read_as_a_whole() -> None:
    wire = answered_in_pieces(1_000_000)
    assert wire.to_client == authenticated(b"v=" + b"x" * 999_998)
    assert (wire.connection.client.user, wire.connection.effects.close_reason) == ("alice", None)


def test_an_answer_to_sasl_above_one_mebibyte_closes_the_connection() -> None:
    wire = answered_in_pieces(1_200_000)
    assert wire.connection.effects.close_reason is not None
    assert "more than 1048576 bytes" in wire.connection.effects.close_detail
    assert (wire.connection.client.user, bytes(wire.to_client)) == (ANONYMOUS, b"")


@pytest.mark.parametrize(
    ("asked", "garbage"),
    [
        (handshake("PLAIN"), framed(b"\0\0\0\1")),
        (handshake("PLAIN"), framed(b"\0\0\0\1\0\0\x7f\xff\xff\xff")),
        (handshake("PLAIN"), shaken()[:-1] + b"\xff"),
        (handshake("PLAIN"), framed(shaken()[4:] + b"more")),
    ],
)
def test_garbage_instead_of_a_sasl_response_closes_the_connection(asked: bytes, garbage: bytes) -> None:
    with Playbook() as play:
        play.forwards(asked)
        play.broker(garbage)
        play.violation(CloseReason.RESPONSE_MALFORMED)
    assert play.connection.client.user == ANONYMOUS


@pytest.mark.parametrize("garbage", [b"", b"\0", b"\0\0", b"\0\0\xff\xff", b"\0\0\0\0\x7f\xff\xff\xff"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_garbage_in_a_sasl_response_sets_no_principal(garbage: bytes, version: int) -> None:
    with Playbook() as play:
        shake(play)
        play.forwards(authenticate(plain("alice"), version))
        play.broker(framed(b"\0\0\0\2" + b"\0" * (version == 2) + garbage))
        play.violation(CloseReason.RESPONSE_MALFORMED)
    assert play.connection.client.user == ANONYMOUS


ODD_HEADS: Final = {
    "header with -2^31 tags": bytes.fromhex("0003617070 8080808008"),
    "header with 101 tags": bytes.fromhex("0003617070 65") + b"".join(bytes([tag, 0]) for tag in range(101)),
}
"""Behind API key, version and correlation id. Brokers of 3.9.1 and 4.2.0 read all of them."""


@pytest.mark.parametrize("rest_of_head", ODD_HEADS.values(), ids=ODD_HEADS)
def test_a_saslauthenticate_whose_head_weir_cannot_read_closes_the_connection(rest_of_head: bytes) -> None:
    """Passed on, it would log the client in as a user of whom Weir knows nothing, and who has no quota."""
    head = struct.pack(">hhi", ApiKey.SASL_AUTHENTICATE, 2, 2) + rest_of_head
    token = bytes([1 + len(plain("alice"))]) + plain("alice")
    with Playbook() as play:
        shake(play)
        play.client(framed(head + token + b"\0"))
        play.violation(CloseReason.REQUEST_MALFORMED)


def test_a_user_is_known_who_logs_in_with_a_client_id_of_negative_length() -> None:
    """Brokers read the client-id as null, and log the user in."""
    head = struct.pack(">hhih", ApiKey.SASL_AUTHENTICATE, 2, 2, -5) + b"\0"
    token = bytes([1 + len(plain("alice"))]) + plain("alice")
    with Playbook() as play:
        play.relays(framed(struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 1, -5) + b"\0\5PLAIN"), shaken())
        play.relays(framed(head + token + b"\0"), authenticated(version=2))
        assert play.connection.client.user == "alice"


def test_a_saslhandshake_whose_head_weir_cannot_read_closes_the_connection() -> None:
    head = struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 1, 32_767)
    with Playbook() as play:
        play.client(framed(head + b"\0\5PLAIN"))
        play.violation(CloseReason.REQUEST_MALFORMED)


def test_a_sasl_token_of_a_megabyte_is_refused_and_half_a_megabyte_accepted() -> None:
    wire = Wire(new_connection())
    wire.exchange(0, handshake("PLAIN"), shaken())
    token = b"\0alice\0" + b"p" * 500_000
    wire.exchange(0, authenticate(token), authenticated())
    assert wire.connection.client.user == "alice"
    wire.feed(0, client=authenticate(b"\0bob\0" + b"p" * 2_000_000))
    assert wire.connection.effects.close_reason is CloseReason.REQUEST_TOO_LARGE


SASL_BYTES_MAX: Final = 512 * 1024
"""Default of Kafka's sasl.server.max.receive.size."""
HEAD_BYTES: Final = 14
"""Size of a request's head: length, API key, version, correlation id, length of the client-id."""


def of_length(frame: bytes, length: int) -> bytes:
    return struct.pack(">i", length) + frame[4:HEAD_BYTES]


@pytest.mark.parametrize("frame", [handshake("PLAIN"), authenticate(b"")], ids=["handshake", "authenticate"])
@pytest.mark.parametrize("before", [(), (handshake("PLAIN"), shaken())], ids=["first", "shaken"])
def test_a_sasl_request_above_512_kb_is_refused_at_its_head(frame: bytes, before: tuple[bytes, ...]) -> None:
    for length, refused in ((SASL_BYTES_MAX, False), (SASL_BYTES_MAX + 1, True)):
        with Playbook() as play:
            if before:
                play.relays(*before)
            play.client(of_length(frame, length))
            if refused:
                play.violation(CloseReason.REQUEST_TOO_LARGE, saying="sasl.server.max.receive.size")
            else:
                play.silent()


@pytest.mark.parametrize(("logged_in", "refused"), [(False, True), (True, False)])
def test_before_login_no_request_above_512_kb_is_kept(logged_in: bool, refused: bool) -> None:
    """Requests that must be read whole may have 1 MB after it."""
    large = request(CreateTopicsRequest(), 5)
    connection = with_rules(Identities(IdentityRules()), QuotaTable(MUTATIONS))
    connection.plans.identities.behind_sasl.add(connection.node_id)
    if logged_in:
        connection.client.become("alice")
    wire = Wire(connection)
    wire.feed(0, client=of_length(large, SASL_BYTES_MAX + 1) + bytes(300_000))
    assert connection.effects.close_reason is (CloseReason.REQUEST_TOO_LARGE if refused else None)


@pytest.mark.parametrize(("logged_in", "refused"), [(False, True), (True, False)])
def test_before_login_a_request_above_512_kb_that_waits_is_refused_at_its_head(
    logged_in: bool, refused: bool
) -> None:
    """A broker refuses it by its length, but gets no byte of a request while Weir waits for more of it."""
    connection = with_rules(Identities(IdentityRules()), QuotaTable(MUTATIONS))
    connection.plans.identities.behind_sasl.add(connection.node_id)
    if logged_in:
        connection.client.become("alice")
    wire = Wire(connection)
    wire.feed(0, client=of_length(request(CreateTopicsRequest(), 5), SASL_BYTES_MAX + 1))
    assert (connection.effects.close_reason is not None) == refused
    assert not wire.to_broker
