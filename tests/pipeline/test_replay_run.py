"""Uses of budgets replayed in periods, as Spark delivers them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.replay.charges import charges, phased
from weir.pipeline.replay.run import BudgetSettings, replayed
from weir.quotas import QuotaKey
from weir.quotas.replay import Replay
from weir.quotas.replay_hours import Hour

Use = dict[str, object]
END_MS = 10**12


def use(
    budget: int,
    at_ms: int,
    value: float,
    *,
    instance: str = "weir-1",
    connection: int = 1,
    waited_ms: int = 0,
    broker: int | None = 0,
    **others: int,
) -> Use:
    """Return the use of a budget by one traced request; `others` make it one of a usage record."""
    numbers = dict.fromkeys(("interval_ms", "answer_ms", "service_ms", "violated"), 0)
    numbers |= {"requests": 1, "sessions": 1, "note": 5, "told_ms": waited_ms, "waited_ms": waited_ms}
    owner = {"budget": budget, "cluster": "main", "instance": instance, "broker": broker}
    about = {"time_ms": at_ms, "value": value, "connection": connection, "is_charge": True}
    return {**owner, **about, **numbers, **others}


def frame(found: Sequence[Use]) -> pl.DataFrame:
    return pl.DataFrame(found, infer_schema_length=None).with_columns(
        pl.col("budget").cast(pl.UInt32),
        pl.col("broker").cast(pl.Int64),
        pl.col("value").cast(pl.Float64),
        chain=pl.lit(None, pl.UInt32),
        at_broker=pl.lit(None, pl.Int64),
    )


def budget(client_id: str = "app", quota: str = "producer_byte_rate", **others: object) -> Use:
    about: Use = {"candidate": "a.toml", "quota": quota, "user": None, "client_id": client_id, "group": None}
    return {**about, "limit": 1000.0, "pacing": "kafka", "in_force": None, "ranged": False, **others}


def told(
    found: Sequence[Use], *budgets: Use, cuts: Sequence[int] = (), settings: BudgetSettings | None = None
) -> list[dict[str, object]]:
    """Return the hours of budgets (default: one), with their uses cut into periods at these times (ms)."""
    rows = frame(found)
    ends = [*cuts, END_MS]
    begins = [-1, *cuts]
    periods = [
        (end, part)
        for begin, end in zip(begins, ends, strict=True)
        if (part := rows.filter(pl.col("time_ms").is_between(begin, end, closed="left"))).height
    ]
    of_all = pl.DataFrame(budgets or (budget(),), infer_schema_length=None).with_row_index("budget")
    hours = replayed(periods, of_all, settings or BudgetSettings())
    return hours.sort("client_id", "start_ms").to_dicts()


def test_replaying_no_uses_gives_no_hours() -> None:
    of_none = pl.DataFrame([budget()], infer_schema_length=None).with_row_index("budget")
    assert replayed([], of_none, BudgetSettings()).is_empty()


def test_a_replayed_budget_continues_in_the_next_period() -> None:
    """Kafka's example, with the throttle times 0, 2203 (a ms later than the first request) and 8102 (ms)."""
    (row,) = told([use(0, 0, 6102.0), use(0, 1, 6102.0), use(0, 1, 6102.0)], cuts=[1])
    assert (row["throttle_ms_lower"], row["violations"], row["throttled_s_lower"]) == (10_305, 2, 10.305)
    assert (row["throttle_ms_upper"], row["demand"], row["throttled_s_upper"]) == (10_305, "recorded", 10.305)
    assert row["cluster"] == "main"
    assert (row["candidate"], row["user"], row["client_id"], row["broker"]) == ("a.toml", None, "app", 0)


def test_a_budget_with_smooth_pacing_is_replayed_with_it() -> None:
    (row,) = told([use(0, at_ms, 600.0) for at_ms in (0, 0, 5000)], budget(pacing="smooth"))
    assert (row["throttle_ms_upper"], row["violations"]) == (500 + 600 + 500, 3)


