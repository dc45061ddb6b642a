"""Hosts with several addresses, some of them dead (RFC 8305): in simulated time, without packets."""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio
import trio.testing

from weir.protocol.messages import MetadataResponse
from weir.proxy.addresses import Address
from weir.proxy.config import config
from weir.proxy.control.cluster import discovery
from weir.proxy.control.cluster.access import DIRECT, Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.net import sockets
from weir.proxy.net.race import BAD_S, BadAlternatives, Race

T = TypeVar("T")

DELAY_S = 0.25
SILENT = float("inf")
"""Time (s) after which a host that drops packets answers."""


def timed(main: Callable[[], Awaitable[T]]) -> T:
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Hosts:
    """Addresses, each with the time (s) after which it accepts a connection, or the error after which not."""

    def __init__(self, **answers: float | tuple[float, OSError]) -> None:
        self.answers = answers
        self.begun: list[tuple[str, float]] = []
        """Attempts, with their times (s)."""
        self.open: list[str] = []
        """Connections that were made and not closed."""
        self.bad: BadAlternatives[str] = BadAlternatives()

    async def connect(self, name: str) -> str:
        self.begun.append((name, round(trio.current_time() - self.started_s, 3)))
        answer = self.answers[name]
        after_s, error = answer if isinstance(answer, tuple) else (answer, None)
        await trio.sleep(after_s)
        if error is not None:
            raise error
        self.open.append(name)
        return name

    async def first(self, names: str, timeout_s: float = 10) -> str | None:
        """Return the name that was connected first, of those separated by blanks."""
        self.started_s, self.begun = trio.current_time(), []
        race = Race(self.connect, OSError, DELAY_S, self.open.remove)
        won = None
        try:
            with trio.fail_after(timeout_s):
                won = await race.run(self.bad.last(names.split(), trio.current_time()))
        finally:
            self.bad.note(race, won, trio.current_time())
        return None if won is None else won[1]


REFUSED = OSError(errno.ECONNREFUSED, "refused")


def test_an_address_that_answers_at_once_has_no_rival() -> None:
    hosts = Hosts(a=0.2, b=0)
    assert timed(lambda: hosts.first("a b")) == "a"
    assert hosts.begun == [("a", 0)]


def test_the_next_address_is_tried_after_a_quarter_of_a_second_and_the_first_to_answer_wins() -> None:
    hosts = Hosts(a=SILENT, b=SILENT, c=0.1)
    assert timed(lambda: hosts.first("a b c")) == "c"
    assert hosts.begun == [("a", 0), ("b", 0.25), ("c", 0.5)]
    assert hosts.open == ["c"]


def test_a_slow_address_wins_if_its_rivals_are_slower() -> None:
    hosts = Hosts(a=0.6, b=SILENT, c=1)
    assert timed(lambda: hosts.first("a b c")) == "a"
    assert hosts.open == ["a"]


def test_the_next_address_is_tried_at_once_after_a_failure() -> None:
    """IPv6 without a route fails at once."""
    hosts = Hosts(a=(0, OSError(errno.ENETUNREACH, "no route")), b=0.1)
    assert timed(lambda: hosts.first("a b")) == "b"
    assert hosts.begun == [("a", 0), ("b", 0)]


def test_all_addresses_may_fail() -> None:
    hosts = Hosts(a=(0.1, REFUSED), b=(0.4, REFUSED))
    assert timed(lambda: hosts.first("a b")) is None


def test_two_addresses_that_answer_at_the_same_time_leave_one_connection() -> None:
    hosts = Hosts(a=0.5, b=0.25)
    assert timed(lambda: hosts.first("a b")) in ("a", "b")
    assert len(hosts.open) == 1


def test_a_time_limit_leaves_no_connection() -> None:
    hosts = Hosts(a=SILENT, b=SILENT)
    with pytest.raises(trio.TooSlowError):
        timed(lambda: hosts.first("a b", timeout_s=5))
    assert hosts.open == []


def test_a_bug_in_an_attempt_is_raised_as_it_is() -> None:
    async def broken(name: str) -> str:
        if name == "b":
            raise ZeroDivisionError
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(ZeroDivisionError):
        timed(lambda: Race(broken, OSError, DELAY_S).run(["a", "b"]))


