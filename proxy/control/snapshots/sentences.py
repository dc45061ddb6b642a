"""Rates, times and entities as text for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weir.proxy.control.snapshots.records import Where
from weir.quotas import QuotaKey, Tags
from weir.quotas.storage import StorageMark
from weir.quotas.table.quota_kind import KINDS, RateUnit

_POWERS: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
USAGE_MAX: Final = 1e6
"""Largest usage (rate divided by limit) that is written. Kafka accepts any `request_percentage` above 0, so
the usage can be infinite.
"""
_KINDS: Final = ("user", "client-id", "client-id prefix", "topic", "ip", "group", "topic prefix")
"""Kinds of the names in `Tags`, in the order of its fields, and of a topic prefix, which has no budget."""


def rate_text(rate: float, unit: RateUnit) -> str:
    """Return a rate with three digits and its unit. The page has the same format (`format.js`).

    >>> rate_text(1_310_000, "bytes/s"), rate_text(12.5, "percent"), rate_text(5, "partitions/s")
    ('1.31 MB/s', '12.5 %', '5 partitions/s')
    """
    if unit == "bytes/s":
        return f"{size_text(rate)}/s"
    if unit == "bytes":
        return size_text(rate)
    return f"{number_text(rate)} {'%' if unit == 'percent' else unit}"


def size_text(count: float) -> str:
    """Return a number of bytes with three digits and its unit; kB, MB and so on are powers of 1000.

    >>> size_text(0), size_text(999.9), size_text(1e6), size_text(45_600_000_000)
    ('0 B', '1 kB', '1 MB', '45.6 GB')
    """
    factor, unit = next((power for power in _POWERS if count >= 0.9995 * power[0]), _POWERS[-1])
    return f"{number_text(count / factor)} {unit}"


def time_text(time_ms: int) -> str:
    """Return a time with its unit.

    >>> time_text(310), time_text(2204)
    ('310 ms', '2.2 s')
    """
    return f"{time_ms} ms" if time_ms < 1000 else f"{number_text(time_ms / 1000)} s"


def entity_text(names: Sequence[str]) -> str:
    """Return the names of an entity (in the order of `Tags`), such as `user=alice, client-id=etl`."""
    parts = [f"{kind}={name}" for kind, name in zip(_KINDS, names, strict=False) if name]
    return ", ".join(parts) or "all clients"


def where_text(where: Where) -> str:
    """Return the broker of a quota as the end of a sentence."""
    if where is None:
        return "on a broker with unknown id"
    return "in the cluster" if where == "cluster" else f"on broker {where}"


def connections_text(count: int, peers: Sequence[str], software: Sequence[str]) -> str:
    """Return the number of connections, and their addresses and libraries."""
    text = f"{count} connection{'' if count == 1 else 's'}"
    if peers:
        text += f" from {', '.join(peers)}"
    return f"{text} ({', '.join(software)})" if software else text


def usage_text(quota: QuotaKey, rate: float, limit: float | None) -> str:
    """Return the usage of a quota: in percent of the limit, or the rate if there is no limit."""
    unit = KINDS[quota].unit
    if limit is None:
        return f"is at {rate_text(rate, unit)} of {quota.value}, without a limit"
    usage = rate / limit
    percent = f"{usage * 100:.0f}" if usage <= USAGE_MAX else f"more than {USAGE_MAX * 100:.0f}"
    return f"is at {percent} % of {quota.value} {rate_text(limit, unit)}"


def storage_text(budget: StorageMark, number: int) -> str:
    """Return what exists of the storage that a budget limits, and where."""
    entity, key, mark = budget
    of_cluster = "on the fullest broker" if entity.group else where_text("cluster")
    where = "on the fullest volume" if KINDS[key].is_minimum else of_cluster
    return f"has {size_text(number)} of {key.value} {size_text(mark)} {where}"


def throttle_text(quota: QuotaKey, throttle_ms: int, *, shadow: bool) -> str:
    """Return the effect of a throttle time that is not over."""
    if KINDS[quota].is_of_ips:
        return f"{'would be ' if shadow else ''}refused for {time_text(throttle_ms)}"
    return f"{'would wait' if shadow else 'waits'} {time_text(throttle_ms)}"


def is_of_connections(tags: Tags) -> bool:
    """Return True if an entity has connections: topics and addresses have none of their own."""
    return not tags.topic and not tags.ip


def number_text(value: float) -> str:
    """Return a number with three digits, or more before the point; below 0.0001 with an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
