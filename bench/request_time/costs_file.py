"""A table of costs as a file (TOML), in the format of `quotas.request_costs`."""

from __future__ import annotations

import msgspec
import tomlkit

from quotas.request_costs import CostTable


def write(table: CostTable) -> str:
    """The text of the file."""
    document = tomlkit.document()
    document.update({"format": table.format, "broker": table.broker, "source": table.source})
    document["cold"] = _section(table.cold)
    document["rest"] = _section(table.rest)
    apis = tomlkit.table(is_super_table=True)
    for api, cost in sorted(table.apis.items()):
        apis[api] = _section(cost)
    document["apis"] = apis
    return tomlkit.dumps(document)


def _section(values: msgspec.Struct) -> tomlkit.items.Table:
    section = tomlkit.table()
    for name, value in msgspec.to_builtins(values).items():
        if isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(value)
            section[name] = inline
        else:
            section[name] = value
    return section
