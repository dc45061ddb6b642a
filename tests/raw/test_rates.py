"""The figures that other tests compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.raw.client import Answer
from tests.raw.rates import Throttling, mean_rate, throttling, trend_rate

if TYPE_CHECKING:
    from collections.abc import Callable

STEADY = [Answer(second / 10, 100, 0) for second in range(600)]
SWINGING = [Answer(float(second), 10_000, 0) for second in range(5, 105, 10)]
"""Everything at once every ten seconds, from 5 s on: 1000 bytes/s."""


@pytest.mark.parametrize("rate", [mean_rate, trend_rate])
def test_the_measured_rate_of_a_steady_stream_is_its_rate(
    rate: Callable[[list[Answer], float, float], float],
) -> None:
    assert rate(STEADY, 10.0, 50.0) == pytest.approx(1000, rel=0.001)


def test_the_measured_trend_hardly_depends_on_where_a_swing_is_cut() -> None:
    means = [mean_rate(SWINGING, begin, begin + 64.0) for begin in range(20)]
    trends = [trend_rate(SWINGING, begin, begin + 64.0) for begin in range(20)]
    assert max(means) > 1090
    assert all(abs(trend / 1000 - 1) < 0.05 for trend in trends)


def test_throttling_counts_responses_with_a_throttle_time() -> None:
    answers = [
        Answer(0.5, 1, 100),
        Answer(1.0, 1, 100),
        Answer(1.5, 1, 0),
        Answer(1.9, 0, 300),
        Answer(2.0, 1, 9),
    ]
    told = throttling(answers, 1.0, 2.0)
    assert told == Throttling(2, 0.4)
    assert told.mean_ms == pytest.approx(200)
    assert throttling(answers, 3.0, 4.0).mean_ms == 0
