"""Cost: the estimated request time of a request at its broker.

`request_costs` has the coefficients; a `Cost` has them in the form that connections use for one API and
version. The estimate is in µs of one thread.

A request to an idle broker costs more: `Cost.cold_us`, by the time since any request was last forwarded to
that broker. The time for which a fetch waits for data, or JoinGroup for other members, is not part of the
cost; a broker does not count that time either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quotas.costs.request_costs import ApiCost, ColdCost

_BYTES_PER_KB: Final = 1000.0


WAIT_US: Final = 1000.0
"""Time (µs) of a latency that is not taken for work: for the network, other clients' requests, replicas."""
UNANSWERED_US: Final = 200_000.0
"""Maximum unconfirmed cost (µs) that is charged if a client does not wait for the response."""


def confirmed_us(us: float, unconfirmed_us: float, latency_us: float) -> float:
    """Return the cost (µs) of a request that the estimate `us` may miss by `unconfirmed_us`, with the latency
    from its last byte to its response. A broker cannot have worked longer than that; part of it may be
    waiting. So the cost is at least half of the latency, less `WAIT_US`, and at most all of it.
    """
    work_us = max(min(us, max(latency_us, WAIT_US)), (latency_us - WAIT_US) / 2)
    return min(work_us, us + unconfirmed_us)


class Cost:
    """Cost (µs of one thread) of requests of one API and version at one kind of broker."""

    __slots__ = (
        "_cold_full_us",
        "_cold_max_us",
        "api",
        "cold_from_us",
        "us",
        "us_per_byte",
        "us_per_response_byte",
    )

    def __init__(self, api: ApiCost, cold: ColdCost, *, converted: bool = False) -> None:
        """`converted`: True if the broker converts the records of responses to an older format."""
        self.api = api
        """Coefficients of the API; those for features of a request are used by `request_features`."""
        self.us = api.us
        self.us_per_byte = api.us_per_request_kb / _BYTES_PER_KB
        per_response_kb = api.us_per_response_kb + (api.us_per_converted_kb if converted else 0.0)
        self.us_per_response_byte = per_response_kb / _BYTES_PER_KB
        self._cold_max_us = cold.us
        self.cold_from_us = cold.from_us
        """Minimum idle time (µs) of the broker that has an additional cost."""
        self._cold_full_us = cold.full_us

    def cold_us(self, gap_us: float) -> float:
        """Return the additional cost (µs) of a request whose broker was idle for `gap_us`."""
        if gap_us < self.cold_from_us:
            return 0.0
        return self._cold_max_us * min(1.0, gap_us / self._cold_full_us)

    def begun_us(self, length: int) -> float:
        """Return the cost (µs) that is known when a request of this frame length is forwarded to a busy
        broker.
        """
        return self.us + self.us_per_byte * length
