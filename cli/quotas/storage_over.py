"""Ask a running Weir which storage budgets are over, for `weir quotas explain`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from weir.cli.admin_endpoint import AdminError, EndpointAccess, admin_address, ask
from weir.cli.quotas.show import clean
from weir.proxy.config.settings import Settings
from weir.proxy.control.snapshots.records import Status
from weir.quotas.storage import StorageMark
from weir.quotas.table.explain import QuotaExplanation
from weir.quotas.table.quota_kind import STORAGE_MARKS
from weir.quotas.table.quota_table import QuotaKey


def problems(admin: str | None, settings: Settings, access: EndpointAccess) -> list[str] | None:
    """Ask the endpoint `admin`, else that in `settings`, for its problems. Return None without an answer."""
    address = admin_address(admin, settings)
    if address is None:
        return None
    try:
        return [problem.what for problem in ask(address, "/api/status", {}, Status, access).problems]
    except AdminError:
        return None


def exceeded(charge: QuotaExplanation, found: list[str] | None) -> list[str] | None:
    """Return the problems that make this `over_byte_rate` apply now. Return None if no Weir has told its
    problems, or if the quota is of another kind, or not enforced.
    """
    entity = charge.steps[0].entity
    if found is None or entity is None or charge.limit is None or charge.key is not QuotaKey.OVER_BYTE_RATE:
        return None
    over = tuple(StorageMark(entity, key, 0).exceeded for key in STORAGE_MARKS)
    return [what for what in found if what.startswith(over)]


def lines(charge: QuotaExplanation, found: list[str] | None) -> Iterator[str]:
    """Yield lines that say whether this `over_byte_rate` applies now."""
    if charge.key is not QuotaKey.OVER_BYTE_RATE or charge.limit is None:
        return
    over = exceeded(charge, found)
    if over is None:
        what = "applies only while its storage budget is over: give --admin HOST:PORT of a running Weir"
        yield click.style(f"  {what}", dim=True)
    elif over:
        yield from (f"  applies now: {clean(what)}" for what in over)
    else:
        yield "  does not apply now: its storage budget is not over"
