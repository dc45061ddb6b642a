"""How long to wait: from a rate, or from missing tokens, to a throttle time.

A client with quota Q has used `rate · window` within the window. Had it waited d longer, the same usage would
be spread over `window + d`; it is back at its quota when

    rate · window / (window + d) = Q,    so    d = (rate - Q) / Q · window

1500 bytes/s over 10 s against 1000 bytes/s: 15 000 bytes are worth 15 s, of which 10 have passed.

>>> throttle_ms(rate=1500.0, quota=1000.0, window_ms=10_000)
5000
>>> throttle_ms(rate=1500.0, quota=1000.0, window_ms=10_000, at_most_ms=1000)  # as request quotas do
1000

A bucket that is t tokens short gets them back at Q per second, after t / Q seconds (KIP-599):

>>> token_throttle_ms(tokens=-60.0, quota=5.0)
12000

The terms are evaluated in the order shown, so that rounding agrees with Kafka's `QuotaUtils`. Where we differ
on purpose:

* Kafka computes 64 bits and sends the lower 32, so a wait beyond 24.8 days wraps: to something shorter, or to
  a negative number, which throttles nobody. Ours stops at 2^31 - 1 ms, and is never negative.
* A quota of 0, which only ZooKeeper or a callback can set, gives Kafka an infinite wait and then, wrapped,
  none. Ours waits 2^31 - 1 ms.
"""

from __future__ import annotations

import math

INT32_MAX = 2**31 - 1
"""The longest throttle time that fits a response, in ms; also the largest `max_bytes` of a fetch."""
INT64_MAX = 2**63 - 1


def throttle_ms(rate: float, quota: float, window_ms: int, at_most_ms: int = INT32_MAX) -> int:
    """Time in ms after which `rate`, measured over `window_ms`, is down to `quota` again; 0 if it is not
    above it.

    Both rates are in the same unit per second. Not more than `at_most_ms`.
    """
    if rate <= quota:
        return 0
    if quota == 0:
        return at_most_ms
    return min(round_half_up((rate - quota) / quota * window_ms), at_most_ms)


def token_throttle_ms(tokens: float, quota: float, at_most_ms: int = INT32_MAX) -> int:
    """Time in ms until a negative balance, refilled at `quota` per second, is zero; 0 if not negative."""
    if tokens >= 0:
        return 0
    if quota == 0:
        return at_most_ms
    return min(round_half_up(-tokens / quota * 1000), at_most_ms)


def fetch_cap(quota: float, num_samples: int, window_s: int) -> int:
    """The most bytes one fetch may ask for: what the quota lets pass at once from cold (KAFKA-9677); an
    int32.

    `quota` is in bytes per second, infinite for none.
    """
    if quota == math.inf:
        return INT32_MAX
    return int(min(quota * (num_samples - 1) * window_s, INT32_MAX))


def round_half_up(x: float) -> int:
    """Java's `Math.round`: to the nearest integer, ties upward, exactly; NaN is 0; stops at the limits of 64
    bits.

    >>> round_half_up(2.5), round_half_up(-2.5), round_half_up(0.49999999999999994)
    (3, -2, 0)
    """
    if not -INT64_MAX < x < INT64_MAX:
        if x != x:
            return 0
        return INT64_MAX if x > 0 else -INT64_MAX - 1
    floor = math.floor(x)
    return floor + (x - floor >= 0.5)