@pytest.mark.parametrize(
    ("settings", "throttle_ms"),
    [
        (BudgetSettings(), 5000 + 4000 + 5100),
        (BudgetSettings(throttle_ms_max=2000), 2000 + 2000 + 2000 + 2000),
    ],
    ids=["default", "throttle_ms_max"],
)
def test_replayed_fetches_wait_as_the_throttle_settings_say(
    settings: BudgetSettings, throttle_ms: int
) -> None:
    """The first connection's 15,000 bytes at 1000 bytes/s cause a throttle time of 5 s. By default, the
    second connection waits until the same time. With `throttle_ms_max`, the wait is told in parts. In hold
    mode the second connection gets its 100 bytes at 1 s, with a window of 10 s: 15,100 bytes are worth 15.1
    s, of which 10 have passed.
    """
    rows = [use(0, 0, 15_000.0), use(0, 1000, 100.0, connection=2)]
    (row,) = told(rows, budget(quota="consumer_byte_rate"), settings=settings)
    assert row["throttle_ms_upper"] == throttle_ms


def test_a_replayed_budget_whose_clients_were_held_back_has_a_range() -> None:
    """Under half of the limit, the client used all of it, and waited for almost all of the time."""
    rows = [use(0, at, 500.0, waited_ms=990) for at in range(0, 100_000, 1000)]
    (row,) = told(rows, budget(in_force=500.0, ranged=True), cuts=[50_000])
    assert (row["demand"], row["throttle_ms_lower"], row["violations"]) == ("held back", 0, 0)
    upper_ms, upper_s = row["throttle_ms_upper"], row["throttled_s_upper"]
    assert isinstance(upper_ms, int)
    assert isinstance(upper_s, float)
    assert 60_000 < upper_ms < 130_000
    assert 60 < upper_s < 130


def test_a_replayed_budget_has_no_bounds_if_the_recording_tells_too_little() -> None:
    """A flat-out client would need 100 times its recorded requests to exceed the limit."""
    rows = [use(0, at, 10.0, waited_ms=990) for at in range(0, 1_000_000, 1000)]
    (row,) = told(rows, budget(in_force=10.0, ranged=True))
    bounds = ("throttle_ms_lower", "throttle_ms_upper", "throttled_s_lower", "throttled_s_upper")
    assert [row[name] for name in ("demand", *bounds)] == ["unknown", None, None, None, None]


def test_each_replayed_budget_begins_unused() -> None:
    rows = told([use(0, 0, 10_000.0), use(1, 0, 10_000.0)], budget(), budget("other"))
    assert [(row["client_id"], row["violations"]) for row in rows] == [("app", 0), ("other", 0)]


def test_replayed_hours_of_several_weirs_add_up_and_each_weir_has_its_own_budget() -> None:
    both = [use(0, 0, 10_000.0), use(0, 0, 10_000.0, instance="weir-2")]
    (row,) = told(both)
    assert (row["charges"], row["charged"], row["violations"]) == (2, 20_000.0, 0)


def test_recorded_waits_count_once_where_they_overlap_also_across_periods() -> None:
    """Two waits of 600 ms begin at 1000 and 1400 ms, another Weir's at 1000 ms."""
    waits = [use(0, at, 1.0, told_ms=600, violated=1) for at in (1000, 1400)]
    other = use(0, 1000, 1.0, instance="weir-2", told_ms=600, violated=1)
    recorded = budget(candidate=RECORDED, limit=None, pacing=None)
    (row,) = told([*waits, other], recorded, cuts=[1200])
    assert (row["throttle_ms_upper"], row["violations"], row["throttled_s_upper"]) == (1800, 3, 1.6)


def by_replay(found: Sequence[Use], limit: float, quota: QuotaKey) -> list[Hour]:
    """Return the hours that `Replay` computes from all charges, one budget at one broker."""
    uses = phased(frame(found).with_columns(owner=0).sort("time_ms", "connection", maintain_order=True))
    rows = charges(uses.with_columns(segment=pl.lit(0, pl.UInt32), number="requests"))
    replay = Replay(quota, limit)
    columns = ("at_ms", "service_ms", "value", "connection", "told_ms", "note")
    replay.feed(*(rows[name].to_list() for name in columns))
    return replay.finish()


BURSTS = st.lists(
    st.tuples(
        st.integers(0, 30),  # silence (s) before
        st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 9000)), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=8,
)


