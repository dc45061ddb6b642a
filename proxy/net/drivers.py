"""The two ways to drive a reactor: as the host of Trio's loop, or as a Trio task.

A worker hosts Trio: an idle Trio costs nothing, and a ready socket costs one poll and one call. A Trio task
per wake-up costs two to three times the CPU (docs/background/architecture.md). Tests under MockClock, and
programs that embed Weir, run the reactor in a Trio task.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import outcome
import trio

from weir.proxy.net.reactor import Reactor

T = TypeVar("T")


_monotonic_ns: Final = time.monotonic_ns


def monotonic_us() -> int:
    """Return the time (µs) on the monotonic clock."""
    return _monotonic_ns() // 1000


def monotonic_ms() -> int:
    """Return the time (ms) on the monotonic clock."""
    return _monotonic_ns() // 1_000_000


def trio_us() -> int:
    """Return the time (µs) on Trio's clock, which tests may have replaced."""
    return int(trio.current_time() * 1_000_000)


def run_hosting_trio(reactor: Reactor, main: Callable[[], Awaitable[T]]) -> T:
    """Run the coroutine function `main` with Trio as a guest of the reactor's loop, until it returns. Return
    its result, or raise its exception.
    """
    calls: deque[Callable[[], object]] = deque()
    ended: list[outcome.Outcome[T]] = []

    def soon_from_thread(call: Callable[[], object]) -> None:
        calls.append(call)
        reactor.wake()

    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=soon_from_thread,
        run_sync_soon_not_threadsafe=calls.append,
        done_callback=ended.append,
    )
    while not ended:
        if calls:
            for _ in range(len(calls)):  # calls that these calls add run after the sockets' turn
                calls.popleft()()
            if ended:
                break
        reactor.turn(0 if calls else reactor.timeout_s())
    return ended[0].unwrap()


async def run_in_trio(reactor: Reactor) -> None:
    """Run the reactor from the current Trio task, until cancelled."""
    while True:
        timeout_s = reactor.timeout_s()
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            await trio.lowlevel.wait_readable(reactor.epoll.fileno())
        reactor.turn(0)
