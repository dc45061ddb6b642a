"""When intervals end: on the wall clock's multiples, whatever the clocks do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.proxy.control.usage.recorder import Interval, Intervals

EPOCH_MS = 1_763_775_570_000
"""A multiple of a second and of ten."""


def test_the_first_usage_interval_ends_at_the_next_multiple() -> None:
    intervals = Intervals(1000, EPOCH_MS + 300, 5)
    assert intervals.wait_ms(EPOCH_MS + 300) == 700
    assert intervals.next(EPOCH_MS + 1000, 705) == (EPOCH_MS + 300, 700)
    assert intervals.wait_ms(EPOCH_MS + 1000) == 1000


@pytest.mark.parametrize("step_ms", [-3_600_000, -60_000, -900, 5_000, 3_600_000])
def test_a_changed_wall_clock_moves_usage_intervals_and_keeps_their_length(step_ms: int) -> None:
    intervals = Intervals(1000, EPOCH_MS, 0)
    intervals.next(EPOCH_MS + 1000, 1000)
    found = intervals.next(EPOCH_MS + 2000 + step_ms, 2000)
    assert found == (EPOCH_MS + 1000 + step_ms, 1000)
    assert intervals.stepped_ms == step_ms
    assert intervals.next(EPOCH_MS + 3000 + step_ms, 3000).length_ms == 1000
    assert intervals.stepped_ms == 0


def test_no_clock_change_makes_the_wait_for_an_interval_long_or_negative() -> None:
    intervals = Intervals(1000, EPOCH_MS, 0)
    assert intervals.wait_ms(EPOCH_MS - 86_400_000) <= 1050
    assert intervals.wait_ms(EPOCH_MS + 86_400_000) == 0


TURNS = st.lists(st.tuples(st.integers(0, 30), st.integers(-200_000, 200_000) | st.just(0)), max_size=30)


@given(st.sampled_from([100, 1000, 10_000]), st.integers(0, 20_000), TURNS)
def test_usage_intervals_have_lengths_of_the_monotonic_clock(
    length_ms: int, start_ms: int, turns: list[tuple[int, int]]
) -> None:
    """Each turn comes late by some share of an interval; before it the wall clock may be set."""
    wall_ms, mono_ms = EPOCH_MS + start_ms, 17
    intervals, total_ms = Intervals(length_ms, wall_ms, mono_ms), 0
    steps = 0
    end_ms = wall_ms
    for late, step_ms in turns:
        passed_ms = intervals.wait_ms(wall_ms) + late * length_ms // 10
        wall_ms, mono_ms = wall_ms + passed_ms + step_ms, mono_ms + passed_ms
        found = intervals.next(wall_ms, mono_ms)
        assert found.length_ms >= 1
        if not step_ms:
            assert found.time_ms == end_ms
        steps += step_ms != 0
        end_ms = found.time_ms + found.length_ms
        total_ms += found.length_ms
        assert abs(end_ms - wall_ms) <= 100
    slack_ms = 100 * (steps + 1) + len(turns)  # steps too small to be told from lateness are absorbed
    assert abs(total_ms - (mono_ms - 17)) <= slack_ms


@given(st.integers(0, 5_000), st.lists(st.integers(0, 40), min_size=2, max_size=20))
def test_punctual_usage_intervals_are_aligned_without_gaps(start_ms: int, late_ms: list[int]) -> None:
    wall_ms = EPOCH_MS + start_ms
    intervals = Intervals(1000, wall_ms, wall_ms - 3)
    found: list[Interval] = []
    for late in late_ms:
        wall_ms += intervals.wait_ms(wall_ms) + late
        found.append(intervals.next(wall_ms, wall_ms - 3))
    assert {(time % 1000, length) for time, length in found[1:]} == {(0, 1000)}
    assert {b.time_ms - a.time_ms for a, b in pairwise(found[1:])} <= {1000}
