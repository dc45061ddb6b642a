"""A replay of complete traces under the quotas in force equals the behaviour of Weir's connections."""

from __future__ import annotations

import dataclasses

import pytest

from tests.matrix import first_core
from tests.pipeline.session_cases import CASES, FETCH, OLD_READS, PRODUCE, TIME
from tests.pipeline.sessions import Habits, World
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.replay import Replay, rank
from weir.quotas.replay_hours import Hour
from weir.usage.records import TraceRecord

APPS = Entity(client_id=DEFAULT)
GROUP = {PRODUCE: "produce", FETCH: "fetch"}


def replayed(
    traces: list[TraceRecord],
    key: QuotaKey,
    limit: float,
    client_id: str,
    *,
    throttle_ms_max: int = INT32_MAX,
) -> Hour:
    rows = []
    for trace in traces:
        if trace.client_id == client_id and GROUP.get(key, trace.api) == trace.api:
            value = trace.request_time_us / 10_000 if key is TIME else float(trace.charged_bytes)
            value = float(trace.old_bytes) if key is OLD_READS else value
            service_ms = 0 if key is PRODUCE else trace.answered_ms - trace.time_ms
            recorded_ms = getattr(trace.throttle_ms, key.value)
            rows.append((trace.time_ms, service_ms, value, trace.connection, recorded_ms, trace.api_key))
    rows.sort(key=lambda row: (row[0], rank(row), row[3]))
    replay = Replay(key, limit, throttle_ms_max=throttle_ms_max)
    replay.feed(*zip(*rows, strict=True))
    total = Hour(0)
    for hour in replay.finish():
        total.charges += hour.charges
        total.charged += hour.charged
        total.violations += hour.violations
        total.throttle_ms += hour.throttle_ms
        total.throttled_ms += hour.throttled_ms
        total.given_up += hour.given_up
    return total


def recorded(traces: list[TraceRecord], key: QuotaKey, client_id: str) -> list[tuple[int, int]]:
    """Return the waits: (beginning, length), in ms."""
    waits = []
    for trace in traces:
        wait_ms = getattr(trace.throttle_ms, key.value)
        if trace.client_id == client_id and wait_ms:
            waits.append((trace.time_ms if key is PRODUCE else trace.answered_ms, wait_ms))
    return sorted(waits)


def union_ms(waits: list[tuple[int, int]]) -> int:
    until = total = 0
    for start, wait in waits:
        total += max(0, start + wait - max(start, until))
        until = max(until, start + wait)
    return total


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", first_core([1, 2, 3]))
def test_a_replay_of_session_traces_equals_the_recorded_throttles(case: str, seed: int) -> None:
    key, limit, habits = CASES[case]
    world = World(QuotaTable({(APPS, key): limit}), seed).join(habits).run(60_000)
    assert_same(world, key, limit)


def assert_same(world: World, key: QuotaKey, limit: float, *, throttle_ms_max: int = INT32_MAX) -> None:
    waits = recorded(world.traces, key, "app")
    assert len(waits) > 10, "somebody waits"
    total = replayed(world.traces, key, limit, "app", throttle_ms_max=throttle_ms_max)
    assert total.given_up == 0
    assert total.violations == len(waits)
    assert total.throttle_ms == sum(wait for _start, wait in waits)
    assert total.throttled_ms == union_ms(waits)


@pytest.mark.parametrize("seed", first_core([1, 2]))
def test_several_quotas_in_force_at_once_are_replayed_separately(seed: int) -> None:
    """The recorded times include the delays that each quota causes for the charges of the others."""
    limits = {PRODUCE: 8000.0, FETCH: 6000.0, TIME: 0.06}
    world = World(QuotaTable({(APPS, key): limit for key, limit in limits.items()}), seed)
    world.join(Habits(b"app", "all in turn", connections=6, under_way=2))
    world.join(Habits(b"app", "produce", connections=2, from_ms=5000))
    world.join(Habits(b"app", "fetch", connections=2, from_ms=7000))
    world.run(60_000)
    for key, limit in limits.items():
        assert_same(world, key, limit)


@pytest.mark.parametrize("seed", first_core([1, 2]))
@pytest.mark.parametrize("key", [PRODUCE, FETCH])
def test_a_replay_equals_sessions_of_connections_that_join_during_a_long_throttle(
    key: QuotaKey, seed: int
) -> None:
    """The first produce request of each connection is held for at most five seconds, without a reported
    throttle time.
    """
    world = World(QuotaTable({(APPS, key): 1000.0}), seed)
    habits = Habits(b"app", GROUP[key], size=(2000, 9000), connections=4)
    world.join(habits)
    for from_ms in range(2000, 50_000, 3000):
        world.join(dataclasses.replace(habits, connections=1, from_ms=from_ms))
    world.run(60_000)
    assert max(wait for _start, wait in recorded(world.traces, key, "app")) > 10_000
    assert_same(world, key, 1000.0)


@pytest.mark.parametrize("seed", first_core([1, 2]))
@pytest.mark.parametrize(("key", "limit"), [(PRODUCE, 1000.0), (FETCH, 1000.0), (TIME, 0.005)])
def test_a_replay_equals_sessions_that_are_told_no_more_than_throttle_ms_max(
    key: QuotaKey, limit: float, seed: int
) -> None:
    world = World(QuotaTable({(APPS, key): limit}), seed, throttle_ms_max=700)
    world.join(Habits(b"app", GROUP.get(key, "ping"), connections=4, think_ms=(0, 500))).run(60_000)
    assert max(wait for _start, wait in recorded(world.traces, key, "app")) == 700
    assert_same(world, key, limit, throttle_ms_max=700)
