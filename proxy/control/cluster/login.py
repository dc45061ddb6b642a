"""SASL login of Weir's own connections: PLAIN (RFC 4616), SCRAM (RFC 5802, KIP-84), OAUTHBEARER (RFC 7628,
KIP-255).

Brokers from 1.0 on take tokens in SaslAuthenticate requests (KIP-152) and tell the reason of a refusal. Older
brokers take tokens without a Kafka header, and close the connection if they refuse. Weir asks for the
broker's ApiVersions before the login, to learn if the broker has SaslAuthenticate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import trio

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.proxy.config.principals import Credentials
from weir.proxy.control.cluster.connection import (
    BrokerClosedError,
    LoginError,
    OwnConnection,
    QuestionError,
)
from weir.proxy.control.cluster.oauth import GrantError, access_token
from weir.proxy.handlers.api_versions.api_versions import ranges

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
AUTHENTICATE_VERSION: Final = 0
SAID_CHARS_MAX: Final = 200
"""Maximum number of characters shown of a text that the broker sent when it refused the login."""

Exchange: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Function that sends a token and returns the broker's token."""


async def log_in(connection: OwnConnection, credentials: Credentials) -> None:
    """Authenticate Weir at a broker. Raises QuestionError; LoginError if the broker rejects the mechanism or
    the user.
    """
    token = await _token(connection, credentials) if credentials.mechanism == OAUTHBEARER else ""
    exchange = await _shake_hands(connection, credentials)
    if token:
        await _bearer(connection, exchange, credentials, token)
    elif credentials.mechanism == PLAIN:
        await exchange(b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode())
    else:
        await _scram(connection, exchange, credentials)


async def _token(connection: OwnConnection, credentials: Credentials) -> str:
    """Return an access token. Raises QuestionError; LoginError if the token endpoint rejects Weir."""
    try:
        return await access_token(credentials, connection.timeout_s)
    except GrantError as error:
        text = f"{connection.address}: no token of {credentials.token_url}: {_printable(str(error))}"
        if error.is_refused:
            raise LoginError(f"{text}: check upstream_sasl_*") from None
        raise QuestionError(text, reachable=True, foreign=False) from None


async def _bearer(
    connection: OwnConnection, exchange: Exchange, credentials: Credentials, token: str
) -> None:
    """Authenticate with an access token. Raises QuestionError; LoginError if the broker rejects the token."""
    credentials.cache.token = ""  # a rejected token is not used again
    pairs = [("auth", f"Bearer {token}"), *credentials.extensions]
    text = "".join(f"{name}={value}\x01" for name, value in pairs)
    said = await exchange(f"n,,\x01{text}\x01".encode())
    if said:  # the reason, in JSON: the broker fails the exchange after the client's next message
        await exchange(b"\x01")
        reason = _printable(said.decode(errors="replace"))
        raise LoginError(f"{connection.address}: {_refused(credentials)}: {reason}")
    credentials.cache.token = token


async def _shake_hands(connection: OwnConnection, credentials: Credentials) -> Exchange:
    """Agree with the broker on the SASL mechanism. Return the function that exchanges SASL tokens: in
    SaslAuthenticate requests, or without a Kafka header if the broker is older.

    Raises QuestionError; LoginError if the broker refuses the mechanism.
    """
    spoken = ranges(await connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0))
    modern = ApiKey.SASL_AUTHENTICATE in spoken
    version = 1 if modern else 0
    request = SaslHandshakeRequest(mechanism=credentials.mechanism)
    answer = await connection.ask(request, SaslHandshakeResponse, version)
    if answer.error_code != ErrorCode.NONE:
        raise LoginError(f"{connection.address}: {_unshaken(answer, credentials)}")
    return partial(_authenticate if modern else _authenticate_bare, connection, credentials)


def _unshaken(answer: SaslHandshakeResponse, credentials: Credentials) -> str:
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        return "it takes no SASL at this port: leave out upstream_sasl_*, or name its SASL listener"
    if answer.error_code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return f"it answers SaslHandshake with error {answer.error_code}"
    enabled = _printable(", ".join(answer.mechanisms)) or "none"
    return f"it has not enabled {credentials.mechanism}, but {enabled}: set upstream_sasl_mechanism"


async def _authenticate(connection: OwnConnection, credentials: Credentials, token: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=token)
    answer = await connection.ask(request, SaslAuthenticateResponse, AUTHENTICATE_VERSION)
    if answer.error_code != ErrorCode.NONE:
        said = _printable(answer.error_message or f"error {answer.error_code}")
        raise LoginError(f"{connection.address}: {_refused(credentials)}: {said}")
    return answer.auth_bytes


async def _authenticate_bare(connection: OwnConnection, credentials: Credentials, token: bytes) -> bytes:
    try:
        return await connection.send_token(token)
    except BrokerClosedError:
        text = f"{_refused(credentials)}: it closed the connection, as brokers before 1.0 do"
        raise LoginError(f"{connection.address}: {text}") from None


def _refused(credentials: Credentials) -> str:
    who = f"{credentials.username!r} with {credentials.mechanism}"
    return f"it does not accept {who}, check upstream_sasl_username and upstream_sasl_password_file"


def _printable(text: str) -> str:
    """Return a text from a broker as one line of printable characters, at most `SAID_CHARS_MAX`."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= SAID_CHARS_MAX else f"{line[:SAID_CHARS_MAX]}..."


async def _scram(connection: OwnConnection, exchange: Exchange, credentials: Credentials) -> None:
    """Authenticate by SCRAM. Raises QuestionError; LoginError also if the broker does not prove that it knows
    the password.
    """
    from scramp import ScramClient, ScramException  # slow to import, and needed only for SCRAM

    client = ScramClient([credentials.mechanism], credentials.username, credentials.password)
    try:
        first = await exchange(client.get_client_first().encode())
        client.set_server_first(first.decode())
        # Thousands of rounds of hashing, so run in a thread; the broker chooses the number of rounds.
        final = await trio.to_thread.run_sync(client.get_client_final)
        client.set_server_final((await exchange(final.encode())).decode())
    except (
        ScramException,
        UnicodeDecodeError,
    ):  # its text may contain a broker's bytes, such as a proof
        text = (
            "its SCRAM answer is wrong: this is not the broker that knows the password, "
            "or the password has letters that SASLprep changes"
        )
        raise LoginError(f"{connection.address}: {text}") from None
