"""Throttle times: Kafka's formulas, Java's rounding, and int32 without its wrap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.vectors import THROTTLE, FetchCap, RateFormula, TokenFormula
from weir.quotas.limiters.throttle import (
    INT32_MAX,
    INT64_MAX,
    fetch_cap,
    round_half_up,
    throttle_ms,
    token_throttle_ms,
)

positive = st.floats(1e-6, 1e15)


@pytest.mark.parametrize("case", THROTTLE.rate_formula, ids=repr)
def test_the_throttle_time_of_a_rate_follows_kafkas_formula(case: RateFormula) -> None:
    assert throttle_ms(case.rate, case.quota, case.window_ms, INT64_MAX) == case.throttle_ms
    assert throttle_ms(case.rate, case.quota, case.window_ms, 1000) == case.bounded_1000_ms
    if case.throttle_ms == case.as_int32:
        assert throttle_ms(case.rate, case.quota, case.window_ms) == case.as_int32


@pytest.mark.parametrize("case", THROTTLE.token_formula, ids=repr)
def test_the_throttle_time_of_a_token_bucket_follows_kafkas_formula(case: TokenFormula) -> None:
    assert token_throttle_ms(case.tokens, case.quota, INT64_MAX) == case.throttle_ms
    assert token_throttle_ms(case.tokens, case.quota) == min(case.throttle_ms, INT32_MAX)


@pytest.mark.parametrize("case", THROTTLE.fetch_cap, ids=repr)
def test_the_byte_limit_of_a_fetch_follows_kafkas_formula(case: FetchCap) -> None:
    assert fetch_cap(case.quota, case.num_samples, case.window_s) == case.as_int32_saturated
    assert fetch_cap(math.inf, case.num_samples, case.window_s) == case.max_value_without_quota_int32


def test_a_rate_within_its_quota_has_no_throttle_time() -> None:
    assert throttle_ms(1000.0, 1000.0, 10_000) == 0
    assert throttle_ms(0.0, 0.0, 10_000) == 0
    assert token_throttle_ms(0.0, 1.0) == 0
    assert token_throttle_ms(3.0, 0.0) == 0


def test_a_quota_of_zero_gives_the_longest_throttle_time() -> None:
    assert throttle_ms(1e-9, 0.0, 1) == INT32_MAX
    assert throttle_ms(1e-9, 0.0, 1, at_most_ms=1000) == 1000
    assert token_throttle_ms(-1e-9, 0.0) == INT32_MAX


@given(positive, positive, st.integers(1, 100_000))
def test_a_throttle_time_is_a_non_negative_int32(rate: float, quota: float, window_ms: int) -> None:
    wait_ms = throttle_ms(rate, quota, window_ms)
    assert isinstance(wait_ms, int)
    assert 0 <= wait_ms <= INT32_MAX
    assert wait_ms == 0 or rate > quota


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.integers(1000, 12_000))
def test_after_the_throttle_time_the_rate_equals_the_quota(rate: float, quota: float, window_ms: int) -> None:
    wait_ms = throttle_ms(rate, quota, window_ms, INT64_MAX)
    if rate > quota:
        then = rate * window_ms / (window_ms + wait_ms)
        assert then == pytest.approx(quota, rel=1 / window_ms)


@pytest.mark.parametrize(
    ("x", "rounded"),
    [
        (0.5, 1),
        (-0.5, 0),
        (1.5, 2),
        (-1.5, -1),
        (0.49999999999999994, 0),
        (-0.49999999999999994, 0),
        (4503599627370497.5, 4503599627370498),
        (9007199254740993.0, 9007199254740992),
        (math.inf, INT64_MAX),
        (-math.inf, -(2**63)),
        (math.nan, 0),
    ],
)
def test_throttle_times_at_half_a_ms_are_rounded_as_in_java(x: float, rounded: int) -> None:
    assert round_half_up(x) == rounded
