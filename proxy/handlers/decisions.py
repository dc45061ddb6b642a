"""Decisions about a request: forward it, hold it, reply to it, run a query first or instead, or wait for more
bytes.

A decision is made as soon as enough bytes of the request have arrived: `Plan.admit` returns a decision, or
WAIT for more bytes. Most decisions are constants, because creating an object for each request would cost too
much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from weir.proxy.handlers.broker_query import BrokerQuery

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import ByteCounter, RequestByteCounter


class Forward:
    """Decision to forward the request to the broker. Connections share the instances, so do not change an
    instance.
    """

    __slots__ = (
        "answered",
        "byte_counter",
        "charged",
        "counted_to",
        "exempt",
        "frame",
        "response_counter",
        "sasl",
        "serial",
        "throttle_ms",
        "unread",
    )

    def __init__(
        self,
        *,
        charged: bool = False,
        answered: bool = True,
        serial: bool = False,
        exempt: bool = False,
        unread: bool = False,
        sasl: bool = False,
        throttle_ms: int = 0,
        byte_counter: RequestByteCounter | None = None,
        counted_to: int = 0,
        frame: bytes | None = None,
        response_counter: ByteCounter | None = None,
    ) -> None:
        """Create a decision to forward a request; by default no bytes are charged."""
        self.charged = charged
        """True if a function of the plan charges the request or its response to the client's quotas."""
        self.answered = answered
        """True if the broker will send a response; False for produce with acks=0."""
        self.serial = serial
        """True if the client's next requests must wait for the response to this request, because the response
        decides the request's cost. (A broker handles all requests of a connection one after another.)
        """
        self.exempt = exempt
        """True if request time is not charged, as for requests between brokers."""
        self.unread = unread
        """True if Weir cannot read the body: the request is forwarded unchanged, and counted."""
        self.sasl = sasl
        """True if the request is part of a SASL exchange, which may change the client's principal."""
        self.throttle_ms = throttle_ms
        """Throttle time (ms) of the client that its response tells, because the client is over a quota on
        fetches; 0 for none.
        """
        self.byte_counter = byte_counter
        """Counter of the bytes of the request; the bytes are charged when the request is complete. None if no
        bytes are to be counted.
        """
        self.counted_to = counted_to
        """Position up to which the byte counter has counted, if the other bytes that have arrived wait for
        the next turn of the reactor; else 0.
        """
        self.frame = frame
        """Frame to forward instead of the client's, which must be complete; None to forward the client's."""
        self.response_counter = response_counter
        """Counter of the bytes of the response; None if the plan's functions decide about that."""

    def but(
        self,
        *,
        charged: bool | None = None,
        unread: bool | None = None,
        byte_counter: RequestByteCounter | None = None,
        counted_to: int = 0,
        response_counter: ByteCounter | None = None,
    ) -> Forward:
        """Return a copy of this decision in which the given attributes are changed. The byte counters
        are replaced in any case; without new ones, the copy has none.
        """
        return Forward(
            charged=self.charged if charged is None else charged,
            answered=self.answered,
            serial=self.serial,
            exempt=self.exempt,
            unread=self.unread if unread is None else unread,
            sasl=self.sasl,
            throttle_ms=self.throttle_ms,
            byte_counter=byte_counter,
            counted_to=counted_to,
            response_counter=response_counter,
        )


class Hold:
    """Decision to hold this request, and the client's requests behind it, for a time. Then the connection
    decides about the request again.
    """

    __slots__ = ("first", "hold_ms")

    def __init__(self, hold_ms: int, *, first: bool = True) -> None:
        """Create a decision to hold a request for `hold_ms` (ms)."""
        self.hold_ms = hold_ms
        self.first = first
        """True if a throttle that other connections of the client have caused holds the connection's first
        request of a kind. The configured maximum applies to these holds, and they count as throttles.
        """


class Reply:
    """Decision that Weir answers the request itself with a whole response frame. The request must be
    complete, and is not forwarded.
    """

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        """Create a decision to reply with `frame`, which is sent after the responses to earlier requests."""
        self.frame = frame


class Query:
    """Decision to ask the broker, or to wait for work elsewhere, before the request is forwarded, or instead
    of forwarding it. The request's client-id must have arrived.
    """

    __slots__ = ("again", "query")

    def __init__(self, query: BrokerQuery, *, again: bool = False) -> None:
        """Create a decision to run `query`."""
        self.query = query
        self.again = again
        """True if the query only prepares a decision and returns None: Weir then decides about the request
        again. False if the query returns the response; the request must then be complete.
        """


class Wait:
    """Decision to wait for more bytes of the request. The connection asks for a decision again when more
    bytes have arrived.
    """

    __slots__ = ()


Decision: TypeAlias = Forward | Hold | Reply | Query

WAIT: Final = Wait()
FORWARD: Final = Forward()
