"""Judgements of measured answers: "" if a broker that keeps to the KIPs may answer so, else one sentence.

Each judgement holds for a conforming target on a busy machine too:

- A mute begins after the request was sent. So the next answer comes at least the throttle time after *that
  moment*, however late this process reads. Only clocks need a tolerance (`CLOCK_MS`).
- Late answers are permitted up to `LATE_MS`: they may come from a busy machine.
- A throttle time depends on the window, which is 10 to 11 s long for a client that was idle before
  (`Window`), so a throttle time may lie anywhere in one second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCK_MS: Final = 30.0
"""Permitted error (ms) of clocks and timers: brokers' timers tick in milliseconds."""
LATE_MS: Final = 3000.0
"""Time (ms) by which an answer may come after the end of the mute."""
ROUNDING_MS: Final = 25.0
"""Permitted error (ms) of a throttle time: rounding, and some bytes of a fetch response that brokers do not
count.
"""
RATE_LOW: Final = 0.75
RATE_HIGH: Final = 1.20
"""Permitted share of the quota over ten seconds of a steady load. The window grows by a tenth and falls back
each second, and one request at each end counts wholly or not at all.
"""
_NO_THROTTLE: Final = "there was no throttle time, so no connection had to wait"


class Window(msgspec.Struct, frozen=True):
    """Brokers' quota.window.num and quota.window.size.seconds, or those of controllers."""

    samples: int = 11
    size_s: int = 1

    @property
    def least_s(self) -> float:
        """Time (s) over which the bytes of a client count that was idle before: the shortest window. A client
        may use its quota of this time at once.
        """
        return float((self.samples - 1) * self.size_s)

    @property
    def most_s(self) -> float:
        """Time (s) over which the same bytes count just before the next full second."""
        return float(self.samples * self.size_s)


def below_quota(throttle_ms: int) -> str:
    """Judge the throttle time of a client below its quota, or without one."""
    if throttle_ms == 0:
        return ""
    return f"throttle_time_ms is {throttle_ms} for a client below its quota; it should be 0 (KIP-124)"


def byte_throttle(throttle_ms: int, sum_bytes: int, rate: float, window: Window) -> str:
    """Judge the throttle time after `sum_bytes` of a client that was idle before: the time until these bytes,
    spread over the longer window, are the quota (ClientQuotaManager.throttleTime).
    """
    least_ms = (sum_bytes / rate - window.most_s) * 1000 - ROUNDING_MS
    most_ms = (sum_bytes / rate - window.least_s) * 1000 + ROUNDING_MS
    return _between(throttle_ms, least_ms, most_ms, f"after {sum_bytes} bytes at {rate:g} bytes/s", "KIP-13")


def request_throttle(throttle_ms: int, window: Window) -> str:
    """Judge the throttle time of a client far above its request_percentage: at most one window."""
    most_ms = window.size_s * 1000
    return _between(throttle_ms, 1, most_ms, "above request_percentage", "KIP-124")


def mutation_throttle(throttle_ms: int, owed: float, rate: float, elapsed_ms: float) -> str:
    """Judge the throttle time while `owed` tokens are missing. Some may have come back since:
    `elapsed_ms` is the longest time since the charge (KIP-599).
    """
    full_ms = owed / rate * 1000
    least_ms = max(1.0, full_ms - elapsed_ms - ROUNDING_MS)
    return _between(
        throttle_ms, least_ms, full_ms + ROUNDING_MS, f"with {owed:g} tokens missing at {rate:g}/s", "KIP-599"
    )


def _between(throttle_ms: int, least_ms: float, most_ms: float, when: str, reference: str) -> str:
    if least_ms <= throttle_ms <= most_ms:
        return ""
    should = f"{max(0.0, least_ms):.0f} to {most_ms:.0f}"
    return f"throttle_time_ms is {throttle_ms} {when}; it should be {should} ({reference})"


def mute(throttle_ms: float, first_ms: float, next_ms: float, *, prompt: bool) -> str:
    """Judge a connection's wait for a throttle time. `first_ms`: from the throttled request to its response;
    `next_ms`: from the same moment to the response of the next request, which was sent at once. `prompt`:
    True if the throttled response must not wait itself (KIP-219); False for brokers before 2.0. A response
    that is late because the target was busy is followed by a whole mute, a held one is not.
    """
    if throttle_ms <= 0:
        return _NO_THROTTLE
    if next_ms < throttle_ms - CLOCK_MS:
        return (
            f"the next request was answered {next_ms:.0f} ms after the throttled one was sent; it should "
            f"wait for the throttle time, {throttle_ms:.0f} ms (KIP-219)"
        )
    held = first_ms >= throttle_ms - CLOCK_MS and next_ms - first_ms < throttle_ms / 2
    if prompt and held:
        return (
            f"the throttled response itself came after {first_ms:.0f} ms, its throttle time is "
            f"{throttle_ms:.0f} ms; it should come at once, and the next one should wait (KIP-219)"
        )
    late_ms = next_ms - throttle_ms - (first_ms if prompt else 0)
    if late_ms > LATE_MS:
        return (
            f"the next request was answered {next_ms:.0f} ms after the throttled one was sent; it should "
            f"wait for the throttle time only, {throttle_ms:.0f} ms (KIP-219)"
        )
    return ""


def not_muted(whose: str, waited_ms: float, throttle_ms: float) -> str:
    """Judge the wait of another connection. `waited_ms`: from the throttled request of the first connection
    to the other's response.
    """
    if throttle_ms <= 0:
        return _NO_THROTTLE
    if waited_ms < throttle_ms - CLOCK_MS:
        return ""
    return (
        f"a connection of {whose} waited {waited_ms:.0f} ms, until the throttle time of another one "
        f"was over ({throttle_ms:.0f} ms); it should be answered at once (KIP-219)"
    )


def rate(charges: Sequence[tuple[float, float]], since_s: float, until_s: float, quota: float) -> str:
    """Judge the rate of a client that always has more to send; `charges` are times (s) and bytes."""
    total = sum(size for at_s, size in charges if since_s <= at_s < until_s)
    share = total / (until_s - since_s) / quota
    if RATE_LOW <= share <= RATE_HIGH:
        return ""
    return (
        f"{total / (until_s - since_s):.0f} bytes/s passed over {until_s - since_s:.0f} s under a quota of "
        f"{quota:g}; {RATE_LOW:.2f} to {RATE_HIGH:.2f} of the quota should pass (KIP-13)"
    )


def refusal(error_code: int, api: str, version: int, strict_from: int) -> str:
    """Judge the error code of a topic while tokens are missing: THROTTLING_QUOTA_EXCEEDED in strict
    versions.
    """
    if version >= strict_from:
        if error_code == 89:
            return ""
        return (
            f"a topic without tokens got error code {error_code}; from v{strict_from} on {api} should refuse "
            "it with THROTTLING_QUOTA_EXCEEDED (89) (KIP-599)"
        )
    if error_code == 0:
        return ""
    return (
        f"a topic without tokens got error code {error_code}; before v{strict_from} {api} should admit it "
        "and only throttle: clients of that version do not know error 89 (KIP-599)"
    )
