"""Costs made by hand, and connections whose requests cost that: what tests of request time have in common."""

from __future__ import annotations

from typing import Any, Final

from tests.proxy.wire import APP, new_connection
from weir.protocol.versions import VersionRange
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable, RequestBudget
from weir.quotas.costs.request_costs import ApiCost, ColdCost, Overrides, shipped

NEVER_COLD: Final = ColdCost(us=0.0, from_us=1e9, full_us=1e9)
EACH_US: Final = 50.0
"""What every request costs, whatever its API and size."""
LIMIT: Final = 0.01
"""Percent of a thread. From cold that is 0.1 % of a second in ten: 1000 µs, 20 requests. Each one more at the
same time is half a second more to wait: 0.005 over 0.01.
"""
LIMIT_US: Final = 1000.0


def percent(us: float) -> float:
    """What so much time is charged with: 10 ms are one percent of a second."""
    return us / 10_000


def costs(
    apis: dict[str, ApiCost] | None = None, *, rest: ApiCost | None = None, cold: ColdCost = NEVER_COLD
) -> Overrides:
    """A table with nothing of the shipped ones: every API costs `rest` but those that are given."""
    rest = rest or ApiCost(us=EACH_US)
    shipped_names = {name for release in ("1.1", "2.8", "3.9", "4.2") for name in shipped(release).apis}
    return Overrides(cold=cold, rest=rest, apis={**dict.fromkeys(shipped_names, rest), **(apis or {})})


def time_table(limit: float = LIMIT, entity: Entity = APP) -> QuotaTable:
    return QuotaTable({(entity, QuotaKey.REQUEST_PERCENTAGE): limit})


def everybody(limit: float = LIMIT) -> QuotaTable:
    return time_table(limit, Entity(user=DEFAULT))


def timed(
    table: QuotaTable | None = None,
    costs_: Overrides | None = None,
    *,
    broker: dict[int, VersionRange] | None = None,
    uplift: bool = False,
    manages_quotas: bool = False,
    brokers: frozenset[str] | None = None,
    **kwargs: Any,
) -> Connection:
    """A connection under a quota on request time, with the costs given: by default of `EACH_US`."""
    plans = Plans(
        Counters(),
        costs=costs_ or costs(),
        uplift=uplift,
        manages_quotas=manages_quotas,
        replication=brokers is not None,
    )
    if broker is not None:
        plans = plans.for_broker(broker)
    return new_connection(time_table() if table is None else table, plans=plans, brokers=brokers, **kwargs)


def budgets(connection: Connection) -> list[RequestBudget]:
    return list(connection.quotas.request)


def the_budget(connection: Connection) -> RequestBudget:
    (budget,) = budgets(connection)
    return budget


def charged_us(connection: Connection) -> float:
    """What has been charged in all, rounded to a thousandth of a microsecond."""
    return round(10_000 * sum(budget.charged for budget in budgets(connection)), 3)


def exempt_us(connection: Connection) -> int:
    """Time counted as exempt from request quotas."""
    return connection.counters.exempt_us.total()


def spend(
    connection: Connection, us: float = LIMIT_US, *, client_id: str = "app", user: str = "ANONYMOUS"
) -> None:
    """Have somebody use so much time now: by default all that there is."""
    quotas, now_ms = connection.quotas, connection.now_ms
    quotas.ledger(user, client_id, now_ms).charge_request(3, us, now_ms)


VARIOUS: Final = costs(
    {
        "Produce": ApiCost(us=20.0, us_per_request_kb=1.0, us_per_partition=100.0, us_acks_all=50.0),
        "Fetch": ApiCost(us=30.0, us_per_response_kb=7.0, us_per_converted_kb=100.0),
        "Metadata": ApiCost(us=40.0, us_per_response_kb=11.0),
        "ApiVersions": ApiCost(us=10.0, us_per_request_kb=1.0),
    }
)
