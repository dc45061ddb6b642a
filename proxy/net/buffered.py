"""The number of bytes that all relays of the process keep or have not sent yet, and its limit.

Above the limit, relays stop reading: from clients, and above a margin also from brokers, whose responses may
have to wait for slow clients. Only the relay that holds most bytes reads, because its next bytes complete the
frame that it keeps. When it has freed bytes, the largest relay is chosen again, so all relays that make
progress are served. If the number stays above the limit for `GRACE_MS`, the relays that hold most are closed,
first one, then two, then four, until the number is below the limit. So no peer can stop the others for
longer. In the minute after a close, there is no such grace. A client over its quota that has sent requests
ahead holds their bytes too, and may be closed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from weir.proxy.close_reasons import CloseReason

if TYPE_CHECKING:
    from weir.proxy.net.reactor import Reactor, Timer

BYTES_MAX: Final = 512 * 1024 * 1024
"""Default (bytes) of `buffered_bytes_max`: the bytes that 2,000 connections hold whose clients
read nothing.
"""
GRACE_MS: Final = 2_000
"""Time (ms) for which the number of bytes may stay above the limit before relays are closed."""
AGAIN_MS: Final = 50
"""Time (ms) between two closes, as long as the number of bytes is above the limit."""
STRICT_MS: Final = 60_000
"""Time (ms) after relays were closed because of the limit, in which relays are closed at once when the limit
is exceeded, without waiting for `GRACE_MS`: clients similar to the closed ones may take their place.
"""
CLOSED_MAX: Final = 32
"""Maximum number of relays that are closed at a time, which takes a millisecond or two."""


class Holder(Protocol):
    """The fields and methods of a relay that this module uses."""

    held_bytes: int
    """Number of bytes that the relay keeps or has not sent."""

    def slow_down(self) -> None:
        """Call `BufferedBytes.may_read` before each read from a socket, as long as `BufferedBytes.full` is
        True.
        """

    def resume(self) -> None:
        """Read from both sockets again, if reading was stopped because of the limit."""

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Close the client's and the broker's socket."""


class BufferedBytes:
    """The number of bytes that all relays of a process hold."""

    def __init__(self, reactor: Reactor) -> None:
        self.bytes = 0
        """Number of bytes that all relays together keep or have not sent."""
        self.full = False
        """True if relays may not read: from the time when `bytes` exceeds the limit until `bytes` has fallen
        to seven eighths of the limit.
        """
        self.stops = 0
        """Number of times that reading has stopped because of the limit."""
        self.relays: set[Holder] = set()
        self.grace_ms = GRACE_MS
        """Time (ms) for which the number of bytes may stay above the limit before relays are closed."""
        self.on_change: Callable[[], None] | None = None
        """Function to call when reading stops and when it continues; None for no call."""
        self._reactor = reactor
        self._stopped: set[Holder] = set()
        """Relays that do not read from a socket because of the limit."""
        self._largest: Holder | None = None
        self._timer: Timer | None = None
        self._lenient_from_ms = 0
        """Time (ms) from which `grace_ms` applies again: a minute after the latest close of a relay because
        of the limit.
        """
        self._closing = 1
        """Number of relays that the next close because of the limit will end."""
        self.limit(BYTES_MAX)

    def limit(self, bytes_max: int) -> None:
        """Set the maximum number of bytes that all relays together may keep or leave unsent."""
        self.bytes_max = bytes_max
        self._resume_bytes = bytes_max - bytes_max // 8
        self._brokers_bytes = bytes_max + bytes_max // 8

    def change(self, relay: Holder, change: int) -> None:
        """Add the change of one relay's bytes to the sum of all relays. The relay calls this where it keeps
        bytes, leaves bytes unsent, or frees bytes.
        """
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
        """Remove a relay that has ended, and subtract its bytes from the sum."""
        self.relays.discard(relay)
        self._stopped.discard(relay)
        held, relay.held_bytes = relay.held_bytes, 0
        if held:
            self.change(relay, -held)
        if relay is self._largest:
            self._largest = None

    def may_read(self, relay: Holder, *, client: bool) -> bool:
        """Return True if the relay may read from its client, or with `client` False from its broker. If it
        may not, its `resume` is called later. Call this only while `full` is True.
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
        """Close the relays that hold most bytes, and start the timer for closing more."""
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
        """Let the relay that holds most bytes read."""
        if self.full and self.relays:
            largest = max(self.relays, key=_held)
            if largest is not self._largest:
                self._largest = largest
                largest.resume()


def _held(relay: Holder) -> int:
    return relay.held_bytes
