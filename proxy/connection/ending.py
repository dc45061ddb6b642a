"""Conditions that end a connection: a protocol violation, an end of file on either side, or a drain whose
last response was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.effects import ENDED, SENDING
from weir.proxy.connection.state import DRAINING, Trigger
from weir.proxy.connection.waits import NONE, broker_wait, client_wait

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

LINGER_MS: Final = 30_000
"""Time (ms) for which a client that has closed its half may wait for the broker without any progress of its
requests. Weir then closes the connection.
"""


class HalfClosed:
    """The progress of a client that has closed its half and still waits for responses."""

    __slots__ = ("_progress", "until_ms")

    def __init__(self) -> None:
        self._progress: tuple[int, ...] = ()
        """Numbers of requests in flight, of bytes received from the broker, of unread client bytes, and of
        unsent bytes, at the latest check. A change of these numbers shows progress.
        """
        self.until_ms = 0
        """Time (ms) at which the connection is closed, unless one of its requests makes progress earlier."""

    def note_progress(self, connection: Connection, now_ms: int) -> None:
        """Move `until_ms` if a request has made progress, or if bytes of the client are held."""
        client, broker = connection.client_end, connection.broker_end
        unsent_bytes = len(client.unsent) + len(broker.unsent)
        progress = (len(connection.in_flight), broker.received_bytes, len(client.kept), unsent_bytes)
        if progress != self._progress:
            self._progress, self.until_ms = progress, now_ms + LINGER_MS
        held_until_ms = broker.held_until_ms
        if client.kept or client.half != ENDED:  # what was held is still to be read when the wait ends
            held_until_ms = max(held_until_ms, connection.throttled_until_ms, client.held_until_ms)
        if held_until_ms > now_ms:
            self.until_ms = held_until_ms + LINGER_MS


def find_end(connection: Connection, now_ms: int) -> None:
    """Set the close reason in the connection's effects if the connection must close now."""
    client, broker = connection.client_end, connection.broker_end
    if connection.effects.close_reason is not None:  # a peer has violated the protocol
        return
    if client.half != SENDING and _lingers_no_more(connection, now_ms):
        unanswered = len(connection.in_flight)
        detail = f"{unanswered} requests unanswered" if unanswered else ""
        _over(connection, CloseReason.CLIENT_CLOSED, detail)
    elif client.unsent or broker.unsent:
        return
    elif broker.half == ENDED and not (broker.kept and broker_wait(connection, now_ms) != NONE):
        _over(connection, CloseReason.BROKER_CLOSED)
    elif connection.state == DRAINING and connection.idle and not client.kept:
        assert connection.drain_reason is not None
        _over(connection, connection.drain_reason)


def _over(connection: Connection, reason: CloseReason, detail: str = "") -> None:
    connection.transition(Trigger.CLOSE)
    connection.effects.close_reason, connection.effects.close_detail = reason, detail


def _lingers_no_more(connection: Connection, now_ms: int) -> bool:
    """Note the progress of a client that has closed its half. Return True if the connection can be closed:
    the client has received all its responses, or its requests have made no progress for `LINGER_MS`.

    Requests that were read but wait for a throttle are still forwarded when the throttle ends: acks=0 data
    must not be lost because the client has closed its half.
    """
    client, broker, lingering = connection.client_end, connection.broker_end, connection.lingering
    if lingering is None:
        lingering = connection.lingering = HalfClosed()
    lingering.note_progress(connection, now_ms)
    if not (connection.in_flight or broker.rest_bytes or client.unsent or broker.unsent):
        return client.half == ENDED and (not client.kept or client_wait(connection, now_ms) == NONE)
    return lingering.until_ms <= now_ms
