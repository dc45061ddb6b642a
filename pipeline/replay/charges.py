"""Convert traces or usage records into uses of budgets. Convert uses into charges, the units that one request
costs of one quota, for the replay; and sum up their recorded throttle times, for comparison with it.

Usage records do not have single requests. A record becomes equal charges on as many connections as its field
`sessions` says: at most one charge per request, and at most `charges_per_record`, or `sessions` if that is
more, or still more just below the limit (`number`). The charges are spread evenly over the interval minus the
recorded throttle times, because a throttled client sent its requests in the remaining time.
"""

from __future__ import annotations

from typing import Final

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from weir.pipeline.lake import filled
from weir.pipeline.replay.candidates import KEYS, Drawn
from weir.pipeline.rollup.columns import CHARGED
from weir.pipeline.tables import BY_QUOTA, CLIENT
from weir.quotas import QuotaKey
from weir.quotas.limiters.request_time import US_PER_PERCENT
from weir.quotas.replay_hours import HOUR_MS
from weir.quotas.table.quota_kind import KINDS

CHARGES_PER_RECORD: Final = 10
"""Maximum number of charges per usage record with few sessions. More charges take longer and are hardly more
accurate (docs/how-to/pipeline/replay.md), except just below a limit.
"""
CHARGES_PER_WINDOW: Final = 2000
"""Maximum number of charges per window of the limiter that are made because use is just below the limit."""
SESSIONS_MAX: Final = 10_000
"""Maximum number of connections that a replay assumes for a usage record; each takes a row or more."""
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
STRICT_FROM: Final = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
"""For each API that creates or deletes topics or partitions, the first version that can answer with error 89
(THROTTLING_QUOTA_EXCEEDED) instead of a throttle time only.
"""
CLIENT_COLUMNS: Final = ("cluster", "instance", "broker", *CLIENT)
OWNER: Final = ("budget", "cluster", "instance", "broker")
"""Columns that identify a budget at one broker (null for the whole cluster). Each instance of Weir has its
own budgets; a restarted Weir is a new instance.
"""
CHARGE: Final = ("at_ms", "service_ms", "value", "connection", "told_ms", "note", "took_ms", "waited_ms")
"""Columns of charges, in the order of the parameters of `quotas.replay_demand.RangedReplay.feed`."""
WAITS_PER_RECORD: Final = 100
"""Maximum number of throttle times into which the throttle time of a usage record is split."""
WAIT_MS_MAX: Final = 2**31 - 1
"""Maximum throttle time (ms): the protocol's field has 32 bits."""
BUDGET: Final = ("budget", "cluster", "broker", "start_ms")
"""Columns that identify an hour of a budget."""
_QUOTAS: Final = tuple(BY_QUOTA.names)


def needed(records: DataFrame) -> DataFrame:
    """Return the columns of `tables.TRACE` or `tables.USAGE` that uses need, the same for both, and without
    nulls except `told` and `violated`: arrays by quota, null if all are 0.
    """
    is_trace = "connection" in records.columns
    texts = (filled(name, "").alias(name) for name in ("cluster", "instance", *CLIENT, "api"))
    told, violated = by_quota("throttle_ms"), by_quota("throttle_ms" if is_trace else "violations")
    if is_trace:
        strict = [(fn.col("api_key") == key) & (fn.col("api_version") >= v) for key, v in STRICT_FROM.items()]
        numbers = {
            "interval_ms": fn.lit(0),
            "answer_ms": fn.greatest(filled("answered_ms") - fn.col("time_ms"), fn.lit(0)),
            "requests": fn.lit(1),
            "sessions": fn.lit(1),
            "connection": fn.col("connection"),
            "api_key": fn.col("api_key"),
            "strict": fn.greatest(*(one.cast("long") for one in strict)),
        }
        violated = [fn.least(one, fn.lit(1)) for one in violated]
    else:
        numbers = {name: filled(name) for name in ("interval_ms", "requests", "sessions")}
        numbers |= {"answer_ms": fn.lit(0), "api_key": fn.lit(-1), "strict": fn.lit(1)}
        numbers |= {"connection": fn.shiftright(fn.xxhash64(*CLIENT, "broker"), 2)}
    amounts = {name: filled(name) for name in ("charged_bytes", "mutations", "old_bytes")}
    return records.select(
        *texts,
        *(number.cast("long").alias(name) for name, number in (numbers | amounts).items()),
        filled("broker", -1).cast("long").alias("broker"),
        "time_ms",
        (filled("request_time_us") / US_PER_PERCENT).alias("percent"),
        *(
            fn.when(fn.greatest(*each) > 0, fn.array(*each)).alias(name)
            for name, each in (("told", told), ("violated", violated))
        ),
    )


def by_quota(name: str) -> list[Column]:
    """Return the fields of the struct `name`, such as throttle times (ms), with zeros for nulls."""
    return [filled(f"{name}.{quota}").cast("long") for quota in _QUOTAS]


