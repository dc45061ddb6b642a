"""Weir's own tasks fail, wait, and begin anew; connections notice nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.kfake.cluster import HOST
from tests.proxy.certificates import client_context, write_pair
from tests.proxy.following import until
from tests.proxy.rigs import Clock
from tests.proxy.stage import PING, PONG, Stage, set_stage
from tests.proxy.supervised import supervisor
from weir.proxy.config.config import ConfigError
from weir.proxy.control.cluster.discovery import discover
from weir.proxy.control.events.throttle_log import PERIOD_S, ThrottleLog
from weir.proxy.control.supervisor import WAIT_S_MAX, WAIT_S_MIN, Task, Works, every, in_steps, on_timers
from weir.proxy.counters import Counters
from weir.proxy.file_watch import LOOK_S
from weir.proxy.net.drivers import trio_us
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.tls.contexts import ContextOfFiles
from weir.proxy.server.connection_limiter import ConnectionLimiter


class FailingWork:
    """Work that fails the first times, after some seconds each; then it works."""

    def __init__(self, times: int, after_s: float = 0.0) -> None:
        self._times = times
        self._after_s = after_s
        self.starts_s: list[float] = []

    async def __call__(self, works: Works) -> None:
        self.starts_s.append(trio.current_time())
        if len(self.starts_s) <= self._times:
            await trio.sleep(self._after_s)
            raise ZeroDivisionError
        works()
        await trio.sleep_forever()


async def run_for(work: Callable[[Works], Awaitable[None]], seconds: float) -> Counters:
    counters = Counters()
    with trio.move_on_after(seconds):
        await supervisor(counters).keep_running(Task.EXPIRY, work)
    return counters


@pytest.mark.trio
async def test_a_failing_task_is_started_again_after_growing_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    work = FailingWork(8)
    counters = await run_for(work, 1000)
    waits = [after - before for before, after in zip(work.starts_s, work.starts_s[1:], strict=False)]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
    assert counters.task_failures == {"expiry": 8}


@pytest.mark.trio
async def test_the_wait_is_short_again_after_a_long_time_without_a_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    work = FailingWork(4, after_s=WAIT_S_MAX)
    await run_for(work, 1000)
    starts = [after - before for before, after in zip(work.starts_s, work.starts_s[1:], strict=False)]
    assert starts == pytest.approx([WAIT_S_MAX + WAIT_S_MIN] * 4)


@pytest.mark.trio
async def test_a_failed_task_is_logged_with_its_name_and_error_and_again_when_it_works(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with capture_logs() as logged:
        await run_for(FailingWork(2), 1000)
    *failures, works = logged
    assert [(line["task"], line["log_level"], line["wait_s"]) for line in failures] == [
        ("expiry", "error", 1.0),
        ("expiry", "error", 2.0),
    ]
    assert {type(line["exc_info"]) for line in failures} == {ZeroDivisionError}
    assert works == {"event": "task works again", "log_level": "info", "task": "expiry", "failures": 2}


@pytest.mark.trio
async def test_a_task_that_returns_is_not_started_again(autojump_clock: trio.testing.MockClock) -> None:
    starts: list[float] = []

    async def work(_works: Works) -> None:
        starts.append(trio.current_time())

    await run_for(work, 1000)
    assert len(starts) == 1


@pytest.mark.trio
async def test_cancelling_ends_a_task_and_its_wait(autojump_clock: trio.testing.MockClock) -> None:
    for work in (FailingWork(0), FailingWork(9)):
        with trio.move_on_after(0.5) as scope:
            await supervisor().keep_running(Task.EXPIRY, work)
        assert scope.cancelled_caught
        assert len(work.starts_s) == 1


@pytest.mark.trio
async def test_only_exceptions_are_survived(autojump_clock: trio.testing.MockClock) -> None:
    async def work(_works: Works) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        await supervisor().keep_running(Task.EXPIRY, work)


@pytest.mark.trio
async def test_a_periodic_task_has_its_first_step_after_a_period(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began_s = trio.current_time()
    steps_s: list[float] = []

    async def step() -> None:
        steps_s.append(trio.current_time() - began_s)

    await run_for(every(10.0, step), 35)
    assert steps_s == pytest.approx([10, 20, 30])


@pytest.mark.trio
async def test_other_tasks_run_between_the_steps_of_an_expiry(nursery: trio.Nursery) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(others)
    await in_steps(iter(range(10)))
    nursery.cancel_scope.cancel()
    assert turns >= 9


# In a server


def play(script: Callable[[Stage], Awaitable[None]], **options: Any) -> None:
    """Run a script beside a server whose time passes as soon as nobody has anything to do."""

    async def main() -> None:
        reactor = Reactor(trio_us)
        try:
            await set_stage(reactor, script, (0,), options, drive=True)
        finally:
            reactor.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.proxy.stage.LONG_S", 1000)
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))


def failing_once(call: Callable[..., Any], calls: list[float], at: int = 1) -> Callable[..., Any]:
    """The same function, but for one call that raises; `calls` are the times of all."""

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(trio.current_time())
        if len(calls) == at:
            raise ZeroDivisionError
        return call(*args, **kwargs)

    return failing


def task_events(logged: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(line["event"].partition(",")[0], line["task"]) for line in logged if "task" in line]


CALLS: dict[Task, tuple[str, Callable[..., Any], int]] = {
    Task.BROKERS: ("weir.proxy.control.cluster.discovery.discover", discover, 2),
    Task.THROTTLE_LOG: ("weir.proxy.control.events.throttle_log.ThrottleLog.look", ThrottleLog.look, 1),
    Task.TLS_FILES: ("weir.proxy.net.tls.contexts.ContextOfFiles.look", ContextOfFiles.look, 1),
}
"""Of each task, a function that it calls, and the first call of it that is the task's."""
PERIODS_S = {Task.BROKERS: 30.0, Task.THROTTLE_LOG: PERIOD_S, Task.TLS_FILES: LOOK_S}


