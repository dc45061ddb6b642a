"""A broker that takes SASL tokens, as brokers before and after 1.0 do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.kfake.cluster import Cluster, up_to
from tests.wire.frames import framed
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.protocol.versions import VersionRange
from weir.proxy.addresses import Address

ADDRESS: Final = Address("kafka-1", 9092)
OLD: Final = up_to({ApiKey.METADATA: 2, ApiKey.SASL_HANDSHAKE: 0, ApiKey.API_VERSIONS: 0})
"""Of 0.10."""
MODERN: Final = up_to({ApiKey.METADATA: 9, ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2})

Verify = Callable[[bytes], bytes]
"""The broker's half of a mechanism: takes a token, returns its own, or raises PermissionError."""


def accepting(_token: bytes) -> bytes:
    return b""


@dataclass(kw_only=True)
class Broker(Cluster):
    verify: Verify
    spoken: dict[int, VersionRange] = field(default_factory=lambda: MODERN)
    handshake: SaslHandshakeResponse = field(default_factory=SaslHandshakeResponse)
    rounds: int = 1
    """How many tokens come bare, after SaslHandshake v0."""
    tokens: list[bytes] = field(default_factory=list)
    _bare: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handlers[ApiKey.SASL_HANDSHAKE] = self._shake
        self.handlers[ApiKey.SASL_AUTHENTICATE] = self._authenticate

    def answer(self, frame: bytes, now_ms: int | None = None, node_id: int = 0) -> bytes:
        if not self._bare:
            return super().answer(frame, now_ms, node_id)
        self._bare -= 1
        return framed(self._verified(frame[4:]))

    def _shake(self, _request: SaslHandshakeRequest, version: int, _now_ms: int) -> SaslHandshakeResponse:
        self._bare = self.rounds if version == 0 and not self.handshake.error_code else 0
        return self.handshake

    def _authenticate(self, request: SaslAuthenticateRequest, *_: int) -> SaslAuthenticateResponse:
        try:
            return SaslAuthenticateResponse(auth_bytes=self._verified(request.auth_bytes))
        except ConnectionAbortedError:
            return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed:\nno")

    def _verified(self, token: bytes) -> bytes:
        self.tokens.append(token)
        try:
            return self.verify(token)
        except PermissionError as error:
            raise ConnectionAbortedError from error
