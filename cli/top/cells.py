"""Turn records into cells of tables, and the status into lines. All text is clean: clients choose names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from weir.cli.quotas.show import clean
from weir.cli.top.readings import TopReading, View, is_throttled, name_of
from weir.cli.top.sums import by_entity, key_of, total
from weir.proxy.control.snapshots.records import (
    Broker,
    ConnectionRecord,
    EntityRecord,
    Problem,
    Rates,
    Status,
    Where,
)
from weir.proxy.control.snapshots.sentences import number_text, size_text, time_text
from weir.quotas.table.quota_kind import KINDS, RateUnit

NONE: Final = "-"
SPARKS: Final = "▁▂▃▄▅▆▇█"
QUOTAS: Final = {key.value: kind.column for key, kind in KINDS.items()}
"""Kafka's name of a quota → its name in a narrow column."""
_TIMES: Final = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
PROBLEMS_MAX: Final = 3
"""Maximum number of problems above a list."""


class Column(NamedTuple):
    """A column of a list."""

    title: str
    width: int
    """Width in cells; 0 for the column that takes the remaining width."""
    right: bool = False
    """True if the text is aligned to the right."""
    least: int = 0
    """Least width (cells) of the terminal at which the column is shown."""


COLUMNS: Final = {
    View.ENTITIES: (
        Column("entity", 0),
        Column("quota", 8),
        Column("broker", 6, right=True),
        Column("rate", 8, right=True),
        Column("limit", 8, right=True),
        Column("used", 5, right=True),
        Column("", 8, least=104),
        Column("throttle", 8, right=True),
        Column("since", 5, right=True),
        Column("conns", 5, right=True, least=86),
        Column("10 min", 12, least=94),
    ),
    View.CONNECTIONS: (
        Column("peer", 21),
        Column("client-id", 0),
        Column("user", 12, least=96),
        Column("library", 18, least=116),
        Column("broker", 6, right=True),
        Column("state", 9),
        Column("wait", 7, right=True),
        Column("in/s", 7, right=True),
        Column("out/s", 7, right=True),
        Column("age", 4, right=True, least=86),
    ),
    View.BROKERS: (
        Column("broker", 6, right=True),
        Column("address", 0),
        Column("port", 5, right=True),
        Column("state", 8),
        Column("since", 5, right=True),
        Column("conns", 5, right=True),
        Column("waiting", 7, right=True),
        Column("in", 8, right=True),
        Column("out", 8, right=True),
        Column("error", 30, least=110),
    ),
}


class Row(NamedTuple):
    """A record as text."""

    id: str
    """Name of the record, or of an entity's records of one quota: the same in all readings."""
    cells: tuple[str, ...]
    """One text for each of the view's `COLUMNS`."""
    level: int
    """2 for throttled records and brokers that are down; 1 at 80 % of a quota, and for connections that wait
    for another reason; else 0.
    """


def rows(reading: TopReading, history: int = 12) -> list[Row]:
    """Return the rows of the list in a reading. Sparklines have `history` cells."""
    if reading.entities is not None:
        now_ms = reading.entities.now_ms
        return [_entity(its, now_ms, history) for its in by_entity(reading.entities.entities)]
    if reading.connections is not None:
        return [_connection(one, reading.connections.now_ms) for one in reading.connections.connections]
    if reading.brokers is not None:
        return [_broker(broker, reading.brokers.now_ms) for broker in reading.brokers.brokers]
    return []


def hidden(reading: TopReading) -> int:
    """Return the number of matching records that the list in a reading lacks."""
    lists = (reading.entities, reading.connections, reading.brokers)
    return sum(one.hidden for one in lists if one is not None)


def _entity(records: tuple[EntityRecord, ...], now_ms: int, history: int) -> Row:
    entity = total(records)
    level = 2 if is_throttled(entity) else 1 if (entity.usage or 0) >= 0.8 else 0
    cells = (
        name_of(entity),
        QUOTAS.get(entity.quota, entity.quota),
        brokers(records),
        amount(entity.rate, entity.unit),
        NONE if entity.limit is None else amount(entity.limit, entity.unit),
        NONE if entity.usage is None else f"{entity.usage:.0%}",
        bar(entity.usage, 8),
        time_text(entity.throttle_ms) if entity.throttle_ms else NONE,
        _since(entity.throttled_since_ms, now_ms),
        str(entity.connections),
        sparkline(entity.history, entity.limit, history),
    )
    return _row(key_of(entity), cells, level)


def _connection(one: ConnectionRecord, now_ms: int) -> Row:
    wait_ms = None if one.waits_until_ms is None else max(one.waits_until_ms - now_ms, 0)
    cells = (
        one.peer,
        one.client_id or NONE,
        one.user or NONE,
        one.software or NONE,
        NONE if one.broker is None else str(one.broker),
        one.state.lower(),
        NONE if wait_ms is None else time_text(wait_ms),
        size(one.in_bytes_per_s),
        size(one.out_bytes_per_s),
        _since(one.opened_ms, now_ms),
    )
    level = 2 if wait_ms is not None else 1 if one.waits_for else 0
    return _row(str(one.id), cells, level)


def _broker(broker: Broker, now_ms: int) -> Row:
    cells = (
        str(broker.node_id),
        broker.address,
        NONE if broker.port is None else str(broker.port),
        state(broker),
        _since(broker.since_ms, now_ms),
        str(broker.connections),
        str(broker.throttled_entities),
        amount(broker.in_bytes_per_s, "bytes/s"),
        amount(broker.out_bytes_per_s, "bytes/s"),
        broker.error or NONE,
    )
    level = 0 if broker.up and broker.port is not None else 2
    return _row(str(broker.node_id), cells, level)


