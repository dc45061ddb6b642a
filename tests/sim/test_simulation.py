"""The simulation finds no seed that breaks a rule, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias

import pytest

from tests.interpreted import interpreted
from tests.properties import first_seed
from tests.sim.frames import THROTTLE_AT, Kind
from tests.sim.net import FakeSocket, Net
from tests.sim.script import Ask, End, Open, Script, SetQuota, Step
from tests.sim.shrink import shrink
from tests.sim.weir import Weir
from tests.sim.world import World, execute, simulate
from weir.protocol.api import ApiKey
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.net.reactor import Reactor, Timer
from weir.quotas import Budget

PARTS: Final = 4
SEEDS: Final = 150
"""Number of seeds in each part,"""
SEEDS_EXPLORING: Final = 1000
"""and in `make test-all`, where the first one is drawn."""

FOUND: Final = {
    "own_waits_only": (  # fault 1: produce, metadata, produce waits for what another connection has caused
        Script(6177, (SetQuota("a", 200, 20),), (
            Step(0, 0, Open("a")),
            Step(500, 1, Open("a")),
            Step(500, 1, Ask(Kind("produce", 0))),
            Step(1000, 0, Ask(Kind("produce", 3), size=5000)),
            Step(1020, 1, Ask(Kind("metadata", 5))),
            Step(1020, 1, Ask(Kind("produce", 0))),
        ))
    ),
    "leavers_heard": (  # fault 2: a client leaves while its acks=0 waits for others, and loses it
        Script(1882, (SetQuota("b", 20, 1e9),), (
            Step(21, 0, Open("b")),
            Step(21, 0, Ask(Kind("produce", 9), size=300_000)),
            Step(8210, 1, Open("b")),
            Step(8212, 1, Ask(Kind("produce", 0), acks=0)),
            Step(8212, 1, End("client", "close")),
        ))
    ),
    "hold_ms_max": (  # fault 3: the first produce of a connection waits 134 s for others
        Script(63, (SetQuota("a", 2000, 20_000),), (
            Step(1000, 1, Open("a")),
            Step(2000, 1, Ask(Kind("produce", 0), size=300_000)),
            Step(8000, 0, Open("a")),
            Step(8000, 0, Ask(Kind("produce", 0))),
        ))
    ),
    "fetches_emptied": (  # fault 3: a fetch waits 18 s for others, in silence
        Script(7, (SetQuota("a", 20, 20),), (
            Step(10, 3, Open("a")),
            Step(1000, 5, Open("a")),
            Step(1020, 5, Ask(Kind("fetch", 12), size=500)),
            Step(1030, 3, Ask(Kind("fetch", 4))),
        ))
    ),
    "half_closers_answered": (  # a half-closed client is muted for over 30 s: closed when its request goes on
        Script(28, (SetQuota("a", 200, 200),), (
            Step(1000, 5, Open("a", waits=False)),
            Step(11042, 5, Ask(Kind("produce", 7), size=50_000)),
            Step(11042, 5, Ask(Kind("metadata", 1))),
            Step(12042, 5, End("client", "half")),
        ))
    ),
    "leavers_noticed": (  # a client asks, asks again, and leaves, while its broker hangs: open for ever
        Script(403, (SetQuota("a", 200, 2000),), (
            Step(2441, 2, Open("a", waits=False, hangs=True)),
            Step(3441, 2, Ask(Kind("fetch", 12))),
            Step(3442, 2, Ask(Kind("heartbeat", 4))),
        ))
    ),
    "draining_ends": (  # acks=0 arrives to its last byte while its connection drains: nobody looked again
        Script(239269223979, (SetQuota("a", 20_000, 1e9),), (
            Step(0, 2, Open("a", pieces=3, pause_ms=300)),
            Step(0, 2, Ask(Kind("produce", 0))),
            Step(20, 2, Ask(Kind("heartbeat", 3))),
            Step(40, 2, Ask(Kind("produce", 3), acks=0)),
            Step(1552, 2, End("weir", "drain")),
        ))
    ),
    "names_taught": Script(  # a Metadata request arrived in parts: Weir learned no name from its response
        20478,
        (),
        (Step(0, 4, Open("a", pieces=3, pause_ms=1)), Step(0, 4, Ask(Kind("metadata", 12)))),
        topic_rate=2000.0,
    ),
    "asked_before_changed": Script(  # Weir took the records out of a fetch, and then asked for names
        708146, (SetQuota("a", 200.0, 200.0),), (
            Step(0, 0, Open("a")), Step(0, 0, Ask(Kind("fetch", 13), size=50_000)),
            Step(10, 4, Open("a", answer_ms=2000)), Step(10, 4, Ask(Kind("share_fetch", 1), topic="hot")),
        ), topic_rate=200.0
    ),
    "older_session": Script(  # the model's fault: a session taken up again has the topics of the one between
        393065584307, (SetQuota("a", 20_000, 20_000),), (
            Step(0, 2, Open("a", waits=False, pieces=10, pause_ms=1)), Step(0, 2, Ask(Kind("fetch", 7))),
            Step(1, 2, Ask(Kind("fetch", 7), topic="hot")), Step(1, 2, Ask(Kind("fetch", 7))),
            Step(1826, 0, Open("a")), Step(1826, 0, Ask(Kind("fetch", 13), size=50_000, topic="hot")),
            Step(11_001, 2, Ask(Kind("fetch", 7))),
        ), topic_rate=200.0
    ),
    "no_garbage": Script(0, (), (Step(0, 0, Open("a")),)),  # fault 6: a relay and its connection are a cycle
}  # fmt: skip
"""Scripts that were found to break a rule, by the seeds in them, and shrunk: in the first version, the one of
draining in the second.
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_connections_keep_the_rules_whatever_their_ends_do(part: int, drawn_seed: int | None) -> None:
    count = SEEDS if drawn_seed is None else SEEDS_EXPLORING
    first = first_seed(drawn_seed, part, count)
    for seed in range(first, first + count):
        failure = simulate(seed)
        assert failure is None, str(failure)


