"""Run `quotas.replay` inside Spark, which turns records into the hours of each budget.

The tasks before Spark's shuffle find the uses of budgets, and pack them into buckets of budgets. The tasks
after the shuffle receive the uses of their budgets in periods, one after the other, and keep the state of the
budgets from one period to the next.

Most budgets are never near their limit. A *segment*, the uses of a budget between two silences in which a
limiter forgets all earlier charges, is not replayed if it cannot exceed the limit: its charges are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from weir.pipeline import arrow
from weir.pipeline.replay import charges
from weir.pipeline.replay.candidates import RECORDED, Drawn
from weir.pipeline.replay.charges import CHARGE, CHARGES_PER_RECORD, OWNER
from weir.pipeline.tables import REPLAY
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.replay import NEVER, PATIENCE_MS, Replay
from weir.quotas.replay_demand import HELD_BACK, UNKNOWN, Outlook, RangedReplay
from weir.quotas.replay_demand import RECORDED as DEMAND_RECORDED
from weir.quotas.replay_rules import ReplayedMember
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_kind import KINDS
from weir.quotas.table.quota_table import QuotaKey

PERIOD: Final = ("bucket", "period")
_PACKED: Final = StructType().add("bucket", "long").add("period", "long").add("rows", "binary")
RECORDS_AT_ONCE: Final = 500_000
"""Number of records that a task converts at once."""
CHARGES_AT_ONCE: Final = 5_000_000
"""Number of charges that a task has in memory at once, unless one segment has more."""
_SAFE: Final = 0.999
"""Share of the limit that segments which are not replayed stay below: sums in polars have rounding errors."""
_DEMANDS: Final = (DEMAND_RECORDED, HELD_BACK, UNKNOWN)
_BOUNDS: Final = ("throttle_ms_lower", "throttle_ms_upper", "throttled_ms_lower", "throttled_ms_upper")
_RESULT: Final = {
    "owner": pl.Int64,
    "start_ms": pl.Int64,
    "demand": pl.Int8,
    **dict.fromkeys(_BOUNDS, pl.Int64),
    "charged": pl.Float64,
    **dict.fromkeys(("charges", "violations", "first_ms", "last_ms", "given_up"), pl.Int64),
}
"""Columns of the hours of an owner (a budget at one broker and instance); `demand` is an index of `_DEMANDS`.
"""
_OWNER: Final = dict(zip(OWNER, (pl.UInt32, pl.String, pl.String, pl.Int64), strict=True))
_TOLD: Final = dict.fromkeys(("start_ms", "throttle_ms", "throttled_ms"), pl.Int64)


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Settings that all budgets share: those of `weir run`'s configuration, and the clients' timeout."""

    num_samples: int = NUM_SAMPLES_DEFAULT
    window_s: int = WINDOW_S_DEFAULT
    patience_ms: int = PATIENCE_MS
    throttle_ms_max: int = INT32_MAX
    """Maximum throttle time (ms) in a response to a client."""
    end_ms: int = NEVER
    """Unix time (ms) of the end of the recording."""
    charges_per_record: int = CHARGES_PER_RECORD

    @property
    def silence_ms(self) -> int:
        """Time (ms) without a charge after which a limiter has forgotten all charges: a sample lives for
        `num_samples` windows after its last charge, and has charges of one window.
        """
        return (self.num_samples + 1) * self.window_s * 1000

    def replay(
        self, budget: Mapping[str, Any], members: Mapping[int, ReplayedMember], kind: type[Replay] = Replay
    ) -> Replay:
        """Return a replay of a budget (a row of `candidates.Drawn.budgets`), without charges so far. For
        `members` see `Replay`.
        """
        return kind(
            QuotaKey(budget["quota"]),
            budget["limit"],
            num_samples=self.num_samples,
            window_s=self.window_s,
            patience_ms=self.patience_ms,
            throttle_ms_max=self.throttle_ms_max,
            pacing=Pacing(budget["pacing"]),
            members=members,
        )


def hours(
    records: DataFrame, drawn: Drawn, settings: BudgetSettings, buckets: int, period_ms: int
) -> DataFrame:
    """Replay records (`tables.USAGE` or `tables.TRACE`) under the limits of all candidates, and sum up the
    recorded throttle times. Return the hours of each budget (`tables.REPLAY`).
    """
    keys = arrow.keys(records.sparkSession, buckets)
    pack = partial(_packed, drawn=drawn, keys=keys, period_ms=period_ms)
    packed = charges.needed(records).mapInArrow(pack, _PACKED).repartition(buckets, "bucket")
    replay = partial(
        _replayed, budgets=drawn.budgets, chains=drawn.chains, settings=settings, period_ms=period_ms
    )
    return packed.sortWithinPartitions(*PERIOD).mapInArrow(replay, REPLAY)