@given(
    BURSTS,
    st.lists(st.integers(0, 300_000), max_size=3, unique=True).map(sorted),
    st.sampled_from([100.0, 500.0, 1000.0, 5000.0]),
    st.sampled_from([0, 1000, 10_000]),
    st.sampled_from([QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE]),
)
def test_replay_of_segments_in_periods_equals_that_of_all_charges(
    bursts: list[tuple[int, list[tuple[int, int]]]],
    cuts: list[int],
    limit: float,
    interval_ms: int,
    quota: QuotaKey,
) -> None:
    """Segments that cannot exceed the limit are counted only; the end of an hour is at 60 s."""
    now_ms, found = 3_540_000, list[Use]()
    for silence_s, burst in bursts:
        now_ms += 1000 * silence_s
        for gap_ms, value in burst:
            now_ms += gap_ms
            length_ms = interval_ms * (1 + 4 * (value % 2))  # also longer than a silence
            more = {"requests": 3, "sessions": 2, "interval_ms": length_ms} if interval_ms else {}
            found.append({**use(0, now_ms, float(3 * value), connection=gap_ms % 2), **more})
    rows = told(found, budget(quota=quota.value, limit=limit), cuts=[3_540_000 + cut for cut in cuts])
    for row, hour in zip(rows, by_replay(found, limit, quota), strict=True):
        names = ("start_ms", "charges", "violations", "first_ms", "last_ms", "given_up")
        assert [row[name] for name in names] == [getattr(hour, name) for name in names]
        assert (row["throttle_ms_upper"], row["throttled_s_upper"]) == (
            hour.throttle_ms,
            hour.throttled_ms / 1000,
        )
        assert row["charged"] == pytest.approx(hour.charged)


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.5], [0.9, *[0.02] * 5], [0.05] * 20], ids=len)
@pytest.mark.parametrize("interval_ms", [1000, 10_000, 60_000])
@pytest.mark.parametrize("share", [0.9, 0.95, 0.995, 0.999])
def test_steady_use_just_below_the_limit_is_not_throttled(
    share: float, interval_ms: int, shares: list[float]
) -> None:
    """Ten charges per record made 805 throttled s of 1,800 at 95 % of the limit. They made 265 of 600 for two
    clients that share a budget, whose records begin at the same times.
    """
    record = {"interval_ms": interval_ms, "requests": interval_ms, "sessions": 1}
    found = [
        {**use(0, at_ms, share * 2000 * interval_ms * part, connection=client), **record}
        for at_ms in range(0, 300_000, interval_ms)
        for client, part in enumerate(shares)
    ]
    (row,) = told(found, budget(limit=2_000_000.0))
    assert (row["violations"], row["throttled_s_upper"]) == (0, 0.0)


@pytest.mark.parametrize("quota", [QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE])
def test_a_small_request_is_replayed_while_an_earlier_one_that_waited_still_counts(quota: QuotaKey) -> None:
    """The first request is worth 22 s, so the second waits until 12 s. The third, 12.1 s after the second was
    recorded, is below the limit by itself. Together with the second, 0.2 s before, it is worth 14 s, of which
    the window covers 10.2.
    """
    found = [use(0, 0, 22_000.0), use(0, 100, 5000.0), use(0, 12_200, 9000.0)]
    (row,), (hour,) = told(found, budget(quota=quota.value)), by_replay(found, 1000.0, quota)
    assert (row["violations"], row["throttle_ms_upper"]) == (hour.violations, hour.throttle_ms)
    assert hour.throttle_ms == 12_000 + 3800


def test_charges_of_a_long_record_come_in_order_with_later_segments_of_the_next_period() -> None:
    """The record's charges reach beyond the next period's first two segments, which are 18 s apart."""
    long = {"requests": 10, "sessions": 1, "interval_ms": 60_000}
    found = [{**use(0, 0, 60_000.0), **long}, use(0, 1500, 9000.0), use(0, 20_000, 9000.0)]
    (row,), (hour,) = told(found, cuts=[1000]), by_replay(found, 1000.0, QuotaKey.PRODUCER_BYTE_RATE)
    assert (row["throttle_ms_upper"], row["violations"]) == (hour.throttle_ms, hour.violations)
    assert row["throttled_s_upper"] == hour.throttled_ms / 1000
