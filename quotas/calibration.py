"""A broker's own request quota as an instrument: what its throttle times say about the cost of requests.

A client-id that nobody else has gets a small request_percentage P, and sends one request again and again. The
broker records the time of each (KIP-124). Once the sum, spread over the window W, is above P, it answers with

    throttle = (rate - P) / P · W,    rate = sum / W,    so    sum = P · (W + throttle)

percent-seconds, of which one is 10 ms of a thread. By N requests that is the cost of one. W is not what was
waited: Kafka's `Rate` takes the N-1 windows before the first record for silent ones (`quotas.limiters.rate`),
so that W is 10 s plus what has passed since the last full second.

>>> spent = spent_us(percent=0.1, throttle_ms=40, elapsed_s=0.2, windows=Windows())
>>> round(spent, 3), round(spent / 512, 2)  # 0.1 % of 10.24 s, by 512 requests
(10240.0, 20.0)

A request's time on the network threads is recorded after its response was sent, so the last one's is missing:
with N of at least `COUNT_WANTED` that is nothing.
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.request_time import US_PER_PERCENT

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT_WANTED: Final = 100
"""So many requests, at least, make a reading: then the last one's surplus, the throttle time, is small."""
SPENT_WANTED_US: Final = 25_000.0
"""So much time of the broker's, at least, makes a reading: a tenth of it is what a throttle time can tell."""
EDGE_S: Final = 0.02
"""So near to where a window falls back by a whole second, ours and the broker's clock may differ about it."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The broker's `quota.window.num` and `quota.window.size.seconds`."""

    num: int = NUM_SAMPLES_DEFAULT
    size_s: int = WINDOW_S_DEFAULT

    @property
    def span_s(self) -> int:
        """What a rate is measured over at least."""
        return max((self.num - 1) * self.size_s, 1)

    def window_s(self, elapsed_s: float) -> float:
        """What a rate is measured over, so long after its first record."""
        return elapsed_s if elapsed_s >= self.span_s else self.span_s + elapsed_s % self.size_s


class Reading(NamedTuple):
    """What was seen until a response told a throttle time."""

    requests: int
    """That were answered, the last one included."""
    throttle_ms: int
    elapsed_s: float
    """From the first response to the last."""


def percent_for(total_us: float, windows: Windows) -> float:
    """The quota, in percent of a thread, that so much time is just too much for."""
    return total_us / US_PER_PERCENT / windows.span_s


def wanted_us(expected_us: float) -> float:
    """How much time a reading should take of the broker, of requests that are expected to cost so much."""
    return max(SPENT_WANTED_US, COUNT_WANTED * expected_us)


def spent_us(percent: float, throttle_ms: int, elapsed_s: float, windows: Windows) -> float:
    """The time that a broker must have recorded to tell this throttle time under this quota."""
    return percent * US_PER_PERCENT * (windows.window_s(elapsed_s) + throttle_ms / 1000)


def measured_us(percent: float, elapsed_s: float, windows: Windows) -> float:
    """The time that a broker must have recorded to show this rate (its metric `request-time`)."""
    return percent * US_PER_PERCENT * windows.window_s(elapsed_s)


def fault(reading: Reading, windows: Windows) -> str | None:
    """Why a reading says nothing; None if it is good.

    A throttle time of a whole window is a cut one (brokers never tell more), so it says only that the sum
    was at least so much.
    """
    if reading.throttle_ms >= 1000 * windows.size_s:
        return "its last request was dearer than a whole window"
    if reading.elapsed_s >= windows.span_s:
        return f"it took longer than {windows.span_s} s"
    if reading.elapsed_s > EDGE_S and windows.size_s > EDGE_S * 2:
        into_s = reading.elapsed_s % windows.size_s
        past_first = reading.elapsed_s > windows.size_s - EDGE_S
        if past_first and not EDGE_S <= into_s <= windows.size_s - EDGE_S:
            return "it ended where the window changes"
    return None


def median(values: Sequence[float]) -> float:
    """The middle one, or between the two. Raises ValueError if there is none."""
    if not values:
        raise ValueError("no values")
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
