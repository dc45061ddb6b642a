"""Each planted problem is told by the log, the page, an event and a metric, where it can be."""

from __future__ import annotations

import pytest

from tests.night.planted import PROBLEMS

WITHIN_S = 40.0
"""Time (s) for all channels. The slowest problem takes two refreshes of `refresh_s`, or a silence of 20 s."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_planted_problem_is_told_by_every_channel(name: str) -> None:
    run, expected = PROBLEMS[name]
    found = run(expected)
    told = {channel: getattr(found, channel) for channel, pattern in vars(expected).items() if pattern}
    assert [channel for channel, each in told.items() if each is None] == []
    assert max((each.after_s for each in told.values()), default=0.0) < WITHIN_S
