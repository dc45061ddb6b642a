"""Conditions that end a connection: a protocol violation, an end of file on either side, or a drain whose
last response was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.state import DRAINING, Trigger
from weir.proxy.connection.waits import NONE, broker_wait, client_wait

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

LINGER_MS: Final = 30_000
"""Time (ms) for which a client that has closed its half may wait for the broker without any progress of its
requests. Weir then closes the connection.
"""


def find_end(connection: Connection, now_ms: int) -> None:
    """Set the close reason in the connection's effects if the connection must close now."""
    client, broker = connection.client_end, connection.broker_end
    if connection.violation is not None:
        _over(connection, connection.violation.reason, connection.violation.detail)
    elif (client.eof or client.left) and _nothing_left(connection, now_ms):
        unanswered = len(connection.in_flight)
        detail = f"{unanswered} requests unanswered" if unanswered else ""
        _over(connection, CloseReason.CLIENT_CLOSED, detail)
    elif client.unsent or broker.unsent:
        return
    elif broker.eof and not (broker.kept and broker_wait(connection, now_ms) != NONE):
        _over(connection, CloseReason.BROKER_CLOSED)
    elif connection.state == DRAINING and connection.idle and not client.kept:
        assert connection.drain_reason is not None
        _over(connection, connection.drain_reason)


def _over(connection: Connection, reason: CloseReason, detail: str = "") -> None:
    connection.transition(Trigger.CLOSE)
    connection.effects.close_reason, connection.effects.close_detail = reason, detail


def _nothing_left(connection: Connection, now_ms: int) -> bool:
    """Return True if the connection of a client that has closed its half can be closed: the client has
    received all its responses, or its requests have made no progress for `LINGER_MS`.

    Requests that were read but wait for a throttle are still forwarded when the throttle ends: acks=0 data
    must not be lost because the client has closed its half.
    """
    client, in_flight = connection.client_end, len(connection.in_flight)
    unsent_bytes = len(client.unsent) + len(connection.broker_end.unsent)
    left = (in_flight, connection.broker_end.received_bytes, len(client.kept), unsent_bytes)
    if left != connection.left:
        connection.left, connection.linger_until_ms = left, now_ms + LINGER_MS
    if not (in_flight or connection.broker_end.rest_bytes or unsent_bytes):
        return client.eof and (not client.kept or client_wait(connection, now_ms) == NONE)
    more = bool(client.kept) or not client.eof
    waits_until_ms = max(connection.throttled_until_ms, connection.rest_held_until_ms)
    waits = connection.held_until_ms > now_ms or (more and waits_until_ms > now_ms)
    if waits:  # what was held is still to be read when the wait ends
        connection.linger_until_ms = max(connection.held_until_ms, waits_until_ms) + LINGER_MS
    return connection.linger_until_ms <= now_ms and not waits
