"""Request time by entity and API: estimated seconds of one thread."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Final

from protocol import schema
from proxy.admin.entities import Pot, Reading, broker_label, sharers
from proxy.admin.family import Row
from quotas.request_time import OTHER_APIS, RequestBudget

SERIES_MAX: Final = 2000
"""Number of (entity, API) pairs shown; most clients use five to ten APIs."""
SLICE: Final = 100
"""Number of budgets read in one go: a millisecond or two."""
PERCENT: Final = 100
"""Percent in a thread's second."""
OTHERS: Final = "others"


@dataclass(slots=True)
class ApiTimes:
    """Request time of entities by API."""

    rows: list[Row] = field(default_factory=list)
    """(broker, user, client_id, client_id_prefix, api): seconds."""
    hidden: int = 0
    """Number of rows not in `rows`."""


def api_times(reading: Reading[RequestBudget], times: ApiTimes, most: int = SERIES_MAX) -> Iterator[None]:
    """Fill `times` from the budgets of a reading, the most expensive rows first, in short steps."""
    budgets, rows = iter(reading.largest), times.rows
    while part := list(islice(budgets, SLICE)):
        rows += [row for pot, budget in part for row in _rows(pot, budget)]
        if len(rows) > most:
            times.hidden += len(rows) - most
            rows[:] = heapq.nlargest(most, rows, key=itemgetter(1))
        yield


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as `Produce`; `api_99` for unknown keys, `others` for many of
    them.
    """
    if api_key == OTHER_APIS:
        return OTHERS
    found = schema.api(api_key)
    return f"api_{api_key}" if found is None else found.name


def seconds(percent: float) -> float:
    """Return a charge in seconds of one thread."""
    return percent / PERCENT


def _rows(pot: Pot, budget: RequestBudget) -> Iterator[Row]:
    whose = (broker_label(pot.node_id), *sharers(budget.tags))
    for api_key, percent in budget.by_api.items():
        yield (*whose, api_name(api_key)), seconds(percent)
