"""A table of costs as a file (TOML), in the format of `quotas.costs.request_costs`."""

from __future__ import annotations

from quotas.costs.cost_file import render
from quotas.costs.request_costs import CostTable, Overrides


def write(table: CostTable) -> str:
    """The text of the file: everything in the table overrides."""
    return render(
        Overrides(
            broker=table.broker,
            source=table.source,
            cold=table.cold,
            rest=table.rest,
            apis=dict(sorted(table.apis.items())),
        )
    )
