"""`pacing = "smooth"`: an even rate and short waits, in simulated time, beside Kafka's sampled rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.closed_loop import Loop, run, window_rates
from weir.quotas import Budget, Tags
from weir.quotas.limiters.smooth import CREDIT_MS, SmoothBudget, paced
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.table.options import Pacing

WHO: Final = Tags("alice", "")
LIMIT: Final = 2_000_000
SETTLED_MS: Final = 2000
WINDOW_MS: Final = 10_000


def smooth(limit: float = LIMIT) -> SmoothBudget:
    return SmoothBudget(WHO, limit, 0)


clients = pytest.mark.parametrize("polite", [True, False], ids=["polite", "rude"])
connections = pytest.mark.parametrize("connections", [1, 10])
kinds = pytest.mark.parametrize("fetches", [False, True], ids=["produce", "fetch"])
sizes = pytest.mark.parametrize("size", [60_000, 400_000, 1_000_000])


@clients
@connections
@kinds
@sizes
def test_each_ten_seconds_hold_the_quota_within_two_percent(
    polite: bool, connections: int, fetches: bool, size: int
) -> None:
    budget = smooth()
    size = min(size, budget.fetch_max_bytes) if fetches else size
    seen = run(Loop(connections, size, fetches, polite), budget)
    rates = window_rates(seen, SETTLED_MS, 60_000)
    may_differ = max(0.02 * LIMIT, size / WINDOW_MS * 1000)  # a request cannot be divided
    assert LIMIT - may_differ <= min(rates)
    assert max(rates) <= LIMIT + may_differ


@clients
@connections
@kinds
@sizes
def test_nobody_waits_longer_than_one_request_of_each_connection_takes(
    polite: bool, connections: int, fetches: bool, size: int
) -> None:
    seen = run(Loop(connections, size, fetches, polite), smooth())
    assert 0 < max(seen.waits_ms) <= math.ceil(connections * size / LIMIT * 1000)


@clients
@kinds
def test_kafkas_rate_swings_where_smooth_pacing_holds_the_quota(polite: bool, fetches: bool) -> None:
    loop = Loop(1 if fetches else 10, 200_000, fetches, polite)  # fetches of several stand in line
    rates = {}
    for pacing, budget in (("kafka", Budget(WHO, LIMIT, 0)), ("smooth", smooth())):
        rates[pacing] = window_rates(run(loop, budget), SETTLED_MS, 60_000)
    assert min(rates["kafka"]) < 0.5 * LIMIT
    assert max(rates["kafka"]) > 1.08 * LIMIT
    assert min(rates["smooth"]) > 0.98 * LIMIT
    assert max(rates["smooth"]) < 1.02 * LIMIT


steps = st.lists(st.tuples(st.integers(1, 300_000), st.integers(0, 3000)), min_size=1, max_size=60)


def obedient(steps: Sequence[tuple[int, int]], budget: Budget) -> list[tuple[int, int]]:
    """One client: it sends so much, waits as it is told, and so much longer."""
    now_ms, passed = 0, []
    for units, pause_ms in steps:
        passed.append((now_ms, units))
        now_ms += budget.charge(units, now_ms) + pause_ms
    return passed


@given(steps=steps, limit=st.integers(1000, 10_000_000))
def test_no_window_passes_more_than_the_quota_the_credit_and_one_request(
    steps: list[tuple[int, int]], limit: int
) -> None:
    passed = obedient(steps, smooth(limit))
    for first, (start_ms, _units) in enumerate(passed):
        total = 0
        for end_ms, units in passed[first:]:
            total += units
            allowed = limit * (end_ms - start_ms + CREDIT_MS) / 1000 + units
            assert total <= allowed * (1 + 1e-9)


@given(steps=steps, limit=st.integers(1000, 10_000_000))
def test_a_client_that_is_never_late_by_more_than_the_credit_gets_all_of_its_quota(
    steps: list[tuple[int, int]], limit: int
) -> None:
    budget, now_ms, total, late_ms = smooth(limit), 0, 0, 0
    for units, pause_ms in steps:
        late_ms = pause_ms % (CREDIT_MS - 1)  # and a ms by which waits are rounded up
        wait_ms = budget.charge(units, now_ms)
        total += units
        if not wait_ms:  # it is below its quota: the rate is its own
            return
        now_ms += wait_ms + late_ms
    assert total >= limit * (now_ms - CREDIT_MS) / 1000 * (1 - 1e-9)


@given(steps=steps, limit=st.integers(1000, 10_000_000))
def test_wait_is_the_shortest_after_which_nothing_is_owed(steps: list[tuple[int, int]], limit: int) -> None:
    budget, now_ms = smooth(limit), 0
    for units, pause_ms in steps:
        wait_ms = budget.charge(units, now_ms)
        if wait_ms:
            early, late = smooth(limit), smooth(limit)
            early.inherit(budget)
            late.inherit(budget)
            assert early.charge(0, now_ms + wait_ms - 1) == 1
            assert late.charge(0, now_ms + wait_ms) == 0
        now_ms += wait_ms + pause_ms


def test_a_new_limit_pays_off_what_is_owed() -> None:
    budget = smooth(1000)
    assert budget.charge(1_000_100, 0) == 1_000_000
    budget.set_limit(1_000_000)
    assert budget.charge(0, 0) == 1000


def test_a_long_wait_stops_at_what_a_response_can_say() -> None:
    assert smooth(1).charge(1e12, 0) == INT32_MAX
    capped = SmoothBudget(WHO, 1, 0, throttle_ms_max=1000)
    assert capped.charge(1e12, 0) == 1000


def test_a_shadow_budget_forgets_what_is_owed_when_the_next_charge_comes() -> None:
    budget = SmoothBudget(WHO, 1000, 0, is_shadow=True)
    waits_ms = [budget.charge(1000, now_ms) for now_ms in range(0, 60_000, 500)]
    assert waits_ms[0] == 900
    assert set(waits_ms[1:]) == {1000}
    assert budget.throttle_ms_total == 60_500  # somebody would have been waiting all the time


def test_a_change_of_pacing_keeps_counts_waits_and_usage() -> None:
    budget = Budget(WHO, 1000, 0)
    wait_ms = budget.charge(15_000, 0)
    even = paced(budget, Pacing.SMOOTH)
    assert isinstance(even, SmoothBudget)
    assert (even.charged, even.throttled, even.throttle_ms_total) == (15_000, 1, wait_ms)
    assert even.tell_rest(0) == wait_ms
    assert even.delta() == 15_000
    assert even.rate(0) == budget.rate(0)
    assert even.charge(50, 0) == 0  # the wait was for what was used before
    again = paced(even, Pacing.KAFKA)
    assert type(again) is Budget
    assert again.charge(0, 0) > wait_ms
    assert paced(again, Pacing.KAFKA) is again
