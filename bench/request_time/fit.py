"""Fit the coefficients of the cost model to observations: minimize the error of the ratio of estimate to
measured time, without negative coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from operator import mul
from statistics import median
from typing import Final

from bench.request_time.features import COLD
from bench.request_time.runner import Observation
from weir.quotas.costs.cost_fitting import UNPACKED, Sample, api_cost
from weir.quotas.costs.request_costs import ApiCost, ColdCost, CostTable

_SWEEPS: Final = 500
_STEPS: Final = 20
_FAR: Final = 10.0
"""Limit for estimates that are too low: an estimate below a tenth of the measured time is replaced by a
tenth, so that its logarithm stays bounded.
"""
_LEAST_SPREAD_KB: Final = 0.25
"""Minimum difference (kB) between the sizes of observed requests. With a smaller difference, the cost per kB
is not fitted.
"""
_LEAST_REQUESTS: Final = 8.0
REQUEST, RESPONSE = "us_per_request_kb", "us_per_response_kb"
SESSION: Final = "us_per_session_kb"
TERMS: Final[Mapping[str, tuple[str, ...]]] = {
    "Produce": ("us", REQUEST, "us_per_partition", "us_acks_all", *UNPACKED.values()),
    "Fetch": ("us", REQUEST, RESPONSE, SESSION, "us_per_converted_kb"),
    **dict.fromkeys(
        ("Metadata", "DescribeConfigs", "DescribeGroups", "ListGroups", "DescribeCluster", "ApiVersions"),
        ("us", RESPONSE),
    ),
}
"""Names of the coefficients to fit, by API; `OTHERS` for APIs that are missing here."""
OTHERS: Final = ("us", REQUEST)
BY_KB: Final = (REQUEST, RESPONSE)
CHANGES: Final = frozenset(
    {
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs"),
        *("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    }
)
"""APIs that change something at the broker. The default cost of unknown APIs is computed without these,
because changes cost more than queries.
"""
DIGITS: Final = 3


def non_negative(rows: Sequence[Sample], terms: Sequence[str]) -> dict[str, float]:
    """Return the coefficients of `terms`, none below 0, with the least sum of squared logarithms of estimate
    / measured time: half of the measured time is as wrong as twice. Gauss-Newton method, from the
    coefficients with the least relative error.
    """
    features = [[row.features.get(term, 0.0) for term in terms] for row in rows]
    found = _least_squares(features, [row.us for row in rows], [row.us for row in rows], [0.0] * len(terms))
    for _ in range(_STEPS):
        now = [
            max(sum(map(mul, row, found)), row_us.us / _FAR)
            for row, row_us in zip(features, rows, strict=True)
        ]
        wanted = [us * (1.0 + log(row.us / us)) for us, row in zip(now, rows, strict=True)]
        found = _least_squares(features, wanted, now, found)
    return dict(zip(terms, found, strict=True))


def _least_squares(
    features: Sequence[Sequence[float]],
    wanted: Sequence[float],
    scale: Sequence[float],
    start: Sequence[float],
) -> list[float]:
    """Return the coefficients, none below 0, with which the estimates come nearest to `wanted`. Each error is
    divided by its value in `scale`.

    Coordinate descent: set each coefficient in turn to its best value while the others stay the same.
    """
    found = list(start)
    weighed = [[amount / by for amount in row] for row, by in zip(features, scale, strict=True)]
    columns = list(zip(*weighed, strict=True))
    squares = [sum(amount * amount for amount in column) for column in columns]
    missing = [
        us / by - sum(map(mul, row, found)) for us, by, row in zip(wanted, scale, weighed, strict=True)
    ]
    for _ in range(_SWEEPS):
        for index, (column, square) in enumerate(zip(columns, squares, strict=True)):
            if square:
                step = max(sum(map(mul, column, missing)) / square, -found[index])
                found[index] += step
                missing = [rest - amount * step for rest, amount in zip(missing, column, strict=True)]
    return found


def fit_api(api: str, observations: Sequence[Observation], cold: ColdCost) -> ApiCost | None:
    """Fit the costs of one API; return None if no observation has enough requests."""
    rows = [row for seen in observations if (row := _row(seen, cold)) is not None]
    if not rows:
        return None
    terms = [term for term in TERMS.get(api, OTHERS) if _tells(rows, term)]
    return api_cost(
        {term: _rounded(us) for term, us in non_negative(rows, terms).items() if us or term == "us"}
    )


def _row(seen: Observation, cold: ColdCost) -> Sample | None:
    """Return an observation's average request, less the surcharge of an idle broker; None if it has too few
    requests, or if the broker charged nothing.
    """
    count = seen.requests
    if count < _LEAST_REQUESTS or seen.truth_us <= 0:
        return None
    each = {name: amount / count for name, amount in seen.done.items()}
    us = seen.truth_us / count
    return Sample(max(us - each.get(COLD, 0.0) * cold.us, us / 2), each)


def _tells(rows: Sequence[Sample], term: str) -> bool:
    values = [row.features.get(term, 0.0) for row in rows]
    if term in BY_KB:
        return max(values) - min(values) >= _LEAST_SPREAD_KB
    return any(values)


def _rounded(us: float) -> float:
    return float(f"{us:.{DIGITS}g}")


def fit_cold(idle: Sequence[Observation], busy: Sequence[Observation], shape: ColdCost) -> ColdCost:
    """Return the surcharge for an idle broker: the median of the additional time of requests that were sent
    with pauses (`idle`), compared with requests of the same API without pauses (`busy`). The gaps from which
    the surcharge applies are copied from `shape`.
    """
    base = {seen.api: seen.truth_us / seen.requests for seen in busy if seen.requests}
    added = [
        (seen.truth_us / seen.requests - base[seen.api]) / share
        for seen in idle
        if seen.requests and seen.api in base and (share := seen.done.get(COLD, 0.0) / seen.requests)
    ]
    us = _rounded(max(0.0, median(added))) if added else shape.us
    return ColdCost(us=us, from_us=shape.from_us, full_us=shape.full_us)


def fit_table(observations: Sequence[Observation], cold: ColdCost, broker: str, source: str) -> CostTable:
    """Fit a whole table of costs. The default cost of APIs without observations is the median cost of the
    APIs that only query.
    """
    by_api: dict[str, list[Observation]] = {}
    for seen in observations:
        by_api.setdefault(seen.api, []).append(seen)
    fitted = {api: fit_api(api, seen, cold) for api, seen in by_api.items()}
    apis = {api: cost for api, cost in sorted(fitted.items()) if cost is not None}
    asking = [cost.us for api, cost in apis.items() if api not in CHANGES]
    rest = ApiCost(us=_rounded(median(asking)), us_per_request_kb=0.05, us_per_response_kb=0.05)
    return CostTable(broker=broker, source=source, cold=cold, rest=rest, apis=apis)
