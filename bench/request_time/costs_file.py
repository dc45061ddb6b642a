"""Write a table of request costs as a TOML file, in the format of `quotas.costs.request_costs`."""

from __future__ import annotations

from weir.quotas.costs.cost_file import render
from weir.quotas.costs.request_costs import CostTable, Overrides


def write(table: CostTable) -> str:
    """Return the text of a file of request costs that overrides every value of the shipped table."""
    return render(
        Overrides(
            broker=table.broker,
            source=table.source,
            cold=table.cold,
            rest=table.rest,
            apis=dict(sorted(table.apis.items())),
        )
    )
