"""The response in progress: what was done with the response that arrives from the broker, as a table of
states.

A connection has one such record, because responses arrive one after another.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from weir.proxy.connection.transitions import IMPOSSIBLE
from weir.proxy.handlers.plan import ByteCounter, StreamRewrite  # fields' types: mypyc wants them at run time


class ResponseState(IntEnum):
    """State of the response in progress: it says what was charged, and what happens to the next bytes."""

    AWAITED = 0
    """The first fields of a response have not arrived: nothing was charged or forwarded."""
    BEGUN = 1
    """The charges were made, and nothing was forwarded: a field must arrive, or the response waits for
    the next turn.
    """
    PASSING = 2
    """The first part was forwarded and the rest is forwarded unseen."""
    IN_PARTS = 3
    """The first part was forwarded, and the rest is counted by topic or rewritten as it
    arrives.
    """
    EMPTYING = 4
    """The records are removed as they arrive, because the client is over its quota. The
    response is charged, told the throttle time and sent when all of it has arrived.
    """


class ResponseTrigger(IntEnum):
    """Cause of a transition of the response in progress."""

    BEGIN = 0
    """The request's time and the response's bytes were charged, and the throttle time that it tells is known.
    """
    EMPTY = 1
    """Charges of other connections have put the client over its quota."""
    FORWARD = 2
    """The first part was forwarded, and nobody needs to see the rest."""
    PART = 3
    """The first part was forwarded, and the rest must be seen."""
    END = 4
    """The last byte was forwarded, or the whole response was sent."""


# Plain integers: they are compared for each response that is charged.
AWAITED: Final = ResponseState.AWAITED.value
BEGUN: Final = ResponseState.BEGUN.value
PASSING: Final = ResponseState.PASSING.value
IN_PARTS: Final = ResponseState.IN_PARTS.value
EMPTYING: Final = ResponseState.EMPTYING.value
BEGIN: Final = ResponseTrigger.BEGIN.value
EMPTY: Final = ResponseTrigger.EMPTY.value
FORWARD: Final = ResponseTrigger.FORWARD.value
PART: Final = ResponseTrigger.PART.value
END: Final = ResponseTrigger.END.value

_NO: Final = IMPOSSIBLE
NEXT_OF_RESPONSE: Final = (
    # BEGIN EMPTY    FORWARD     PART      END
    (BEGUN, EMPTYING, PASSING, IN_PARTS, AWAITED),
    (_NO, _NO, PASSING, IN_PARTS, AWAITED),
    (_NO, _NO, _NO, _NO, AWAITED),
    (_NO, _NO, _NO, _NO, AWAITED),
    (_NO, _NO, _NO, _NO, AWAITED),
)
"""Table of the next state, by state and trigger."""


class ResponseInProgress:
    """The response that arrives from the broker. The record is used again for each response."""

    __slots__ = (
        "byte_counter",
        "counted_bytes",
        "report_ms",
        "rewriter",
        "state",
    )

    def __init__(self) -> None:
        self.state = AWAITED
        self.report_ms = 0
        """Throttle time (ms) that the response must tell; 0 for none. It is known once the response is
        charged.
        """
        self.byte_counter: ByteCounter | None = None
        """Counter of the response's bytes, per topic or per throttled replica; None if they are not counted.
        """
        self.counted_bytes = 0
        """Number of the next bytes of the body that were counted in earlier turns and are not forwarded yet.
        """
        self.rewriter: StreamRewrite | None = None
        """Rewriter of a response in parts; None if no rewrite is needed. While the response is EMPTYING, an
        `EmptiedResponse`.
        """

    def begin_rest(self) -> None:
        """Note that the first part was forwarded, and that bytes of the response are still to come."""
        trigger = FORWARD if self.rewriter is None and self.byte_counter is None else PART
        self.state = NEXT_OF_RESPONSE[self.state][trigger]

    def end(self) -> None:
        """Be ready for the next response."""
        self.state = NEXT_OF_RESPONSE[self.state][END]
        self.report_ms = self.counted_bytes = 0
        self.rewriter = self.byte_counter = None

    def cut(self, now_ms: int) -> None:
        """Charge the bytes that were counted and forwarded, because the connection has closed."""
        if self.byte_counter is not None:
            self.byte_counter.cut(now_ms)
        self.end()  # a counter or a rewriter may refer to the connection: a cycle
