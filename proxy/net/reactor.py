"""The reactor: ready sockets, timers, the clock. Knows no Kafka.

Sockets are registered with epoll once, level-triggered; a ready socket is handled by a plain method call. All
sockets share one receive buffer, so ten thousand idle connections need no memory for reading. Timers are one
heap: the earliest deadline is the timeout of epoll.

A turn (one pass of the loop) is short, so that a client that keeps Weir busy delays the others by
milliseconds. A turn handles ready sockets, at most `EVENTS_MAX`, until `TURN_US` have passed, and each
handler does a bounded amount of work. The next turn begins with the ready sockets that are left. The
remaining time of `TURN_US` goes to timers and to work left by earlier turns (`later`). So sockets without
such work go first.

A callback that raises ends at most its own connection. Every callback is guarded here: its exception is
reported (`on_error`), and passed to the handler that was registered with the callback.

If more than `EVENTS_MAX` sockets are ready, the poll reports them in several turns, a *round*. If the sockets
of a round and the calls left by earlier turns are together more than `BUSY_SOCKETS`, a connection may handle
fewer frames in a turn (`BUSY_FRAMES`) and read fewer bytes (`BUSY_BYTES`). Then the round is short,
connections with many frames wait in `later`, and a connection with few frames waits only for the others with
few frames.

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

from weir.proxy.connection.effects import TURN_FRAMES, Clock
from weir.proxy.net.buffered import BufferedBytes
from weir.proxy.net.latency import Latencies
from weir.proxy.net.poll import READ, Poll
from weir.proxy.net.splicing import Splicer

log = structlog.get_logger("weir")

BUFFER_BYTES: Final = 256 * 1024
EVENTS_MAX: Final = 16
"""Maximum number of ready sockets that a turn (pass of the reactor's loop) handles. The kernel reports the
other ready sockets first in the next turn.
"""
TURN_US: Final = 2_000
"""Time (µs) that a turn (one pass of the reactor's loop) may take. After this time the turn calls no more
sockets; of the due timers and the calls left by earlier turns, it still runs a few.
"""
BUSY_SOCKETS: Final = 64
"""Number of waiting sockets and calls above which the reactor limits the work for one connection in a turn
(one pass of its loop), to `BUSY_FRAMES` and `BUSY_BYTES`.
"""
BUSY_FRAMES: Final = 4
"""Maximum number of Kafka frames that a connection may handle in a turn while more than `BUSY_SOCKETS` wait.
A smaller number would cost more CPU for each frame.
"""
BUSY_BYTES: Final = 64 * 1024
"""Maximum number of bytes of one read while more than `BUSY_SOCKETS` wait. The bytes behind the frames that a
connection may handle in a turn are kept and copied, so larger reads would cost more copying.
"""
CHECKED_EVERY: Final = 8
"""Number of timers that are called between two readings of the clock."""
INTERNAL_ERROR: Final = "internal error, the connection is closed; please report this"
TIMERS_SWEPT_MIN: Final = 1024
"""Number of timers below which cancelled ones stay in the heap until their deadline."""

TURN_BOUNDS_US: Final = (1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000)
"""Upper bounds (µs) of the buckets in the histogram of the durations of turns (passes of the reactor's loop).
"""

Ready: TypeAlias = Callable[[int], None]
"""Function to call with the events (`proxy.net.poll`) of a ready socket."""
Failed: TypeAlias = Callable[[Exception], None]
"""Function to call with the exception of a callback, to end the callback's connection."""


class Timer:
    """A call at a deadline, which can be cancelled."""

    __slots__ = ("call", "failed")

    def __init__(self, call: Callable[[], None], failed: Failed | None = None) -> None:
        self.call: Callable[[], None] | None = call
        self.failed = failed

    def cancel(self) -> None:
        """Cancel the call. The heap drops the timer at its deadline."""
        self.call = self.failed = None


class Turns:
    """Statistics of the reactor's turns (passes of its loop): their number and durations. A turn's duration
    does not include the time of waiting for sockets.
    """

    __slots__ = ("busy_us", "longer", "longest_us", "number", "within")

    def __init__(self) -> None:
        self.number = 0
        self.busy_us = 0
        """Sum of the lengths (µs) of all turns."""
        self.longest_us = 0
        """Length (µs) of the longest turn; 0 as long as no turn has taken more than a millisecond."""
        self.longer = 0
        """Number of turns longer than a millisecond."""
        self.within = [0] * len(TURN_BOUNDS_US)
        """Number of turns longer than a millisecond, by bucket: a turn counts for the smallest bound in
        `TURN_BOUNDS_US` that it does not exceed. Turns longer than all bounds are not in this list.
        """

    def note_slow(self, length_us: int) -> None:
        """Note a turn of `length_us` (µs), more than a millisecond."""
        self.longer += 1
        self.longest_us = max(self.longest_us, length_us)
        bound = bisect_left(TURN_BOUNDS_US, length_us)
        if bound < len(TURN_BOUNDS_US):
            self.within[bound] += 1


class Reactor:
    """Sockets, timers, and one receive buffer; one instance per process, used on one thread."""

    def __init__(self, clock_us: Callable[[], int], epoll: Poll | None = None) -> None:
        """Begin without sockets. `clock_us` returns the monotonic time (µs) that connections and
        quotas use.
        """
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.clock = Clock(clock_us())
        """Clock that all connections share: the time (µs) at which the current pass of the loop began."""
        self.latencies = Latencies()
        """Durations of a sample of the requests of all connections: forwarding, and the broker's answer."""
        self.now_ms = self.clock.now_us // 1000
        """Time (ms) at which the current turn (pass of the reactor's loop) began."""
        self.epoll = epoll or select.epoll()
        self.read_bytes_max = 0
        """Maximum number of bytes of a read; 0 for the size of the buffer."""
        self._round: set[int] = set()
        """Descriptors of the sockets that the poll has reported in the present round. If more than
        `EVENTS_MAX` sockets are ready, the poll reports them in several turns: a round, which ends when its
        first socket is reported again.
        """
        self._round_sockets = 0
        """Number of ready sockets in the latest round (turns until a socket is reported again) that has
        ended; 0 if one turn handles all ready sockets.
        """
        self.on_error: Failed = log_error
        """Function that counts and logs an exception of a callback."""
        self.on_turn: list[Callable[[], None]] = []
        """Functions to call at the beginning of the next turn, once: something happens, after a wait."""
        self._clock_us = clock_us
        self._ready: dict[int, Ready] = {}
        self._left: list[tuple[int, int]] = []
        """Ready sockets (descriptor, events) that the latest turn did not handle, because its time
        (`TURN_US`) was over.
        """
        self._later: deque[tuple[Callable[[], None], Failed | None]] = deque()
        self.turns = Turns()
        """Statistics of the turns: their number and lengths."""
        self._failures: dict[int, Failed] = {}
        """Functions to call with an exception of a socket's callback, by the socket's descriptor."""
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_at = TIMERS_SWEPT_MIN
        self.splicer = Splicer()
        """Moves bytes between sockets within the kernel."""
        self.buffered = BufferedBytes(self)
        """Number of bytes that the relays keep or have not sent, and its limit."""
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self.register(self._wake_receiver.fileno(), READ, self._woken)

    def register(self, fd: int, events: int, ready: Ready, failed: Failed | None = None) -> None:
        """Call `ready(events)` whenever `fd` is ready for one of `events`; call `failed` if that raises."""
        self._ready[fd] = ready
        if failed is not None:
            self._failures[fd] = failed
        self.epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Change the events for which the descriptor `fd` is watched. With no events, only a broken
        connection is reported.
        """
        self.epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Stop watching `fd`. Call this before closing `fd`."""
        del self._ready[fd]
        if self._left:  # the number may soon be another socket's
            self._left = [event for event in self._left if event[0] != fd]
        self._failures.pop(fd, None)
        self.epoll.unregister(fd)

    def call_at(self, deadline_ms: int, call: Callable[[], None], failed: Failed | None = None) -> Timer:
        """Call `call` once the clock has reached `deadline_ms`; call `failed` if that raises. Return the
        timer, which can be cancelled.
        """
        timers = self._timers
        if len(timers) >= self._sweep_at:  # a cancelled throttle may have weeks left
            timers[:] = [entry for entry in timers if entry[2].call is not None]
            heapq.heapify(timers)
            self._sweep_at = max(2 * len(timers), TIMERS_SWEPT_MIN)
        timer = Timer(call, failed)
        heapq.heappush(timers, (deadline_ms, next(self._order), timer))
        return timer

    def later(self, call: Callable[[], None], failed: Failed | None = None) -> None:
        """Call `call` once, in a later turn, after the turn's ready sockets and timers; call `failed` if that
        raises.
        """
        self._later.append((call, failed))

    def timeout_s(self) -> float | None:
        """Return the time (s) for which a driver may wait for sockets: 0 if work is left, else the time until
        the next timer; None if there are no timers.
        """
        if self._later or self._left:
            return 0
        timers = self._timers
        if not timers:
            return None
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return max(timers[0][0] - self._clock_us() // 1000, 0) / 1000 if timers else None

    def turn(self, wait_s: float | None) -> None:
        """Wait until a socket is ready, for at most `wait_s` (None: without limit). Then handle ready
        sockets, due timers, and calls left by earlier turns, for about `TURN_US`.
        """
        # To poll for 3 to 20 µs more before the thread sleeps costs up to twice the CPU (tried 2026-11-27).
        events = self._left or self.epoll.poll(wait_s, EVENTS_MAX)
        if len(events) == EVENTS_MAX or self._round or self.read_bytes_max:
            self._share_turn(events)
        self.clock.now_us = now_us = self._clock_us()  # `set_clock` without its call
        self.now_ms = now_us // 1000
        self.clock.turn += 1
        self.clock.scanned = 0
        waiting = len(self._later)  # calls that are added in this turn wait for the next one
        if self.on_turn:
            calls, self.on_turn = self.on_turn, []
            for call in calls:
                self.run(call, None)
        ready, left = self._ready, len(events)
        for fd, what in events:
            left -= 1
            handle = ready.get(fd)
            if handle is not None:  # an earlier call may have closed the socket
                try:
                    handle(what)
                except Exception as error:  # noqa: BLE001  # a bug must not affect other connections
                    self._socket_failed(fd, handle, error)
            if left and self._is_over():
                break
        self._left = [event for event in events[-left:] if event[0] in ready] if left else []
        if self._timers:
            self._run_timers()
        if waiting:
            self._run_later(waiting)
        turns, length_us = self.turns, self._clock_us() - now_us
        turns.number += 1
        turns.busy_us += length_us
        if length_us > TURN_BOUNDS_US[0]:
            turns.note_slow(length_us)

    def _share_turn(self, events: list[tuple[int, int]]) -> None:
        """Count the sockets of a round (turns until a socket is reported again). If more than `BUSY_SOCKETS`
        wait, limit the frames and bytes that each connection may handle in a turn.
        """
        if events is not self._left:
            if len(events) < EVENTS_MAX:
                self._round_sockets = 0
                self._round.clear()
            elif events[0][0] in self._round:
                self._round_sockets = len(self._round)
                self._round.clear()
            self._round.update(fd for fd, _ in events if len(events) == EVENTS_MAX)
        busy = max(self._round_sockets, len(self._round)) + len(self._later) > BUSY_SOCKETS
        self.clock.frames_max = BUSY_FRAMES if busy else TURN_FRAMES
        self.read_bytes_max = BUSY_BYTES if busy else 0

    def set_clock(self) -> int:
        """Set the time that connections see to the present time (µs), and return it. A turn does so at its
        beginning; outside of a turn that time may be old, because the latest turn may have waited for long.
        """
        self.clock.now_us = now_us = self._clock_us()
        self.now_ms = now_us // 1000
        return now_us

    def present_us(self) -> int:
        """Return the time (µs) now; `clock` has the time at which the present turn began."""
        return self._clock_us()

    def run(self, call: Callable[[], None], failed: Failed | None) -> None:
        """Run `call` now. If it raises, report the exception and call `failed`. For calls into connections
        from outside of a turn.
        """
        try:
            call()
        except Exception as error:  # noqa: BLE001  # as in `turn`
            self._failed(failed, error)

    def wake(self) -> None:
        """Make the present or next wait end at once. Callable from any thread."""
        with suppress(BlockingIOError):  # a full pipe wakes too
            self._wake_sender.send(b"\0")

    def close(self) -> None:
        """Close the reactor's own descriptors; registered sockets stay open."""
        self.unregister(self._wake_receiver.fileno())
        self.splicer.close()
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
        newer = next(self._order)  # timers that these calls add run after the sockets' turn
        ran = 0
        while timers and timers[0][0] <= self.now_ms and timers[0][1] < newer:
            timer = heapq.heappop(timers)[2]
            if timer.call is not None:
                self.run(timer.call, timer.failed)
                ran += 1
                if ran % CHECKED_EVERY == 0 and self._is_over():
                    return

    def _run_later(self, count: int) -> None:
        """Run the oldest `count` calls given to `later`, until the time of the turn is over; at least one
        call.
        """
        for _ in range(count):
            call, failed = self._later.popleft()
            self.run(call, failed)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        return self._clock_us() - self.clock.now_us >= TURN_US

    def _socket_failed(self, fd: int, handle: Ready, error: Exception) -> None:
        """Report an exception of a socket's callback, and end the socket's connection unless it has ended
        already.
        """
        failed = self._failures.get(fd) if self._ready.get(fd) is handle else None
        self._failed(failed, error)
        if failed is not None and self._ready.get(fd) is handle:  # else each turn would fail again
            self.unregister(fd)

    def _failed(self, failed: Failed | None, error: Exception) -> None:
        """Report a callback's exception, then call the handler that ends the callback's connection. An
        exception of that handler is reported too.
        """
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
