"""Throttle times: computed from a rate, or from missing tokens.

A client with quota Q has used `rate · window` units within the window. After a wait of d, the same usage is
spread over `window + d`. The client is back at its quota when

    rate · window / (window + d) = Q,    so    d = (rate - Q) / Q · window

Example: 1500 bytes/s over 10 s under a quota of 1000 bytes/s are 15 000 bytes. The quota allows them in 15 s;
10 s have passed, so d is 5 s.

>>> throttle_ms(rate=1500.0, quota=1000.0, window_ms=10_000)
5000
>>> throttle_ms(rate=1500.0, quota=1000.0, window_ms=10_000, at_most_ms=1000)  # as request quotas do
1000

A bucket that is t tokens short gets them back at Q per second, after t / Q seconds (KIP-599):

>>> token_throttle_ms(tokens=-60.0, quota=5.0)
12000

The terms are evaluated in the order shown, so that rounding agrees with Kafka's `QuotaUtils`. Intended
differences:

* Kafka computes 64 bits and sends the lower 32. So a throttle time beyond 24.8 days wraps to a shorter one,
  or to a negative number, which throttles no client. Here the throttle time is at most 2^31 - 1 ms.
* A quota of 0, which only ZooKeeper or a callback can set, gives an infinite throttle time in Kafka, which
  wraps to 0. Here the throttle time is 2^31 - 1 ms.
"""

from __future__ import annotations

import math

INT32_MAX = 2**31 - 1
"""Maximum of an int32, such as a throttle time (ms) in a response, or `max_bytes` in a fetch."""
INT64_MAX = 2**63 - 1


def throttle_ms(rate: float, quota: float, window_ms: int, at_most_ms: int = INT32_MAX) -> int:
    """Return the time (ms, at most `at_most_ms`) after which `rate`, measured over `window_ms`, is down to
    `quota`; 0 if `rate` does not exceed `quota`. Both are in the same unit per second.
    """
    if rate <= quota:
        return 0
    if quota == 0:
        return at_most_ms
    return min(round_half_up((rate - quota) / quota * window_ms), at_most_ms)


def token_throttle_ms(tokens: float, quota: float, at_most_ms: int = INT32_MAX) -> int:
    """Return the time (ms) until a negative balance, refilled at `quota` per second, is zero; 0 if the
    balance is not negative.
    """
    if tokens >= 0:
        return 0
    if quota == 0:
        return at_most_ms
    return min(round_half_up(-tokens / quota * 1000), at_most_ms)


def fetch_cap(quota: float, num_samples: int, window_s: int) -> int:
    """Return the maximum `max_bytes` of a fetch (an int32): the bytes that the quota allows at once after a
    long silence (KAFKA-9677). `quota` is in bytes per second, infinite for no quota.
    """
    if quota == math.inf:
        return INT32_MAX
    return int(min(quota * (num_samples - 1) * window_s, INT32_MAX))


def round_half_up(x: float) -> int:
    """Return Java's `Math.round(x)`: the nearest integer, ties rounded up; 0 for NaN; clamped to 64 bits.

    >>> round_half_up(2.5), round_half_up(-2.5), round_half_up(0.49999999999999994)
    (3, -2, 0)
    """
    if not -INT64_MAX < x < INT64_MAX:
        if x != x:
            return 0
        return INT64_MAX if x > 0 else -INT64_MAX - 1
    floor = math.floor(x)
    return floor + (x - floor >= 0.5)
