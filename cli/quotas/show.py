"""Output of the `weir quotas` commands: entities, quotas and changes, as text and as JSON.

In JSON an entity has its parts by name, null for the default, as in Kafka's protocol; whole numbers have no
decimal point.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import click
import msgspec

from quotas import Entity, Prefix, QuotaKey, QuotaTable
from quotas.table.entities import Default, Name
from quotas.table.options import Scope

ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"

EntityJson: TypeAlias = dict[str, str | None]
"""Parts of an entity: user, client_id, client_id_prefix, ip, topic; null is the default."""

_BYTES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Entry(msgspec.Struct, omit_defaults=True):
    """An entity's quotas of one mode, in JSON."""

    entity: EntityJson
    mode: str
    """enforce or shadow, as in the quota file."""
    quotas: dict[str, int | float]
    pacing: str | None = None
    """kafka or smooth, as in the quota file; left out where that says nothing."""
    scope: str = Scope.BROKER.value
    """broker or cluster, as in the quota file; left out for a broker."""


class Change(NamedTuple):
    """A changed value; None stands for no quota."""

    entity: Entity
    key: QuotaKey
    mode: str
    before: float | None
    after: float | None


class ChangeEntry(msgspec.Struct):
    """A change, in JSON."""

    entity: EntityJson
    key: str
    mode: str
    before: int | float | None
    after: int | float | None


def echo_json(report: object) -> None:
    """Print one JSON object."""
    click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


def entity_json(entity: Entity) -> EntityJson:
    """An entity's parts."""
    client_id = entity.client_id
    parts: dict[str, Name | None] = {
        "user": entity.user,
        "client_id": None if isinstance(client_id, Prefix) else client_id,
        "client_id_prefix": client_id.start if isinstance(client_id, Prefix) else None,
        "ip": entity.ip,
        "topic": entity.topic,
    }
    return {
        part: None if isinstance(name, Default) else name for part, name in parts.items() if name is not None
    }


def clean(text: object) -> str:
    """Replace control characters, because names come from anywhere."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))


def number(value: float) -> int | float:
    """Return a value without a decimal point if it is whole."""
    return int(value) if value == value // 1 else value


def entries(table: QuotaTable) -> Iterator[Entry]:
    """Yield each entity's quotas, the enforced ones first."""
    for mode, grouped in ((ENFORCED, table.entities()), (SHADOW, table.shadow_entities())):
        for entity, rates in grouped:
            values = {key.value: number(rate) for key, rate in rates.items()}
            pacing, scope = table.options_of(entity, shadow=mode == SHADOW)
            yield Entry(entity_json(entity), mode, values, pacing and pacing.value, scope.value)


def change_entry(change: Change) -> ChangeEntry:
    """Return a change for JSON."""
    entity, key, mode, before, after = change
    return ChangeEntry(
        entity_json(entity),
        key.value,
        mode,
        None if before is None else number(before),
        None if after is None else number(after),
    )


def show_table(table: QuotaTable) -> None:
    """Print a line per value."""
    headings = ("entity", "quota", "value", "mode")
    rows = [
        (clean(entity), key.value, str(number(value)), _mode(table, entity, mode), _readable(key, value))
        for mode, values in ((ENFORCED, table.values), (SHADOW, table.shadow))
        for (entity, key), value in values.items()
    ]
    if sys.stdout.isatty():
        _draw((*headings[:3], "", "mode"), [(*row[:3], row[4], row[3]) for row in rows])
    else:
        click.echo("\n".join(columns([headings, *(row[:4] for row in rows)])))


def _mode(table: QuotaTable, entity: Entity, mode: str) -> str:
    """The mode of an entry, and its options."""
    options = str(table.options_of(entity, shadow=mode == SHADOW))
    return f"{mode}, {options}" if options else mode


def show_changes(changes: Iterable[Change]) -> None:
    """Print each change: before -> after."""
    for entity, key, mode, before, after in changes:
        shadow = f" ({SHADOW})" if mode == SHADOW else ""
        was, now = (told(key, value) for value in (before, after))
        arrow = f"{was} -> {now}" if before != after else f"{was}, unchanged"
        colour = (
            None if before == after else "red" if after is None else "green" if before is None else "yellow"
        )
        click.echo(f"{clean(entity)}{shadow}: {key.value} {click.style(arrow, fg=colour)}")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines of plain text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def told(key: QuotaKey, value: float | None) -> str:
    """Format a value; None is none."""
    if value is None:
        return "none"
    readable = _readable(key, value)
    return f"{number(value)}{f' ({readable})' if readable else ''}"


def compare(
    before: Mapping[tuple[Entity, QuotaKey], float],
    wanted: Mapping[tuple[Entity, QuotaKey], float | None],
    mode: str,
) -> list[Change]:
    """Return the changes that the wanted values make."""
    return [
        Change(entity, key, mode, before.get((entity, key)), value) for (entity, key), value in wanted.items()
    ]


def _readable(key: QuotaKey, value: float) -> str:
    """Format a large number of bytes with a unit; "" for a small one."""
    if key in _BYTES:
        for size, unit in _UNITS:
            if value >= size:
                return f"{value / size:.4g} {unit}/s"
    return ""


def _draw(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. A narrow terminal breaks its lines, so that names can be copied whole."""
    width = max(len(value) for _, _, value, *_ in [headings, *rows])
    lines = columns([(*row[:2], row[2].rjust(width), *row[3:]) for row in [headings, *rows]])
    click.secho(lines[0], bold=True)
    for row, line in zip(rows, lines[1:], strict=True):
        click.secho(line, dim=True if row[-1].startswith(SHADOW) else None)
