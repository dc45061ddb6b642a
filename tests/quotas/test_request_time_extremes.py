"""Request budgets under the smallest and largest numbers: no exception, no wait beyond one window."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.throttle import throttle_ms

TINY, HUGE = 5e-324, 1.7976931348623157e308
PERCENTAGES = st.one_of(
    st.sampled_from([TINY, 1e-320, 1e-300, 1e-6, 100.0, 2147483647.0, 2.0**63]),
    st.floats(0.0, 2.0**63, exclude_min=True),
)
"""All that a quota file takes."""
CHARGES = st.one_of(st.sampled_from([0.0, TINY, 1e-320, 1e-9, 0.01, 1e13, HUGE]), st.floats(0.0, HUGE))
CLOCK = st.one_of(st.integers(0, 3), st.integers(0, 30_000), st.integers(0, 2**62), st.integers(-2000, 0))
"""From one charge to the next, in ms; a clock may step back."""


@given(
    PERCENTAGES | st.just(math.inf),
    st.lists(st.tuples(CHARGES, CLOCK, st.none() | PERCENTAGES), max_size=12),
    st.integers(1, 100),
    st.integers(1, 3600),
    st.booleans(),
)
@example(TINY, [(HUGE, 0, None), (HUGE, 0, None), (HUGE, 1, TINY)], 11, 1, False)
@example(math.inf, [(HUGE, 0, None), (HUGE, 0, None), (HUGE, 1, None)], 11, 1, False)
def test_request_budgets_accept_the_smallest_and_largest_numbers(
    limit: float,
    charges: list[tuple[float, int, float | None]],
    num_samples: int,
    window_s: int,
    is_shadow: bool,
) -> None:
    budget = RequestBudget(
        Tags("alice", ""), limit, 0, num_samples=num_samples, window_s=window_s, is_shadow=is_shadow
    )
    now_ms = 0
    for percent, later_ms, other_limit in charges:
        now_ms += later_ms
        wait_ms = budget.charge_api(3, percent, now_ms)
        assert 0 <= wait_ms <= 1000 * window_s
        assert not math.isnan(budget.rate(now_ms))
        if other_limit is not None:
            budget.set_limit(other_limit)


@pytest.mark.parametrize(
    ("percent", "us", "throttle_ms"),
    [
        (TINY, 15.0, 1000),
        (1e-320, 15.0, 1000),
        (1e-300, 15.0, 1000),
        (2.0**31 - 1, 1e9, 0),
        (2.0**63, 1e9, 0),
    ],
)
def test_a_tiny_request_percentage_throttles_for_one_window_and_a_huge_one_never(
    percent: float, us: float, throttle_ms: int
) -> None:
    quotas = BrokerQuotas.create(QuotaTable({(Entity("alice"), QuotaKey.REQUEST_PERCENTAGE): percent}))
    ledger = quotas.ledger("alice", "app", 0)
    assert [ledger.charge_request(3, us, now_ms) for now_ms in (0, 1, 5000)] == [throttle_ms] * 3


@given(CHARGES | st.just(math.inf), PERCENTAGES | st.sampled_from([0.0, math.inf]), st.integers(1, 2**40))
def test_a_throttle_time_is_bounded_whatever_the_rate_and_the_quota(
    rate: float, quota: float, window_ms: int
) -> None:
    assert 0 <= throttle_ms(rate, quota, window_ms, at_most_ms=1000) <= 1000
