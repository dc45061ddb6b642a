"""Ask a running Weir what other Weirs have used of a client's quotas, for `weir quotas explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from weir.cli.admin_endpoint import AdminError, EndpointAccess, admin_address, ask
from weir.cli.quotas.show import SHADOW, clean, in_bytes
from weir.proxy.admin.shared_usage import PATH, SharedUsage, SharedUsageReport
from weir.proxy.config.settings import Settings
from weir.quotas.table.quota_kind import KINDS
from weir.quotas.table.quota_table import QuotaKey


class SharedUsageJson(msgspec.Struct):
    """JSON object with a client's use of shared quotas, as a running Weir reports it."""

    admin: str
    """Address of the admin endpoint that answered."""
    weirs: int
    """Number of Weirs that it hears, itself included."""
    budgets: list[SharedUsage]


def shared_usage(
    admin: str | None, settings: Settings, access: EndpointAccess, user: str, client_id: str
) -> SharedUsageJson | None:
    """Ask the endpoint `admin`, else that in `settings`. Return None if it does not answer."""
    address = admin_address(admin, settings)
    if address is None:
        return None
    try:
        report = ask(address, PATH, {"user": user, "client_id": client_id}, SharedUsageReport, access)
    except AdminError:
        return None
    return SharedUsageJson(str(address), report.weirs, report.budgets)


def lines(found: SharedUsageJson | None, key: QuotaKey) -> Iterator[str]:
    """Yield a line for each shared budget of this quota."""
    for budget in () if found is None else found.budgets:
        if budget.key == key.value:
            where = "all brokers" if budget.broker == "cluster" else f"broker {budget.broker}"
            shadow = ", in shadow" if budget.mode == SHADOW else ""
            units = _UNITS[KINDS[key].unit]
            yield clean(
                f"    {where}{shadow}: {units(budget.own)} used here, "
                f"{units(budget.others)} reported by other Weirs"
            )


_UNITS: Final[dict[str, Callable[[float], str]]] = {
    "bytes/s": in_bytes,
    "percent": lambda value: f"{value:.3f} s",
    "partitions/s": lambda value: f"{value:g} partitions",
}
