"""Fits the coefficients of an API to measured costs of single requests, by non-negative least squares.

The fit minimises the sum of squared *relative* errors: a request of 15 µs counts as much as one of 1500 µs.
An API has few coefficients, so the fit tries all subsets of them. The solution is the best subset whose
coefficients are all positive; the other coefficients are zero.

>>> names = ("us", "us_per_request_kb")
>>> samples = [Sample(21.0, dict(zip(names, (1, 1)))), Sample(120.0, dict(zip(names, (1, 100))))]
>>> {name: round(us, 6) for name, us in fit(samples, names).items()}
{'us': 20.0, 'us_per_request_kb': 1.0}
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weir.quotas.costs.request_costs import CODECS, ApiCost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UNPACKED: Final[Mapping[str, str]] = {codec: f"us_per_unpacked_kb.{codec}" for codec in CODECS}
"""Codec → name of its coefficient in this module. All other coefficients are named like fields of
`ApiCost`.
"""
_SINGULAR: Final = 1e-12


class Sample(NamedTuple):
    """Measured cost of one request."""

    us: float
    """Cost (µs of one thread)."""
    features: Mapping[str, float]
    """Name of a coefficient → number of times that it applies to the request."""


def fit(samples: Sequence[Sample], names: Sequence[str]) -> dict[str, float]:
    """Return name → coefficient (µs, at least 0) of the best fit. Raises ValueError if there are no samples,
    or if a sample's cost is not above 0.
    """
    if not samples or any(not sample.us > 0 for sample in samples):
        raise ValueError("needs samples, each with a cost above 0")
    rows = [[sample.features.get(name, 0.0) / sample.us for name in names] for sample in samples]
    best, best_error = dict.fromkeys(names, 0.0), float(len(samples))
    for chosen in _subsets(len(names)):
        solution = _least_squares(rows, chosen)
        if solution is None or any(value < 0 for value in solution):
            continue
        error = sum((_dot(row, chosen, solution) - 1.0) ** 2 for row in rows)
        if error < best_error - _SINGULAR:
            found = dict(zip(chosen, solution, strict=True))
            best = {name: found.get(index, 0.0) for index, name in enumerate(names)}
            best_error = error
    return best


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the subsets of `count` indexes, small ones first, so that the smaller of two equal fits wins."""
    return chain.from_iterable(combinations(range(count), size) for size in range(1, count + 1))


def _dot(row: Sequence[float], chosen: Sequence[int], values: Sequence[float]) -> float:
    return sum(row[index] * value for index, value in zip(chosen, values, strict=True))


def _least_squares(rows: Sequence[Sequence[float]], chosen: Sequence[int]) -> list[float] | None:
    """Return the least-squares solution of the `chosen` columns of `rows` for a right side of ones; None if
    the columns are linearly dependent.
    """
    scales = [sum(row[index] ** 2 for row in rows) ** 0.5 for index in chosen]
    if not all(scales):
        return None
    columns = [[row[index] / scale for row in rows] for index, scale in zip(chosen, scales, strict=True)]
    matrix = [
        [*(sum(a * b for a, b in zip(one, other, strict=True)) for other in columns), sum(one)]
        for one in columns
    ]
    solution = _eliminate(matrix)
    return solution and [value / scale for value, scale in zip(solution, scales, strict=True)]


def _eliminate(matrix: list[list[float]]) -> list[float] | None:
    """Return the solution of linear equations, whose right side is the last column of `matrix`; None if the
    matrix is singular. Changes `matrix` (Gauss-Jordan elimination).
    """
    size = len(matrix)
    for step in range(size):
        pivot = max(range(step, size), key=lambda row: abs(matrix[row][step]))
        if abs(matrix[pivot][step]) < _SINGULAR:
            return None
        matrix[step], matrix[pivot] = matrix[pivot], matrix[step]
        head = matrix[step][step]
        matrix[step] = [value / head for value in matrix[step]]
        for row in range(size):
            if row != step:
                factor = matrix[row][step]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[step], strict=True)]
    return [row[size] for row in matrix]


def estimate_us(features: Mapping[str, float], coefficients: Mapping[str, float]) -> float:
    """Return the estimated cost (µs) of a request with these features."""
    return sum(amount * coefficients.get(name, 0.0) for name, amount in features.items())


def coefficients_of(cost: ApiCost) -> dict[str, float]:
    """Return name → coefficient (µs) of an API. The names are the fields of `ApiCost`, except that each codec
    in `us_per_unpacked_kb` has a name of its own (`UNPACKED`).
    """
    names = [field.name for field in msgspec.structs.fields(ApiCost) if field.name != "us_per_unpacked_kb"]
    plain = {name: float(getattr(cost, name)) for name in names}
    return {**plain, **{UNPACKED[codec]: us for codec, us in cost.us_per_unpacked_kb.items()}}


def api_cost(coefficients: Mapping[str, float]) -> ApiCost:
    """Return the `ApiCost` with these coefficients (name → µs, see `coefficients_of`); missing ones are 0.
    Raises msgspec.ValidationError if a name is unknown or a value is not within 0 and 1e9.
    """
    by_name = {name: codec for codec, name in UNPACKED.items()}
    plain: dict[str, object] = {name: us for name, us in coefficients.items() if name not in by_name}
    unpacked = {by_name[name]: us for name, us in coefficients.items() if name in by_name}
    return msgspec.convert({"us": 0.0, **plain, "us_per_unpacked_kb": unpacked}, ApiCost)
