"""A broker that authenticates as Kafka's does, and remembers as whom it has run each request.

What it does when is SaslServerAuthenticator's, and after authentication KafkaApis'.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from tests.proxy.sasl import (
    AP_REQ,
    CHALLENGE,
    ILLEGAL_STATE,
    PROOF,
    REFUSED,
    SALT,
    UNSUPPORTED_MECHANISM,
    VERIFIED,
    WRAPPED,
    authenticated,
    bearer,
    plain,
    scram_first,
    shaken,
)
from tests.wire.frames import framed, request_body_of, response
from weir.protocol.api import ApiKey
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import (
    ApiVersionsResponse,
    ProduceResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

USERS: Final = ("admin", "alice", "bob", "j=o,e")
KERBEROS: Final = "kerberos"
LIFETIME_MS: Final = 3_600_000


class Verdict(NamedTuple):
    """What comes of a token."""

    answer: bytes = b""
    is_over: bool = True
    user: str | None = None
    """Who it is, if it is over; None: refused."""


REFUSAL: Final = Verdict()


def saslname(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


class Mechanism:
    """The server's half of an exchange."""

    def __init__(self, name: str) -> None:
        self.evaluate: Callable[[bytes], Verdict] = {
            "PLAIN": self._plain,
            "SCRAM-SHA-256": self._scram,
            "OAUTHBEARER": self._bearer,
            "GSSAPI": self._gssapi,
        }[name]
        self._steps = 0
        self._user: str | None = None

    def _plain(self, token: bytes) -> Verdict:
        return Verdict(user={plain(user): user for user in USERS}.get(token))

    def _scram(self, token: bytes) -> Verdict:
        self._steps += 1
        if self._steps == 1:
            self._user = {scram_first(saslname(user)): user for user in USERS}.get(token)
            return Verdict(SALT, is_over=False) if self._user else REFUSAL
        return Verdict(VERIFIED, user=self._user) if token == PROOF else REFUSAL

    def _bearer(self, token: bytes) -> Verdict:
        self._steps += 1
        user = {bearer({"sub": user}): user for user in USERS}.get(token)
        if user is None and self._steps == 1:
            return Verdict(CHALLENGE, is_over=False)
        return Verdict(user=user)

    def _gssapi(self, token: bytes) -> Verdict:
        self._steps += 1
        if self._steps == 1:
            return Verdict(b"\x60answer", is_over=False) if token == AP_REQ else REFUSAL
        return Verdict(user=KERBEROS) if token == WRAPPED else REFUSAL


class SaslBroker:
    def __init__(self, random: Random) -> None:
        """`random` decides where brokers of different releases and settings differ."""
        self.closed = False
        self.run_as: Counter[str] = Counter()
        """Bytes of produce requests by the principal that they were run as."""
        self._random = random
        self._received = b""
        self._user: str | None = None
        self._exchange: Mechanism | None = None
        self._raw = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes, return the answers."""
        self._received += data
        answers = b""
        while not self.closed and len(self._received) >= 4:
            stop = 4 + struct.unpack_from(">i", self._received)[0]
            if stop < 4 or stop > 1 << 20:
                self.closed = True
            elif stop > len(self._received):
                break
            else:
                frame, self._received = self._received[:stop], self._received[stop:]
                answers += self._bare(frame) if self._raw else self._request(frame)
        return answers

    def _close(self, answer: bytes = b"") -> bytes:
        self.closed = True
        return answer

    def _bare(self, frame: bytes) -> bytes:
        assert self._exchange is not None
        verdict = self._exchange.evaluate(frame[4:])
        if verdict.is_over:
            if verdict.user is None:
                return self._close()
            self._user, self._exchange, self._raw = verdict.user, None, False
            if verdict.user == KERBEROS and self._random.random() < 0.5:
                return b""
        return framed(verdict.answer)

    def _request(self, frame: bytes) -> bytes:
        if len(frame) < 14:
            return self._close()
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if api_key == ApiKey.API_VERSIONS and self._exchange is None:
            return response(ApiVersionsResponse(), 0, correlation_id)
        if api_key == ApiKey.SASL_HANDSHAKE and self._exchange is None:
            return self._shake(frame, version, correlation_id)
        if api_key == ApiKey.SASL_AUTHENTICATE and self._exchange is not None:
            return self._authenticate(self._exchange, frame, version, correlation_id)
        if self._user is None or self._exchange is not None:
            return self._close()
        if api_key == ApiKey.SASL_AUTHENTICATE:
            return authenticated(b"", ILLEGAL_STATE, version, correlation_id)
        if api_key != ApiKey.PRODUCE:
            return self._close()
        self.run_as[self._user] += len(frame) - 4
        return response(ProduceResponse(), 7, correlation_id)

    def _shake(self, frame: bytes, version: int, correlation_id: int) -> bytes:
        if self._user is not None and (version == 0 or self._random.random() < 0.5):
            return shaken(ILLEGAL_STATE, version, correlation_id)  # it does not want that anew
        try:
            name = request_body_of(frame, SaslHandshakeRequest, version).mechanism
            self._exchange = Mechanism(name)
        except (ProtocolError, KeyError):
            return self._close(shaken(UNSUPPORTED_MECHANISM, version, correlation_id))
        self._raw = version == 0
        return shaken(0, version, correlation_id)

    def _authenticate(self, exchange: Mechanism, frame: bytes, version: int, correlation_id: int) -> bytes:
        try:
            token = request_body_of(frame, SaslAuthenticateRequest, version).auth_bytes
        except ProtocolError:
            return self._close()
        verdict = exchange.evaluate(bytes(token))
        lifetime_ms = 0
        if verdict.is_over:
            if verdict.user is None or self._user not in (None, verdict.user):
                return self._close(authenticated(b"", REFUSED, version, correlation_id))
            self._user, self._exchange = verdict.user, None
            lifetime_ms = LIFETIME_MS if version and self._random.random() < 0.5 else 0
        return authenticated(verdict.answer, 0, version, correlation_id, lifetime_ms)
