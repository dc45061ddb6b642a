"""Decisions about a request, as soon as enough of its bytes have arrived. A small closed set.

`Plan.admit` returns a decision, or WAIT for more bytes. Most decisions are constants: creating one per
request would cost too much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from proxy.handlers.broker_query import BrokerQuery

if TYPE_CHECKING:
    from proxy.handlers.plan import ByteCounter


class Forward:
    """Forward the request to the broker. Instances are shared, so never change one."""

    __slots__ = ("answered", "byte_counter", "charged", "exempt", "sasl", "serial", "unread")

    def __init__(
        self,
        *,
        charged: bool = False,
        answered: bool = True,
        serial: bool = False,
        exempt: bool = False,
        unread: bool = False,
        sasl: bool = False,
        byte_counter: ByteCounter | None = None,
    ) -> None:
        """Forward without charges by default."""
        self.charged = charged
        """True if the plan's charges are made to the client's ledger."""
        self.answered = answered
        """True if the broker will send a response (not for produce with acks=0)."""
        self.serial = serial
        """True if the client's next requests wait for the response, because the cost is not known before. (A
        broker handles every request so.)
        """
        self.exempt = exempt
        """True if request time is not charged (requests between brokers)."""
        self.unread = unread
        """True if Weir cannot read the body: the request is forwarded unchanged, and counted."""
        self.sasl = sasl
        """True if the request is part of a SASL exchange, which may change the client's principal."""
        self.byte_counter = byte_counter
        """Counter for the bytes of the request that arrive later; charged when the request is complete."""

    def but(
        self,
        *,
        charged: bool | None = None,
        unread: bool | None = None,
        byte_counter: ByteCounter | None = None,
    ) -> Forward:
        """Return the same decision with these changes; the byte counter is always replaced."""
        return Forward(
            charged=self.charged if charged is None else charged,
            answered=self.answered,
            serial=self.serial,
            exempt=self.exempt,
            unread=self.unread if unread is None else unread,
            sasl=self.sasl,
            byte_counter=byte_counter,
        )


class Hold:
    """Hold this request and those behind it, then decide again."""

    __slots__ = ("hold_ms",)

    def __init__(self, hold_ms: int) -> None:
        """Wait for this long (ms)."""
        self.hold_ms = hold_ms


class Reply:
    """Answer with a whole response frame. The request must be complete; it is not forwarded."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        """Send this frame when its turn comes."""
        self.frame = frame


class Deferred:
    """A response that another thread or a store prepares. Call `answer` once, on the reactor's thread.

    The response keeps its place in the order of responses. Until it is ready, no request of the client is
    taken.
    """

    __slots__ = ("_arrived", "frame")

    def __init__(self) -> None:
        """Begin without a response."""
        self.frame: bytes | None = None
        """The whole response frame; None until it is ready."""
        self._arrived: Callable[[], None] | None = None

    def on_arrival(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` when the response is ready, so that the connection sends it."""
        self._arrived = arrived

    def answer(self, frame: bytes) -> None:
        """Set the response frame. Has no effect on a connection that has closed."""
        self.frame = frame
        if self._arrived is not None:
            self._arrived()


class Defer:
    """Answer later. The request must be complete; it is not forwarded."""

    __slots__ = ("deferred",)

    def __init__(self, deferred: Deferred) -> None:
        """Send the deferred response when it is ready."""
        self.deferred = deferred


class Query:
    """Ask the broker before, or instead of, forwarding. The request's client-id must have arrived."""

    __slots__ = ("again", "query")

    def __init__(self, query: BrokerQuery, *, again: bool = False) -> None:
        """Run `query`."""
        self.query = query
        self.again = again
        """True if the query returns None, and the request is then decided about again; else the request must
        be complete.
        """


class Wait:
    """Wait for more bytes of the frame, then decide again."""

    __slots__ = ()


Decision: TypeAlias = Forward | Hold | Reply | Defer | Query

WAIT: Final = Wait()
FORWARD: Final = Forward()
