"""Limits of a connection's life: maximum age, time until the login.

Nothing here runs per request: `reached_limit` is called for each connection every few seconds, and reads only
numbers that are kept anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from weir.proxy.close_reasons import CloseReason  # a return type: mypyc wants it at run time
from weir.proxy.connection.state import CLOSED, DRAINING, OPEN

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

JITTER: Final = 0.1
"""Largest deviation of a connection's maximum age from the configured one, as a share of it. Clients that
connect at the same moment, such as after a restart, come back spread over a fifth of the age.
"""
_GOLDEN: Final = 0.618033988749895
"""Multiples of the golden ratio, without their whole parts, fill the interval 0 to 1 evenly: the ages of
connections that are opened one after the other differ most.
"""


class LifetimeLimits(NamedTuple):
    """Limits (ms) that all connections share; 0 for no limit."""

    age_ms: int = 0
    """Age at which a connection is drained, before the jitter."""
    login_ms: int = 0
    """Time in which a client must have logged in or, if its listener needs no login, have sent a request."""


def reached_limit(
    connection: Connection, opened_ms: int, number: int, limits: LifetimeLimits, now_ms: int
) -> CloseReason | None:
    """Return the limit that a connection has reached; None if it has reached none, or is closed. The
    connection was opened at the time `opened_ms`. `number`, such as the number of connections before, seeds
    the jitter of the maximum age.
    """
    if connection.state == CLOSED:
        return None
    if limits.login_ms and now_ms - opened_ms >= limits.login_ms and not _is_login_done(connection):
        return CloseReason.LOGIN_TIMEOUT
    if connection.state == DRAINING:
        return None
    age_share = 1 - JITTER + 2 * JITTER * (number * _GOLDEN % 1)
    if limits.age_ms and now_ms - opened_ms >= limits.age_ms * age_share:
        return CloseReason.CONNECTION_AGE
    return None


def _is_login_done(connection: Connection) -> bool:
    """Return True if the client has logged in or, where no login is needed, has sent a request."""
    client = connection.client
    if client.authenticated or client.exchange is not None or client.before_login:
        return client.authenticated
    taken = connection.client_end.received_bytes > len(connection.client_end.kept)
    return taken or bool(connection.in_flight) or connection.state != OPEN