@pytest.mark.parametrize("dead", [SILENT, (0.0, REFUSED)])
def test_a_bad_address_comes_last_until_it_answers_or_is_forgotten(
    dead: float | tuple[float, OSError],
) -> None:
    hosts = Hosts(a=dead, b=0, c=0)

    async def main() -> None:
        assert await hosts.first("a b") == "b"
        assert await hosts.first("a b c") == "b"
        assert hosts.begun == [("b", 0)]
        hosts.answers["b"] = (0, REFUSED)
        assert await hosts.first("a b") is None if isinstance(dead, tuple) else True
        hosts.answers |= {"a": 0, "b": SILENT}
        assert await hosts.first("b a") == "a"
        assert await hosts.first("b a") == "a"
        assert hosts.begun == [("a", 0)]
        await trio.sleep(BAD_S)
        hosts.answers["b"] = 0
        assert await hosts.first("b a") == "b"

    timed(main)


def v4(ip: str) -> sockets.Found:
    return socket.AF_INET, (ip, 9092)


def v6(ip: str) -> sockets.Found:
    return socket.AF_INET6, (ip, 9092, 0, 0)


def test_families_take_turns() -> None:
    given = [v6("::1"), v6("::2"), v6("::3"), v4("10.0.0.1"), v4("10.0.0.2")]
    assert sockets.interleaved(given) == [given[0], given[3], given[1], given[4], given[2]]
    assert sockets.interleaved([]) == []


def test_a_name_with_dead_addresses_costs_a_quarter_of_a_second_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of a name may change while Weir runs: they are looked up for each connection."""
    ips, living, took = ["192.0.2.1", "192.0.2.2", "192.0.2.3"], {"192.0.2.3"}, list[float]()

    async def found(*_args: object, **_kwargs: object) -> list[object]:
        return [(*v4(ip)[:1], socket.SOCK_STREAM, 6, "", v4(ip)[1]) for ip in ips]

    class Silent:
        def __init__(self, _sock: socket.socket) -> None:
            pass

        async def connect(self, target: tuple[str, int]) -> None:
            if target[0] not in living:
                await trio.sleep_forever()

    monkeypatch.setattr(trio.socket, "getaddrinfo", found)
    monkeypatch.setattr(trio.socket, "from_stdlib_socket", Silent)

    async def connect() -> None:
        began_s = trio.current_time()
        (await sockets.connect(Address("kafka", 9092))).close()
        took.append(round(trio.current_time() - began_s, 3))

    async def main() -> None:
        for _ in range(3):
            await connect()
        ips[:] = ["192.0.2.4", "192.0.2.5"]
        living.add("192.0.2.5")
        for _ in range(2):
            await connect()

    timed(main)
    assert took == [0.5, 0, 0, 0.25, 0]


def test_a_silent_broker_delays_a_question_to_the_cluster_by_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Address] = []
    silent, living = Address("kafka-1", 9092), Address("kafka-2", 9092)

    async def ask(_access: Access, address: Address, *_rest: object) -> MetadataResponse:
        asked.append(address)
        if address == silent:
            await trio.sleep(config.CONNECT_TIMEOUT_S)
            raise QuestionError("silent", reachable=False, foreign=False)
        broker = MetadataResponse.MetadataResponseBroker
        return MetadataResponse(brokers=[broker(node_id=2, host="kafka-2", port=9092)])

    monkeypatch.setattr(Access, "ask", ask)

    async def main() -> float:
        assert await discovery.discover([silent, living], 10, DIRECT) == {2: living}
        assert asked == [silent, living]
        return trio.current_time()

    clock = trio.testing.MockClock(autojump_threshold=0)
    began_s = clock.current_time()
    assert trio.run(main, clock=clock) - began_s == pytest.approx(discovery.RIVAL_S)


class Late(trio.abc.Instrument):
    """The first attempt begins a moment after the wait for it has begun."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self.clock = clock
        self.is_over = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self.is_over and "_try" in task.name:
            self.is_over = True
            self.clock.jump(0.01)


def test_a_silent_address_is_remembered_although_its_attempt_began_late() -> None:
    hosts = Hosts(dead=SILENT, alive=0)
    clock = trio.testing.MockClock(autojump_threshold=0)
    assert trio.run(hosts.first, "dead alive", clock=clock, instruments=[late := Late(clock)]) == "alive"
    assert late.is_over
    assert list(hosts.bad.last(["dead", "alive"], clock.current_time())) == ["alive", "dead"]