def _row(name: str, cells: Sequence[str], level: int) -> Row:
    return Row(name, tuple(clean(cell) for cell in cells), level)


def state(broker: Broker) -> str:
    """Return the state of a broker: `up` or `down`."""
    return "up" if broker.up else "down"


def where(broker: Where) -> str:
    """Return the broker of a quota: `all` for a quota of the cluster, `?` for an unknown id."""
    return "?" if broker is None else "all" if broker == "cluster" else str(broker)


def brokers(records: tuple[EntityRecord, ...]) -> str:
    """Return the broker of an entity's quota, or the number of brokers that are added up: `Σ3`."""
    return where(records[0].broker) if len(records) == 1 else f"Σ{len(records)}"


def amount(rate: float, unit: RateUnit) -> str:
    """Return a rate with three digits in at most 8 cells.

    >>> amount(1_310_000, "bytes/s"), amount(12.5, "percent"), amount(5, "partitions/s")
    ('1.31MB/s', '12.5%', '5/s')
    """
    if unit == "bytes/s":
        return f"{size(rate)}/s"
    if unit == "bytes":
        return size(rate)
    ends = {"percent": "%", "topics": "", "partitions": ""}
    return f"{number_text(rate)}{ends.get(unit, '/s')}"


def size(count: float) -> str:
    """Return a number of bytes with three digits.

    >>> size(0), size(45_600_000_000)
    ('0B', '45.6GB')
    """
    return size_text(count).replace(" ", "")


def duration(time_ms: float) -> str:
    """Return a time in the largest unit that it has one of.

    >>> duration(900), duration(61_000), duration(7_300_000)
    ('0s', '1m', '2h')
    """
    seconds = max(int(time_ms / 1000), 0)
    factor, unit = next(((factor, unit) for factor, unit in _TIMES if seconds >= factor), (1, "s"))
    return f"{seconds // factor}{unit}"


def _since(at_ms: int | None, now_ms: int) -> str:
    return NONE if at_ms is None else duration(now_ms - at_ms)


def bar(usage: float | None, width: int) -> str:
    """Return a bar of at most `width` cells; it is full at 100 %.

    >>> bar(0.5, 8), bar(1.31, 4), bar(None, 4)
    ('████', '████', '')
    """
    eighths = round(min(max(usage or 0.0, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def sparkline(history: Rates, limit: float | None, width: int) -> str:
    """Return the largest rates of `width` equal parts of the history, each as a cell. The highest cell is the
    limit, or the highest rate if that is more; a part without a rate is a space.

    >>> sparkline((None, None, 1.0, 4.0, 8.0, 2.0), 8, 3)
    ' ▄█'
    """
    top = max([limit or 0, *(rate for rate in history if rate is not None)])
    parts = [history[len(history) * n // width : len(history) * (n + 1) // width] for n in range(width)]
    peaks = [max((rate for rate in part if rate is not None), default=None) for part in parts]
    return "".join(" " if peak is None else _spark(peak, top) for peak in peaks)


def _spark(rate: float, top: float) -> str:
    return SPARKS[max(round(rate / top * len(SPARKS)) - 1, 0)] if top else SPARKS[0]


# Lines


def summary(status: Status, *, is_stale: bool = False) -> str:
    """Return the state of Weir as one line. `is_stale`: True if it is a former state."""
    totals = status.totals
    parts = [
        f"Weir {status.name}",
        "stale" if is_stale else "ready" if status.ready else "NOT READY",
        f"{totals.throttled_entities} wait",
        f"{totals.connections} conns",
        f"{number_text(totals.requests_per_s)} req/s",
        f"in {amount(totals.in_bytes_per_s, 'bytes/s')}",
        f"out {amount(totals.out_bytes_per_s, 'bytes/s')}",
        f"up {duration(status.now_ms - status.started_ms)}",
        f"{status.version} before {status.upstream.split(',')[0]}",
    ]
    return clean("  ".join(parts))


def problems(status: Status, most: int = PROBLEMS_MAX) -> list[str]:
    """Return one line for each problem, at most `most`, and one that counts the others."""
    lines = [clean(_problem(problem, status.now_ms)) for problem in status.problems[:most]]
    more = len(status.problems) - most
    return [*lines, f"! {more} more: --json has all"] if more > 0 else lines


def _problem(problem: Problem, now_ms: int) -> str:
    since = "" if problem.since_ms is None else f" (for {duration(now_ms - problem.since_ms)})"
    return f"! {problem.what.rstrip('.')}{since}. {problem.remedy}"


# Widths


def shown(view: View, width: int) -> list[tuple[int, Column]]:
    """Return the columns that a terminal of `width` cells shows, with their numbers in `COLUMNS`. Their
    widths, and a space between two columns, add up to `width`.
    """
    chosen = [(number, column) for number, column in enumerate(COLUMNS[view]) if column.least <= width]
    rest = width - sum(column.width for _number, column in chosen) - (len(chosen) - 1)
    return [(number, column._replace(width=column.width or max(rest, 8))) for number, column in chosen]


def fitted(text: str, column: Column) -> str:
    """Return a text with exactly the width of a column; `…` stands for the missing end."""
    length = cell_len(text)
    if length > column.width:
        return set_cell_size(text, column.width - 1) + "…"
    padding = " " * (column.width - length)
    return padding + text if column.right else text + padding
