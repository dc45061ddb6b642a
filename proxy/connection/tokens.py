"""Bare SASL tokens, and where a mechanism that shows nothing ends.

After SaslHandshake v0 both sides send tokens without a Kafka head, a length and that many bytes, until the
exchange is over; then requests follow on the same connection. Of the mechanisms that Weir can read, the
broker's answer says when that is. Of the others (GSSAPI) it cannot be seen, and their last token may have no
answer. But a client does not send requests before, and a broker takes none: what begins as a request of Kafka
does is one, and the client was accepted if the broker has answered its tokens. GSSAPI's tokens begin with the
bytes 60 or 05 04 (RFC 1964, RFC 4121), requests with those of an API key, the first of which is 0.

The same goes for such mechanisms after SaslHandshake v1, when their answers do not show the end: the first
request but SaslAuthenticate, SaslHandshake and ApiVersions shows it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.api import ApiKey
from protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_LENGTH_MIN
from proxy.close_reasons import CloseReason
from proxy.connection.replies import expect_token
from proxy.handlers.sasl.authentication import SASL_APIS, settle, succeeded

if TYPE_CHECKING:
    from proxy.connection.connection import Connection
    from proxy.handlers.sasl.exchange import Exchange

TOKEN_BYTES_MAX: Final = 512 * 1024
"""Kafka's sasl.server.max.receive.size."""
_LENGTH_AND_KEY: Final = Struct(">ih")
_HEAD_BYTES: Final = 4
"""API key and version: what tells a request from a token."""


def from_client(connection: Connection, data: bytearray, position: int, end: int) -> int:
    """Follow SASL tokens in `data[position:end]` from the client; return the position after the last one.

    Bytes from there on are requests, unless the client still sends bare tokens: then more bytes are needed.
    """
    client, exchange = connection.client, connection.client.exchange
    assert exchange is not None
    while client.sends_sasl_tokens and connection.may_take(connection.now_ms):
        stop = _token(connection, exchange, data, position, end)
        if stop == position:
            break
        position = stop
    if client.sasl_in_progress and not client.sends_sasl_tokens and connection.may_take(connection.now_ms):
        _look_for_end(connection, exchange, data, position, end)
    return position


def from_broker(connection: Connection, data: bytearray, end: int) -> int:
    """Follow bare tokens in `data[:end]` from the broker; return where they end, or one does that is cut."""
    exchange, position = connection.client.exchange, 0
    assert exchange is not None
    while connection.client.sends_sasl_tokens and end - position >= LENGTH_BYTES:
        (length,) = LENGTH.unpack_from(data, position)
        if not connection.in_flight:
            connection.violate(CloseReason.RESPONSE_UNEXPECTED, f"{length} bytes that answer no SASL token")
            break
        if not 0 <= length <= TOKEN_BYTES_MAX:
            connection.violate(CloseReason.RESPONSE_LENGTH_WRONG, f"a SASL token of {length} bytes")
            break
        start, stop = position + LENGTH_BYTES, position + LENGTH_BYTES + length
        if stop > end:
            break
        connection.in_flight.popleft()
        if connection.client.usage is not None:
            connection.client.usage.token(connection.client.user, answer=stop - position)
        settle(connection, exchange, exchange.answer(0, bytes(data[start:stop])))
        position = stop
    return position


def _token(connection: Connection, exchange: Exchange, data: bytearray, position: int, end: int) -> int:
    """Take one token from the client; return where it ends: where it began if it is cut, or none."""
    if end - position < LENGTH_BYTES:
        return position
    (length,) = LENGTH.unpack_from(data, position)
    start = position + LENGTH_BYTES
    stop: int = start + length
    if exchange.begun and length >= REQUEST_LENGTH_MIN:
        if end - start < _HEAD_BYTES:
            return position
        if _is_request(data, start):
            _leave_raw(connection, exchange)
            return position
    if not 0 <= length <= TOKEN_BYTES_MAX:
        _refuse(connection, length)
        return position
    if stop > end:
        return position
    exchange.token(bytes(data[start:stop]))
    if connection.client.usage is not None:
        connection.client.usage.token(connection.client.user, request=stop - position)
    expect_token(connection, serial=not (exchange.hidden and exchange.answers))
    return stop


def _is_request(data: bytearray, start: int) -> bool:
    """Whether an API key and a version begin here: both are below 256."""
    return data[start] == 0 and data[start + 2] == 0


def _leave_raw(connection: Connection, exchange: Exchange) -> None:
    """The client goes on with requests: no token is answered any more.

    Of an exchange whose end can be seen, and was not, nothing is believed.
    """
    connection.in_flight.clear()
    exchange.raw = False
    connection.client.follow(exchange if exchange.hidden else None)


def _look_for_end(
    connection: Connection, exchange: Exchange, data: bytearray, position: int, end: int
) -> None:
    """Believe in a hidden exchange's success at the first request that a broker takes only after it.

    It may come right behind ApiVersions, for which it does not matter who asks.
    """
    while exchange.answers and end - position >= _LENGTH_AND_KEY.size:
        length, api_key = _LENGTH_AND_KEY.unpack_from(data, position)
        if length < REQUEST_LENGTH_MIN or api_key in SASL_APIS:
            return
        if api_key != ApiKey.API_VERSIONS:
            succeeded(connection, exchange)
            return
        position += LENGTH_BYTES + length


def _refuse(connection: Connection, length: int) -> None:
    if length < 0:
        connection.violate(CloseReason.REQUEST_MALFORMED, f"a SASL token of {length} bytes")
    else:
        detail = f"a SASL token of {length} bytes, limit {TOKEN_BYTES_MAX} (sasl.server.max.receive.size)"
        connection.violate(CloseReason.REQUEST_TOO_LARGE, detail)
