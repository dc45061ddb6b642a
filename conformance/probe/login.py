"""SASL login on a probe's connection: PLAIN (RFC 4616) and SCRAM (RFC 5802, KIP-84)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from scramp import ScramClient, ScramException

from weir.conformance.probe.judging import named
from weir.conformance.probe.link import ConversationError, ProbeLink
from weir.protocol.api import ApiKey
from weir.protocol.framing import LENGTH
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.conformance.probe.link import ProbeTarget

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")


class Login(msgspec.Struct, frozen=True):
    """Credentials of a probe's connections."""

    user: str
    password: str
    mechanism: str = PLAIN


class TargetLoginError(ConversationError):
    """Raised if the target refuses the credentials. The text has no password."""


def connect(target: ProbeTarget, login: Login | None) -> ProbeLink:
    """Return a connection on which requests may be sent. Raises ConversationError."""
    link = ProbeLink(target)
    try:
        if login is not None:
            log_in(link, login)
    except BaseException:
        link.__exit__()
        raise
    return link


def log_in(link: ProbeLink, login: Login) -> None:
    """Authenticate. Raises ConversationError; TargetLoginError if the target refuses the mechanism or the
    user.
    """
    exchange = _shake_hands(link, login)
    try:
        if login.mechanism == PLAIN:
            exchange(plain_token(login))
        else:
            _scram(exchange, login)
    except (ScramException, UnicodeDecodeError):
        raise TargetLoginError("the target's SCRAM messages are wrong, or the password is") from None


def plain_token(login: Login) -> bytes:
    """Return the token of a login with PLAIN: it contains the password."""
    return b"\0" + login.user.encode() + b"\0" + login.password.encode()


def _shake_hands(link: ProbeLink, login: Login) -> Callable[[bytes], bytes]:
    """Return the function that exchanges tokens. Brokers before 1.0 lack SaslAuthenticate (KIP-152)."""
    offered = link.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    assert isinstance(offered, ApiVersionsResponse)
    framed = any(entry.api_key == ApiKey.SASL_AUTHENTICATE for entry in offered.api_keys)
    request = SaslHandshakeRequest(mechanism=login.mechanism)
    answer = link.ask(request, ApiKey.SASL_HANDSHAKE, 1 if framed else 0)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code:
        raise TargetLoginError(
            f"the target answers SaslHandshake for {login.mechanism} with {named([answer.error_code])}"
        )
    return partial(_authenticate, link) if framed else partial(_bare, link)


def _authenticate(link: ProbeLink, token: bytes) -> bytes:
    answer = link.ask(SaslAuthenticateRequest(auth_bytes=token), ApiKey.SASL_AUTHENTICATE, 0)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code:
        raise TargetLoginError(f"the target refuses the login with {named([answer.error_code])}")
    return answer.auth_bytes


def _bare(link: ProbeLink, token: bytes) -> bytes:
    link.send(LENGTH.pack(len(token)) + token)
    return link.receive(shortest=0)


def _scram(exchange: Callable[[bytes], bytes], login: Login) -> None:
    client = ScramClient([login.mechanism], login.user, login.password)
    client.set_server_first(exchange(client.get_client_first().encode()).decode())
    client.set_server_final(exchange(client.get_client_final().encode()).decode())
