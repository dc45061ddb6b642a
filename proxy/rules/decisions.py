"""Decisions: what becomes of a request that is here, or enough of it to decide. A small closed set.

`Plan.admit` returns one, or WAIT for more bytes. Nearly all are constants: one per request would cost too
much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from proxy.rules.deferred import Deferred
from proxy.rules.errand import Errand

if TYPE_CHECKING:
    from proxy.rules.plan import Meter


class Forward(NamedTuple):
    """The request goes to the broker."""

    charged: bool = False
    """True if the plan's charges are made, to the connection's `payers`."""
    answered: bool = True
    """True if the broker will send a response (produce with acks=0: no)."""
    serial: bool = False
    """True if the client's next requests wait for the response: the cost is not known before (a broker takes
    each request so).
    """
    exempt: bool = False
    """True if its request time is not charged: brokers among themselves."""
    unread: bool = False
    """True if its body cannot be read: it goes to the broker as it came, and is counted."""
    meter: Meter | None = None
    """To be fed the rest of the request, and charged when all of it is here."""


class Hold(NamedTuple):
    """The request waits, and so do those behind it; then it is decided about again."""

    hold_ms: int


class Reply(NamedTuple):
    """Weir answers: a whole response frame. The request, which must be complete, is not forwarded."""

    frame: bytes


class Defer(NamedTuple):
    """Weir answers later. The request, which must be complete, is not forwarded."""

    deferred: Deferred


class Query(NamedTuple):
    """The broker is asked first, or instead. The request's client-id must be here."""

    errand: Errand
    again: bool = False
    """True if the errand returns None, and the request is then decided about again; else it must be complete.
    """


class Wait:
    """Not enough bytes of the frame are here yet: ask again with more."""

    __slots__ = ()


Decision: TypeAlias = Forward | Hold | Reply | Defer | Query

WAIT: Final = Wait()
PASS: Final = Forward()
