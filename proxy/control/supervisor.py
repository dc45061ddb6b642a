"""Restart Weir's own tasks after failures: a bug in one of them ends neither the process nor a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import structlog
import trio

from weir.proxy.counters import Counters
from weir.proxy.logs import Note
from weir.proxy.net.reactor import INTERNAL_ERROR

if TYPE_CHECKING:
    from weir.proxy.net.reactor import Reactor, Timer

log = structlog.get_logger("weir")

T = TypeVar("T")

WAIT_S_MIN: Final = 1.0
WAIT_S_MAX: Final = 60.0


class Task(StrEnum):
    """Weir's own tasks, which the supervisor restarts. The values are their names in logs and metrics."""

    ACCEPT = "accept"
    ADMIN = "admin"
    BROKERS = "brokers"
    CONFIGURATION = "configuration"
    EVENTS = "events"
    EXPIRY = "expiry"
    LIFETIMES = "lifetimes"
    LOG = "log"
    QUOTA_STORE = "quota_store"
    REACTOR = "reactor"
    """Name for callbacks of the reactor (sockets and timers) that have raised an exception. The reactor goes
    on after a failure: at most the callback's connection ends.
    """
    REPLICATION = "replication"
    SHARING = "sharing"
    SNAPSHOTS = "snapshots"
    STATE = "state"
    TAKEOVER = "takeover"
    THROTTLE_LOG = "throttle_log"
    TLS_FILES = "tls_files"
    USAGE = "usage"
    WORKERS = "workers"


Works: TypeAlias = Callable[[], None]
"""Function that a task calls after each success; the supervisor then logs that the task works again."""
Work: TypeAlias = Callable[[Works], Awaitable[None]]
"""Coroutine function that runs a task until cancelled. It gets a `Works` to call after each success."""


class Supervisor:
    """Restarts tasks after failures; logs and counts the failures."""

    def __init__(self, counters: Counters, note: Note) -> None:
        """Begin with no failures; `note` is `RateLimitedLog.note`."""
        self._counters = counters
        self._log = note

    async def keep_running(self, task: Task, work: Work) -> None:
        """Await `work` until it returns. After an exception, pause and start it again.

        The pause grows with successive failures. It is short again once the work has run for `WAIT_S_MAX`.
        """
        failures, wait_s = 0, WAIT_S_MIN

        def works() -> None:
            nonlocal failures
            if failures:
                log.info("task works again", task=task, failures=failures)
                failures = 0

        while True:
            began_s = trio.current_time()
            try:
                await work(works)
            except Exception as error:  # noqa: BLE001  # a bug of Weir's, or of a library
                if trio.current_time() - began_s >= WAIT_S_MAX:
                    wait_s = WAIT_S_MIN
                failures += 1
                self._note(task, error, wait_s)
            else:
                return
            await trio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    def note_callback(self, error: Exception) -> None:
        """Count and log an exception of one of the reactor's callbacks."""
        self._counters.task_failures[Task.REACTOR] += 1
        self._log(("internal", type(error).__name__), _internal_error, {"exc_info": error})

    def _note(self, task: Task, error: Exception, wait_s: float) -> None:
        self._counters.task_failures[task] += 1
        details = {"task": task, "wait_s": wait_s, "exc_info": error}
        self._log(("task", task), _failed, details)


def every(period_s: float | Callable[[], float], step: Callable[[], Awaitable[object]]) -> Work:
    """Return work for `keep_running` that awaits `step` every `period_s` (a number, or a function that
    returns the next period), for the first time after one period.
    """

    async def work(works: Works) -> None:
        while True:
            await trio.sleep(period_s() if callable(period_s) else period_s)
            await step()
            works()

    return work


def on_timers(reactor: Reactor, period_ms: int, step: Callable[[], None]) -> Work:
    """Return work for `keep_running` that calls `step` now and then every `period_ms` (ms), by timers of the
    reactor. Unlike `every`, this does not wake Trio, which costs 0.9 ms of CPU each time.
    """

    async def work(works: Works) -> None:
        token, over = trio.lowlevel.current_trio_token(), trio.Event()
        failures: list[Exception] = []

        timer: Timer | None = None

        def due() -> None:
            nonlocal timer
            try:
                step()
            except Exception as error:  # noqa: BLE001  # raised in the task
                failures.append(error)
                token.run_sync_soon(over.set)
            else:
                works()
                timer = reactor.call_at(reactor.now_ms + period_ms, due)

        timer = reactor.call_at(reactor.now_ms, due)
        try:
            await over.wait()
        finally:
            if timer is not None:
                timer.cancel()
        raise failures[0]

    return work


async def in_steps(steps: Iterator[object]) -> None:
    """Run a long computation, given as an iterator of its steps, to its end; let other tasks run between the
    steps.
    """
    for _step in steps:
        await trio.lowlevel.checkpoint()


async def stepwise(steps: Generator[None, None, T]) -> T:
    """Return the result of a long computation, given as a generator; other tasks run between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


def _internal_error(count: int, details: Mapping[str, object]) -> None:
    log.error(INTERNAL_ERROR, count=count, **details)


def _failed(count: int, details: Mapping[str, object]) -> None:
    log.error("task failed, restarting it; please report this", count=count, **details)
