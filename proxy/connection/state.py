"""The states of a connection, and the table of its transitions.

A state says whether requests may be taken from the client, and if not, why. Responses go to the client in
every state but CLOSED. Brokers have the same states for their channels (KIP-219, `SocketServer` and
`KafkaChannel.ChannelMuteState`): SERIAL is MUTED_AND_RESPONSE_PENDING, THROTTLED is MUTED_AND_THROTTLED.

Beside the state, `Connection` keeps the time until which a throttle lasts (it may last through SERIAL), and
which side has closed its half.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """State of a connection: it says whether the client's next request may be taken, and which event it waits
    for.
    """

    OPEN = 0
    """Weir takes the client's next request at once."""
    THROTTLED = 1
    """The client's next request waits until a throttle time is over. A new connection is also THROTTLED while
    Weir holds its first request. As in every state, Weir reads the rest of a request that it has begun to
    forward.
    """
    SERIAL = 2
    """The client's next request waits for the previous request's response, which determines the
    previous request's cost.
    """
    AUTHENTICATING = 3
    """The client's next request waits for the broker's response in a SASL exchange, which may
    change the client's principal.
    """
    QUERYING = 4
    """The client's next request waits for the end of a query. The query waits for the broker, or
    for other work, such as a change of the quota store.
    """
    DRAINING = 5
    """Weir processes requests that it has begun to read, one at a time, and then closes the connection.
    Throttles delay these requests if the connection has reached its maximum age, but not if the process is
    ending.
    """
    CLOSED = 6
    """Weir takes no more requests, and closes the client's and the broker's socket."""


class Trigger(IntEnum):
    """Cause of a transition from one state to another."""

    THROTTLE = 0
    """A charge or a hold has set a time (ms) before which no request is taken."""
    RELEASE = 1
    """The throttle time is over, or the hold of a new connection's first request."""
    SERIAL_REQUEST = 2
    """A request was forwarded whose response must arrive before the next request is taken."""
    SASL_REQUEST = 3
    """A SASL message was forwarded to the broker."""
    QUERY = 4
    """A query has begun."""
    ANSWERED = 5
    """The last request in flight was answered."""
    DRAIN = 6
    """The process is being stopped, or the connection has reached its maximum age."""
    CLOSE = 7
    """A peer has closed its side or violated the protocol, or a drained connection has become idle."""


# Plain integers: they are compared, and used as indexes, for each request.
OPEN: Final = State.OPEN.value
THROTTLED: Final = State.THROTTLED.value
SERIAL: Final = State.SERIAL.value
AUTHENTICATING: Final = State.AUTHENTICATING.value
QUERYING: Final = State.QUERYING.value
DRAINING: Final = State.DRAINING.value
CLOSED: Final = State.CLOSED.value
THROTTLE: Final = Trigger.THROTTLE.value
RELEASE: Final = Trigger.RELEASE.value
SERIAL_REQUEST: Final = Trigger.SERIAL_REQUEST.value
SASL_REQUEST: Final = Trigger.SASL_REQUEST.value
ANSWERED: Final = Trigger.ANSWERED.value


def _row(
    throttle: State, release: State, serial: State, sasl: State, query: State, answered: State, state: State
) -> tuple[int, ...]:
    drained = state if state is State.CLOSED else State.DRAINING
    return tuple(map(int, (throttle, release, serial, sasl, query, answered, drained, State.CLOSED)))


_O, _T, _S, _A, _Q, _D, _C = State
NEXT: Final = (
    #    THROTTLE RELEASE SERIAL SASL QUERY ANSWERED
    _row(_T, _O, _S, _A, _Q, _O, _O),
    _row(_T, _O, _S, _A, _Q, _T, _T),
    _row(_S, _S, _S, _A, _Q, _T, _S),
    _row(_A, _A, _A, _A, _Q, _T, _A),
    _row(_Q, _Q, _Q, _Q, _Q, _T, _Q),
    _row(_D, _D, _D, _D, _D, _D, _D),
    _row(_C, _C, _C, _C, _C, _C, _C),
)
"""Table of the next state, by state and trigger. Its values are plain integers, because every request looks
one up.

In a state that waits for a response, ANSWERED leads to THROTTLED; if no throttle time remains, RELEASE
follows at once.
"""