@pytest.mark.parametrize("task", CALLS)
def test_a_failure_of_housekeeping_leaves_connections_open_and_is_retried(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"refresh_s": PERIODS_S[Task.BROKERS]}
    if task is Task.TLS_FILES:
        cert, key = write_pair(tmp_path, HOST)
        options |= {"tls_cert": f"{cert},{key}"}
    path, call, at = CALLS[task]
    calls: list[float] = []
    monkeypatch.setattr(path, failing_once(call, calls, at))

    async def script(stage: Stage) -> None:
        client = await (stage.connect_tls(client_context()) if "tls_cert" in options else stage.connect())
        with capture_logs() as logged:
            await trio.sleep(2 * PERIODS_S[task] + WAIT_S_MIN + 0.5)
            await until(lambda: len(task_events(logged)) > 1)  # a busy machine's thread lags behind the clock
        assert task_events(logged) == [("task failed", task), ("task works again", task)]
        failed_s, again_s = calls[at - 1 : at + 1]
        assert again_s - failed_s == pytest.approx(WAIT_S_MIN + PERIODS_S[task], abs=0.2)
        assert stage.server.counters.task_failures == {task: 1}
        assert await client.ask(PING) == PONG

    play(script, **options)


def test_a_failure_while_a_connection_is_accepted_closes_that_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[float] = []
    delay = failing_once(ConnectionLimiter.delay_s, calls, at=2)
    monkeypatch.setattr(ConnectionLimiter, "delay_s", delay)

    async def script(stage: Stage) -> None:
        before = await stage.connect()
        assert await before.ask(PING) == PONG
        with capture_logs() as logged:
            assert await (await stage.connect()).frame() is None
            after = await stage.connect()
            assert await after.ask(PING) == PONG
        assert task_events(logged) == [("task failed", Task.ACCEPT), ("task works again", Task.ACCEPT)]
        assert stage.plane.counters.task_failures == {Task.ACCEPT: 1}
        assert await before.ask(PING) == PONG

    play(script)


def test_unusable_files_and_taken_ports_still_stop_the_start(tmp_path: Path) -> None:
    async def script(_stage: Stage) -> None:
        raise AssertionError

    for options in ({"tls_cert": str(tmp_path / "gone")}, {"listen": "no.such.host.invalid:1"}):
        with pytest.RaisesGroup(ConfigError, flatten_subgroups=True):
            play(script, **options)


@pytest.mark.trio
async def test_an_exception_of_a_step_on_timers_is_raised_in_its_task() -> None:
    clock = Clock()
    reactor = Reactor(clock)
    steps: list[int] = []

    def step() -> None:
        steps.append(clock.now_ms)
        if len(steps) == 3:
            raise KeyError("a bug")

    async def work() -> None:
        with pytest.raises(KeyError, match="a bug"):
            await on_timers(reactor, 20, step)(lambda: None)
        done.set()

    done = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10):
            reactor.turn(0)
            clock.now_ms += 20
        with trio.fail_after(30):
            await done.wait()
    assert steps == [0, 20, 40]
    reactor.close()


@pytest.mark.trio
async def test_a_cancelled_task_on_timers_leaves_no_timer() -> None:
    reactor = Reactor(Clock())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(on_timers(reactor, 20, lambda: None), lambda: None)
        await trio.testing.wait_all_tasks_blocked()
        reactor.turn(0)
        nursery.cancel_scope.cancel()
    assert reactor.timeout_s() is None
    reactor.close()
