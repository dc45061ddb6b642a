"""The summary of a replay in words. No test runs Spark."""

from __future__ import annotations

import polars as pl

from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.replay.summary import BUDGET, Range, Total, differences, held_back, listed, top

KEY = "producer_byte_rate"


def total(candidate: str, throttle_s: float, throttled_s: float) -> Total:
    violations = 3 if throttle_s else 0
    throttle, throttled_time = Range(throttle_s, throttle_s), Range(throttled_s, throttled_s)
    throttled = 2 if throttle_s else 0
    return Total(KEY, candidate, 1, (throttled, throttled), 0, violations, throttle, throttled_time, 0)


def test_the_replay_summary_compares_sources_where_clients_are_throttled() -> None:
    of_traces = [total("a", 10.0, 8.0), total("b", 0.0, 0.0), total("c", 1.0, 1.0)]
    of_usage = [total("a", 9.0, 10.0), total("b", 0.0, 0.0)]
    assert differences(of_traces, of_usage) == [
        (
            f"a, {KEY}: throttle times 9.0 s of usage, 10.0 s of traces (-10.0 %),"
            " throttled time 10.0 s of usage, 8.0 s of traces (+25.0 %)"
        )
    ]


def test_the_replay_summary_notes_held_back_demand_for_recorded_quotas_only() -> None:
    """Two budgets were throttled for 20 s of 100 s each."""
    (line,) = held_back([total(RECORDED, 50.0, 40.0), total("a", 60.0, 50.0)], 100.0)
    assert line.startswith(f"{KEY}: when recorded, 2 were throttled 20 % of the time;")
    assert held_back([total(RECORDED, 0.0, 0.0)], 100.0) == []


def test_the_replay_summary_lists_ranges_where_demand_was_held_back() -> None:
    found = Total(KEY, "a", 1, (1, 3), 2, None, Range(0.0, 161.4), Range(2.0, None), None)
    (row,) = listed([found]).rows
    assert row == (KEY, "a", "1 to 3", 2, None, "0.0 to 161.4", "2.0 to unknown", None)


def test_the_longest_throttled_budgets_are_those_of_which_something_is_known() -> None:
    """A budget with the bounds `0.0 to unknown` says nothing, so that it is listed only if another file's
    time is known. A time with a lower bound and without an upper one comes first.
    """
    times: list[tuple[str, str, float, float | None]] = [
        ("nothing", "a", 0.0, None),
        ("known", "a", 3.0, 3.0),
        ("known", "b", 0.0, None),
        ("more", "a", 4.0, 5.0),
        ("most", "b", 1.0, None),
        ("never", "a", 0.0, 0.0),
    ]
    budgets = pl.DataFrame(
        [("default", KEY, "u", client_id, None, 0, *others) for client_id, *others in times],
        [*BUDGET, "candidate", "throttled_s_lower", "throttled_s_upper"],
        orient="row",
    )
    most = ("default", KEY, "u", "most", None, "0", None, "1.0 to unknown")
    more = ("default", KEY, "u", "more", None, "0", "4.0 to 5.0", None)
    known = ("default", KEY, "u", "known", None, "0", "3.0", "0.0 to unknown")
    assert top(budgets, ("a", "b"), 10).rows == (most, more, known)
    assert top(budgets, ("a", "b"), 2).rows == (most, more)