@pytest.mark.parametrize("rule", FOUND)
def test_scripts_that_broke_a_rule_do_so_no_more(rule: str) -> None:
    failure = execute(FOUND[rule])
    assert failure is None, str(failure)


def test_a_failing_script_shrinks_to_the_steps_that_matter() -> None:
    failures = filter(None, (simulate(seed, Silent) for seed in range(200)))
    failure = next(
        one for one in failures if one.invariant == "told" and "SetQuota" not in str(one.script.steps)
    )
    smallest = shrink(failure, lambda script: execute(script, Silent))
    assert smallest.invariant == failure.invariant == "told"
    assert [type(step.action) for step in smallest.script.steps] == [Open, Ask]


# Planted bugs

Send: TypeAlias = Callable[[FakeSocket, Sequence[memoryview | bytes]], int]
SENDMSG: Final[Send] = FakeSocket.sendmsg


def found(seeds: int, new_weir: type[Weir] = Weir) -> set[str]:
    failures = [simulate(seed, new_weir) for seed in range(seeds)]
    return {failure.invariant for failure in failures if failure is not None}


@interpreted
def test_a_timer_that_is_not_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reactor, "call_at", lambda _self, _deadline_ms, *calls: Timer(*calls))
    assert "lost" in found(30)


def test_a_lost_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def sendmsg(sock: FakeSocket, buffers: Sequence[memoryview | bytes]) -> int:
        data = b"".join(buffers)
        return SENDMSG(sock, [data[:-1]]) + 1 if len(data) > 1000 else SENDMSG(sock, [data])

    monkeypatch.setattr(FakeSocket, "sendmsg", sendmsg)
    assert found(30) & {"bytes", "lost"}


@interpreted
def test_a_double_charge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    charge = Budget.charge

    def twice(budget: Budget, value: float, now_ms: int) -> int:
        charge(budget, value, now_ms)
        return charge(budget, value, now_ms)

    monkeypatch.setattr(Budget, "charge", twice)
    assert found(30) & {"charges", "told"}


class Silent(Weir):
    """Tells no throttle time."""

    def __init__(self, script: Script, clock_us: Callable[[], int], net: Net) -> None:
        super().__init__(script, clock_us, net)
        self.plans = Plans(Counters())
        for kind in THROTTLE_AT:
            self.plans.make(ApiKey[kind.api.upper()].value, kind.version).throttle = None


def test_a_wait_that_is_not_told_is_found() -> None:
    assert "told" in found(30, Silent)


# The limit of buffered bytes

BUFFERED_SEEDS: Final = 60


class Narrow(Weir):
    """May buffer little, and closes no connection for that: only those that make progress free memory."""

    stops: ClassVar[list[int]] = []

    def __init__(self, script: Script, clock_us: Callable[[], int], net: Net) -> None:
        super().__init__(script, clock_us, net)
        self.reactor.buffered.limit(2_000)
        self.reactor.buffered.grace_ms = 1 << 60

    def left(self) -> int:
        """Count also bytes that nobody holds."""
        self.stops.append(self.reactor.buffered.stops)
        return super().left() + self.reactor.buffered.bytes


def test_all_traffic_completes_although_reading_stops_at_the_limit_of_buffered_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail = World.fail
    monkeypatch.setattr(
        World,
        "fail",  # that requests wait longer is the purpose; that they end is checked
        lambda world, rule, detail: None if rule == "waits" else fail(world, rule, detail),
    )
    Narrow.stops.clear()
    for seed in range(BUFFERED_SEEDS):
        failure = simulate(seed, Narrow)
        assert failure is None, str(failure)
    assert sum(Narrow.stops) > BUFFERED_SEEDS
