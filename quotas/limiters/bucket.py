"""TokenBucket: how Kafka limits partition mutations (KIP-599).

Tokens come back at Q per second, up to a burst of N · W · Q. A request may overdraw the balance: one that
needs more than the whole burst must be able to pass some time.

>>> bucket = TokenBucket(quota=5.0, num_samples=100, window_size_ms=1000, now_ms=0)
>>> bucket.take(560, now_ms=0)
>>> bucket.tokens(0), bucket.tokens(6000), bucket.tokens(200_000)
(-60.0, -30.0, 500.0)

Kafka's buckets begin with 0 tokens at time 0 of a clock that counts from 1970, and so are full when first
touched. Our clock may begin anywhere: `TokenBucket` begins full. `TokenBucket(..., tokens=0.0)` begins empty.

A reading refills in steps, and each step rounds: after several of them the balance can be a hair below zero
at the end of the announced wait. A request is then refused with a throttle time of 0, here as in Kafka.
"""

from __future__ import annotations

from quotas.limiters.throttle import INT64_MAX


class TokenBucket:
    """A balance of tokens; `quota` in tokens per second, None for no limit. May be set at any time."""

    __slots__ = ("_last_ms", "_span_s", "_tokens", "quota")

    def __init__(
        self,
        quota: float | None,
        num_samples: int,
        window_size_ms: int,
        now_ms: int,
        tokens: float | None = None,
    ) -> None:
        """Begin at `now_ms` with `tokens`, or full."""
        self.quota = quota
        self._span_s = num_samples * (window_size_ms / 1000.0)
        self._last_ms = now_ms
        self._tokens = self._span_s * (quota or 0.0) if tokens is None else tokens

    def tokens(self, now_ms: int) -> float:
        """The balance; 2^63-1 without a quota."""
        if self.quota is None:
            return float(INT64_MAX)
        self._refill(self.quota, now_ms)
        return self._tokens

    def take(self, cost: float, now_ms: int) -> None:
        """Take `cost` tokens, whatever the balance; a negative cost gives back, up to the burst."""
        if self.quota is not None:
            self._refill(self.quota, now_ms)
            self._tokens = min(self._span_s * self.quota, self._tokens - cost)

    def inherit(self, other: TokenBucket) -> None:
        """Begin with the balance of `other`; with nothing if it was overdrawn. The time since it was last
        asked counts at the quota of this one, as after a change of its quota.
        """
        self._tokens, self._last_ms = max(other._tokens, 0.0), other._last_ms

    def peek(self, now_ms: int) -> float:
        """What `tokens` would return, but without its effect on later rounding: for metrics."""
        return float(INT64_MAX) if self.quota is None else self._balance(self.quota, now_ms)

    def peek_rate(self, now_ms: int) -> float:
        """The tokens that are missing, by the seconds in which an empty bucket fills; 0 without a quota."""
        return 0.0 if self.quota is None else self.quota - self._balance(self.quota, now_ms) / self._span_s

    def is_full(self, now_ms: int) -> bool:
        """Whether nothing that was taken is missing any more; changes nothing."""
        return self.quota is None or self._balance(self.quota, now_ms) >= self._span_s * self.quota

    def _refill(self, quota: float, now_ms: int) -> None:
        self._tokens = self._balance(quota, now_ms)
        self._last_ms = now_ms

    def _balance(self, quota: float, now_ms: int) -> float:
        return min(self._span_s * quota, self._tokens + quota * ((now_ms - self._last_ms) / 1000.0))
