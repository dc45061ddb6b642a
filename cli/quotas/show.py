"""Format the output of the `weir quotas` commands: entities, quotas and changes, as text and as JSON.

In JSON an entity is an object with its parts by name; null stands for the default, as in Kafka's protocol.
Whole numbers have no decimal point.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import click
import msgspec

from weir.quotas import Entity, Prefix, QuotaKey, QuotaTable
from weir.quotas.table.entities import Default, Name
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_kind import IN_BYTES, KINDS, UNLIMITED
from weir.quotas.table.times import now_utc

ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"

EntityJson: TypeAlias = dict[str, str | None]
"""Parts of an entity by name: user, client_id, client_id_prefix, ip, topic; null is the default."""

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class EntryJson(msgspec.Struct, omit_defaults=True):
    """JSON object with an entity's enforced quotas, or with its shadow quotas."""

    entity: EntityJson
    mode: str
    """Mode of the quotas, as in the quota file: `enforce`, or `shadow` (Weir counts violations, but does not
    throttle).
    """
    quotas: dict[str, int | float]
    pacing: str | None = None
    """Pacing of the entry, kafka or smooth; left out if the quota file does not set it."""
    scope: str = Scope.BROKER.value
    """Scope of the entry, broker or cluster; left out if it is broker."""
    until: datetime | None = None
    """Time from which on the entry is as if deleted; left out for no end."""


class QuotaEdit(NamedTuple):
    """A quota's value before and after a change; None if the quota is not set."""

    entity: Entity
    key: QuotaKey
    mode: str
    before: float | None
    after: float | None


class ChangeEntry(msgspec.Struct):
    """JSON object with a quota's value before and after a change."""

    entity: EntityJson
    key: str
    mode: str
    before: int | float | None
    after: int | float | None


def echo_json(report: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


def entity_json(entity: Entity) -> EntityJson:
    """Return the parts of an entity by name, such as `{"user": "alice"}`; the default is None."""
    client_id = entity.client_id
    parts: dict[str, Name | None] = {
        "user": entity.user,
        "client_id": None if isinstance(client_id, Prefix) else client_id,
        "client_id_prefix": client_id.start if isinstance(client_id, Prefix) else None,
        "ip": entity.ip,
        "topic": entity.topic,
        "topic_prefix": entity.topic_prefix,
        "group": entity.group,
    }
    return {
        part: None if isinstance(name, Default) else name for part, name in parts.items() if name is not None
    }


def clean(text: object) -> str:
    """Return the text with control characters replaced, because clients choose names freely."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))


def number(value: float) -> int | float:
    """Return a number for JSON, without a decimal point if it is whole."""
    return int(value) if value == value // 1 else value


def entries(table: QuotaTable) -> Iterator[EntryJson]:
    """Yield one JSON object per entity and mode, all enforced quotas before the shadow quotas."""
    for mode, grouped in ((ENFORCED, table.entities()), (SHADOW, table.shadow_entities())):
        for entity, rates in grouped:
            values = {key.value: number(rate) for key, rate in rates.items()}
            pacing, scope, until = table.options_of(entity, shadow=mode == SHADOW)
            yield EntryJson(entity_json(entity), mode, values, pacing and pacing.value, scope.value, until)


def change_entry(change: QuotaEdit) -> ChangeEntry:
    """Return the JSON object of a change."""
    entity, key, mode, before, after = change
    return ChangeEntry(
        entity_json(entity),
        key.value,
        mode,
        None if before is None else number(before),
        None if after is None else number(after),
    )


def show_table(table: QuotaTable) -> None:
    """Print a table with a line per quota."""
    headings = ("entity", "quota", "value", "mode")
    rows = [
        (clean(entity), key.value, _written(key, value), _mode(table, entity, mode), _readable(key, value))
        for mode, values in ((ENFORCED, table.values), (SHADOW, table.shadow))
        for (entity, key), value in values.items()
    ]
    if sys.stdout.isatty():
        _draw((*headings[:3], "", "mode"), [(*row[:3], row[4], row[3]) for row in rows])
    else:
        click.echo("\n".join(columns([headings, *(row[:4] for row in rows)])))


def _mode(table: QuotaTable, entity: Entity, mode: str) -> str:
    """Return the mode of an entry (enforced or shadow), followed by its options, as text."""
    options = table.options_of(entity, shadow=mode == SHADOW)
    ended = ", ended" if options.until is not None and options.until <= now_utc() else ""
    return ", ".join(filter(None, (mode, str(options)))) + ended


def show_changes(changes: Iterable[QuotaEdit]) -> None:
    """Print one line per change: value before -> value after."""
    for entity, key, mode, before, after in changes:
        shadow = f" ({SHADOW})" if mode == SHADOW else ""
        was, now = (told(key, value) for value in (before, after))
        arrow = f"{was} -> {now}" if before != after else f"{was}, unchanged"
        colour = (
            None if before == after else "red" if after is None else "green" if before is None else "yellow"
        )
        click.echo(f"{clean(entity)}{shadow}: {key.value} {click.style(arrow, fg=colour)}")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines of plain text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def told(key: QuotaKey, value: float | None) -> str:
    """Return a quota's value as text; `none` if the value is None."""
    if value is None:
        return "none"
    readable = _readable(key, value)
    return f"{_written(key, value)}{f' ({readable})' if readable else ''}"


def in_bytes(value: float) -> str:
    """Return a number of bytes as text with a unit, such as `1.5 MiB`."""
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} B"


def compare(
    before: Mapping[tuple[Entity, QuotaKey], float],
    wanted: Mapping[tuple[Entity, QuotaKey], float | None],
    mode: str,
) -> list[QuotaEdit]:
    """Return one change per wanted quota: its value in the table, and the wanted value."""
    return [
        QuotaEdit(entity, key, mode, before.get((entity, key)), value)
        for (entity, key), value in wanted.items()
    ]


def _readable(key: QuotaKey, value: float) -> str:
    """Return a quota's value as text with a unit such as MiB/s, if the quota is in bytes and the value is
    large; else "".
    """
    is_large = key in IN_BYTES and _UNITS[-1][0] <= value < KINDS[key].most
    return in_bytes(value) + KINDS[key].unit.removeprefix("bytes") if is_large else ""


def _written(key: QuotaKey, value: float) -> str:
    return UNLIMITED if value >= KINDS[key].most else str(number(value))


def _draw(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a bold heading. Lines are never cut to the terminal's width, so that long names can
    be copied.
    """
    width = max(len(value) for _, _, value, *_ in [headings, *rows])
    lines = columns([(*row[:2], row[2].rjust(width), *row[3:]) for row in [headings, *rows]])
    click.secho(lines[0], bold=True)
    for row, line in zip(rows, lines[1:], strict=True):
        click.secho(line, dim=True if row[-1].startswith(SHADOW) else None)
