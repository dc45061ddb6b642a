"""The reactor: ready sockets, timers, the clock. Knows no Kafka.

Sockets are registered with epoll once, level-triggered; a ready socket is handled by a plain method call. All
sockets share one receive buffer, so ten thousand idle connections need no memory for reading. Timers are one
heap: the earliest deadline is the timeout of epoll.

A turn is short, so that a client that keeps Weir busy delays the others by milliseconds. It handles ready
sockets, at most `EVENTS_MAX`, until `TURN_US` have passed, and each handler does a bounded amount of work;
the next turn begins with the ready sockets that are left. Work left for later (`later`) and timers get the
rest of `TURN_US`. Sockets without leftovers thus go first.

A callback that raises ends at worst its own connection. Every callback is guarded here: its exception goes to
the handler that was registered with it, and is reported (`on_error`).

The reactor does not wait by itself: `turn` handles everything that is ready now. Two drivers wait for it
(`proxy.net.drivers`): one hosts Trio as a guest, the other is a Trio task.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import structlog

from proxy.connection.effects import Clock
from proxy.net.buffered import BufferedBytes
from proxy.net.poll import READ, Poll

log = structlog.get_logger("weir")

BUFFER_BYTES: Final = 256 * 1024
EVENTS_MAX: Final = 16
"""Number of ready sockets that a turn handles; the kernel reports the others first in the next turn."""
TURN_US: Final = 2_000
"""Time (µs) after which a turn begins no ready socket, no timer and no leftover work, but for one of each."""
CHECKED_EVERY: Final = 8
"""Number of timers between two readings of the clock."""
INTERNAL_ERROR: Final = "internal error, the connection is closed; please report this"
TIMERS_SWEPT_MIN: Final = 1024
"""With fewer timers, cancelled ones stay in the heap until their deadline."""

TURN_BOUNDS_US: Final = (1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000)
"""Bounds (µs) of the histogram of lengths of turns."""

Ready: TypeAlias = Callable[[int], None]
"""Called with the events (`proxy.net.poll`) of a ready socket."""
Failed: TypeAlias = Callable[[Exception], None]
"""Called with the exception of a callback, to end its connection."""


class Timer:
    """A call at a deadline, unless cancelled."""

    __slots__ = ("call", "failed")

    def __init__(self, call: Callable[[], None], failed: Failed | None = None) -> None:
        self.call: Callable[[], None] | None = call
        self.failed = failed

    def cancel(self) -> None:
        """Cancel the call; the heap drops its entry at the deadline."""
        self.call = self.failed = None


class Turns:
    """Numbers and lengths of the reactor's turns; waiting for sockets is not part of a turn."""

    __slots__ = ("busy_us", "longer", "longest_us", "number", "within")

    def __init__(self) -> None:
        """Begin without any."""
        self.number = 0
        self.busy_us = 0
        """Sum of the lengths (µs)."""
        self.longest_us = 0
        """Length (µs) of the longest turn, 0 while none was longer than a millisecond."""
        self.longer = 0
        """Number of turns longer than a millisecond."""
        self.within = [0] * len(TURN_BOUNDS_US)
        """Their numbers, by the smallest of `TURN_BOUNDS_US` that they are within."""

    def note(self, length_us: int) -> None:
        """Count a turn of this length (µs)."""
        self.number += 1
        self.busy_us += length_us
        if length_us > TURN_BOUNDS_US[0]:
            self._note_slow(length_us)

    def _note_slow(self, length_us: int) -> None:
        self.longer += 1
        self.longest_us = max(self.longest_us, length_us)
        bound = bisect_left(TURN_BOUNDS_US, length_us)
        if bound < len(TURN_BOUNDS_US):
            self.within[bound] += 1


