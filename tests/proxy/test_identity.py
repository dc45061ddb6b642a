"""The operator's rules for names that cannot be seen, and what the process remembers."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.proxy.rigs import Rig
from tests.proxy.sasl import (
    AP_REQ,
    PROOF,
    SALT,
    SECRET,
    authenticate,
    authenticated,
    bare,
    bearer,
    handshake,
    plain,
    scram_first,
    shaken,
)
from tests.proxy.wire import Wire, new_connection
from weir.proxy.config.config import ConfigError, load
from weir.proxy.handlers.sasl.exchange import SaslExchange
from weir.proxy.handlers.sasl.identity import OWNERS_MAX, Identities, IdentityRules


def rules(**settings: object) -> IdentityRules:
    return load(None, {"upstream": "a:1", **settings}).identity


@pytest.mark.parametrize(
    ("settings", "saying"),
    [
        ({"sasl_oauthbearer_sub_claim_name": " "}, "sasl_oauthbearer_sub_claim_name is empty"),
        ({"unreadable_principal": "User:k"}, "without its type"),
        (
            {"unreadable_principal": "k", "quota_admins": "User:a;User:k"},
            "unreadable_principal k is one of quota_admins",
        ),
        (
            {"unreadable_principal": "k", "super_users": "User:k"},
            "unreadable_principal k is one of super_users",
        ),
    ],
)
def test_mistakes_in_identity_rules_are_one_line(settings: dict[str, object], saying: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(**settings)
    assert saying in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_least_recently_used_delegation_token_owners_are_forgotten() -> None:
    identities = Identities()
    for number in range(OWNERS_MAX):
        identities.learn_owner(f"token-{number}", "alice")
    assert identities.owner("token-0") == "alice"
    identities.learn_owner("one-more", "bob")
    identities.learn_owner("one-more", "carol")
    assert identities.owner("token-0") == "alice"
    assert identities.owner("token-1") is None
    assert identities.owner("one-more") == "carol"


def test_a_sasl_exchange_keeps_only_the_name_of_a_token() -> None:
    for mechanism, tokens in {
        "PLAIN": [plain("alice")],
        "SCRAM-SHA-256": [scram_first("alice"), PROOF],
        "OAUTHBEARER": [bearer({"sub": "alice"})],
        "GSSAPI": [AP_REQ],
        "X" * 30_000: [SECRET],
    }.items():
        exchange = SaslExchange(mechanism, "sub", raw=False)
        for token in tokens:
            exchange.token(token)
            exchange.answer(0, SALT)
        kept = repr([getattr(exchange, slot) for slot in SaslExchange.__slots__])
        assert SECRET.decode() not in kept
        assert len(kept) < 200


BAD: list[bytes] = [
    SECRET,
    b"\0" + SECRET,
    b"bob\0alice\0" + SECRET,
    b"\0alice\0" + SECRET + b"\0",
    b"\0\0" + SECRET,
    b"n,,n=" + SECRET,
    b"n,a=" + SECRET + b",n=x,r=y",
    b"n,,\x01auth=Bearer " + SECRET + b"\x01\x01",
    b"n,,\x01auth=Basic " + SECRET + b"\x01\x01",
    bearer({"sub": [SECRET.decode()]}),
]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "X"])
@pytest.mark.parametrize("error_code", [0, 58])
@pytest.mark.parametrize("raw", [True, False])
def test_no_sasl_token_is_in_any_log_line_or_violation(mechanism: str, error_code: int, raw: bool) -> None:
    with capture_logs() as lines:
        for token in BAD:
            wire = Wire(new_connection())
            wire.exchange(0, handshake(mechanism, 0 if raw else 1), shaken(0, 0 if raw else 1))
            for _ in range(2):
                wire.feed(0, client=bare(token) if raw else authenticate(token))
                wire.feed(0, broker=bare(b"") if raw else authenticated(b"", error_code))
            assert SECRET.decode() not in wire.connection.effects.close_detail
    assert SECRET.decode() not in str(lines)
    assert raw or not error_code or lines


# Through sockets


@pytest.mark.parametrize("size", [0, 300_000])
def test_requests_pipelined_behind_a_large_sasl_token_pass_a_relay(size: int) -> None:
    rig = Rig()
    token = bare(b"\0alice\0p" + b"p" * size)
    try:
        stream = handshake("PLAIN", 0) + token + handshake("PLAIN", 1, 5)
        rest = rig.send(rig.client, stream)
        rig.expect(rig.broker, handshake("PLAIN", 0))
        rig.send(rig.broker, shaken(0, 0))
        received = bytearray()
        for _ in range(2000):
            rest = rig.send(rig.client, rest) if rest else rest
            rig.turn()
            received += rig.take(rig.broker)
        assert received == token
        rig.send(rig.broker, bare(b""))
        rig.expect(rig.broker, handshake("PLAIN", 1, 5))
        assert rig.connection.client.user == "alice"
    finally:
        rig.close()
