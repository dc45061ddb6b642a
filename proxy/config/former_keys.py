"""Names that keys of the configuration had in earlier releases, to tell operators how to write a key now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from weir.proxy.config.settings import Settings

RENAMED: Final = {"admins": "quota_admins"}
"""Key of an earlier release → key today."""
REPLACED: Final = {
    "inter_broker": "leave it out, and set replication_upstream and replication_listen: brokers now have "
    "listeners of their own"
}
"""Key of an earlier release that no single key replaces → advice."""

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
"""Present keys for the keys that earlier releases had in TOML tables. Either "table.key" → present key; or
"table" → prefix of the present keys, if the prefix is not the table's name.
"""
_KEYS: Final = frozenset(field.name for field in msgspec.structs.fields(Settings))


def outside_tables(table: str, inside: Mapping[str, object]) -> Iterator[str]:
    """Yield a text such as "brokers.upstream as upstream" for each key of an earlier release in this TOML
    table and its subtables: the old place, and the key to write now.
    """
    for name, value in inside.items():
        place = f"{table}.{name}"
        if isinstance(value, dict):
            yield from outside_tables(place, value)
        else:
            spellings = (_IN_TABLES.get(place), f"{_IN_TABLES.get(table, table)}_{name}", name)
            yield from [f"{place} as {key}" for key in spellings if key in _KEYS][:1]
