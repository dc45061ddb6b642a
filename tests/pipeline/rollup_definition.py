"""The definition of roll-ups in plain Python, without polars and Spark."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tests.pipeline.usage_rows import Record
from weir.usage.records import ByQuota

WINDOW_MS: Final = 10_000
QUOTAS: Final = ByQuota.__struct_fields__
MUTATIONS: Final = "controller_mutation_rate"
Key = tuple[object, str, object, object, object, int]
"""Key of an expected row: cluster, level, user, client-id, broker, start (ms)."""


def number(record: Record, name: str) -> float:
    value = record[name]
    assert value is None or isinstance(value, (int, float))
    return value or 0


def by_quota(record: Record, name: str, quota: str) -> int:
    value = record[name]
    assert value is None or isinstance(value, dict)
    return (value or {}).get(quota) or 0


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    low, high = math.floor(at), math.ceil(at)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def places(record: Record) -> Iterable[tuple[object, bool]]:
    """Yield the brokers at which a record counts, and whether mutations (or all the others) count there."""
    yield (-1 if record["broker"] is None else record["broker"]), False
    by_mutations = (by_quota(record, name, MUTATIONS) for name in ("throttle_ms", "violations"))
    if number(record, "mutations") or any(by_mutations):
        yield -1, True


def expected(records: Sequence[Record], seconds: int) -> dict[Key, dict[str, object]]:
    """Return the expected rows of the roll-up by periods of this length (s)."""
    groups: dict[Key, list[tuple[Record, bool]]] = defaultdict(list)
    for record in records:
        start_ms = int(number(record, "time_ms")) // (seconds * 1000) * seconds * 1000
        user, client_id = record["user"] or "", record["client_id"] or ""
        for broker, of_mutations in places(record):
            for level, *names in (
                ("user-client-id", user, client_id),
                ("user", user, None),
                ("client-id", None, client_id),
            ):
                key = (record["cluster"], level, names[0], names[1], broker, start_ms)
                groups[key].append((record, of_mutations))
    return {key: summed(mine, seconds) for key, mine in groups.items()}


def summed(mine: Sequence[tuple[Record, bool]], seconds: int) -> dict[str, object]:
    windows: dict[int, list[tuple[Record, bool]]] = defaultdict(list)
    for record, of_mutations in mine:
        windows[int(number(record, "time_ms")) // WINDOW_MS].append((record, of_mutations))

    def total(name: str, of: Sequence[tuple[Record, bool]] = mine, api: str | None = None) -> float:
        return sum(
            number(record, name)
            for record, of_mutations in of
            if of_mutations == (name == "mutations") and api in {None, record["api"]}
        )

    def quota_total(name: str, quota: str, of: Sequence[tuple[Record, bool]] = mine) -> int:
        wanted = quota == MUTATIONS
        return sum(by_quota(record, name, quota) for record, is_it in of if is_it == wanted)

    def rate(name: str, api: str | None, unit: float) -> dict[str, float] | None:
        found = [value for of in windows.values() if (value := total(name, of, api) / 10 * unit) > 0]
        if not found:
            return None
        shares = {
            each: percentile(found, share) for each, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        }
        return {**shares, "max": max(found)}

    quotas: dict[str, dict[str, float]] = {
        "throttle_ms": {quota: quota_total("throttle_ms", quota) for quota in QUOTAS},
        "violations": {quota: quota_total("violations", quota) for quota in QUOTAS},
        "throttled_s": {
            quota: 10.0 * sum(quota_total("throttle_ms", quota, of) > 0 for of in windows.values())
            for quota in QUOTAS
        },
    }
    return {
        "seconds": seconds,
        **{
            name: total(name)
            for name in (
                "requests",
                "bytes_in",
                "bytes_out",
                "request_time_us",
                "mutations",
                "errors",
                "old_bytes",
            )
        },
        "produced_bytes": total("charged_bytes", api="produce"),
        "fetched_bytes": total("charged_bytes", api="fetch"),
        "producer_byte_rate": rate("charged_bytes", "produce", 1),
        "consumer_byte_rate": rate("charged_bytes", "fetch", 1),
        "request_percentage": rate("request_time_us", None, 1e-6 * 100),
        "controller_mutation_rate": rate("mutations", None, 1),
        "old_read_byte_rate": rate("old_bytes", None, 1),
        "active_s": 10 * len(windows),
        **{name: found if any(found.values()) else None for name, found in quotas.items()},
    }
