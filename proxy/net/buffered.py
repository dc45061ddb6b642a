"""Bytes that all relays of the process keep or have not sent yet: their sum, and its limit.

Above the limit, relays read nothing new: nothing from clients, and above a margin nothing from brokers
either, whose responses may have to wait for slow clients. Only the relay that holds most reads, because its
next bytes complete the frame that it keeps. When it has freed bytes, the largest is chosen anew, so relays
that make progress are all served. If the sum stays above the limit for `GRACE_MS`, the relays that
hold most are closed, first one, then two, then four, until it is below: no peer can stop the others for
longer. In the minute after that there is no such grace.
A client over its quota that has sent requests ahead holds their bytes too, and may be closed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from proxy.close_reasons import CloseReason

if TYPE_CHECKING:
    from proxy.net.reactor import Reactor, Timer

BYTES_MAX: Final = 512 * 1024 * 1024
"""Default of `buffered_bytes_max`: what 2,000 connections hold whose clients read nothing."""
GRACE_MS: Final = 2_000
"""Time (ms) for which the sum may stay above the limit before connections are closed."""
AGAIN_MS: Final = 50
"""Time (ms) after which more are closed."""
STRICT_MS: Final = 60_000
"""Time (ms) after connections were closed in which the next stop has no grace: similar clients take the place
of those that were closed.
"""
CLOSED_MAX: Final = 32
"""Number of connections that are closed at a time: a millisecond or two."""


class Holder(Protocol):
    """A relay, as this module sees it."""

    held_bytes: int
    """Number of bytes that it keeps or has not sent."""

    def slow_down(self) -> None:
        """Ask whether to read before each read, until the sum is below the limit."""

    def resume(self) -> None:
        """Read again, if reading was stopped."""

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Close both sockets."""


class BufferedBytes:
    """The sum over all relays of a process."""

    def __init__(self, reactor: Reactor) -> None:
        """Begin with no relays, and the default limit."""
        self.bytes = 0
        """Number of bytes that relays keep or have not sent."""
        self.full = False
        """True if nothing new is read: from the time when the sum exceeds the limit until it has fallen to
        seven eighths of the limit.
        """
        self.stops = 0
        """Number of times that reading has stopped."""
        self.relays: set[Holder] = set()
        self.grace_ms = GRACE_MS
        """Time (ms) after which relays are closed."""
        self.on_change: Callable[[], None] | None = None
        """Called when reading stops and when it goes on."""
        self._reactor = reactor
        self._stopped: set[Holder] = set()
        """Relays with a socket that is not read because of the limit."""
        self._largest: Holder | None = None
        self._timer: Timer | None = None
        self._lenient_from_ms = 0
        """Time (ms) from which a stop has its grace again."""
        self._closing = 1
        """Number of relays to close at the next look."""
        self.limit(BYTES_MAX)

    def limit(self, bytes_max: int) -> None:
        """Set the limit (bytes)."""
        self.bytes_max = bytes_max
        self._resume_bytes = bytes_max - bytes_max // 8
        self._brokers_bytes = bytes_max + bytes_max // 8

    def change(self, relay: Holder, change: int) -> None:
        """Add a relay's change to the sum. Called where bytes are kept, left unsent, or freed."""
        self.bytes += change
        if not self.full:
            if self.bytes > self.bytes_max:
                self._stop()
        elif self.bytes <= self._resume_bytes:
            self._go_on()
        elif change < 0 and relay is self._largest:
            self._largest = None
            self._reactor.later(self._choose)

    def leave(self, relay: Holder) -> None:
        """Forget a relay that has ended."""
        self.relays.discard(relay)
        self._stopped.discard(relay)
        held, relay.held_bytes = relay.held_bytes, 0
        if held:
            self.change(relay, -held)
        if relay is self._largest:
            self._largest = None

    def may_read(self, relay: Holder, *, client: bool) -> bool:
        """Return True if a relay may read from its client, or its broker. If not, it is called when it may
        (`Holder.resume`). Only asked while `full`.
        """
        if relay is self._largest or not (client or self.bytes > self._brokers_bytes):
            return True
        self._stopped.add(relay)
        return False

    def _stop(self) -> None:
        self.full = True
        self.stops += 1
        for relay in self.relays:
            relay.slow_down()
        now_ms, wait_ms = self._reactor.now_ms, AGAIN_MS
        if now_ms >= self._lenient_from_ms:
            self._closing, wait_ms = 1, self.grace_ms
        self._timer = self._reactor.call_at(now_ms + wait_ms, self._close_largest)
        self._reactor.later(self._choose)
        self._changed()

    def _go_on(self) -> None:
        self.full, self._largest = False, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stopped, self._stopped = self._stopped, set()
        for relay in stopped:
            self._reactor.later(relay.resume)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _close_largest(self) -> None:
        """Close the relays that hold most; come back soon to close more."""
        now_ms = self._reactor.now_ms
        self._timer = self._reactor.call_at(now_ms + AGAIN_MS, self._close_largest)
        self._lenient_from_ms = now_ms + STRICT_MS
        detail = f"it holds most of {self.bytes} bytes, limit {self.bytes_max} (buffered_bytes_max)"
        for relay in heapq.nlargest(self._closing, self.relays, key=_held):
            if self.full:
                relay.close(CloseReason.BUFFERED_BYTES, detail)
        self._closing = min(2 * self._closing, CLOSED_MAX)
        self._choose()

    def _choose(self) -> None:
        """Let the largest relay go on."""
        if self.full and self.relays:
            largest = max(self.relays, key=_held)
            if largest is not self._largest:
                self._largest = largest
                largest.resume()


def _held(relay: Holder) -> int:
    return relay.held_bytes
