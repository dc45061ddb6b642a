"""Add up the features of a client's requests: the amounts that the cost model multiplies by its coefficients.

A feature has the name of its coefficient in `cost_fitting`. The feature `cold` is the number of requests that
met an idle broker, each weighted by its share of the full surcharge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from weir.protocol.framing import LENGTH_BYTES
from weir.quotas.costs import cost_fitting
from weir.quotas.costs.cost_fitting import coefficients_of
from weir.quotas.costs.request_costs import ApiCost, ColdCost, CostTable

if TYPE_CHECKING:
    from bench.request_time.calls import Call

Features = Mapping[str, float]
COLD: Final = "cold"
_KB: Final = 1000.0
_US: Final = 1e6


class Tally:
    """Sums of the features of all answered requests, by client-id."""

    def __init__(self, cold: ColdCost) -> None:
        """Begin with no requests; `cold` has the gaps between requests from which a broker counts as idle."""
        self.done: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Sums of features by client-id and name of the feature. The sums never decrease."""
        self.last: dict[str, tuple[Call, bytes]] = {}
        """Latest answered request of each client-id, with the response's frame."""
        self._cold = cold
        self._sent_s = 0.0

    def sent(self, now_s: float) -> float:
        """Note that a request of any client is sent at `now_s`. Return its share of the surcharge for an idle
        broker, 0 to 1.
        """
        gap_us, self._sent_s = (now_s - self._sent_s) * _US, now_s
        return coldness(gap_us, self._cold)

    def answered(self, call: Call, cold: float, frame: bytes) -> None:
        """Add an answered request; `cold` is its share (0 to 1) of the surcharge for an idle broker."""
        self.last[call.client_id] = call, frame
        done = self.done[call.client_id]
        for name, amount in call.known.items():
            done[name] += amount  # type: ignore[assignment]  # amounts are floats
        response_kb = (len(frame) - LENGTH_BYTES) / _KB
        done["us_per_response_kb"] += response_kb  # type: ignore[assignment]  # amounts are floats
        if call.converted:
            done["us_per_converted_kb"] += response_kb  # type: ignore[assignment]  # amounts are floats
        done[COLD] += cold  # type: ignore[assignment]  # amounts are floats

    def copy(self) -> dict[str, dict[str, float]]:
        """Return a copy of the sums of features so far, by client-id and name of the feature."""
        return {client_id: dict(done) for client_id, done in self.done.items()}


def coldness(gap_us: float, cold: ColdCost) -> float:
    """Return the share (0 to 1) of the full surcharge that a request costs if it is sent `gap_us` after the
    request before.
    """
    return 0.0 if gap_us < cold.from_us else min(1.0, gap_us / cold.full_us)


def difference(later: Features, earlier: Features) -> dict[str, float]:
    """Return the increase of each feature's sum from `earlier` to `later`."""
    return {name: amount - earlier.get(name, 0.0) for name, amount in later.items()}


def estimate_us(done: Features, cost: ApiCost, table: CostTable) -> float:
    """Return the cost model's estimate of the request time (µs) of requests of one API, from the sums of
    their features.
    """
    return cost_fitting.estimate_us(done, coefficients_of(cost)) + done.get(COLD, 0.0) * table.cold.us
