"""Writes files of request costs (TOML); `quotas.costs.request_costs` reads such files."""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import tomlkit

from weir.quotas.costs.request_costs import ApiCost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weir.quotas.costs.request_costs import Overrides


def render(costs: Overrides, head: Sequence[str] = (), notes: Mapping[str, str] | None = None) -> str:
    """Return the text of a file of costs (TOML). `head`: comment lines at the top; `notes`: API name, or
    `rest`, → comment beside its table.
    """
    document = tomlkit.document()
    for line in head:
        document.add(tomlkit.comment(line))
    document.add("format", tomlkit.item(costs.format))
    document.add("broker", tomlkit.item(costs.broker))
    document.add("source", tomlkit.item(costs.source))
    if costs.cold is not None:
        document.add("cold", _table(msgspec.structs.asdict(costs.cold)))
    if costs.rest is not None:
        document.add("rest", _table(_plain(costs.rest), (notes or {}).get("rest", "")))
    apis = tomlkit.table(is_super_table=True)
    for api, cost in costs.apis.items():
        apis.add(api, _table(_plain(cost), (notes or {}).get(api, "")))
    if costs.apis:
        document.add("apis", apis)
    return tomlkit.dumps(document).rstrip("\n") + "\n"


def _plain(cost: ApiCost) -> dict[str, object]:
    values: dict[str, object] = msgspec.to_builtins(cost)
    return {name: value for name, value in values.items() if value or name == "us"}


def _table(values: Mapping[str, object], note: str = "") -> tomlkit.items.Table:
    table = tomlkit.table()
    if note:
        table.comment(note)
    for name, value in values.items():
        if isinstance(value, dict):
            inner = tomlkit.inline_table()
            inner.update(value)
            table.add(name, inner)
        else:
            table.add(name, value)
    return table
