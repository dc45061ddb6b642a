"""The states of a connection, and the one table of its transitions.

A state says whether requests may be taken from the client, and if not, why. Responses go to the client in
every state but CLOSED. A broker's channel has the same states (KIP-219, `SocketServer` and
`KafkaChannel.ChannelMuteState`): SERIAL is MUTED_AND_RESPONSE_PENDING, THROTTLED is MUTED_AND_THROTTLED.

What a state does not hold is beside it in `Connection`: the time until which a throttle lasts, which goes on
while the connection is SERIAL, and which side has closed its half.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """What a connection waits for before it takes the client's next request."""

    OPEN = 0
    """Nothing."""
    THROTTLED = 1
    """The end of a throttle time, or of the hold of a new connection's first request."""
    SERIAL = 2
    """The response of a request whose cost only the response tells."""
    AUTHENTICATING = 3
    """The broker's answer in a SASL exchange: it may change the client's principal."""
    QUERYING = 4
    """The broker's answer to a query of Weir's own, or a response that Weir itself prepares."""
    DRAINING = 5
    """Nothing any more: requests under way are answered, then the connection closes."""
    CLOSED = 6


class Event(IntEnum):
    """What moves a connection from one state to another."""

    THROTTLE = 0
    """A charge, or a hold, set a time before which no request is taken."""
    RELEASE = 1
    """That time has come."""
    SERIAL_REQUEST = 2
    """A request went to the broker whose response must come before the next request."""
    SASL_REQUEST = 3
    """A SASL message went to the broker."""
    QUERY = 4
    """A query went to the broker, or a response is being prepared."""
    ANSWERED = 5
    """No request waits for its response any more."""
    DRAIN = 6
    """The process is being stopped."""
    CLOSE = 7
    """A peer has closed or broken the protocol, or nothing is left to do."""


# Plain integers, for they are compared, and are indexes, per request.
OPEN: Final = State.OPEN.value
THROTTLED: Final = State.THROTTLED.value
SERIAL: Final = State.SERIAL.value
QUERYING: Final = State.QUERYING.value
DRAINING: Final = State.DRAINING.value
THROTTLE: Final = Event.THROTTLE.value
RELEASE: Final = Event.RELEASE.value
SERIAL_REQUEST: Final = Event.SERIAL_REQUEST.value
SASL_REQUEST: Final = Event.SASL_REQUEST.value
ANSWERED: Final = Event.ANSWERED.value


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
"""The next state, by state and event: plain integers, for they are looked up per request. A connection that
was answered is THROTTLED until its throttle time is over, which it may be already: RELEASE follows at once.
"""
WHY: Final = (
    "",
    "a throttle time is not over",
    "the cost of a request under way is known from its response",
    "a SASL exchange waits for the broker",
    "Weir waits for an answer of the broker or of its own quota store",
    "the process is being stopped",
    "it is closed",
)
"""Why a connection takes no request, by state, for operators."""


def table() -> str:
    """Return the transitions as a Markdown table: a row per state, a column per event."""
    head = ["state", *(event.name for event in Event)]
    rows = [[state.name, *(_cell(state, NEXT[state][event]) for event in Event)] for state in State]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _cell(state: State, found: int) -> str:
    return "·" if found == state else State(found).name


def diagram() -> str:
    """Return the transitions as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> OPEN"]
    for state in State:
        targets: dict[State, list[str]] = {}
        for event in Event:
            if NEXT[state][event] != state:
                targets.setdefault(State(NEXT[state][event]), []).append(event.name)
        lines += [f"    {state.name} --> {target.name}: {', '.join(why)}" for target, why in targets.items()]
    return "\n".join([*lines, "    CLOSED --> [*]"])