def _packed(
    batches: Iterator[pa.RecordBatch], drawn: Drawn, keys: Sequence[int], period_ms: int
) -> Iterator[pa.RecordBatch]:
    for records in arrow.frames(batches, RECORDS_AT_ONCE):
        home = pl.col("home") + pl.col("broker").fill_null(-1) + 1  # all are of one cluster
        found = charges.uses(records, drawn).with_columns(
            bucket=pl.lit(pl.Series(keys)).gather(home % len(keys)), period=pl.col("time_ms") // period_ms
        )
        yield from arrow.packed(found.drop("home"), PERIOD)


def _replayed(
    batches: Iterable[pa.RecordBatch],
    budgets: pl.DataFrame,
    chains: Sequence[ReplayedMember],
    settings: BudgetSettings,
    period_ms: int,
) -> Iterator[pa.RecordBatch]:
    rows = (row for batch in batches for row in zip(*batch.columns, strict=True))
    for _bucket, parts in groupby(rows, key=lambda row: row[0]):
        periods = (
            ((period + 1) * period_ms, pl.concat(arrow.unpacked(each[2]) for each in of_period))
            for period, of_period in groupby(parts, key=lambda row: row[1].as_py())
        )
        yield from arrow.batches(replayed(periods, budgets, settings, chains), REPLAY)


def replayed(
    periods: Iterable[tuple[int, pl.DataFrame]],
    budgets: pl.DataFrame,
    settings: BudgetSettings,
    chains: Sequence[ReplayedMember] = (),
) -> pl.DataFrame:
    """Return the hours (`tables.REPLAY`) of the budgets whose uses (`charges.uses`) are in `periods`: pairs
    of the end (ms) of a period, and the uses of all records that began in it. The result is the same for any
    periods.
    """
    bucket = _Bucket(budgets, settings, chains)
    for end_ms, found in periods:
        bucket.add(found, end_ms)
    return bucket.finish()


class _Owner:
    """The replay of a budget at one broker and instance: by all models if its result is a range."""

    def __init__(
        self, budget: Mapping[str, Any], settings: BudgetSettings, chains: Sequence[ReplayedMember]
    ) -> None:
        self._chains = chains
        self._members: dict[int, ReplayedMember] = {}
        self._replay: Replay | RangedReplay = (
            RangedReplay(
                partial(settings.replay, budget, self._members),
                limit=budget["limit"],
                in_force=budget["in_force"],
                end_ms=settings.end_ms,
            )
            if budget["ranged"]
            else settings.replay(budget, self._members)
        )
        self._later: pl.DataFrame | None = None
        """Charges of records of earlier periods, in later ones."""
        self._end_ms = 0

    def feed(self, found: pl.DataFrame, end_ms: int, until_ms: int = NEVER) -> None:
        """Simulate a segment that ends at `end_ms`; keep charges from `until_ms` on: they may not be next."""
        if self._later is not None:
            found = charges.in_order(
                pl.concat([self._later, found]).with_columns(segment=pl.lit(0, pl.UInt32))
            )
        self._end_ms, self._later = max(self._end_ms, end_ms), None
        if self._end_ms > until_ms:
            self._later = found.filter(pl.col("at_ms") >= until_ms)
            found = found.filter(pl.col("at_ms") < until_ms)
        chained = found.filter(pl.col("chain").is_not_null())
        for number, chain, broker in chained.select("connection", "chain", "at_broker").unique().iter_rows():
            self._members[number] = self._chains[chain].at_broker(broker)
        columns = CHARGE if isinstance(self._replay, RangedReplay) else CHARGE[:6]
        self._replay.feed(*(found[name].to_list() for name in columns))

    def is_idle(self, now_ms: int) -> bool:
        """Return True if no charge so far matters at `now_ms`; charges may be later than their segment."""
        if isinstance(self._replay, RangedReplay) or now_ms < self._end_ms:
            return False
        if self._later is not None:
            self.feed(self._later.clear(), 0)
        return self._replay.is_idle(now_ms)

    def finish(self) -> Iterator[Outlook]:
        """Yield the results of all hours."""
        if self._later is not None:
            self.feed(self._later.clear(), 0)
        for one in self._replay.finish():
            yield one if isinstance(one, Outlook) else Outlook(one, DEMAND_RECORDED)