class Reactor:
    """Sockets, timers, one buffer; one instance per process, used on one thread."""

    def __init__(self, clock_us: Callable[[], int], epoll: Poll | None = None) -> None:
        """`clock_us` returns monotonic microseconds, the time base of connections and quotas."""
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.clock = Clock(clock_us())
        """The time at which the current turn began."""
        self.now_ms = self.clock.now_us // 1000
        """The same in ms."""
        self.epoll = epoll or select.epoll()
        self.on_error: Failed = log_error
        """Counts and logs an exception of a callback."""
        self._clock_us = clock_us
        self._ready: dict[int, Ready] = {}
        self._left: list[tuple[int, int]] = []
        """Ready sockets (descriptor, events) that the latest turn had no time for."""
        self._later: deque[tuple[Callable[[], None], Failed | None]] = deque()
        self.turns = Turns()
        """Numbers and lengths of turns."""
        self._failures: dict[int, Failed] = {}
        """By descriptor: the handlers of exceptions."""
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_at = TIMERS_SWEPT_MIN
        self.buffered = BufferedBytes(self)
        """Bytes that the relays keep or have not sent."""
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self.register(self._wake_receiver.fileno(), READ, self._woken)

    def register(self, fd: int, events: int, ready: Ready, failed: Failed | None = None) -> None:
        """Call `ready(events)` whenever `fd` is ready for one of `events`; `failed`, if that raises."""
        self._ready[fd] = ready
        if failed is not None:
            self._failures[fd] = failed
        self.epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Change the events that `fd` is watched for; none mutes it (a broken connection is still
        reported).
        """
        self.epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Stop watching `fd`; call this before closing it."""
        del self._ready[fd]
        if self._left:  # the number may soon be another socket's
            self._left = [event for event in self._left if event[0] != fd]
        self._failures.pop(fd, None)
        self.epoll.unregister(fd)

    def call_at(self, deadline_ms: int, call: Callable[[], None], failed: Failed | None = None) -> Timer:
        """Call `call` once the clock has reached `deadline_ms`; `failed`, if that raises."""
        timers = self._timers
        if len(timers) >= self._sweep_at:  # a cancelled throttle may have weeks left
            timers[:] = [entry for entry in timers if entry[2].call is not None]
            heapq.heapify(timers)
            self._sweep_at = max(2 * len(timers), TIMERS_SWEPT_MIN)
        timer = Timer(call, failed)
        heapq.heappush(timers, (deadline_ms, next(self._order), timer))
        return timer

    def later(self, call: Callable[[], None], failed: Failed | None = None) -> None:
        """Call `call` once, in the next turn that has time left after its ready sockets and timers; `failed`
        if it raises.
        """
        self._later.append((call, failed))

    def timeout_s(self) -> float | None:
        """Return how long (s) a driver may wait for sockets: until the next timer; None without timers."""
        if self._later or self._left:
            return 0
        timers = self._timers
        if not timers:
            return None
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return max(timers[0][0] - self._clock_us() // 1000, 0) / 1000 if timers else None

    def turn(self, wait_s: float | None) -> None:
        """Wait at most `wait_s` (None: until a socket is ready), then handle ready sockets and due timers."""
        events = self._left or self.epoll.poll(wait_s, EVENTS_MAX)
        self.clock.now_us = now_us = self._clock_us()
        self.now_ms = now_us // 1000
        ready, left = self._ready, len(events)
        for fd, what in events:
            left -= 1
            handle = ready.get(fd)
            if handle is not None:  # an earlier call may have closed it
                try:
                    handle(what)
                except Exception as error:  # noqa: BLE001  # a bug must not affect other connections
                    self._socket_failed(fd, handle, error)
            if left and self._is_over():
                break
        self._left = [event for event in events[-left:] if event[0] in ready] if left else []
        if self._timers:
            self._run_timers()
        if self._later:
            self._run_later()
        self.turns.note(self._clock_us() - now_us)

    def run(self, call: Callable[[], None], failed: Failed | None) -> None:
        """Call `call` now, guarded like a callback; for calls into connections from outside of a turn."""
        try:
            call()
        except Exception as error:  # noqa: BLE001  # as in `turn`
            self._failed(failed, error)

    def wake(self) -> None:
        """Make the current or next wait end at once; may be called from any thread."""
        with suppress(BlockingIOError):  # a full pipe wakes too
            self._wake_sender.send(b"\0")

    def close(self) -> None:
        """Release the reactor's own descriptors; registered sockets stay open."""
        self.unregister(self._wake_receiver.fileno())
        self._wake_receiver.close()
        self._wake_sender.close()
        self.epoll.close()

    def _woken(self, _events: int) -> None:
        with suppress(BlockingIOError):
            self._wake_receiver.recv(4096)

    def _run_timers(self) -> None:
        timers = self._timers
        if timers[0][0] > self.now_ms:
            return
        newer = next(self._order)  # calls added by these run after the sockets' turn
        ran = 0
        while timers and timers[0][0] <= self.now_ms and timers[0][1] < newer:
            timer = heapq.heappop(timers)[2]
            if timer.call is not None:
                self.run(timer.call, timer.failed)
                ran += 1
                if ran % CHECKED_EVERY == 0 and self._is_over():
                    return

    def _run_later(self) -> None:
        """Run the leftovers of earlier turns, the oldest first, at least one, until the turn is over."""
        for _ in range(len(self._later)):  # those of this turn wait for the next one
            call, failed = self._later.popleft()
            self.run(call, failed)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        return self._clock_us() - self.clock.now_us >= TURN_US

    def _socket_failed(self, fd: int, handle: Ready, error: Exception) -> None:
        """End the connection of a socket, unless it has ended already."""
        failed = self._failures.get(fd) if self._ready.get(fd) is handle else None
        self._failed(failed, error)
        if failed is not None and self._ready.get(fd) is handle:  # else each turn would fail again
            self.unregister(fd)

    def _failed(self, failed: Failed | None, error: Exception) -> None:
        """Report an exception, then have its connection ended; that may fail too."""
        with suppress(Exception):
            self.on_error(error)
        if failed is not None:
            try:
                failed(error)
            except Exception as another:  # noqa: BLE001  # as in `turn`
                self._failed(None, another)


def log_error(error: Exception) -> None:
    """Log an exception of a callback."""
    log.error(INTERNAL_ERROR, exc_info=error)
