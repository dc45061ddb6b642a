"""From readings of a broker to a file of costs: coefficients, how sure they are, where they come from."""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quotas.calibration import median
from quotas.cost_fitting import Sample, api_cost, coefficients_of, estimate_us, fit
from quotas.request_costs import ColdCost, Overrides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotas.request_costs import CostTable

_COLD: Final = "cold"


@dataclass(frozen=True, slots=True)
class Readings:
    """What requests of one kind cost, in µs, once per round."""

    api: str
    us: Sequence[float]
    features: Mapping[str, float]
    gap_us: float = 0.0
    """For so long the broker was idle before each; 0 if it never was."""

    @property
    def typical(self) -> Sample:
        """The median of the rounds."""
        return Sample(median(self.us), self.features)

    def in_round(self, number: int) -> Sample | None:
        """None if there is no such reading."""
        return Sample(self.us[number], self.features) if number < len(self.us) else None


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One number of a table."""

    api: str
    """Or `cold`."""
    name: str
    old: float | None
    """What was assumed before; None: the API had no coefficients of its own."""
    new: float
    low: float
    high: float
    """The least and the most that single rounds say."""
    measured: bool = True
    """False: scaled like what was measured."""


@dataclass(frozen=True, slots=True)
class CostFindings:
    """What readings come down to."""

    coefficients: list[Coefficient]
    ratio: float
    """Of what the readings cost to what was assumed of them, the median."""
    misfits: dict[str, float] = field(default_factory=dict)
    """By API: by which factor the coefficients miss one of its readings at most."""

    def overrides(self, broker: str, source: str, old: CostTable) -> Overrides:
        """As a file of costs has them."""
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
    """Fit each API's coefficients (`names`, by API) to its readings. What was not measured, of coefficients
    and of APIs, is scaled like what was: a broker that is slower in all of that is hardly as fast in the
    rest.

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
    """The coefficient, the lowest and the highest of single rounds, by name."""
    whole = fit([one.typical for one in own], names)
    rounds = []
    for number in range(max(len(one.us) for one in own)):
        samples = [sample for one in own if (sample := one.in_round(number)) is not None]
        if len(samples) == len(own):
            rounds.append(fit(samples, names))
    all_of = {name: [us, *(one[name] for one in rounds)] for name, us in whole.items()}
    return {name: (us, min(all_of[name]), max(all_of[name])) for name, us in whole.items()}


def _cold(paused: Sequence[Readings], found: Sequence[Coefficient], old: CostTable) -> list[Coefficient]:
    """What those that were sent after pauses cost beyond what their coefficients say."""
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
