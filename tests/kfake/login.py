"""A broker that authenticates as Kafka's does, and remembers as whom it has run each request.

What it does when is SaslServerAuthenticator's, and after authentication KafkaApis'.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from tests.kfake.cluster import Answer, Cluster
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
    bearer,
    plain,
    scram_first,
)
from tests.wire.frames import framed, head_of
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

USERS: Final = ("admin", "alice", "bob", "j=o,e")
KERBEROS: Final = "kerberos"
LIFETIME_MS: Final = 3_600_000


class Verdict(NamedTuple):
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


@dataclass(kw_only=True)
class SaslBroker(Cluster):
    random: Random
    """Decides where brokers of different releases and settings differ."""
    closed: bool = False
    run_as: Counter[str] = field(default_factory=Counter)
    """Bytes of produce requests by the principal that they were run as."""
    _received: bytes = b""
    _user: str | None = None
    _exchange: Mechanism | None = None
    _raw: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handlers[ApiKey.SASL_HANDSHAKE] = self._shake
        self.handlers[ApiKey.SASL_AUTHENTICATE] = self._authenticate

    def feed(self, data: bytes) -> bytes:
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
                try:
                    answers += self.answer(frame)
                except ConnectionAbortedError:
                    self.closed = True
        return answers

    def answer(self, frame: bytes, now_ms: int | None = None, node_id: int = 0) -> bytes:
        """See Cluster. Before authentication, few requests are answered."""
        if self._raw:
            return self._bare(frame)
        if len(frame) < 14:
            raise ConnectionAbortedError
        api_key = head_of(frame).api_key
        first = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
        if self._exchange is None and (self._user is not None or api_key in first):
            permitted = {*first, ApiKey.SASL_AUTHENTICATE, ApiKey.PRODUCE}
        else:
            permitted = {ApiKey.SASL_AUTHENTICATE} if self._exchange is not None else set()
        if api_key not in permitted:
            raise ConnectionAbortedError
        if api_key == ApiKey.PRODUCE and self._user is not None:
            self.run_as[self._user] += len(frame) - 4
        return super().answer(frame, now_ms, node_id)

    def _bare(self, frame: bytes) -> bytes:
        assert self._exchange is not None
        verdict = self._exchange.evaluate(frame[4:])
        if verdict.is_over:
            if verdict.user is None:
                raise ConnectionAbortedError
            self._user, self._exchange, self._raw = verdict.user, None, False
            if verdict.user == KERBEROS and self.random.random() < 0.5:
                return b""
        return framed(verdict.answer)

    def _shake(self, request: SaslHandshakeRequest, version: int, _now_ms: int) -> SaslHandshakeResponse:
        answer = SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256"])
        if self._user is not None and (version == 0 or self.random.random() < 0.5):
            answer.error_code = ILLEGAL_STATE  # it does not want that anew
            return answer
        try:
            self._exchange = Mechanism(request.mechanism)
        except KeyError:
            self.closed = True
            answer.error_code = UNSUPPORTED_MECHANISM
        self._raw = version == 0
        return answer

    def _authenticate(self, request: SaslAuthenticateRequest, version: int, _now_ms: int) -> Answer:
        if self._exchange is None:
            return SaslAuthenticateResponse(error_code=ILLEGAL_STATE, error_message="Authentication failed")
        verdict = self._exchange.evaluate(bytes(request.auth_bytes))
        answer = SaslAuthenticateResponse(auth_bytes=verdict.answer)
        if verdict.is_over:
            if verdict.user is None or self._user not in (None, verdict.user):
                self.closed = True
                return SaslAuthenticateResponse(error_code=REFUSED, error_message="Authentication failed")
            self._user, self._exchange = verdict.user, None
            if version and self.random.random() < 0.5:
                answer.session_lifetime_ms = LIFETIME_MS
        return answer
