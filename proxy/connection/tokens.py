"""Bare SASL tokens, and the end of exchanges whose tokens Weir cannot read.

After SaslHandshake v0 both sides send tokens without a Kafka header: a length (int32) and that number of
bytes. Requests follow on the same connection when the exchange is over. For mechanisms that Weir can read,
the broker's response shows the end of the exchange. The tokens of other mechanisms (GSSAPI) do not show the
end, and the last token may have no response. A client sends no request before the end, and a broker accepts
none. So the first frame that begins like a request is one, and shows the end; the client was accepted if the
broker has answered its tokens. GSSAPI tokens begin with the bytes 60 or 05 04 (RFC 1964, RFC 4121); requests
begin with an API key, whose first byte is 0.

With these mechanisms after SaslHandshake v1, the first request other than SaslAuthenticate, SaslHandshake and
ApiVersions shows the end.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_LENGTH_MIN
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.replies import expect_token
from weir.proxy.handlers.sasl.authentication import SASL_APIS, TOKEN_BYTES_MAX, settle, succeeded

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.sasl.exchange import SaslExchange

_LENGTH_AND_KEY: Final = Struct(">ih")
_HEAD_BYTES: Final = 4
"""Size of API key and version, which distinguish a request from a token."""


def from_client(connection: Connection, data: bytearray, position: int, end: int) -> int:
    """Process SASL tokens in `data[position:end]` from the client; return the position after the last token.

    Bytes behind that position are requests if the client no longer sends bare tokens; otherwise they are an
    incomplete token.
    """
    client, exchange = connection.client, connection.client.exchange
    assert exchange is not None
    while client.sends_sasl_tokens and connection.may_take(connection.now_ms):
        stop = _token(connection, exchange, data, position, end)
        if stop == position:
            break
        position = stop
    if exchange.in_progress and not exchange.raw and connection.may_take(connection.now_ms):
        _look_for_end(connection, exchange, data, position, end)
    return position


def from_broker(connection: Connection, data: bytearray, end: int) -> int:
    """Process bare tokens in `data[:end]` from the broker; return the position after the last
    complete token.
    """
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


def _token(connection: Connection, exchange: SaslExchange, data: bytearray, position: int, end: int) -> int:
    """Process one token from the client; return the position after it. Return `position` if the token is
    incomplete, too long, or a request instead.
    """
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
    """Return True if `data[start:]` begins like a request: with an API key and a version that are both below
    256.
    """
    return data[start] == 0 and data[start + 2] == 0


def _leave_raw(connection: Connection, exchange: SaslExchange) -> None:
    """Switch from bare tokens to requests: expect no further responses to tokens. If the mechanism shows
    success in the broker's response and no success was seen, treat the exchange as failed.
    """
    connection.in_flight.clear()
    exchange.raw = False
    connection.client.follow(exchange if exchange.hidden else None)


def _look_for_end(
    connection: Connection, exchange: SaslExchange, data: bytearray, position: int, end: int
) -> None:
    """Treat a hidden SASL exchange (one whose end Weir cannot read) as successful, if the client sends a
    request that a broker accepts only after success. ApiVersions is no such request, because a broker accepts
    it at any time.
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
