"""Read quotas from a file: the JSON of `weir quotas list --json`, or a quota file (TOML)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from weir.cli.quotas.show import EntityJson, EntryJson
from weir.cli.quotas.show_groups import GroupJson
from weir.cli.quotas.show_replication import ReplicationJson, ResourceJson
from weir.proxy.files import QUOTAS_BYTES_MAX, read_text
from weir.quotas import Entity, QuotaFileError, QuotaTable, parse
from weir.quotas.replication.throttles import ReplicationThrottles
from weir.quotas.table.group_entry import GroupEntry, read_group, regrouped
from weir.quotas.table.imported import Imported
from weir.quotas.table.options import PLAIN, Options
from weir.quotas.table.quota_entry import DEFAULT_MARKER, EntryError, read_entry
from weir.quotas.table.quota_table import Quota
from weir.quotas.table.replication_entry import (
    ReplicationEntry,
    Resource,
    read_replication,
    throttles_of,
)


class ReadBackError(Exception):
    """Raised if a file has no quotas that Weir can read; the text is one line with the file's name."""


class ReadBack(Imported):
    """Quotas read from a file, with their modes and options."""

    def __init__(self, table: QuotaTable) -> None:
        super().__init__()
        self._table = table

    @property
    def table(self) -> QuotaTable:
        """Table of the quotas in the file."""
        return self._table


class _Listed(msgspec.Struct):
    """The part of the JSON of `weir quotas list` and `import` that has the quotas."""

    quotas: list[EntryJson]
    replication: list[ReplicationJson] = []
    groups: list[GroupJson] = []


def read(path: Path) -> ReadBack:
    """Return the quotas in a file. Raises ReadBackError."""
    try:
        text = read_text(path, QUOTAS_BYTES_MAX, pipes=True)
        return ReadBack(_of_json(text) if text.lstrip().startswith("{") else parse(text))
    except OSError as error:
        raise ReadBackError(f"{path}: cannot read it: {error.strerror}") from None
    except (msgspec.DecodeError, QuotaFileError) as error:
        raise ReadBackError(f"{path}: {error}") from None


def _of_json(text: str) -> QuotaTable:
    """Return the quotas of a JSON object. Raises QuotaFileError, msgspec.DecodeError."""
    values: tuple[dict[Quota, float], dict[Quota, float]] = ({}, {})
    options: tuple[dict[Quota, Options], dict[Quota, Options]] = ({}, {})
    seen: set[tuple[Entity, bool]] = set()
    decoded = msgspec.json.decode(text, type=_Listed)
    for number, listed in enumerate(decoded.quotas):
        try:
            entity, is_shadow, rates, its_options = read_entry(_as_written(listed))
            if (entity, is_shadow) in seen:
                raise EntryError(f"{entity} has an entry already")
        except EntryError as error:
            raise QuotaFileError(f"quotas[{number}]: {error}") from None
        seen.add((entity, is_shadow))
        values[is_shadow].update({(entity, key): rate for key, rate in rates.items()})
        if its_options != PLAIN:
            options[is_shadow].update({(entity, key): its_options for key in rates})
    table = QuotaTable(*values, *options, replication=_throttles(decoded.replication))
    return regrouped(table, _groups(decoded.groups)) if decoded.groups else table  # none: of one entity


def _groups(listed: list[GroupJson]) -> Iterator[GroupEntry]:
    """Yield the groups of JSON objects. Raises QuotaFileError."""
    for number, one in enumerate(listed):
        try:
            yield read_group(one)
        except EntryError as error:
            raise QuotaFileError(f"groups[{number}]: {error}") from None


def _throttles(listed: list[ReplicationJson]) -> ReplicationThrottles:
    """Return the replication throttles of JSON objects. Raises QuotaFileError."""
    entries: dict[Resource, ReplicationEntry] = {}
    for number, one in enumerate(listed):
        try:
            entry = read_replication({**_resource(one.resource), **one.throttles})
            if entry.resource in entries:
                raise EntryError(f"{entry} has an entry already")
        except EntryError as error:
            raise QuotaFileError(f"replication[{number}]: {error}") from None
        entries[entry.resource] = entry
    return throttles_of(entries.values())


def _resource(resource: ResourceJson) -> dict[str, object]:
    """Return the broker or topic as a quota file writes it: the node id as a number, and a marker for every
    broker.
    """
    named: dict[str, object] = {}
    for kind, name in resource.items():
        is_number = kind == "broker" and name is not None and name.isdecimal()
        named[kind] = DEFAULT_MARKER if name is None else int(name) if is_number else name
    return named


def _as_written(listed: EntryJson) -> dict[str, object]:
    """Return the TOML table that a quota file would have for this JSON object with an entity's quotas. Raises
    EntryError.
    """
    pacing = {} if listed.pacing is None else {"pacing": listed.pacing}
    scope = {} if listed.scope == PLAIN.scope.value else {"scope": listed.scope}
    until = {} if listed.until is None else {"until": listed.until}
    return {**_names(listed.entity), "mode": listed.mode, **pacing, **scope, **until, **listed.quotas}


def _names(entity: EntityJson) -> dict[str, str]:
    """Return the names of an entity as a quota file writes them, where a marker stands for the default.
    Raises EntryError if a name is that marker.
    """
    for part, name in entity.items():
        if name == DEFAULT_MARKER:
            raise EntryError(
                f"{part} is literally {DEFAULT_MARKER}, which a quota file cannot say; write null"
            )
    return {part: DEFAULT_MARKER if name is None else name for part, name in entity.items()}
