"""Charges streamed through the replay in batches, as Spark delivers them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.pipeline.replay.run import BUDGET, RANGED, BudgetSettings, replayed

Row = tuple[object, ...]

NAMES = ("budget", *BUDGET, *RANGED)
TYPES = (
    [pa.int64()]
    + [pa.string()] * 7
    + [pa.int64(), pa.float64(), pa.string(), pa.float64(), pa.bool_()]
    + [pa.int64()] * 2
    + [pa.float64()]
    + [pa.int64()] * 5
)


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(NAMES)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


def charge(
    budget: int,
    at_ms: int,
    value: float,
    *,
    name: str = "app",
    quota: str = "producer_byte_rate",
    prefix: str = "",
    connection: int = 1,
    pacing: str = "kafka",
    in_force: float | None = None,
    waited_ms: int = 0,
) -> Row:
    broker = None if quota == "controller_mutation_rate" else 0
    who = ("main", "a.toml", quota, "", "" if prefix else name, prefix, "weir-1", broker, 1000.0, pacing)
    ranged = in_force is not None
    return (budget, *who, in_force, ranged, at_ms, 0, value, connection, waited_ms, 0, 5, waited_ms)


def told(
    batches: Iterable[pa.RecordBatch], settings: BudgetSettings | None = None
) -> list[dict[str, object]]:
    return [row for batch in replayed(batches, settings or BudgetSettings()) for row in batch.to_pylist()]


def test_replaying_no_charges_gives_no_hours() -> None:
    assert told([]) == []
    assert told([batch([])]) == []


def test_a_replayed_budget_continues_in_the_next_batch() -> None:
    """Kafka's example has the throttle times 0, 2204, 8102 (ms)."""
    (row,) = told([batch([charge(1, 0, 6102.0)]), batch([charge(1, 0, 6102.0), charge(1, 0, 6102.0)])])
    assert (row["throttle_ms_lower"], row["violations"], row["throttled_s_lower"]) == (10_306, 2, 10.306)
    assert (row["throttle_ms_upper"], row["demand"], row["throttled_s_upper"]) == (10_306, "recorded", 10.306)
    assert row["cluster"] == "main"
    assert (row["candidate"], row["user"], row["client_id"], row["broker"]) == ("a.toml", None, "app", 0)


def test_a_budget_with_smooth_pacing_is_replayed_with_it() -> None:
    charges = [charge(1, at_ms, 600.0, pacing="smooth") for at_ms in (0, 0, 5000)]
    (row,) = told([batch(charges)])
    assert (row["throttle_ms_upper"], row["violations"]) == (500 + 600 + 500, 3)


@pytest.mark.parametrize(
    ("settings", "throttle_ms"),
    [
        (BudgetSettings(), 5000 + 4000 + 5100),
        (BudgetSettings(hold=True), 5000 + 5100),
        (BudgetSettings(throttle_ms_max=2000), 2000 + 2000 + 2000 + 2000),
    ],
    ids=["default", "hold", "throttle_ms_max"],
)
def test_replayed_fetches_wait_as_the_throttle_settings_say(
    settings: BudgetSettings, throttle_ms: int
) -> None:
    """The first connection's 15,000 bytes at 1000 bytes/s cause a throttle time of 5 s. By default, the
    second connection waits until the same time. With `throttle_ms_max`, the wait is told in parts. In hold
    mode the second connection gets its 100 bytes at 1 s, with a window of 10 s: 15,100 bytes are worth 15.1
    s, of which 10 have passed.
    """
    quota = "consumer_byte_rate"
    rows = [charge(1, 0, 15_000.0, quota=quota), charge(1, 1000, 100.0, quota=quota, connection=2)]
    (row,) = told([batch(rows)], settings)
    assert row["throttle_ms_upper"] == throttle_ms


def test_a_replayed_budget_whose_clients_were_held_back_has_a_range() -> None:
    """Under half of the limit, the client used all of it, and waited for almost all of the time."""
    rows = [charge(1, at, 500.0, in_force=500.0, waited_ms=990) for at in range(0, 100_000, 1000)]
    (row,) = told([batch(rows[:50]), batch(rows[50:])])
    assert (row["demand"], row["throttle_ms_lower"], row["violations"]) == ("held back", 0, 0)
    upper_ms, upper_s = row["throttle_ms_upper"], row["throttled_s_upper"]
    assert isinstance(upper_ms, int)
    assert isinstance(upper_s, float)
    assert 60_000 < upper_ms < 130_000
    assert 60 < upper_s < 130


def test_a_replayed_budget_has_no_bounds_if_the_recording_tells_too_little() -> None:
    """A flat-out client would need 100 times its recorded requests to exceed the limit."""
    rows = [charge(1, at, 10.0, in_force=10.0, waited_ms=990) for at in range(0, 1_000_000, 1000)]
    (row,) = told([batch(rows)])
    bounds = ("throttle_ms_lower", "throttle_ms_upper", "throttled_s_lower", "throttled_s_upper")
    assert [row[name] for name in ("demand", *bounds)] == ["unknown", None, None, None, None]


def test_each_replayed_budget_begins_unused() -> None:
    rows = told([batch([charge(1, 0, 10_000.0), charge(2, 0, 10_000.0, name="other")])])
    assert [(row["client_id"], row["violations"]) for row in rows] == [("app", 0), ("other", 0)]


def test_replayed_budgets_with_equal_hashes_stay_separate() -> None:
    rows = told([batch([charge(1, 0, 10_000.0), charge(1, 0, 10_000.0, name="other")])])
    assert [(row["client_id"], row["violations"]) for row in rows] == [("app", 0), ("other", 0)]


def test_replayed_hours_mark_prefixes_and_give_mutations_no_broker() -> None:
    quota = "controller_mutation_rate"
    (row,) = told([batch([charge(1, 0, 5.0, quota=quota, prefix="etl-")])])
    assert (row["client_id"], row["broker"], row["charged"]) == ("etl-*", None, 5.0)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 10_000), st.integers(1, 9000)), min_size=1, max_size=40
    ),
    st.lists(st.integers(0, 40), max_size=8),
    st.sampled_from([None, 500.0, 2000.0]),
)
def test_replayed_hours_do_not_depend_on_the_cut_into_batches(
    drawn: list[tuple[int, int, int]], cuts: list[int], in_force: float | None
) -> None:
    rows = [
        charge(budget, at, float(value), name=f"app-{budget}", in_force=in_force, waited_ms=at % 3)
        for budget, at, value in sorted(drawn)
    ]
    edges = [0, *sorted(cuts), len(rows)]
    batches = [batch(rows[start:stop]) for start, stop in pairwise(edges)]
    assert told(batches) == told([batch(rows)])
