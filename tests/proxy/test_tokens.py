"""Bare SASL tokens after SaslHandshake v0: followed to their end, and no way to have requests pass as tokens.

What brokers answer: SaslServerAuthenticator without SaslAuthenticate headers, where an empty answer is a
length of 0, a refusal is the end of the connection, and a server that has nothing to say sends nothing.
"""

from __future__ import annotations

import struct
from typing import Final

import pytest

from tests.matrix import first_core
from tests.proxy.playbook import Playbook
from tests.proxy.sasl import (
    AP_REQ,
    DIALOGUES,
    HEAVY,
    OF_NOBODY,
    PING,
    PONG,
    SALT,
    WRAPPED,
    bare,
    handshake,
    plain,
    scram_first,
    shaken,
)
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import framed, padded, request, response
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, HeartbeatRequest, ProduceRequest
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import ANONYMOUS, Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.sasl.authentication import TOKEN_BYTES_MAX
from weir.proxy.handlers.sasl.identity import Identities, IdentityRules
from weir.quotas import Entity, QuotaKey, QuotaTable

OF_KERBEROS: Final = QuotaTable({(Entity(user="kerberos"), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
UNANSWERED: Final = padded(request(ProduceRequest(acks=0), 7, 9), 12_106)
EMPTY: Final = bare(b"")


def connection_of(table: QuotaTable | None = None) -> Connection:
    identities = Identities(IdentityRules(unreadable="kerberos"))
    return new_connection(table, plans=Plans(Counters(), identities=identities))


def shake(play: Playbook, mechanism: str = "PLAIN", error_code: int = 0) -> None:
    play.relays(handshake(mechanism, 0), shaken(error_code, 0))


@pytest.mark.parametrize("mechanism", DIALOGUES)
def test_the_principal_after_sasl_v0_tokens_is_the_authenticated_user(mechanism: str) -> None:
    with Playbook() as play:
        shake(play, mechanism)
        for token, answer in DIALOGUES[mechanism]:
            assert play.connection.client.user == ANONYMOUS
            play.relays(bare(token), bare(answer))
        assert play.connection.client.user == "alice"
        assert play.connection.client.exchange is None
        play.relays(PING, PONG)


def test_requests_do_not_pass_as_sasl_v0_tokens() -> None:
    """A listener that answers the handshake, and then goes on with Kafka: nobody is charged less for it."""
    with Playbook(OF_NOBODY) as play:
        shake(play, "SCRAM-SHA-256")
        play.relays(bare(scram_first("alice")), bare(SALT))
        play.forwards(HEAVY)
        play.muted_until(2106)
        assert play.connection.client.exchange is None


# GSSAPI: the end is not to be seen


def kerberos(play: Playbook) -> None:
    """As Java's client and server do it: the last token has no answer."""
    shake(play, "GSSAPI")
    play.relays(bare(AP_REQ), bare(b"\x60reply"))
    play.relays(EMPTY, bare(WRAPPED))
    play.forwards(bare(WRAPPED))
    assert play.connection.client.user == ANONYMOUS


@pytest.mark.parametrize("cut", first_core([3, 1000, 100_000, 1], 3))
def test_a_request_sent_with_the_last_token_ends_a_gssapi_exchange(cut: int) -> None:
    connection = connection_of(OF_KERBEROS)
    wire = Wire(connection)
    wire.exchange(0, handshake("GSSAPI", 0), shaken(0, 0))
    wire.exchange(0, bare(AP_REQ), bare(WRAPPED))
    stream = bare(WRAPPED) + request(ApiVersionsRequest(), 0, 5) + UNANSWERED
    for at in range(0, len(stream), cut):
        wire.feed(0, client=stream[at : at + cut])
    assert connection.client.user == "kerberos"
    assert connection.throttled_until_ms == 2106
    wire.to_client.clear()
    wire.feed(0, broker=response(ApiVersionsResponse(), 0, 5))
    assert wire.to_client == response(ApiVersionsResponse(), 0, 5)


@pytest.mark.parametrize(
    "token",
    [
        b"\x05\x04\x00\xff" + bytes(12),  # RFC 4121: flags 0, by the initiator without confidentiality
        b"\x60\x08\x00\x06" + bytes(6),  # RFC 1964: the third byte is of the length
        b"\x00\x01\x02\x03" + bytes(6),  # of a mechanism unknown to Weir; no API has such a version
    ],
    ids=["rfc-4121", "rfc-1964", "unknown"],
)
def test_a_token_of_a_hidden_mechanism_is_not_taken_for_a_request(token: bytes) -> None:
    with Playbook(connection=connection_of()) as play:
        shake(play, "GSSAPI")
        play.relays(bare(AP_REQ), bare(WRAPPED))
        play.relays(bare(token), EMPTY)
        assert play.connection.client.sends_sasl_tokens, "still in the exchange"
        assert play.connection.client.user == ANONYMOUS


@pytest.mark.parametrize(("api_key", "version"), [(0, 0), (0, 13), (12, 4), (12, 255), (255, 0)])
def test_any_api_key_and_version_below_256_end_a_hidden_exchange(api_key: int, version: int) -> None:
    wire = Wire(connection_of())
    for asked, answered in ((handshake("GSSAPI", 0), shaken(0, 0)), (bare(AP_REQ), bare(WRAPPED))):
        wire.exchange(0, asked, answered)
    wire.feed(0, client=framed(struct.pack(">hhih", api_key, version, 7, -1)))
    assert (wire.connection.client.sends_sasl_tokens, wire.connection.client.user) == (False, "kerberos")


def test_uplift_queries_versions_after_the_sasl_exchange() -> None:
    identities = Identities(IdentityRules(unreadable="kerberos"))
    with Playbook(
        connection=new_connection(plans=Plans(Counters(), uplift=True, identities=identities))
    ) as play:
        kerberos(play)
        play.client(request(HeartbeatRequest(), 2, 7))
        play.to_broker(request(ApiVersionsRequest(), 0, 7))
        assert play.connection.client.user == "kerberos"


# Lengths


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI"])
@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (-1, CloseReason.REQUEST_MALFORMED),
        (-(2**31), CloseReason.REQUEST_MALFORMED),
        (TOKEN_BYTES_MAX + 1, CloseReason.REQUEST_TOO_LARGE),
        (2**31 - 1, CloseReason.REQUEST_TOO_LARGE),
    ],
)
def test_sasl_v0_tokens_of_impossible_length_close_the_connection(
    mechanism: str, length: int, reason: CloseReason
) -> None:
    with Playbook() as play:
        shake(play, mechanism)
        play.client(struct.pack(">i", length))
        play.violation(reason, saying="a SASL token of")


def test_a_request_after_sasl_v0_may_be_larger_than_a_token() -> None:
    wire = Wire(connection_of(OF_KERBEROS))
    for asked, answered in ((handshake("GSSAPI", 0), shaken(0, 0)), (bare(AP_REQ), bare(WRAPPED))):
        wire.exchange(0, asked, answered)
    wire.to_broker.clear()
    large = padded(HEAVY, 3_000_000)
    wire.feed(0, client=bare(WRAPPED) + large)
    assert wire.to_broker == bare(WRAPPED) + large
    assert wire.connection.throttled_until_ms > 0


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), CloseReason.RESPONSE_LENGTH_WRONG),
        (struct.pack(">i", TOKEN_BYTES_MAX + 1), CloseReason.RESPONSE_LENGTH_WRONG),
        (EMPTY + EMPTY, CloseReason.RESPONSE_LENGTH_WRONG),  # no response is that short
        (EMPTY + bare(SALT), CloseReason.RESPONSE_UNEXPECTED),
        (EMPTY + PONG, CloseReason.RESPONSE_UNEXPECTED),
    ],
)
def test_garbage_instead_of_a_sasl_v0_response_closes_the_connection(
    sent: bytes, reason: CloseReason
) -> None:
    wire = Wire(new_connection())
    wire.exchange(0, handshake("PLAIN", 0), shaken(0, 0))
    wire.exchange(0, bare(plain("alice")), sent + bytes(8))
    assert wire.connection.effects.close_reason is reason


def test_a_sasl_v0_token_in_flight_is_answered_while_draining() -> None:
    with Playbook() as play:
        shake(play)
        play.forwards(bare(plain("alice")))
        play.drain()
        assert not play.connection.idle
        play.returns(EMPTY)
        play.closed(CloseReason.DRAINED)
