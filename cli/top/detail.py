"""All fields of one record, as lines of text. All text is clean: clients choose names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weir.cli.quotas.show import clean, columns
from weir.cli.top.cells import (
    COLUMNS,
    NONE,
    amount,
    bar,
    brokers,
    duration,
    rows,
    size,
    sparkline,
    state,
    where,
)
from weir.cli.top.readings import TopReading, View, name_of
from weir.cli.top.sums import by_entity, key_of, total
from weir.proxy.control.snapshots.records import Broker, ConnectionRecord, Connections, EntityRecord, Record
from weir.proxy.control.snapshots.sentences import time_text

BAR: Final = 40
"""Width (cells) of the bar of usage."""


def found(reading: TopReading, name: str) -> EntityRecord | ConnectionRecord | Broker | None:
    """Return the record of the row `name` of a reading's list; None if the list lacks it. That of an entity
    is the sum over brokers.
    """
    if reading.entities is not None:
        groups = by_entity(reading.entities.entities)
        return next((total(its) for its in groups if key_of(its[0]) == name), None)
    if reading.connections is not None:
        return next((one for one in reading.connections.connections if str(one.id) == name), None)
    if reading.brokers is not None:
        return next((one for one in reading.brokers.brokers if str(one.node_id) == name), None)
    return None


def lines(record: Record, reading: TopReading) -> list[str]:
    """Return the lines that describe a record of this reading."""
    now_ms = reading.status.now_ms
    text: list[str] = []
    if isinstance(record, EntityRecord):
        listed = () if reading.entities is None else reading.entities.entities
        its = tuple(one for one in listed if key_of(one) == key_of(record)) or (record,)
        text = columns(list(_entity(record, brokers(its), now_ms)))
        if len(its) > 1:
            text += ["", *columns([BROKER_TITLES, *(_at_broker(one, now_ms) for one in its)])]
        if reading.connections_of_entity is not None:
            text += ["", *_connections(reading.connections_of_entity, reading)]
    elif isinstance(record, ConnectionRecord):
        text = columns(list(_connection(record, now_ms)))
    elif isinstance(record, Broker):
        text = columns(list(_broker(record, now_ms)))
    return [clean(line) for line in text]


BROKER_TITLES: Final = ("broker", "rate", "limit", "used", "throttle left", "throttled", "connections")


def _at_broker(entity: EntityRecord, now_ms: int) -> tuple[str, ...]:
    return (
        where(entity.broker),
        amount(entity.rate, entity.unit),
        NONE if entity.limit is None else amount(entity.limit, entity.unit),
        NONE if entity.usage is None else f"{entity.usage:.0%}",
        time_text(entity.throttle_ms),
        _ago(entity.throttled_since_ms, now_ms, NONE, "for {}"),
        str(entity.connections),
    )


def _entity(entity: EntityRecord, at: str, now_ms: int) -> Iterator[tuple[str, str]]:
    rates = [rate for rate in entity.history if rate is not None]
    yield "entity", name_of(entity)
    yield "quota", f"{entity.quota}{' (shadow: throttles nobody)' if entity.shadow else ''}"
    yield "set by entry", entity.entry or "none: it was removed"
    yield "broker", {"all": "all together"}.get(at, at)
    yield "rate", amount(entity.rate, entity.unit)
    yield "limit", NONE if entity.limit is None else amount(entity.limit, entity.unit)
    yield "used", NONE if entity.usage is None else f"{entity.usage:.0%} {bar(entity.usage, BAR)}"
    yield "throttled", _ago(entity.throttled_since_ms, now_ms, "not in the last seconds", "for {}")
    yield "throttle left", time_text(entity.throttle_ms)
    yield "since the start", f"{entity.throttles} throttles, {time_text(entity.throttled_ms)} in sum"
    yield "connections", str(entity.connections)
    yield "from", ", ".join(entity.peers) or NONE
    yield "libraries", ", ".join(entity.software) or NONE
    yield "client-ids", ", ".join(entity.client_ids) or NONE
    yield "last 10 minutes", sparkline(entity.history, entity.limit, 60)
    if rates:
        least, most = amount(min(rates), entity.unit), amount(max(rates), entity.unit)
        yield "", f"{least} to {most}, now at the right"


def _connections(connections: Connections, reading: TopReading) -> Iterator[str]:
    titles = tuple(column.title for column in COLUMNS[View.CONNECTIONS])
    found = rows(TopReading(reading.status, connections=connections))
    yield from columns([titles, *(row.cells for row in found)])
    if connections.hidden:
        yield f"and {connections.hidden} more"


def _connection(one: ConnectionRecord, now_ms: int) -> Iterator[tuple[str, str]]:
    wait = "" if one.waits_until_ms is None else f", for {time_text(max(one.waits_until_ms - now_ms, 0))}"
    yield "connection", str(one.id)
    yield "peer", one.peer
    yield "listener", one.listener
    yield "user", one.user or NONE
    yield "client-id", one.client_id or NONE
    yield "library", one.software or "unknown: the client has not told it (ApiVersions v3)"
    yield "mechanism", one.mechanism or NONE
    yield "TLS", "yes" if one.tls else "no"
    yield "state", one.state
    yield "waits for", f"{one.waits_for}{wait}" if one.waits_for else "nothing"
    yield "opened", f"{duration(now_ms - one.opened_ms)} ago"
    yield "from client", f"{size(one.in_bytes)}, {amount(one.in_bytes_per_s, 'bytes/s')}"
    yield "from broker", f"{size(one.out_bytes)}, {amount(one.out_bytes_per_s, 'bytes/s')}"
    yield "in flight", f"{one.in_flight} requests"


def _broker(broker: Broker, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "broker", str(broker.node_id)
    yield "address", broker.address
    yield "Weir's port", "none: clients cannot reach it" if broker.port is None else str(broker.port)
    yield "state", f"{state(broker)}{_ago(broker.since_ms, now_ms, '', ', for {}')}"
    yield "error", broker.error or NONE
    yield "connections", str(broker.connections)
    yield "waiting now", f"{broker.throttled_entities} entities"
    yield "from clients", amount(broker.in_bytes_per_s, "bytes/s")
    yield "from broker", amount(broker.out_bytes_per_s, "bytes/s")
    yield "rack", broker.rack or NONE


def _ago(at_ms: int | None, now_ms: int, never: str, form: str) -> str:
    return never if at_ms is None else form.format(duration(now_ms - at_ms))
