"""One record for a quota of an entity at several brokers: a limit counts at each broker, but a client that
waits at twelve brokers is one client.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from weir.cli.top.readings import names_of
from weir.proxy.control.snapshots.records import EntityRecord, Rates


def by_entity(records: Iterable[EntityRecord]) -> list[tuple[EntityRecord, ...]]:
    """Return the records of each entity and quota together, in the order of their first records."""
    found: dict[str, list[EntityRecord]] = {}
    for record in records:
        found.setdefault(key_of(record), []).append(record)
    return [tuple(its) for its in found.values()]


def key_of(record: EntityRecord) -> str:
    """Return a name that an entity's records of one quota share, and no others."""
    return msgspec.json.encode((*names_of(record), record.quota)).decode()


def total(records: tuple[EntityRecord, ...]) -> EntityRecord:
    """Return the only record, or the sum over brokers: rates, throttles and connections are added up. Limit,
    usage and throttle time are those of the broker with the longest throttle time, then the highest usage.
    """
    if len(records) == 1:
        return records[0]
    worst = max(records, key=lambda record: (record.throttle_ms, record.usage or 0.0))
    since = [record.throttled_since_ms for record in records if record.throttled_since_ms is not None]
    return msgspec.structs.replace(
        worst,
        broker=None,
        rate=sum(record.rate for record in records),
        throttled=any(record.throttled for record in records),
        throttled_since_ms=min(since, default=None),
        throttles=sum(record.throttles for record in records),
        throttled_ms=sum(record.throttled_ms for record in records),
        connections=sum(record.connections for record in records),
        peers=_united(record.peers for record in records),
        software=_united(record.software for record in records),
        client_ids=_united(record.client_ids for record in records),
        history=_added(record.history for record in records),
    )


def _united(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))


def _added(histories: Iterable[Rates]) -> Rates:
    """Return the sums of the rates of the same times."""
    known = [[rate for rate in rates if rate is not None] for rates in zip(*histories, strict=True)]
    return tuple(sum(rates) if rates else None for rates in known)
