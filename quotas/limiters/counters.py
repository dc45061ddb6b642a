"""Base classes of limiters: `Chargeable` has the methods that charge units, `CountingLimiter` the
counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.quotas.table.entities import Tags


class Chargeable:
    """A limiter, or several limiters that are charged as one.

    This is a base class, not a Protocol, because mypyc calls the methods of a class directly.
    """

    __slots__ = ()

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value` units; return the throttle time (ms), 0 if the usage is within the limit."""
        raise NotImplementedError

    def charge_in_turn(self, value: float, now_ms: int) -> int:
        """Charge `value` units of a fetch response, whose connection waits behind others of the client;
        return the throttle time (ms), 0 if the usage is within the limit.
        """
        return self.charge(value, now_ms)

    def charge_untold(self, value: float, now_ms: int) -> None:
        """Charge `value` units for a response that has no field for a throttle time, so that its client
        cannot be told to wait.
        """
        raise NotImplementedError

    def charge_api(self, api_key: int, value: float, now_ms: int) -> int:
        """Charge `value` units for a request of this API; return the throttle time (ms), 0 if the usage is
        within the limit. Only `RequestBudget` counts usage by API.
        """
        del api_key
        return self.charge(value, now_ms)


class CountingLimiter(Chargeable):
    """One limit and the counters of its charges and throttles (`quotas.limiters.limiter.Limiter`), for the
    clients that share `tags`.
    """

    __slots__ = (
        "_reported",
        "charged",
        "charged_ms",
        "limit",
        "tags",
        "throttle_ms_total",
        "throttled",
    )

    def __init__(self, tags: Tags, limit: float, now_ms: int) -> None:
        """Begin at `now_ms` with all counters at 0. `limit` is in units/s."""
        self.tags = tags
        self.limit = limit
        self.charged: float = 0.0
        """Number of units charged since this limiter was created, without units that were given back."""
        self.charged_ms = now_ms
        """Time (ms) of the last charge or call of `absorb`; the creation time before the first."""
        self.throttled = 0
        """Number of requests (or connections) whose clients were told a throttle time. Includes requests that
        were not charged, and were told how long an earlier throttle still lasts (`Budget.tell_rest`).
        """
        self.throttle_ms_total = 0
        """Sum of the throttle times (ms) of the throttled requests."""
        self._reported: float = 0.0
        """Value of `charged` at the previous call of `delta`."""

    def charge_untold(self, value: float, now_ms: int, *, in_turn: bool = False) -> None:
        """Charge `value` units for a response that can tell no throttle time. Does not count the request as
        throttled: the caller tells the throttle time to the client's next request (`Budget.tell_rest`).
        `in_turn`: True for a fetch, whose connection waits behind others (`charge_in_turn`).
        """
        counted = self.throttled, self.throttle_ms_total
        (self.charge_in_turn if in_turn else self.charge)(value, now_ms)
        self.throttled, self.throttle_ms_total = counted

    def watch(self, note: Callable[[Tags], None]) -> None:
        """Call `note` with the tags of this limiter, now and before later charges: before the first charge
        after a window without a call, and as the limiter likes at other times.
        """
        raise NotImplementedError

    def delta(self) -> float:
        """Return the units charged since the previous call of `delta`."""
        charged, self._reported = self.charged - self._reported, self.charged
        return charged
