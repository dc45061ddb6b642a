"""Names that keys of the configuration had in earlier releases, to tell operators how to write a key now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from weir.proxy.config.settings import Settings

RENAMED: Final = {"admins": "quota_admins"}
"""Key of an earlier release → key today."""

_IN_TABLES: Final = {
    "quotas": "quota",
    "quotas.file": "quotas",
    "quotas.controller.samples": "controller_quota_window_num",
    "quotas.controller.window_seconds": "controller_quota_window_size_seconds",
    "brokers": "upstream",
    "connections.max_creation_rate": "max_connection_creation_rate",
    "connections.listener_max_creation_rate": "listener_max_connection_creation_rate",
    "connections.max_per_ip": "max_connections_per_ip",
    "connections.max_per_ip_overrides": "max_connections_per_ip_overrides",
}
"""Tables in which earlier releases had keys. For a table: the prefix of its keys today, if the prefix is not
the table's name. For a key in a table: the key today.
"""
_KEYS: Final = frozenset(field.name for field in msgspec.structs.fields(Settings))


def outside_tables(table: str, inside: Mapping[str, object]) -> Iterator[str]:
    """Yield the text "table.name as key" for every old key in a table, and in the tables within that table;
    `key` is the key to write now.
    """
    for name, value in inside.items():
        place = f"{table}.{name}"
        if isinstance(value, dict):
            yield from outside_tables(place, value)
        else:
            spellings = (_IN_TABLES.get(place), f"{_IN_TABLES.get(table, table)}_{name}", name)
            yield from [f"{place} as {key}" for key in spellings if key in _KEYS][:1]
