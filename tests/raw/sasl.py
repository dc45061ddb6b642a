"""The client's half of SASL, frame by frame: for tests that must see, or do wrong, what libraries hide.

A mechanism is a conversation: a generator that yields the client's tokens and is sent the server's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from tests.wire import frames
from tests.wire.connection import Address, Connection
from weir.protocol.framing import LENGTH_BYTES
from weir.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from weir.protocol.values import Message

    Conversation = Generator[bytes, bytes, None]

M = TypeVar("M", bound="Message")

TIMEOUT_S = 30.0
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class SaslError(Exception):
    """A broker refused: `code` and `text` are its own, code None if it closed the connection."""

    def __init__(self, code: int | None, text: str | None) -> None:
        super().__init__(f"{code}: {text}" if code is not None else "the connection was closed")
        self.code = code
        self.text = text


def plain(name: str, password: str, authorization_id: str = "") -> Conversation:
    """RFC 4616."""
    yield f"{authorization_id}\0{name}\0{password}".encode()


def oauthbearer(token: str, authorization_id: str = "") -> Conversation:
    """RFC 7628. A refusal is a token of the server's, which the client answers with one byte."""
    header = f"n,a={authorization_id}," if authorization_id else "n,,"
    refusal = yield f"{header}\1auth=Bearer {token}\1\1".encode()
    if refusal:
        yield b"\1"


def scram(mechanism: str, name: str, password: str, extensions: str = "") -> Conversation:
    """RFC 5802. Extensions such as `tokenauth=true` are part of the first message."""
    digest = _DIGESTS[mechanism]
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={escaped},r={secrets.token_hex(12)}" + (f",{extensions}" if extensions else "")
    offered = (yield f"n,,{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in offered.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{bare},{offered},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def conversation(mechanism: str, name: str, secret: str) -> Conversation:
    if mechanism == "PLAIN":
        return plain(name, secret)
    return oauthbearer(secret) if mechanism == "OAUTHBEARER" else scram(mechanism, name, secret)


def entrance(mechanism: str, name: str, secret: str, version: int = 2) -> Callable[[socket.socket], None]:
    """What `client.RawClient` takes to log in on each of its connections."""

    def log_in(sock: socket.socket) -> None:
        with SaslConnection(sock) as connection:
            connection.log_in(mechanism, name, secret, version)

    return log_in


class SaslConnection(Connection):
    """`said` holds every token of the client, `heard` of the server. Its methods raise SaslError instead of
    EOFError.
    """

    def __init__(self, to: Address | socket.socket, client_id: str = "raw") -> None:
        super().__init__(to, client_id, TIMEOUT_S)
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.session_lifetime_ms = 0

    def send(self, frame: bytes) -> None:
        """Send bytes as they are. That nobody takes them is found out by receiving."""
        with suppress(BrokenPipeError, ConnectionResetError):
            super().send(frame)

    def receive(self) -> bytes:
        try:
            return super().receive()
        except (ConnectionResetError, EOFError):
            raise SaslError(None, None) from None

    def handshake(self, mechanism: str, version: int) -> None:
        """SaslHandshake. Raises SaslError; its text is what the broker offers."""
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)
        if answer.error_code:
            raise SaslError(answer.error_code, ",".join(answer.mechanisms))

    def authenticate(self, conversation: Conversation, version: int | None) -> None:
        """Follow a conversation to its end, in SaslAuthenticate of this version; None: in raw tokens, as
        after SaslHandshake v0. Raises SaslError.
        """
        token = next(conversation)
        while True:
            self.said.append(token)
            answer = self._raw(token) if version is None else self._wrapped(token, version)
            self.heard.append(answer)
            try:
                token = conversation.send(answer)
            except StopIteration:
                return

    def log_in(self, mechanism: str, name: str, secret: str, version: int | None = 2) -> Self:
        """The whole of it. Raises SaslError."""
        self.handshake(mechanism, 0 if version is None else 1)
        self.authenticate(conversation(mechanism, name, secret), version)
        return self

    def _raw(self, token: bytes) -> bytes:
        return self.exchange(frames.framed(token))[LENGTH_BYTES:]

    def _wrapped(self, token: bytes, version: int) -> bytes:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)
        if answer.error_code:
            self.heard.append(bytes(answer.auth_bytes))
            raise SaslError(answer.error_code, answer.error_message)
        self.session_lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)
