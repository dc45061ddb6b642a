"""What costs are a sum of: how often each coefficient applies to what a client did.

A feature has the name of its coefficient in `cost_fitting`. `cold` counts the requests that found
their broker idle, each with its share of the whole surcharge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from protocol.framing import LENGTH_BYTES
from quotas.costs import cost_fitting
from quotas.costs.cost_fitting import coefficients_of
from quotas.costs.request_costs import ApiCost, ColdCost, CostTable

if TYPE_CHECKING:
    from bench.request_time.calls import Call

Features = Mapping[str, float]
COLD: Final = "cold"
_KB: Final = 1000.0
_US: Final = 1e6


class Tally:
    """What every client-id did."""

    def __init__(self, cold: ColdCost) -> None:
        """`cold` is from when on a gap counts, and how much."""
        self.done: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By client-id; nothing is ever taken away."""
        self.last: dict[str, tuple[Call, bytes]] = {}
        """The latest request of each client-id, with its response's frame."""
        self._cold = cold
        self._sent_s = 0.0

    def sent(self, now_s: float) -> float:
        """A request is sent, by whomever; return how cold its broker is, from 0 to 1."""
        gap_us, self._sent_s = (now_s - self._sent_s) * _US, now_s
        return coldness(gap_us, self._cold)

    def answered(self, call: Call, cold: float, frame: bytes) -> None:
        """A response has come."""
        self.last[call.client_id] = call, frame
        done = self.done[call.client_id]
        for name, amount in call.known.items():
            done[name] += amount  # type: ignore[assignment]  # a Counter of floats is one
        response_kb = (len(frame) - LENGTH_BYTES) / _KB
        done["us_per_response_kb"] += response_kb  # type: ignore[assignment]  # likewise
        if call.converted:
            done["us_per_converted_kb"] += response_kb  # type: ignore[assignment]  # likewise
        done[COLD] += cold  # type: ignore[assignment]  # likewise

    def copy(self) -> dict[str, dict[str, float]]:
        """What was done so far."""
        return {client_id: dict(done) for client_id, done in self.done.items()}


def coldness(gap_us: float, cold: ColdCost) -> float:
    """The share of the surcharge that a request costs, its broker having been idle for so long."""
    return 0.0 if gap_us < cold.from_us else min(1.0, gap_us / cold.full_us)


def difference(later: Features, earlier: Features) -> dict[str, float]:
    """What was done in between."""
    return {name: amount - earlier.get(name, 0.0) for name, amount in later.items()}


def estimate_us(done: Features, cost: ApiCost, table: CostTable) -> float:
    """What the model says that these requests of one API cost."""
    return cost_fitting.estimate_us(done, coefficients_of(cost)) + done.get(COLD, 0.0) * table.cold.us
