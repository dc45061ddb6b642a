"""TokenBucket: Kafka's limiter of partition mutations (KIP-599).

The bucket gets Q tokens per second, up to a burst of N · W · Q. A request may make the balance negative,
because otherwise a request that costs more than the burst could never pass.

>>> bucket = TokenBucket(quota=5.0, num_samples=100, window_size_ms=1000, now_ms=0)
>>> bucket.take(560, now_ms=0)
>>> bucket.tokens(0), bucket.tokens(6000), bucket.tokens(200_000)
(-60.0, -30.0, 500.0)

Kafka's buckets begin with 0 tokens at time 0 of a clock that counts from 1970, and so are full at their first
use. Weir's clock may begin at any number: `TokenBucket` begins full, `TokenBucket(..., tokens=0.0)` empty.

Each call of `tokens` refills the bucket, and each refill rounds the balance. After several refills the
balance can be slightly below zero at the end of the throttle time. A request is then refused with a throttle
time of 0, as in Kafka.
"""

from __future__ import annotations

from weir.quotas.limiters.throttle import INT64_MAX


class TokenBucket:
    """A balance of tokens. `quota` is in tokens per second, None for no limit; it may be set at any time."""

    __slots__ = ("_last_ms", "_span_s", "_tokens", "quota")

    def __init__(
        self,
        quota: float | None,
        num_samples: int,
        window_size_ms: int,
        now_ms: int,
        tokens: float | None = None,
    ) -> None:
        """Begin at `now_ms` with `tokens`; with the whole burst if `tokens` is None."""
        self.quota = quota
        self._span_s = num_samples * (window_size_ms / 1000.0)
        self._last_ms = now_ms
        self._tokens = self._span_s * (quota or 0.0) if tokens is None else tokens

    def tokens(self, now_ms: int) -> float:
        """Return the balance; 2^63-1 without a quota. This refills the bucket, and each refill rounds the
        balance, so an additional call can change later balances slightly.
        """
        if self.quota is None:
            return float(INT64_MAX)
        self._refill(self.quota, now_ms)
        return self._tokens

    def take(self, cost: float, now_ms: int) -> None:
        """Take `cost` tokens, also from a negative balance; a negative cost returns tokens, up to the
        burst.
        """
        if self.quota is not None:
            self._refill(self.quota, now_ms)
            self._tokens = min(self._span_s * self.quota, self._tokens - cost)

    def inherit(self, other: TokenBucket) -> None:
        """Begin with the balance of the bucket `other`, or with 0 if that balance is negative. Tokens since
        the last refill of `other` are added at this bucket's quota.
        """
        self._tokens, self._last_ms = max(other._tokens, 0.0), other._last_ms

    @property
    def burst(self) -> float:
        """Number of tokens in a full bucket; 0 without a quota."""
        return self._span_s * (self.quota or 0.0)

    def peek(self, now_ms: int) -> float:
        """Return the balance without refilling the bucket, for metrics."""
        return float(INT64_MAX) if self.quota is None else self._balance(self.quota, now_ms)

    def missing(self, now_ms: int) -> float:
        """Return the number of tokens that a full bucket has and this one lacks; 0 without a quota. Does not
        refill the bucket.
        """
        return 0.0 if self.quota is None else self._span_s * self.quota - self._balance(self.quota, now_ms)

    def peek_rate(self, now_ms: int) -> float:
        """Return a rate (tokens per second) for metrics: the number of missing tokens divided by the seconds
        in which an empty bucket fills; 0 without a quota. Does not refill the bucket.
        """
        return 0.0 if self.quota is None else self.quota - self._balance(self.quota, now_ms) / self._span_s

    def is_full(self, now_ms: int) -> bool:
        """Return True if the bucket is full; does not refill the bucket."""
        return self.quota is None or self._balance(self.quota, now_ms) >= self._span_s * self.quota

    def _refill(self, quota: float, now_ms: int) -> None:
        self._tokens = self._balance(quota, now_ms)
        self._last_ms = now_ms

    def _balance(self, quota: float, now_ms: int) -> float:
        return min(self._span_s * quota, self._tokens + quota * ((now_ms - self._last_ms) / 1000.0))
