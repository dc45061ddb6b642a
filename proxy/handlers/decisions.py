"""Decisions: what becomes of a request that is here, or enough of it to decide. A small closed set.

`Plan.admit` returns one, or WAIT for more bytes. Nearly all are constants: one per request would cost too
much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from proxy.handlers.broker_query import BrokerQuery
from proxy.handlers.deferred import Deferred

if TYPE_CHECKING:
    from proxy.handlers.plan import ByteCounter


class Forward:
    """The request goes to the broker. Nearly all are constants: nobody changes one."""

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
        """Forward it, and do no more, unless told otherwise."""
        self.charged = charged
        """True if the plan's charges are made, to the client's budgets."""
        self.answered = answered
        """True if the broker will send a response (produce with acks=0: no)."""
        self.serial = serial
        """True if the client's next requests wait for the response: the cost is not known before (a broker
        takes each request so).
        """
        self.exempt = exempt
        """True if its request time is not charged: brokers among themselves."""
        self.unread = unread
        """True if its body cannot be read: it goes to the broker as it came, and is counted."""
        self.sasl = sasl
        """True if it is part of a SASL exchange, which may change the client's principal."""
        self.byte_counter = byte_counter
        """To be fed the rest of the request, and charged when all of it is here."""

    def but(
        self,
        *,
        charged: bool | None = None,
        unread: bool | None = None,
        byte_counter: ByteCounter | None = None,
    ) -> Forward:
        """Return the same decision with these changes; the byte_counter is replaced in any case."""
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
    """The request waits, and so do those behind it; then it is decided about again."""

    __slots__ = ("hold_ms",)

    def __init__(self, hold_ms: int) -> None:
        """Wait for this long (ms)."""
        self.hold_ms = hold_ms


class Reply:
    """Weir answers: a whole response frame. The request, which must be complete, is not forwarded."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        """Send this frame when its turn has come."""
        self.frame = frame


class Defer:
    """Weir answers later. The request, which must be complete, is not forwarded."""

    __slots__ = ("deferred",)

    def __init__(self, deferred: Deferred) -> None:
        """Send this response once it is there."""
        self.deferred = deferred


class Query:
    """The broker is asked first, or instead. The request's client-id must be here."""

    __slots__ = ("again", "query")

    def __init__(self, query: BrokerQuery, *, again: bool = False) -> None:
        """Ask what `query` asks."""
        self.query = query
        self.again = again
        """True if the query returns None, and the request is then decided about again; else it must be
        complete.
        """


class Wait:
    """Not enough bytes of the frame are here yet: ask again with more."""

    __slots__ = ()


Decision: TypeAlias = Forward | Hold | Reply | Defer | Query

WAIT: Final = Wait()
FORWARD: Final = Forward()