def uses(records: pl.DataFrame, drawn: Drawn) -> pl.DataFrame:
    """Return the uses of budgets: a row for each record (columns of `needed`) and budget that the record was
    charged to, or whose throttle times it has.

    The columns are those of the record, without names; `OWNER`, and `home` of the budget; `value`, the sum of
    the charges in the unit of the quota; `told_ms` and `violated`, the sum and number of the throttle times
    of the quota; `waited_ms`, the longest sum of any quota; `service_ms`, the time (ms) from a request to its
    charge; `note`, see `quotas.replay.Asked`; `is_charge`, False if the replay does not need the row; and for
    members of a group with other limits `chain`, an index of `Drawn.chains`, and `at_broker`.
    """
    numbered = records.join(drawn.clients, on=CLIENT, maintain_order="left")
    each = pl.concat([_of_quota(numbered, key) for key in KEYS])
    found = each.join(drawn.draws, on=("client", "quota"), maintain_order="left").drop("client", "quota")
    is_whole = pl.col("is_mutation") | (pl.col("scope") == "cluster").fill_null(value=False)
    return found.with_columns(
        broker=pl.when(~is_whole).then("broker"),
        at_broker=pl.when(pl.col("chain").is_not_null()).then("broker"),
    ).drop("scope", "is_mutation")


def _of_quota(records: pl.DataFrame, key: QuotaKey) -> pl.DataFrame:
    def of(name: str, quota: str) -> pl.Expr:
        return pl.col(name).list.get(_QUOTAS.index(quota), null_on_oob=True).fill_null(0)

    told, violated, api = of("told", key.value), of("violated", key.value), pl.col("api")
    kind, its_api = KINDS[key], CHARGED.get(KINDS[key].recorded)
    value = pl.col("percent" if kind.unit == "percent" else kind.recorded)
    if its_api is not None:
        value = pl.when(api == its_api).then("charged_bytes").otherwise(0)
    is_charge = pl.lit(value=False)
    if kind.is_of_controller:
        is_charge = violated > 0
    elif kind.charged == "in turn":
        is_charge = (api == its_api) & (told > 0)  # got an empty response
    is_done_at_once = kind.charged == "arrival" and not kind.is_of_controller
    note = pl.lit(0) if is_done_at_once else pl.col("strict" if kind.is_of_controller else "api_key")
    found = records.select(
        *("cluster", "instance", "client", "broker", "connection", "time_ms", "interval_ms", "answer_ms"),
        *("requests", "sessions"),
        quota=pl.lit(KEYS.index(key), pl.UInt8),
        value=value.cast(pl.Float64),
        told_ms=told,
        violated=violated,
        waited_ms=pl.max_horizontal(of("told", quota) for quota in _QUOTAS),
        service_ms=pl.lit(0, pl.Int64) if is_done_at_once else pl.col("answer_ms"),
        note=note.cast(pl.Int64),
        is_charge=is_charge | (value > 0),
        is_mutation=pl.lit(kind.is_of_controller),
    )
    return found.filter(pl.col("is_charge") | (pl.col("told_ms") > 0) | (pl.col("violated") > 0))


def phased(uses: pl.DataFrame) -> pl.DataFrame:
    """Return uses, in the order of `owner`, time and connection, with `phase`: the time of a use's first
    charge, as a share of the time between two. Clients of a budget send at different times, although their
    records begin at the same time.
    """
    same, client = ("owner", "time_ms"), pl.col("phase")
    runs = pl.struct(*same, "connection").rle_id()  # rank("dense").over(same) takes 100 times as long
    first, last = client.min().over(same), client.max().over(same)
    found = uses.with_columns(phase=runs.cast(pl.Int64))
    return found.with_columns(phase=(client - first + 0.5) / (last - first + 1))


def number(charges_per_record: int, window_ms: int) -> pl.Expr:
    """Return the column with the number of charges of a use. Its budget's limit is in the column `limit`, and
    its budget's uses at one time have the same `owner`.

    A limiter's window of `window_ms` and a part may have one charge more than even use of `window_ms` has. So
    with n charges per window, such use throttles if its rate is above 1 - 1 / n of the limit. Twice as many
    charges as that are made, unless the use itself is above the limit, or was throttled. Of several clients
    with `phased`, some have one charge more while others do not: the square root of its share is enough for
    each.
    """
    rate = pl.col("value") * 1000 / pl.col("interval_ms")
    all_ = rate.sum().over("owner", "time_ms")
    margin = 1 - all_ / pl.col("limit")
    fine = (2 / margin).clip(upper_bound=CHARGES_PER_WINDOW) * (rate / all_).sqrt()
    is_near = margin.is_between(0, 1, closed="right") & (pl.col("waited_ms") == 0)
    more = pl.when(is_near).then(fine * pl.col("interval_ms") / window_ms)
    sessions = pl.col("sessions").clip(1, SESSIONS_MAX)
    made = more.fill_nan(0.0).fill_null(0.0).ceil().cast(pl.Int64)
    most = pl.max_horizontal(sessions, pl.lit(charges_per_record), made)
    return pl.min_horizontal(pl.col("requests").clip(1), most)


