"""Reasons why the sides of a connection wait. Asking for them changes nothing."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from weir.proxy.connection.client import TIMED_IN_FLIGHT_MAX
from weir.proxy.connection.state import AUTHENTICATING, CLOSED, DRAINING, OPEN, QUERYING, SERIAL, THROTTLED

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection


class SideWait(IntEnum):
    """Reason why no byte of one side of a connection is received now."""

    NONE = 0
    """Bytes of the side are received."""
    CLIENT_READS = 1
    """Bytes to the client are unsent: neither side is read until the client reads them, or leaves."""
    BROKER_READS = 2
    """Bytes to the broker are unsent: the client is not read until the broker reads them."""
    TURN = 3
    """The side has had its frames of this turn, or a query has paused: it goes on in the next turn."""
    REST_HELD = 4
    """The rest of a request is held until a time, because a topic in it is over its rate."""
    LISTENERS = 5
    """A response is held until a time, because its brokers have no listeners yet: the broker is not read."""
    IN_FLIGHT = 6
    """As many requests as permitted are in flight: the client is read after the next response."""
    THROTTLE = 7
    """A throttle time, or the hold of a first request, is not over: the client is read at its end."""
    COST = 8
    """The client's next request waits for the response to a request whose cost only the response shows."""
    LOGIN = 9
    """The client's next request waits for the broker's response in a SASL exchange."""
    QUERY = 10
    """The client's next request waits for the end of a query."""
    LAST_RESPONSES = 11
    """The connection drains: requests that were read are taken after the responses to those in flight."""
    DRAINED = 12
    """The connection drains, and no request was read: nothing is received again."""
    CLOSED = 13
    """The connection is closed."""


# Plain integers: they are compared each time that a connection settles.
NONE: Final = SideWait.NONE.value
CLIENT_READS: Final = SideWait.CLIENT_READS.value
BROKER_READS: Final = SideWait.BROKER_READS.value
TURN: Final = SideWait.TURN.value
REST_HELD: Final = SideWait.REST_HELD.value
LISTENERS: Final = SideWait.LISTENERS.value
IN_FLIGHT: Final = SideWait.IN_FLIGHT.value
THROTTLE: Final = SideWait.THROTTLE.value
LAST_RESPONSES: Final = SideWait.LAST_RESPONSES.value
DRAINED: Final = SideWait.DRAINED.value
_OF_STATE: Final = {
    SERIAL: SideWait.COST.value,
    AUTHENTICATING: SideWait.LOGIN.value,
    QUERYING: SideWait.QUERY.value,
    CLOSED: SideWait.CLOSED.value,
}
WHY: Final = (
    "",
    "the client does not read its responses",
    "the broker does not read its requests",
    "other connections have their turn",
    "a topic in the request that is arriving is over its rate",
    "brokers in a response have no listeners yet",
    "too many requests are in flight",
    "a throttle time is not over",
    "the response to a request in flight decides its cost",
    "a SASL exchange waits for the broker",
    "Weir waits for a response of the broker or of its own quota store",
    "the broker has not answered",
    "the process is being stopped, or the connection has reached its maximum age",
    "the connection is closed",
)
"""Reason of each wait as text for operators."""


def request_wait(connection: Connection, now_ms: int) -> int:
    """Return the wait of the client's next request, apart from those of bytes.

    A draining connection takes the requests whose first bytes were read before, because a request with acks=0
    has no acknowledgement that would make its client repeat it. It takes them one after another, because its
    state no longer tells which responses later requests must wait for.
    """
    state = connection.state
    if state == DRAINING:
        if connection.in_flight or connection.broker_end.rest_bytes:
            return LAST_RESPONSES
        if not connection.client_end.kept:
            return DRAINED
        return THROTTLE if connection.throttled_until_ms > now_ms else NONE
    if state == THROTTLED:
        if connection.throttled_until_ms > now_ms:
            return THROTTLE
    elif state != OPEN:
        return _OF_STATE[state]
    in_flight = len(connection.in_flight)
    if in_flight >= connection.limits.in_flight_max:
        return IN_FLIGHT
    if in_flight >= TIMED_IN_FLIGHT_MAX and in_flight >= connection.client.in_flight_max:  # mostly no call
        return IN_FLIGHT
    return NONE


def client_wait(connection: Connection, now_ms: int) -> int:
    """Return the reason why no byte of the client is received now."""
    if connection.client_end.unsent:
        return CLIENT_READS
    if connection.broker_end.unsent:
        return BROKER_READS
    if connection.client_turn_over:
        return TURN
    if connection.client_end.rest_bytes > 0:
        return REST_HELD if connection.client_end.held_until_ms > now_ms else NONE
    return request_wait(connection, now_ms)


def broker_wait(connection: Connection, now_ms: int) -> int:
    """Return the reason why no byte of the broker is received now."""
    if connection.client_end.unsent:
        return CLIENT_READS
    if connection.broker_turn_over:
        return TURN
    return LISTENERS if connection.broker_end.held_until_ms > now_ms else NONE


def waits_because(connection: Connection, now_ms: int) -> str:
    """Return the reason, as text for operators, why no request is taken from the client now; "" if one may be
    taken. If the client is read, return the reason why the broker is not.
    """
    if connection.state == CLOSED:
        return WHY[SideWait.CLOSED]
    client = connection.client_end
    wait = client_wait(connection, now_ms) or request_wait(connection, now_ms)
    if wait == THROTTLE and connection.throttled_by is not None:
        return f"a throttle time of {connection.throttled_by.value} is not over"
    if connection.state == DRAINING and wait in (NONE, DRAINED) and (client.kept or client.rest_bytes):
        return "a request has arrived in part"
    return WHY[wait or broker_wait(connection, now_ms)]
