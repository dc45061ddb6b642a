"""Request budgets charge as any budget does, though they look at the rate less often."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas import Budget, RequestBudget, Tags

METADATA, FETCH = 3, 1
STEPS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(0, 1500), st.integers(0, 20_000)),
        st.one_of(st.floats(0.001, 0.5), st.floats(0.1, 60.0)),
        st.sampled_from(["charge", "charge", "charge", "look", "limit"]),
    ),
    max_size=60,
)


def both(limit: float, now_ms: int = 0) -> tuple[RequestBudget, Budget]:
    tags = Tags("", "app")
    return RequestBudget(tags, limit, now_ms), Budget(tags, limit, now_ms, throttle_ms_max=1000)


@given(STEPS, st.floats(0.5, 50.0))
def test_request_budgets_throttle_as_budgets_that_measure_at_every_charge(
    steps: list[tuple[int, float, str]], limit: float
) -> None:
    budget, plain = both(limit)
    now_ms = 0
    for later_ms, percent, what in steps:
        now_ms += later_ms
        if what == "limit":
            budget.set_limit(percent)
            plain.set_limit(percent)
        elif what == "look":
            assert budget.rate(now_ms) == pytest.approx(plain.rate(now_ms), rel=1e-9, abs=1e-9)
        else:
            # Sums in another order may differ in their last bit, and a wait by one where it is rounded.
            assert abs(budget.charge_api(METADATA, percent, now_ms) - plain.charge(percent, now_ms)) <= 1
            if plain.rate(now_ms) > plain.limit * (0.5 + 1e-9):
                assert budget.near
    assert budget.charged == pytest.approx(plain.charged)
    assert budget.charged_ms == plain.charged_ms
    assert budget.is_idle(now_ms) == plain.is_idle(now_ms)


def test_a_request_budget_is_near_its_limit_from_half_on() -> None:
    budget, _plain = both(10.0)  # 100 in the ten seconds that a cold start is measured over
    near = []
    for now_ms, percent in ((0, 50.0), (1, 0.1), (30_000, 0.1)):  # by then all of that is forgotten
        assert budget.charge_api(METADATA, percent, now_ms) == 0
        near.append(budget.near)
    assert near == [False, True, False]
