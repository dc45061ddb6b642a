"""The reactor, its timers and its two drivers; time is Trio's mock clock or the test's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import trio
import trio.lowlevel
import trio.testing

from tests.proxy.rigs import Clock, tcp_pair, unix_pair
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio, run_in_trio, trio_us
from weir.proxy.net.poll import READ, WRITE
from weir.proxy.net.reactor import (
    CHECKED_EVERY,
    EVENTS_MAX,
    TIMERS_SWEPT_MIN,
    TURN_BOUNDS_US,
    TURN_US,
    Reactor,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reactor(clock: Clock) -> Iterator[Reactor]:
    made = Reactor(clock)
    yield made
    made.close()


def test_timers_fire_in_order_at_their_times(reactor: Reactor, clock: Clock) -> None:
    calls: list[str] = []
    reactor.call_at(20, lambda: calls.append("second"))
    reactor.call_at(10, lambda: calls.append("first"))
    reactor.call_at(20, lambda: calls.append("third"))
    assert reactor.timeout_s() == 0.01
    reactor.turn(0)
    assert calls == []
    clock.now_ms = 10
    reactor.turn(0)
    assert calls == ["first"]
    clock.now_ms = 30
    assert reactor.timeout_s() == 0
    reactor.turn(0)
    assert calls == ["first", "second", "third"]
    assert reactor.timeout_s() is None


def test_a_cancelled_timer_is_not_waited_for(reactor: Reactor, clock: Clock) -> None:
    reactor.call_at(10, lambda: pytest.fail("cancelled")).cancel()
    reactor.call_at(20, lambda: None)
    assert reactor.timeout_s() == 0.02
    clock.now_ms = 30
    reactor.turn(0)


def test_cancelled_timers_do_not_accumulate(reactor: Reactor, clock: Clock) -> None:
    """A throttle may last weeks, its client a moment."""
    calls: list[str] = []
    reactor.call_at(10, lambda: calls.append("first"))
    for _ in range(10_000):
        reactor.call_at(2**31, lambda: pytest.fail("cancelled")).cancel()
    reactor.call_at(5, lambda: calls.append("earlier"))
    assert len(reactor._timers) <= 2 * TIMERS_SWEPT_MIN
    clock.now_ms = 10
    reactor.turn(0)
    assert calls == ["earlier", "first"]


def test_a_timer_set_for_now_fires_after_the_sockets_turn(reactor: Reactor, clock: Clock) -> None:
    calls: list[int] = []

    def again() -> None:
        calls.append(clock.now_ms)
        reactor.call_at(5, again)

    reactor.call_at(5, again)
    clock.now_ms = 5
    reactor.turn(0)
    assert calls == [5]
    assert reactor.timeout_s() == 0
    reactor.turn(0)
    assert calls == [5, 5]


def test_a_readable_socket_is_reported_until_it_is_read(reactor: Reactor) -> None:
    ours, theirs = unix_pair()
    with ours, theirs:
        seen: list[int] = []
        reactor.register(ours.fileno(), READ, seen.append)
        reactor.turn(0)
        assert seen == []
        theirs.send(b"x")
        reactor.turn(0)
        reactor.turn(0)
        assert seen == [READ, READ]
        reactor.modify(ours.fileno(), 0)
        reactor.turn(0)
        reactor.modify(ours.fileno(), READ | WRITE)
        reactor.turn(0)
        assert seen == [READ, READ, READ | WRITE]
        reactor.unregister(ours.fileno())
        reactor.turn(0)
        assert len(seen) == 3


def test_a_socket_closed_by_an_earlier_callback_is_not_called(reactor: Reactor) -> None:
    pairs = [unix_pair() for _ in range(2)]
    called: list[int] = []

    def close_the_other(index: int) -> None:
        called.append(index)
        reactor.unregister(pairs[1 - index][0].fileno())

    for index, (ours, theirs) in enumerate(pairs):
        reactor.register(ours.fileno(), READ, lambda _events, index=index: close_the_other(index))  # type: ignore[misc]  # a default argument binds the loop's variable
        theirs.send(b"x")
    reactor.turn(0)
    assert len(called) == 1
    reactor.unregister(pairs[called[0]][0].fileno())
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_wake_ends_a_wait_from_another_thread_and_never_blocks(reactor: Reactor) -> None:
    for _ in range(5000):
        reactor.wake()
    waker = threading.Timer(0.01, reactor.wake)
    waker.start()
    for _ in range(20):
        reactor.turn(0)
    reactor.wake()
    reactor.turn(None)
    waker.join()


def test_reactor_timers_follow_trios_clock() -> None:
    """An hour passes at once; nothing is called before its time."""

    async def main() -> list[int]:
        calls: list[int] = []
        reactor = Reactor(trio_us)
        for at_ms in (3_600_000, 2_204, 8_102):
            reactor.call_at(at_ms, lambda: calls.append(trio_us() // 1000))
        with trio.move_on_at(4000):
            await run_in_trio(reactor)
        reactor.close()
        return calls

    assert trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)) == [2_204, 8_102, 3_600_000]


def test_hosting_trio_returns_and_raises_as_its_main_function() -> None:
    reactor = Reactor(monotonic_us)

    async def main() -> str:
        await trio.lowlevel.checkpoint()
        assert await trio.to_thread.run_sync(lambda: 3) == 3
        return "done"

    async def fail() -> None:
        await trio.sleep(0.001)
        raise ZeroDivisionError

    assert run_hosting_trio(reactor, main) == "done"
    with pytest.raises(ZeroDivisionError):
        run_hosting_trio(reactor, fail)
    reactor.close()


def test_hosting_serves_sockets_while_trio_is_busy_and_idle() -> None:
    reactor = Reactor(monotonic_us)
    ours, theirs = tcp_pair()
    read: list[bytes] = []
    event = trio.Event()

    def ready(_events: int) -> None:
        read.append(ours.recv(100))
        if read[-1] == b"end":
            event.set()
            reactor.wake()

    async def main() -> None:
        with trio.fail_after(10):
            while not read:  # busy: always something to run
                await trio.lowlevel.checkpoint()
            threading.Timer(0.01, theirs.send, [b"end"]).start()
            await event.wait()  # idle

    reactor.register(ours.fileno(), READ, ready)
    theirs.send(b"begin")
    run_hosting_trio(reactor, main)
    assert read == [b"begin", b"end"]
    reactor.unregister(ours.fileno())
    reactor.close()
    ours.close()
    theirs.close()


def test_leftover_work_runs_after_sockets_and_only_while_the_turn_has_time(
    reactor: Reactor, clock: Clock
) -> None:
    calls: list[str] = []

    def long(name: str) -> None:
        calls.append(name)
        clock.extra_us += TURN_US

    for name in ("first", "second"):
        reactor.later(partial(long, name))
    one, other = tcp_pair()
    with one, other:
        reactor.register(one.fileno(), WRITE, lambda _events: calls.append("socket"))
        assert reactor.timeout_s() == 0, "a driver does not wait while work is left"
        reactor.turn(0)
        assert calls == ["socket", "first"]
        reactor.turn(0)
        assert calls == ["socket", "first", "socket", "second"]
        reactor.unregister(one.fileno())
    assert reactor.timeout_s() is None


def test_leftover_work_that_leaves_more_work_waits_for_the_next_turn(reactor: Reactor) -> None:
    calls: list[int] = []

    def again() -> None:
        calls.append(1)
        reactor.later(again)

    again()
    reactor.turn(0)
    assert len(calls) == 2


def test_timers_beyond_the_length_of_a_turn_run_in_the_next_turn(reactor: Reactor, clock: Clock) -> None:
    calls: list[int] = []

    def slow(number: int) -> None:
        calls.append(number)
        clock.extra_us += TURN_US // CHECKED_EVERY

    for number in range(2 * CHECKED_EVERY):
        reactor.call_at(0, partial(slow, number))
    reactor.turn(0)
    assert calls == list(range(CHECKED_EVERY))
    reactor.turn(reactor.timeout_s())
    assert calls == list(range(2 * CHECKED_EVERY))


def test_a_turn_handles_few_sockets_and_all_get_their_turn(reactor: Reactor) -> None:
    seen: list[int] = []

    def ready(number: int, _events: int) -> None:
        seen.append(number)

    with ExitStack() as stack:
        for number in range(3 * EVENTS_MAX):
            one, _other = map(stack.enter_context, tcp_pair())
            reactor.register(one.fileno(), WRITE, partial(ready, number))
        for turn in range(1, 4):
            reactor.turn(0)
            assert len(seen) == turn * EVENTS_MAX
        assert sorted(seen) == list(range(3 * EVENTS_MAX))


def test_ready_sockets_that_a_turn_has_no_time_for_come_first_in_the_next(
    reactor: Reactor, clock: Clock
) -> None:
    seen: list[int] = []

    def slow(number: int, _events: int) -> None:
        seen.append(number)
        clock.spend(TURN_US // 2)

    with ExitStack() as stack:
        pairs = [tuple(map(stack.enter_context, tcp_pair())) for _ in range(8)]
        for number, (one, _other) in enumerate(pairs):
            reactor.register(one.fileno(), WRITE, partial(slow, number))
        for turn in range(1, 5):
            reactor.turn(0)
            assert len(seen) == 2 * turn
            assert reactor.timeout_s() == (0 if turn < 4 else None), "a driver does not wait meanwhile"
        assert sorted(seen) == list(range(8))


def test_a_socket_that_was_left_for_the_next_turn_and_is_closed_is_not_called(
    reactor: Reactor, clock: Clock
) -> None:
    """Its descriptor's number may be another socket's by then."""
    seen: list[int] = []

    def slow(number: int, _events: int) -> None:
        seen.append(number)
        clock.spend(TURN_US)

    with ExitStack() as stack:
        pairs = [tuple(map(stack.enter_context, tcp_pair())) for _ in range(2)]
        for number, (one, _other) in enumerate(pairs):
            reactor.register(one.fileno(), WRITE, partial(slow, number))
        reactor.turn(0)
        left = pairs[1 - seen[0]][0]
        reactor.unregister(left.fileno())
        reactor.register(left.fileno(), READ, lambda _events: pytest.fail("nothing has come"))
        reactor.turn(0)


def test_turns_are_counted_by_their_length(reactor: Reactor, clock: Clock) -> None:
    for length_us in (0, 1_000, 1_001, 2_500, 7_000, 3_000_000):
        reactor.later(partial(clock.spend, length_us))
        reactor.turn(0)
    turns = reactor.turns
    assert (turns.number, turns.longer, turns.longest_us) == (6, 4, 3_000_000)
    assert turns.busy_us == 3_011_501
    assert dict(zip(TURN_BOUNDS_US, turns.within, strict=True)) == {
        1_000: 0, 2_500: 2, 5_000: 0, 10_000: 1, 25_000: 0, 100_000: 0, 1_000_000: 0
    }  # fmt: skip


def test_a_socket_callback_that_raises_ends_its_connection_and_no_other(
    reactor: Reactor, clock: Clock
) -> None:
    pairs = [unix_pair() for _ in range(2)]
    errors: list[Exception] = []
    ended: list[Exception] = []
    seen: list[int] = []
    reactor.on_error = errors.append

    def broken(_events: int) -> None:
        raise ZeroDivisionError

    reactor.register(pairs[0][0].fileno(), READ, broken, ended.append)
    reactor.register(pairs[1][0].fileno(), READ, seen.append)
    reactor.call_at(1, partial(broken, 0), ended.append)
    reactor.call_at(1, lambda: seen.append(-1))
    for pair in pairs:
        pair[1].send(b"x")
    clock.now_ms = 1
    for _ in range(2):
        reactor.turn(0)
    assert sorted(seen) == [-1, READ, READ]
    assert list(map(type, errors)) == list(map(type, ended)) == [ZeroDivisionError] * 2
    reactor.unregister(pairs[1][0].fileno())
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_a_connection_whose_end_raises_too_is_not_called_again(reactor: Reactor) -> None:
    ours, theirs = unix_pair()
    errors: list[str] = []

    def report(error: Exception) -> None:
        errors.append(type(error).__name__)
        raise OSError("the log is full")

    def broken(_events: int) -> None:
        raise ZeroDivisionError

    def broken_too(_error: Exception) -> None:
        raise KeyError

    reactor.on_error = report
    with ours, theirs:
        reactor.register(ours.fileno(), READ, broken, broken_too)
        theirs.send(b"x")
        reactor.turn(0)
        reactor.turn(0)
    assert errors == ["ZeroDivisionError", "KeyError"]
