"""Judge estimates of request time: by client, by API, and against the targets of
docs/background/request-time.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.request_time.runner import Observation

BUSY: Final = (0.5, 2.0)
COMPRESSED: Final = (0.4, 2.5)
MEDIAN_ERROR_MAX: Final = 0.25
IDLE_PERCENT_MAX: Final = 0.5
LONG_POLLS: Final = "long-polls-16"
"""Name of the workload to which the target for idle clients applies."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties of a workload that decide which targets apply to it."""

    overloaded: bool = False
    idle: bool = False
    compressed: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """Measured and estimated request time of a client, or of one of its APIs."""

    name: str
    requests: float
    seconds: float
    truth_us: float
    estimate_us: float

    @property
    def ratio(self) -> float:
        """Estimated time divided by measured time; infinite if the measured time is 0."""
        return self.estimate_us / self.truth_us if self.truth_us > 0 else float("inf")

    @property
    def percent(self) -> float:
        """Estimated load, in percent of one broker thread."""
        return self.estimate_us / self.seconds / 1e4

    @property
    def truth_percent(self) -> float:
        """Measured load, in percent of one broker thread."""
        return self.truth_us / self.seconds / 1e4


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target for the estimates, with the figure found and True if the target was reached."""

    target: str
    reached: bool
    found: str


def by_client(seen: Iterable[tuple[Observation, float]]) -> Figure | None:
    """Return the sums over all APIs of one client; None if the client sent no requests."""
    pairs = [(found, us) for found, us in seen if found.requests]
    if not pairs:
        return None
    first = pairs[0][0]
    return Figure(
        first.case,
        sum(found.requests for found, _ in pairs),
        first.seconds,
        sum(found.truth_us for found, _ in pairs),
        sum(us for _, us in pairs),
    )


def verdicts(figures: Sequence[Figure], kinds: Mapping[str, Kind]) -> list[Verdict]:
    """Return a verdict on each target for the clients of one broker, without targets for which nothing was
    measured.
    """
    busy = [figure for figure in figures if kinds[figure.name] == Kind()]
    packed = [figure for figure in figures if kinds[figure.name].compressed]
    found = [
        _within("busy clients", busy, BUSY),
        _within("compressed produce", packed, COMPRESSED),
        _median_error(busy),
        _long_polls(figures),
    ]
    return [verdict for verdict in found if verdict is not None]


def median_error(figures: Sequence[Figure]) -> float:
    """Return the median of |estimate / measured time - 1| over the clients."""
    return median(abs(figure.ratio - 1.0) for figure in figures)


def _within(whose: str, figures: Sequence[Figure], bounds: tuple[float, float]) -> Verdict | None:
    if not figures:
        return None
    low, high = bounds
    out = [figure for figure in figures if not low <= figure.ratio <= high]
    ratios = sorted(figure.ratio for figure in figures)
    told = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    if out:
        told += "; not " + ", ".join(f"{figure.name} {figure.ratio:.2f}" for figure in out)
    return Verdict(f"{whose} within {low:g} to {high:g}", not out, told)


def _median_error(busy: Sequence[Figure]) -> Verdict | None:
    if not busy:
        return None
    error = median_error(busy)
    return Verdict(
        f"median error of busy clients at most {MEDIAN_ERROR_MAX:.0%}",
        error <= MEDIAN_ERROR_MAX,
        f"{error:.0%} of {len(busy)}",
    )


def _long_polls(figures: Sequence[Figure]) -> Verdict | None:
    for figure in figures:
        if figure.name == LONG_POLLS:
            told = f"{figure.percent:.2f} % (truth {figure.truth_percent:.2f} %)"
            target = f"idle long polls of 16 consumers below {IDLE_PERCENT_MAX:g} % of a thread"
            return Verdict(target, figure.percent < IDLE_PERCENT_MAX, told)
    return None
