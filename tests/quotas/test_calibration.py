"""What throttle times say about costs: by hand, and by the rates that Kafka's own classes have confirmed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.costs.calibration import CostReading, Windows, fault, percent_for, spent_us, wanted_us
from weir.quotas.limiters.budgets import Budget
from weir.quotas.table.entities import Tags

TAGS = Tags("", "calibrator")


@pytest.mark.parametrize(
    ("elapsed_s", "window_s"),
    [(0.0, 10.0), (0.5, 10.5), (0.999, 10.999), (1.0, 10.0), (9.25, 10.25), (10.0, 10.0), (11.8, 11.8)],
)
def test_the_calibration_window_is_ten_seconds_plus_the_current_sample(
    elapsed_s: float, window_s: float
) -> None:
    assert Windows().window_s(elapsed_s) == pytest.approx(window_s)


@pytest.mark.parametrize(
    ("percent", "throttle_ms", "elapsed_s", "us"),
    [
        # 1 % of a thread for 10 s is 0.1 s of it.
        (1.0, 0, 0.0, 100_000.0),
        (1.0, 500, 0.0, 105_000.0),  # 10.5 percent-seconds
        (1.0, 500, 0.5, 110_000.0),  # of a window of 10.5 s: 11
        (0.1, 40, 0.2, 10_240.0),
    ],
)
def test_a_throttle_time_gives_the_request_time_spent(
    percent: float, throttle_ms: int, elapsed_s: float, us: float
) -> None:
    assert spent_us(percent, throttle_ms, elapsed_s, Windows()) == pytest.approx(us)


@given(cost_us=st.floats(5.0, 3000.0), gap_ms=st.integers(0, 9), wrong_by=st.floats(0.3, 3.0))
def test_calibration_recovers_the_cost_that_a_budget_was_charged(
    cost_us: float, gap_ms: int, wrong_by: float
) -> None:
    """`Budget` divides as Kafka's `Rate` does (the vectors say so); the cost was guessed wrongly before."""
    windows = Windows()
    percent = percent_for(wanted_us(cost_us * wrong_by), windows)
    budget = Budget(TAGS, percent, 0, throttle_ms_max=1000)
    now_ms, requests, throttle_ms = 5_000, 0, 0
    began_ms = now_ms
    while True:
        requests += 1
        throttle_ms = budget.charge(cost_us / 10_000.0, now_ms)
        if throttle_ms or now_ms - began_ms > 10_000:  # so seldom that it never is too much
            break
        now_ms += gap_ms
    reading = CostReading(requests, throttle_ms, (now_ms - began_ms) / 1000)
    if throttle_ms and fault(reading, windows) is None:
        told_us = spent_us(percent, throttle_ms, reading.elapsed_s, windows) / requests
        assert told_us == pytest.approx(cost_us, rel=0.001)


@pytest.mark.parametrize(
    ("reading", "what"),
    [
        (CostReading(100, 30, 0.005), None),
        (CostReading(100, 30, 0.5), None),
        (CostReading(100, 999, 0.5), None),
        (CostReading(100, 1000, 0.5), "cost more than a whole window"),
        (CostReading(100, 30, 10.0), "longer"),
        (CostReading(100, 30, 0.99), "window changes"),
        (CostReading(100, 30, 3.01), "window changes"),
        (CostReading(100, 30, 3.5), None),
    ],
)
def test_a_calibration_reading_without_information_is_refused(reading: CostReading, what: str | None) -> None:
    found = fault(reading, Windows())
    assert (found is None) if what is None else (found is not None and what in found)
