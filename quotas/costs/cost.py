"""Cost: the estimated request time of a request at its broker.

A `Cost` has the coefficients of one API and version (`request_costs`), in the form that connections use. The
estimate is in µs of one thread.

A request to an idle broker costs more (`Cost.cold_us`), the longer ago the last request was forwarded to that
broker. The time for which a fetch waits for data, or JoinGroup for other members, is not part of the
cost; a broker does not count that time either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weir.quotas.costs.request_costs import ApiCost, ColdCost

_BYTES_PER_KB: Final = 1000.0


WAIT_US: Final = 1000.0
"""Part (µs) of a latency that is assumed to be waiting: for the network, other clients' requests,
replicas.
"""
UNANSWERED_US: Final = 200_000.0
"""Maximum of the unconfirmed cost (µs) that is charged for a request whose client does not wait for a
response, so that no latency can confirm the cost.
"""


def confirmed_us(us: float, unconfirmed_us: float, latency_us: float) -> float:
    """Return the cost (µs) to charge for a request with the estimated cost `us`, if the true cost may be
    higher by up to `unconfirmed_us`. `latency_us`: time from the request's last byte to its response. A
    broker cannot have worked longer than the latency, but may have waited for a part of it. So the cost is at
    least half of (latency - `WAIT_US`) and at most the latency (or `WAIT_US`, if longer), but never above
    `us` + `unconfirmed_us`.
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
        """Prepare the coefficients of `api` and `cold`. `converted`: True if the broker converts the records
        of responses of this version to an older format.
        """
        self.api = api
        """Coefficients of the API, from the table of request costs. `request_features` uses those that depend
        on a request's content.
        """
        self.us = api.us
        """Cost (µs) of a request of this API, before its bytes are added."""
        self.us_per_byte = api.us_per_request_kb / _BYTES_PER_KB
        per_response_kb = api.us_per_response_kb + (api.us_per_converted_kb if converted else 0.0)
        self.us_per_response_byte = per_response_kb / _BYTES_PER_KB
        self._cold_max_us = cold.us
        self.cold_from_us = cold.from_us
        """Idle time (µs) of the broker from which on its next request has an additional cost."""
        self._cold_full_us = cold.full_us

    def cold_us(self, gap_us: float) -> float:
        """Return the additional cost (µs) of a request whose broker was idle for `gap_us`."""
        if gap_us < self.cold_from_us:
            return 0.0
        return self._cold_max_us * min(1.0, gap_us / self._cold_full_us)

    def begun_us(self, length: int) -> float:
        """Return the part of the cost (µs) that is known before the response: that of a request of this frame
        length, forwarded to a broker that was not idle.
        """
        return self.us + self.us_per_byte * length
