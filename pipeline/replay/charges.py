"""Convert traces or usage records into charges: the units that one request costs of one quota.

The columns are the client and the broker; `quota`; `at_ms`, the time of the request (ms); `service_ms`, the
time (ms) until its response; `value` in the unit of the quota; `connection`; `recorded_ms`, the throttle time
(ms) of its response; `note`, see `quotas.replay.Asked`; `took_ms`, the time (ms) until its response, also of
requests that are charged when they arrive; `waited_ms`, the longest throttle time (ms) of its response, of
any quota.

Usage records do not have single requests. A record becomes equal charges on as many connections as its field
`sessions` says: at most one charge per request, and at most `charges_per_record`, or `sessions` if that is
more. The charges are spread evenly over the interval minus the recorded throttle times, because a throttled
client sent its requests in the remaining time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from weir.pipeline.tables import BY_QUOTA
from weir.quotas.limiters.request_time import US_PER_PERCENT
from weir.usage.groups import Group

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHARGES_PER_RECORD: Final = 10
"""Maximum number of charges per usage record with few sessions. More charges take longer and are hardly more
accurate (docs/how-to/pipeline/replay.md).
"""
SESSIONS_MAX: Final = 10_000
"""Maximum number of connections that a replay assumes for one usage record; each connection takes at least
one row.
"""
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
STRICT_FROM: Final = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
"""For each API that creates or deletes topics or partitions, the first version that can answer with error 89
(THROTTLING_QUOTA_EXCEEDED) instead of a throttle time only.
"""
CLIENT_COLUMNS: Final = ("cluster", "instance", "broker", "user", "client_id")
MUTATIONS: Final = "controller_mutation_rate"


def of_traces(traces: DataFrame) -> DataFrame:
    """Return the charges of traced requests (`tables.TRACE`): one row per request and quota that it is
    charged to.
    """
    at, answered = F.col("time_ms"), F.coalesce("answered_ms", F.lit(0))
    service = F.greatest(answered - at, F.lit(0))
    size, mutations = F.coalesce("charged_bytes", F.lit(0)), F.coalesce("mutations", F.lit(0))
    percent = F.coalesce("request_time_us", F.lit(0.0)) / US_PER_PERCENT
    refused = _told(MUTATIONS) > 0
    charges = [
        _charge("producer_byte_rate", (F.col("api") == Group.PRODUCE) & (size > 0), size, F.lit(0)),
        _charge("consumer_byte_rate", _is_fetch(size), size, service, F.col("api_key")),
        _charge("request_percentage", percent > 0, percent, service, F.col("api_key")),
        _charge(MUTATIONS, (mutations > 0) | refused, mutations, service, _strict()),
    ]
    of_each = F.filter(F.array(*charges), lambda charge: charge.isNotNull())
    return traces.select(
        *client_columns(),
        "connection",
        at.alias("at_ms"),
        service.cast("long").alias("took_ms"),
        longest_ms().alias("waited_ms"),
        F.inline(of_each),
    ).withColumns(_place())


def of_usage(records: DataFrame, charges_per_record: int = CHARGES_PER_RECORD) -> DataFrame:
    """Return charges computed from usage records (`tables.USAGE`); the charges of each record add up to the
    record's amounts.
    """
    sessions = F.least(F.greatest(F.coalesce("sessions", F.lit(0)), F.lit(1)), F.lit(SESSIONS_MAX))
    most = F.greatest(sessions, F.lit(charges_per_record))
    number = F.least(F.greatest(F.coalesce("requests", F.lit(0)), F.lit(1)), most)
    size, mutations = F.coalesce("charged_bytes", F.lit(0)), F.coalesce("mutations", F.lit(0))
    percent = F.coalesce("request_time_us", F.lit(0.0)) / US_PER_PERCENT
    refused = F.coalesce(F.col("violations")[MUTATIONS], F.lit(0)) > 0
    none = F.lit(0)
    charges = [
        _charge("producer_byte_rate", (F.col("api") == Group.PRODUCE) & (size > 0), size / number, none),
        _charge("consumer_byte_rate", _is_fetch(size), size / number, none),
        _charge("request_percentage", percent > 0, percent / number, none, F.lit(-1)),
        _charge(MUTATIONS, (mutations > 0) | refused, mutations / number, none, F.lit(1)),
    ]
    of_each = F.filter(F.array(*charges), lambda charge: charge.isNotNull())
    one = F.col("one")
    waited_ms = longest_ms() / sessions
    active_ms = F.greatest(F.col("interval_ms") - waited_ms, F.lit(0))
    at = F.col("time_ms") + F.floor((one + 0.5) * active_ms / number)
    connection = F.xxhash64("user", "client_id", "broker", F.pmod(one, sessions))
    spread = records.where(F.size(of_each) > 0).withColumn("one", F.explode(F.sequence(none, number - 1)))
    return spread.select(
        *client_columns(),
        connection.alias("connection"),
        at.alias("at_ms"),
        F.floor(active_ms * sessions / number).cast("long").alias("took_ms"),
        F.ceil(waited_ms).cast("long").alias("waited_ms"),
        F.inline(of_each),
    ).withColumns(_place())


def longest_ms() -> Column:
    """Return the longest throttle time (ms) of a trace, of any quota; of a usage record the longest sum."""
    return F.greatest(*(_told(field.name) for field in BY_QUOTA.fields))


def client_columns() -> list[Column]:
    """Return the columns that identify client and broker, with replacements for nulls, because records that
    Weir did not write may contain nulls.
    """
    texts = [
        F.coalesce(name, F.lit("")).cast("string").alias(name)
        for name in ("cluster", "instance", "user", "client_id")
    ]
    return [*texts, F.coalesce("broker", F.lit(-1)).cast("long").alias("on_broker")]


def _place() -> dict[str, Column]:
    """Return the column `broker` of a charge: the broker whose budget is charged, or null for mutations,
    because their budget covers the whole cluster.
    """
    return {"broker": F.when(F.col("quota") != MUTATIONS, F.col("on_broker"))}


def _charge(quota: str, wanted: Column, value: Column, service: Column, note: Column | None = None) -> Column:
    fields = F.struct(
        F.lit(quota).alias("quota"),
        service.cast("long").alias("service_ms"),
        value.cast("double").alias("value"),
        _told(quota).alias("recorded_ms"),
        (F.lit(0) if note is None else note).cast("long").alias("note"),
    )
    return F.when(wanted, fields)


def _is_fetch(size: Column) -> Column:
    """Return a condition that is true for fetches with data, and for fetches that got an empty response
    because they were over the quota.
    """
    return (F.col("api") == Group.FETCH) & ((size > 0) | (_told("consumer_byte_rate") > 0))


def _told(quota: str) -> Column:
    return F.coalesce(F.col("throttle_ms")[quota], F.lit(0)).cast("long")


def _strict() -> Column:
    """Return the column `note` of mutations: 1 if the request's API version refuses mutations over the quota,
    else 0.
    """
    strict = F.lit(False)
    for api_key, version in STRICT_FROM.items():
        strict = strict | ((F.col("api_key") == api_key) & (F.col("api_version") >= version))
    return strict.cast("long")