class _Bucket:
    """The budgets of one bucket: the replays of those that come near their limit, and the results so far."""

    def __init__(
        self, budgets: pl.DataFrame, settings: BudgetSettings, chains: Sequence[ReplayedMember]
    ) -> None:
        self._budgets, self._settings, self._chains = budgets, settings, chains
        self._numbers: dict[tuple[Any, ...], int] = {}
        """Number of each owner (columns `OWNER`)."""
        self._owners: dict[int, _Owner] = {}
        self._waits: pl.DataFrame | None = None
        self._quiet: list[pl.DataFrame] = []
        self._recorded: list[pl.DataFrame] = []

    def add(self, found: pl.DataFrame, end_ms: int) -> None:
        """Add the uses of a period that ends at `end_ms`."""
        kinds = self._budgets.select("budget", "quota", "candidate", "limit", "pacing", "ranged")
        found = found.join(kinds, on="budget", maintain_order="left")
        is_recorded = pl.col("candidate") == RECORDED
        told = found.filter(is_recorded)
        spans, self._waits = charges.throttled(charges.waits(told), self._waits)
        self._recorded += [charges.counted(told), spans]
        charged = found.filter(~is_recorded & pl.col("is_charge"))
        if charged.height:
            self._take(self._segmented(charged), end_ms)

    def _segmented(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return the uses in the order of owner and time, with the numbers `owner` and `segment`, and
        `is_quiet`: True if the uses so far in the segment cannot exceed the limit.
        """
        settings, silence_ms = self._settings, self._settings.silence_ms
        each = found.select(OWNER).unique()
        numbers = [self._numbers.setdefault(row, len(self._numbers)) for row in each.iter_rows()]
        each = each.with_columns(owner=pl.Series(numbers, dtype=pl.Int64))
        rows = found.join(each, on=OWNER, nulls_equal=True, maintain_order="left")
        rows = charges.phased(rows.sort("owner", "time_ms", "connection", maintain_order=True))
        end = (pl.col("time_ms") + pl.col("interval_ms")).cum_max().over("owner")
        is_after = pl.col("time_ms") >= end.shift(1).over("owner") + silence_ms
        is_new = is_after.fill_null(value=True)
        (longest_ms,) = rows.select(pl.col("interval_ms").max()).row(0)
        reach_ms = silence_ms + longest_ms
        since = pl.col("time_ms") - pl.col("time_ms").min()
        apart = since + pl.col("owner") * (since.max() + reach_ms + 1)
        window_ms = (settings.num_samples - 1) * settings.window_s * 1000
        room = pl.col("limit") * (window_ms / 1000 * _SAFE)
        is_simple = (
            (pl.col("pacing") == Pacing.KAFKA.value)
            & ~pl.col("quota").is_in([key.value for key, kind in KINDS.items() if kind.is_of_controller])
            & ~pl.col("ranged")
            & (pl.col("service_ms") == 0)
        )
        number = charges.number(settings.charges_per_record, max(window_ms, 1))
        return (
            rows.with_columns(segment=is_new.cum_sum().cast(pl.UInt32), apart=apart, number=number)
            .with_columns(busy=pl.col("value").rolling_sum_by("apart", f"{reach_ms}i", closed="both"))
            .with_columns(is_quiet=is_simple & (pl.col("busy") <= room))
        )

    def _take(self, rows: pl.DataFrame, end_ms: int) -> None:
        """Replay segments, or count them if they are quiet."""
        segments = rows.group_by("segment", maintain_order=True).agg(
            pl.col("owner", "budget").first(),
            start=pl.col("time_ms").first(),
            end=(pl.col("time_ms") + pl.col("interval_ms")).max(),
            is_quiet=pl.col("is_quiet").all(),
            number=pl.col("number").sum(),
        )
        is_over = pl.col("end") + self._settings.silence_ms <= end_ms  # no later use belongs to it
        segments = segments.with_columns(
            is_quiet=pl.col("is_quiet") & is_over,
            until=pl.col("start").shift(-1).over("owner").fill_null(end_ms),
        )
        active = segments.filter(
            pl.col("owner").is_in([*self._owners]) | (~pl.col("is_quiet")).any().over("owner")
        )
        fed = set[int]()
        chunk = pl.col("number").cum_sum() // CHARGES_AT_ONCE
        for some in active.with_columns(chunk=chunk).partition_by("chunk", maintain_order=True):
            fed |= self._feed(rows, some.drop("number", "chunk"))
        self._count(rows.filter(~pl.col("segment").is_in(list(fed))))

    def _feed(self, rows: pl.DataFrame, segments: pl.DataFrame) -> set[int]:
        """Replay those of the segments that are not quiet, or that follow a wait; return their numbers."""
        busy = segments.filter(~pl.col("is_quiet"))["segment"]
        found = charges.charges(rows.filter(pl.col("segment").is_in(busy.implode())))
        parts = found.partition_by("segment", as_dict=True)
        fed = set[int]()
        for segment, owner, budget, start, end, is_quiet, until in segments.iter_rows():
            replay = self._owners.get(owner)
            if replay is None:
                if is_quiet:
                    continue
                of_budget = self._budgets.row(budget, named=True)
                replay = self._owners[owner] = _Owner(of_budget, self._settings, self._chains)
            if is_quiet and replay.is_idle(start):
                continue
            if (segment,) not in parts:
                parts[segment,] = charges.charges(rows.filter(pl.col("segment") == segment))
            replay.feed(parts[segment,], end, until)
            fed.add(segment)
        return fed

    def _count(self, rows: pl.DataFrame) -> None:
        """Count the charges of quiet segments."""
        last = pl.col("time_ms") + (pl.col("interval_ms") - 1).clip(0)
        is_within = charges.hour(pl.col("time_ms")) == charges.hour(last)
        whole = rows.filter(is_within).with_columns(at_ms="time_ms")
        owners = rows.select("segment", "owner").unique()
        split = charges.charges(rows.filter(~is_within)).join(owners, on="segment")
        columns = ("owner", "at_ms", "value", "number")
        split = split.with_columns(number=pl.lit(1, pl.Int64))
        both = pl.concat([whole.select(columns), split.select(columns)])
        self._quiet.append(
            both.group_by("owner", start_ms=charges.hour(pl.col("at_ms"))).agg(
                charged=pl.col("value").sum(), charges=pl.col("number").sum()
            )
        )

    def finish(self) -> pl.DataFrame:
        """Return the hours (`tables.REPLAY`) of all budgets, summed up over instances."""
        rows = [_row(number, outlook) for number, owner in self._owners.items() for outlook in owner.finish()]
        loud = pl.DataFrame(rows, _RESULT, orient="row")
        each = pl.concat([loud, *self._quiet], how="diagonal_relaxed")
        owners = pl.DataFrame(list(self._numbers), _OWNER, orient="row").with_row_index("owner")
        replays = each.join(owners.with_columns(pl.col("owner").cast(pl.Int64)), on="owner")
        told = pl.concat([pl.DataFrame(schema=_TOLD), *self._recorded], how="diagonal_relaxed")
        told = told.with_columns(pl.col(name[:-6]).alias(name) for name in _BOUNDS)
        return _summed(pl.concat([replays, told], how="diagonal_relaxed"), self._budgets)


def _row(owner: int, outlook: Outlook) -> tuple[Any, ...]:
    """Return the result of one hour in the columns `_RESULT`."""
    one, unknown = outlook.hour, (None, None)
    bounds = (*(outlook.throttle_ms or unknown), *(outlook.throttled_ms or unknown))
    counts = (one.charged, one.charges, one.violations, one.first_ms, one.last_ms, one.given_up)
    return (owner, one.start_ms, _DEMANDS.index(outlook.demand), *bounds, *counts)


def _summed(each: pl.DataFrame, budgets: pl.DataFrame) -> pl.DataFrame:
    """Return the sums by budget and hour, in the columns of `tables.REPLAY`."""
    names = budgets.select("budget", "candidate", "quota", "user", "client_id", "group", "limit")
    by = ("cluster", "candidate", "quota", "user", "client_id", "group", "broker", "start_ms", "limit")
    is_known = (pl.col("demand") != _DEMANDS.index(UNKNOWN)).fill_null(value=True).all()
    summed = (
        each.join(names, on="budget")
        .group_by(by)
        .agg(
            *(pl.col(name).sum() for name in ("charged", "charges", "violations", "given_up")),
            *(pl.when(is_known).then(pl.col(name).sum()) for name in _BOUNDS),
            pl.col("demand").max().fill_null(0),
            pl.col("first_ms").min(),
            pl.col("last_ms").max(),
        )
    )
    seconds = {
        f"throttled_s_{end}": (pl.col(f"throttled_ms_{end}") / 1000).round(3) for end in ("lower", "upper")
    }
    demand = pl.col("demand").replace_strict(dict(enumerate(_DEMANDS)), return_dtype=pl.String)
    return summed.with_columns(demand=demand, **seconds).select(REPLAY.names)
