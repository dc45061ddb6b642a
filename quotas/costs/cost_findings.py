"""Turns readings of a broker into a file of request costs: coefficients, their ranges, and their origin."""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from weir.quotas.costs.calibration import median
from weir.quotas.costs.cost_fitting import Sample, api_cost, coefficients_of, estimate_us, fit
from weir.quotas.costs.request_costs import ColdCost, Overrides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weir.quotas.costs.request_costs import CostTable

_COLD: Final = "cold"


@dataclass(frozen=True, slots=True)
class Readings:
    """Measured costs of one kind of request, in several repetitions (rounds) of the whole measurement."""

    api: str
    """Kafka's name of the API."""
    us: Sequence[float]
    """Cost (µs of one thread) of one request, by round: one number for each repetition of the measurement."""
    features: Mapping[str, float]
    """Name of a coefficient → number of times that it applies to the request."""
    gap_us: float = 0.0
    """Time (µs) for which the broker was idle before each request; 0 for no pause."""

    @property
    def typical(self) -> Sample:
        """Sample with the median cost of all rounds."""
        return Sample(median(self.us), self.features)

    def in_round(self, number: int) -> Sample | None:
        """Return the sample of one round (repetition of the measurement), counted from 0; None if this
        request was not measured in that round.
        """
        return Sample(self.us[number], self.features) if number < len(self.us) else None


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One coefficient of a cost table, in µs."""

    api: str
    """Kafka's name of the API, or `rest`, or `cold`."""
    name: str
    """Name of the field in `ApiCost` or `ColdCost`; see `cost_fitting.UNPACKED` for coefficients by codec."""
    old: float | None
    """Value (µs) before this calibration; None if the API had no coefficients of its own."""
    new: float
    """Value (µs) that this calibration found."""
    low: float
    """Lowest value (µs) that a fit to a single round gives."""
    high: float
    """Highest value (µs) that a fit to a single round gives."""
    measured: bool = True
    """True if the value was fitted to readings; False if the former value was scaled."""


@dataclass(frozen=True, slots=True)
class CostFindings:
    """Result of a calibration: the coefficients fitted to all readings, and their accuracy."""

    coefficients: list[Coefficient]
    ratio: float
    """Median of measured cost / former estimate, over the readings without pauses."""
    misfits: dict[str, float] = field(default_factory=dict)
    """API → largest factor between a reading and its estimate by the new coefficients; at least 1."""

    def overrides(self, broker: str, source: str, old: CostTable) -> Overrides:
        """Return the coefficients in the form of an operator's file of costs. `broker` is the measured Kafka
        release, `source` the date and method of the measurement. `old` is the former table, from which the
        idle times of the cold cost are taken.
        """
        by_api: dict[str, dict[str, float]] = {}
        for one in self.coefficients:
            by_api.setdefault(one.api, {})[one.name] = round(one.new, 3)
        cold = by_api.pop(_COLD, None)
        rest = by_api.pop("rest", None)
        return Overrides(
            broker=broker,
            source=source,
            cold=None
            if cold is None
            else ColdCost(us=cold["us"], from_us=old.cold.from_us, full_us=old.cold.full_us),
            rest=None if rest is None else api_cost(rest),
            apis={api: api_cost(found) for api, found in sorted(by_api.items())},
        )


def findings(
    readings: Sequence[Readings], names: Mapping[str, Sequence[str]], old: CostTable
) -> CostFindings:
    """Fit each API's coefficients (`names`: API → names of coefficients) to its readings. Coefficients and
    APIs without readings are scaled by the median ratio, because a broker that is slower in all measured
    requests is probably slower in the others too.

    Raises ValueError if there are no readings.
    """
    warm = [one for one in readings if not one.gap_us]
    ratio = median([_ratio(one, old) for one in warm])
    found: list[Coefficient] = []
    misfits = {}
    for api in dict.fromkeys(one.api for one in warm):
        own = [one for one in warm if one.api == api]
        fitted = _fitted(own, [name for name in names[api] if any(r.features.get(name) for r in own)])
        was = coefficients_of(old.apis[api]) if api in old.apis else None
        found += [
            Coefficient(api, name, None if was is None else was.get(name, 0.0), *values)
            for name, values in fitted.items()
        ]
        new = {name: values[0] for name, values in fitted.items()}
        misfits[api] = max(_misfit(one, new) for one in own)
        found += [
            Coefficient(api, name, us, us * ratio, us * ratio, us * ratio, measured=False)
            for name, us in (was or {}).items()
            if us and name not in fitted
        ]
    found += _cold([one for one in readings if one.gap_us], found, old)
    return CostFindings(found + _scaled(old, {one.api for one in found}, ratio), ratio, misfits)


def _ratio(one: Readings, old: CostTable) -> float:
    return one.typical.us / max(estimate_us(one.features, coefficients_of(old.of(one.api))), 0.1)


def _misfit(one: Readings, new: Mapping[str, float]) -> float:
    estimate = max(estimate_us(one.features, new), 0.001)
    return max(estimate / one.typical.us, one.typical.us / estimate)


def _fitted(own: Sequence[Readings], names: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """Return a dict of coefficient name → (its value, lowest and highest value of fits to single rounds), in
    µs.
    """
    whole = fit([one.typical for one in own], names)
    rounds = []
    for number in range(max(len(one.us) for one in own)):
        samples = [sample for one in own if (sample := one.in_round(number)) is not None]
        if len(samples) == len(own):
            rounds.append(fit(samples, names))
    all_of = {name: [us, *(one[name] for one in rounds)] for name, us in whole.items()}
    return {name: (us, min(all_of[name]), max(all_of[name])) for name, us in whole.items()}


def _cold(paused: Sequence[Readings], found: Sequence[Coefficient], old: CostTable) -> list[Coefficient]:
    """Return the coefficient of the cold cost in a list: the cost of requests sent after pauses, beyond the
    estimate by their API's coefficients. The list is empty if no request was sent after a pause.
    """
    values = []
    for one in paused:
        new = {each.name: each.new for each in found if each.api == one.api}
        share = min(1.0, one.gap_us / old.cold.full_us) if one.gap_us >= old.cold.from_us else 0.0
        if new and share:
            values += [max(us - estimate_us(one.features, new), 0.0) / share for us in one.us]
    if not values:
        return []
    return [Coefficient(_COLD, "us", old.cold.us, median(values), min(values), max(values))]


def _scaled(old: CostTable, measured: set[str], ratio: float) -> list[Coefficient]:
    others = {**{api: cost for api, cost in old.apis.items() if api not in measured}, "rest": old.rest}
    return [
        Coefficient(api, name, us, us * ratio, us * ratio, us * ratio, measured=False)
        for api, cost in others.items()
        for name, us in coefficients_of(cost).items()
        if us or name == "us"
    ]
