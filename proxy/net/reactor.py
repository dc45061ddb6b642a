"""The reactor: which sockets are ready, whose turn it is, what time it is. It knows no Kafka.

Sockets are registered with epoll once, level-triggered; a ready one is handled by a plain method call.
All share one receive buffer, so ten thousand idle connections hold no memory for reading. Timers are
one heap: its earliest deadline is the timeout of epoll.

The reactor does not wait by itself: `turn` handles what is ready now. Two thin drivers wait for it
(`proxy.net.drivers`): one hosts Trio as a guest, the other is a Trio task.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from proxy.connection.clock import Clock
from proxy.net.poll import READ, Poll

BUFFER_BYTES: Final = 256 * 1024
TIMERS_SWEPT_MIN: Final = 1024
"""With fewer timers than this, cancelled ones stay until their time has come."""

Ready: TypeAlias = Callable[[int], None]
"""Called with the events (`proxy.net.poll`) of a socket that is ready."""


class Timer:
    """A call at a time; `cancel` makes it a call that does not happen."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Forget the call; the heap drops its entry when its time has come."""
        self.call = None


class Reactor:
    """Sockets, timers, one buffer; one instance per process, used on one thread."""

    def __init__(self, clock_us: Callable[[], int], epoll: Poll | None = None) -> None:
        """`clock_us` returns monotonic microseconds: the time that sessions and quotas are given."""
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.clock = Clock(clock_us())
        """The time at which the present turn began."""
        self.now_ms = self.clock.now_us // 1000
        """The same in ms."""
        self.epoll = epoll or select.epoll()
        self._clock_us = clock_us
        self._ready: dict[int, Ready] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_at = TIMERS_SWEPT_MIN
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self.register(self._wake_receiver.fileno(), READ, self._woken)

    def register(self, fd: int, events: int, ready: Ready) -> None:
        """Call `ready(events)` whenever `fd` is ready for one of `events`."""
        self._ready[fd] = ready
        self.epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Change the events that `fd` waits for; none at all mutes it (a broken connection is reported even
        so).
        """
        self.epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Forget `fd`; must come before it is closed."""
        del self._ready[fd]
        self.epoll.unregister(fd)

    def call_at(self, deadline_ms: int, call: Callable[[], None]) -> Timer:
        """Make `call` once the clock has reached `deadline_ms`."""
        timers = self._timers
        if len(timers) >= self._sweep_at:  # a cancelled throttle may have weeks to go
            timers[:] = [entry for entry in timers if entry[2].call is not None]
            heapq.heapify(timers)
            self._sweep_at = max(2 * len(timers), TIMERS_SWEPT_MIN)
        timer = Timer(call)
        heapq.heappush(timers, (deadline_ms, next(self._order), timer))
        return timer

    def timeout_s(self) -> float | None:
        """Return how long a driver may wait for sockets: until the next timer, None if there is none."""
        timers = self._timers
        if not timers:
            return None
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return max(timers[0][0] - self._clock_us() // 1000, 0) / 1000 if timers else None

    def turn(self, wait_s: float | None) -> None:
        """Wait at most `wait_s` (None: until something is ready), then handle all that is ready and due."""
        events = self.epoll.poll(wait_s)
        self.clock.now_us = now_us = self._clock_us()
        self.now_ms = now_us // 1000
        ready = self._ready
        for fd, what in events:
            handle = ready.get(fd)
            if handle is not None:  # closed by one of the calls before it
                handle(what)
        if self._timers:
            self._run_timers()

    def wake(self) -> None:
        """Make the present or next wait end at once; may be called from any thread."""
        with suppress(BlockingIOError):  # a full pipe wakes just as well
            self._wake_sender.send(b"\0")

    def close(self) -> None:
        """Release the reactor's own descriptors; sockets registered by others are theirs to close."""
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
        newer = next(self._order)  # what these calls add waits until the sockets have had their turn
        while timers and timers[0][0] <= self.now_ms and timers[0][1] < newer:
            call = heapq.heappop(timers)[2].call
            if call is not None:
                call()
