"""Figures of what passed under a quota: pure functions."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weir.conformance.probe.quotas.load import GreedyLoad, MeasuredAnswer

WINDOWS_S: Final = (1, 10, 60)
"""Lengths (s) of the windows over which rates are figures."""
RECOVERED: Final = 0.5
"""Share of the quota that passes in a second once a client has recovered: less than all, since each request
takes time besides its throttle time.
"""


class Spread(msgspec.Struct, frozen=True):
    """The rate ÷ quota in windows of one length, which begin at each full second."""

    least: float
    mean: float
    most: float


class SteadyFigures(msgspec.Struct, frozen=True):
    """A client that always has more to send."""

    quota: float
    rates: dict[str, Spread]
    """Length of windows (s) → rate ÷ quota in them."""
    throttles: int
    """Number of responses with a throttle time."""
    throttled_s: float
    """Sum (s) of their throttle times."""
    refused: int = 0
    """Number of responses with error 89."""


class StartFigures(msgspec.Struct, frozen=True):
    """A client that was idle, and begins at full speed."""

    overshoot_s: float
    """Greatest excess over the quota, as a time (s) of the quota."""
    recovery_s: float | None
    """Time (s) from the first throttled response until the client passes at its quota again; None if it did
    not while measured.
    """


class SharedFigures(msgspec.Struct, frozen=True):
    """Ten connections under one quota."""

    rate: float
    """Rate of all ÷ quota."""
    fairness: float
    """Jain's index of the connections' shares: 1 if equal, 0.1 if one has all."""
    least: float
    """Smallest share of a connection, as a multiple of an equal one."""
    most: float


def steady(passed: Sequence[MeasuredAnswer], load: GreedyLoad) -> SteadyFigures:
    """Return the figures from `settled_s` to the end of the load."""
    counted = _counted(passed, load)
    by_second = _by_second(counted, load)
    return SteadyFigures(
        load.quota,
        {str(window): _spread(by_second, window, load.quota) for window in WINDOWS_S},
        sum(one.throttle_ms > 0 for one in counted),
        sum(one.throttle_ms for one in counted) / 1000,
        sum(one.refused for one in counted),
    )


def _counted(passed: Iterable[MeasuredAnswer], load: GreedyLoad) -> list[MeasuredAnswer]:
    return [one for one in passed if load.settled_s <= one.at_s < load.lasts_s]


def _by_second(counted: Iterable[MeasuredAnswer], load: GreedyLoad) -> list[float]:
    """Return the units that passed in each full second of the measured time."""
    seconds = [0.0] * int(load.lasts_s - load.settled_s)
    for one in counted:
        if (second := int(one.at_s - load.settled_s)) < len(seconds):
            seconds[second] += one.units
    return seconds


def _spread(by_second: Sequence[float], window_s: int, quota: float) -> Spread:
    window_s = min(window_s, len(by_second))
    sums = [0.0, *accumulate(by_second)]
    rates = [
        (sums[at + window_s] - sums[at]) / window_s / quota for at in range(len(by_second) - window_s + 1)
    ]
    return Spread(min(rates), sum(by_second) / len(by_second) / quota, max(rates))


def mean_rate(passed: Iterable[MeasuredAnswer], load: GreedyLoad) -> float:
    """Return the units/s that passed in the measured time."""
    by_second = _by_second(_counted(passed, load), load)
    return sum(by_second) / len(by_second)


def start(passed: Sequence[MeasuredAnswer], quota: float) -> StartFigures:
    """Return the figures of a load from its first request on."""
    total = excess_s = 0.0
    for one in passed:
        total += one.units
        excess_s = max(excess_s, total / quota - one.at_s)
    throttled_s = next((one.at_s for one in passed if one.throttle_ms), None)
    return StartFigures(excess_s, None if throttled_s is None else _recovery_s(passed, quota, throttled_s))


def _recovery_s(passed: Sequence[MeasuredAnswer], quota: float, throttled_s: float) -> float | None:
    """Return the time (s) from `throttled_s` to the first response of a second in which the quota passes."""
    later = [one for one in passed if one.at_s > throttled_s]
    end, in_window = 0, 0.0
    for begin, one in enumerate(later):
        while end < len(later) and later[end].at_s < one.at_s + 1:
            in_window += later[end].units
            end += 1
        if end < len(later) and in_window >= RECOVERED * quota:
            return one.at_s - throttled_s
        in_window -= later[begin].units
    return None


def shared(passed: Sequence[MeasuredAnswer], load: GreedyLoad) -> SharedFigures:
    """Return the figures of a load of several connections."""
    units = [0.0] * load.connections
    for one in _counted(passed, load):
        units[one.connection] += one.units
    total, squares = sum(units), sum(each * each for each in units)
    equal = total / load.connections
    return SharedFigures(
        total / (load.lasts_s - load.settled_s) / load.quota,
        total * total / (load.connections * squares) if squares else 0.0,
        min(units) / equal if equal else 0.0,
        max(units) / equal if equal else 0.0,
    )