def charges(uses: pl.DataFrame) -> pl.DataFrame:
    """Return the charges of uses, whose `number` and `phase` are known: columns `segment`, `CHARGE`, `chain`
    and `at_broker`, in the order of segment and time.
    """
    sessions, one, count = pl.col("sessions").clip(1, SESSIONS_MAX), pl.col("one"), pl.col("number")
    waited = pl.col("waited_ms") / sessions
    active_ms = (pl.col("interval_ms") - waited).clip(0)
    spread = uses.with_columns(one=pl.int_ranges(0, "number")).explode("one")
    found = spread.select(
        "segment",
        "service_ms",
        "told_ms",
        "note",
        "chain",
        "at_broker",
        at_ms=pl.col("time_ms") + ((one + pl.col("phase")) * active_ms / count).floor().cast(pl.Int64),
        value=pl.col("value") / count,
        connection=pl.col("connection") + one % sessions,
        took_ms=pl.col("answer_ms") + (active_ms * sessions / count).floor().cast(pl.Int64),
        waited_ms=waited.ceil().cast(pl.Int64),
    )
    return in_order(found)


def in_order(charges: pl.DataFrame) -> pl.DataFrame:
    """Return charges in the order that `quotas.replay.rank` defines; equal ones stay in their order."""
    rank = pl.col("told_ms"), pl.col("value") == 0
    return charges.sort("segment", "at_ms", *rank, "connection", maintain_order=True)


def hour(when_ms: pl.Expr) -> pl.Expr:
    """Return the time (ms) at which the hour of a time begins."""
    return when_ms - when_ms % HOUR_MS


def counted(uses: pl.DataFrame) -> pl.DataFrame:
    """Return the recorded sums of uses by hour and budget."""
    from_ms = pl.col("time_ms") + pl.col("service_ms")
    violated = from_ms.filter(pl.col("violated") > 0)
    return uses.group_by(*BUDGET[:3], start_ms=hour(from_ms)).agg(
        charged=pl.col("value").sum(),
        charges=pl.col("requests").sum(),
        violations=pl.col("violated").sum(),
        throttle_ms=pl.col("told_ms").sum(),
        first_ms=violated.min(),
        last_ms=violated.max(),
    )


def waits(uses: pl.DataFrame) -> pl.DataFrame:
    """Return the recorded throttle times: `OWNER`, `from_ms` and `until_ms`.

    A usage record has only the sum and number of its throttle times; the function assumes that they are
    equally long and evenly spread over the record's interval.
    """
    wait_ms = (pl.col("told_ms") / pl.col("violated")).ceil().clip(upper_bound=WAIT_MS_MAX).cast(pl.Int64)
    count = pl.col("violated").clip(upper_bound=WAITS_PER_RECORD)
    each = uses.filter((pl.col("told_ms") > 0) & (pl.col("violated") > 0)).select(
        *OWNER,
        "interval_ms",
        from_ms=pl.col("time_ms") + pl.col("service_ms"),
        wait_ms=wait_ms,
        count=count,
        one=pl.int_ranges(0, count),
    )
    part = ((pl.col("one") + 0.5) * pl.col("interval_ms") / pl.col("count")).floor().cast(pl.Int64)
    spread = each.explode("one").with_columns(from_ms=pl.col("from_ms") + part)
    return spread.select(*OWNER, "from_ms", until_ms=pl.col("from_ms") + pl.col("wait_ms"))


def throttled(waits: pl.DataFrame, before: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the time `throttled_ms` of each hour in which at least one client of a budget waited, and the
    latest end of the waits, which is `before` for later waits.
    """
    all_waits = waits if before is None else pl.concat([before, waits])
    found = all_waits.sort(*OWNER, "from_ms", "until_ms").with_columns(
        begin=pl.max_horizontal("from_ms", pl.col("until_ms").cum_max().shift(1).over(OWNER).fill_null(0))
    )
    ends = found.group_by(OWNER).agg(from_ms=pl.lit(0, pl.Int64), until_ms=pl.col("until_ms").max())
    spans = found.filter((pl.col("from_ms") > 0) & (pl.col("until_ms") > pl.col("begin")))
    hours = pl.int_ranges(hour(pl.col("begin")), pl.col("until_ms"), HOUR_MS)
    of_hours = spans.with_columns(start_ms=hours).explode("start_ms")
    end = pl.min_horizontal("until_ms", pl.col("start_ms") + HOUR_MS)
    part = end - pl.max_horizontal("begin", "start_ms")
    return of_hours.group_by(BUDGET).agg(throttled_ms=part.sum()), ends
