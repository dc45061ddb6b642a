"""Refusals of clients' bytes: conditions under which a request closes its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.framing import LENGTH, REQUEST_LENGTH_MIN
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.sasl.authentication import TOKEN_BYTES_MAX

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.plan import Plan

HTTP_METHODS: Final = frozenset(
    {b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI "}
)
"""First four bytes of HTTP/1 and HTTP/2 requests, by which the log names HTTP as the client's protocol."""

PROXY_HEADS: Final = frozenset({b"\r\n\r\n", b"PROX"})
"""First four bytes of headers of the PROXY protocol, versions 2 and 1. Weir reads such a header before the
connection begins, and only from load balancers in `proxy_protocol_from`.
"""


def check_cut(
    connection: Connection, plan: Plan, data: bytearray, frame: int, end: int, complete: bool
) -> None:
    """Close the connection if Weir needs more bytes for a decision but can get none: the request is
    complete, or its first fields fill the buffer.
    """
    if complete:
        close_malformed(connection, "the request ends within its first fields")
    elif end - frame >= connection.limits.stream_above_bytes:
        _check_held(connection, plan, data, frame)


def _check_held(connection: Connection, plan: Plan, data: bytearray, frame: int) -> None:
    """Close the connection if a request fills the buffer and may not be kept until all of it has arrived:
    its plan needs only the first fields, or the request is longer than `ConnectionLimits.held_bytes_max`.
    """
    (length,), held_bytes_max = LENGTH.unpack_from(data, frame), connection.limits.held_bytes_max
    if connection.client.before_login:
        held_bytes_max = min(held_bytes_max, TOKEN_BYTES_MAX)
    elif connection.client.is_broker:  # a full fetch names all of a follower's partitions
        held_bytes_max = connection.limits.frame_bytes_max
    if not plan.whole:
        close_malformed(connection, "the request's first fields fill the buffer")
    elif length > held_bytes_max:
        detail = f"a request of {length} bytes that Weir must read whole, limit {held_bytes_max}: split it"
        connection.violate(CloseReason.REQUEST_TOO_LARGE, detail)


def close_malformed(connection: Connection, detail: str) -> None:
    """Close the connection because of bytes that no broker could read."""
    connection.violate(CloseReason.REQUEST_MALFORMED, detail)


def check_length(connection: Connection, data: bytearray, position: int) -> None:
    """Close the connection if the length of a request is invalid whose head has not arrived: the head of
    a request that is too short never arrives.
    """
    (length,) = LENGTH.unpack_from(data, position)
    if not REQUEST_LENGTH_MIN <= length <= connection.limits.frame_bytes_max:
        refuse_length(connection, data, position, length)


def check_before_login(connection: Connection, length: int) -> None:
    """Close the connection if a client that has not logged in sends a request longer than a SASL token
    may be. A broker does so as well (`sasl.server.max.receive.size`), but does not see a request that
    waits.
    """
    if length > TOKEN_BYTES_MAX and connection.client.before_login:
        detail = f"a request of {length} bytes before the login, limit {TOKEN_BYTES_MAX}"
        connection.violate(CloseReason.REQUEST_TOO_LARGE, detail)


def refuse_length(connection: Connection, data: bytearray, position: int, length: int) -> None:
    """Close the connection because of an invalid request length. Such bytes mostly belong to another
    protocol than Kafka's: the log names TLS and HTTP.
    """
    violate, longest = connection.violate, connection.limits.frame_bytes_max
    if data[position] == 0x16 and data[position + 1] == 0x03:
        detail = "the client speaks TLS, this port does not: set security.protocol=PLAINTEXT there"
        violate(CloseReason.TLS_ON_PLAIN_PORT, detail)
    elif bytes(data[position : position + 4]) in HTTP_METHODS:
        detail = "an HTTP client; is it meant for the admin endpoint?"
        violate(CloseReason.REQUEST_TOO_LARGE, detail)
    elif bytes(data[position : position + 4]) in PROXY_HEADS:
        detail = "a PROXY header, of a load balancer that is not in proxy_protocol_from"
        violate(CloseReason.REQUEST_TOO_LARGE, detail)
    elif length < REQUEST_LENGTH_MIN:
        violate(CloseReason.REQUEST_TOO_SHORT, f"a request of {length} bytes")
    else:
        detail = f"a request of {length} bytes, limit {longest} (frame_bytes_max); is the client Kafka's?"
        violate(CloseReason.REQUEST_TOO_LARGE, detail)
