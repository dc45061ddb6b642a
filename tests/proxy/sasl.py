"""SASL as clients and brokers send it: tokens, and the frames around them."""

from __future__ import annotations

import base64
import json
from typing import Final

from tests.proxy.playbook import Playbook
from tests.wire.frames import framed, padded, request, response
from weir.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
    ProduceResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.proxy.connection.connection import ANONYMOUS
from weir.quotas import Entity, QuotaKey, QuotaTable

SECRET: Final = b"t0p-s3cret"
"""In every token that has one."""
REFUSED: Final = 58
"""SASL_AUTHENTICATION_FAILED."""
ILLEGAL_STATE: Final = 34
UNSUPPORTED_MECHANISM: Final = 33

SALT: Final = b"r=nonce+theirs,s=c2FsdA==,i=4096"
PROOF: Final = b"c=biws,r=nonce+theirs,p=" + base64.b64encode(SECRET)
VERIFIED: Final = b"v=c2lnbmF0dXJl"
AP_REQ: Final = b"\x60\x82\x02\x10\x06\x09*\x86H\x86\xf7\x12\x01\x02\x02\x01\x00" + SECRET
"""How a GSSAPI exchange begins (RFC 1964)."""
WRAPPED: Final = b"\x05\x04\x04\xff\x00\x0c\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00" + SECRET
"""A wrap token (RFC 4121)."""
CHALLENGE: Final = b'{"status":"invalid_token"}'


def plain(user: str) -> bytes:
    return b"\0" + user.encode() + b"\0" + SECRET


def scram_first(user: str, extensions: str = "") -> bytes:
    return f"n,,n={user},r=nonce{extensions}".encode()


def bearer(claims: object) -> bytes:
    parts = (b'{"alg":"none"}', json.dumps(claims).encode(), SECRET)
    token = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"


def handshake(mechanism: str, version: int = 1, correlation_id: int = 1) -> bytes:
    return request(SaslHandshakeRequest(mechanism=mechanism), version, correlation_id)


def shaken(error_code: int = 0, version: int = 1, correlation_id: int = 1) -> bytes:
    mechanisms = ["PLAIN", "SCRAM-SHA-256"]
    answer = SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms)
    return response(answer, version, correlation_id)


def authenticate(token: bytes, version: int = 2, correlation_id: int = 2) -> bytes:
    return request(SaslAuthenticateRequest(auth_bytes=token), version, correlation_id)


def authenticated(
    token: bytes = b"",
    error_code: int = 0,
    version: int = 2,
    correlation_id: int = 2,
    session_lifetime_ms: int = 0,
) -> bytes:
    answer = SaslAuthenticateResponse(
        error_code=error_code,
        error_message="Authentication failed" if error_code else None,
        auth_bytes=token,
        session_lifetime_ms=session_lifetime_ms,
    )
    return response(answer, version, correlation_id)


def bare(token: bytes) -> bytes:
    return framed(token)


def log_in(play: Playbook, user: str = "alice") -> None:
    """The client authenticates, for the first time or again (KIP-368)."""
    play.relays(handshake("PLAIN"), shaken())
    play.relays(authenticate(plain(user)), authenticated())
    assert play.connection.client.user == user


DIALOGUES: Final[dict[str, list[tuple[bytes, bytes]]]] = {
    "PLAIN": [(plain("alice"), b"")],
    "SCRAM-SHA-256": [(scram_first("alice"), SALT), (PROOF, VERIFIED)],
    "SCRAM-SHA-512": [(scram_first("alice"), SALT), (PROOF, VERIFIED)],
    "OAUTHBEARER": [(bearer({"sub": "alice"}), b"")],
}
"""Tokens and answers, after which the client is alice."""

# Requests before, among and after them

OF_ALICE: Final = QuotaTable({(Entity(user="alice"), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
OF_NOBODY: Final = QuotaTable({(Entity(user=ANONYMOUS), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
HEAVY: Final = padded(request(ProduceRequest(acks=1), 7, 9), 12_106)
"""Under 1000 bytes/s it has to wait 2106 ms (measured on a broker)."""
PRODUCED: Final = response(ProduceResponse(), 7, 9)
PING, PONG = request(HeartbeatRequest(), 4, 7), response(HeartbeatResponse(), 4, 7)
