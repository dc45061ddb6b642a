"""Samples: recent values, summed by window; the base class of `Rate`.

Kafka (`SampledStat`, since 3.8) keeps N+1 slots in a ring. A slot holds the sum of the values recorded during
one window of W ms, the time at which that window began, and the time of the last record in it. A slot lives
until N·W ms after its *last* record. Then it is emptied in place, and a new window begins at that moment.

    N = 3, W = 1000      slot 0        slot 1        slot 2
    record 5 at 0        [0: 5]
    record 5 at 900      [0: 10]
    record 5 at 1000     [0: 10]       [1000: 5]
    read at 3899         [0: 10]       [1000: 5]                  15 in the last 3.9 s
    read at 3900         [3900: 0]     [1000: 5]                  slot 0's last record is 3000 ms old

Kafka empties slots at each reading. So in Kafka a reading by a metrics reporter moves the start of a slot,
and thereby changes later throttle times. Here only `record` and `total` empty slots; metrics call `peek`.

Speed: between two changes of the ring, a record is two list stores. From `quiet_from_ms` until
`quiet_until_ms` the current slot stays open and no slot can expire. The ring is examined only outside of that
time.

A reader that must know all charges, and not look at each limiter, gets a call whenever the ring is examined
(`on_examined`). Records between two calls are at most W ms younger than the first call.

Sums are computed slot by slot, left to right, because a broker does so and the last bit depends on the order.
(The built-in `sum` compensates rounding errors since Python 3.12, so its result may differ.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_SAMPLES_DEFAULT = 11
"""Default of Kafka's `quota.window.num`."""
WINDOW_S_DEFAULT = 1
"""Default of Kafka's `quota.window.size.seconds`."""


class Samples:
    """A ring of up to N+1 samples. A sample is the sum of the values recorded in one window of W ms. Times
    are ms on one clock; values have any unit.
    """

    __slots__ = (
        "_about",
        "_current",
        "_lasts",
        "_lifetime_ms",
        "_oldest_ms",
        "_slots_max",
        "_starts",
        "_values",
        "on_examined",
        "quiet_from_ms",
        "quiet_until_ms",
        "window_size_ms",
    )

    def __init__(self, num_samples: int, window_size_ms: int) -> None:
        """Begin empty. `num_samples` is N, `window_size_ms` W. Raises ValueError if either is below 1."""
        if num_samples < 1 or window_size_ms < 1:
            raise ValueError(
                f"num_samples and window_size_ms must be at least 1, not {num_samples}, {window_size_ms}"
            )
        self.window_size_ms = window_size_ms
        self._lifetime_ms = num_samples * window_size_ms
        self._slots_max = num_samples + 1
        self._starts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[float] = []
        self._current = 0
        self._oldest_ms = 0
        self._about = 0.0
        """Sum of all samples: exact when the ring is examined, then each value is added to it."""
        self.on_examined: Callable[[], None] | None = None
        """Function to call whenever the ring is examined: before the first record, and before each record
        after `quiet_until_ms`. None for no call.
        """
        # The quiet time is empty, so the first record examines the ring.
        self.quiet_from_ms = self.quiet_until_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add `value`, which may be negative, to the current sample. Does not empty expired samples, except
        one that the ring uses again for a new window.
        """
        if not self.quiet_from_ms <= now_ms < self.quiet_until_ms:
            self._open(now_ms)
            self._note_span()
        current = self._current
        self._values[current] += value
        self._about += value
        self._lasts[current] = now_ms

    def total(self, now_ms: int) -> float:
        """Return the sum of the samples that have not expired; empty the others, as Kafka does at a reading.
        A sample expires N windows after its last value was recorded.
        """
        self._settle(now_ms)
        return added(self._values)

    def inherit(self, other: Samples) -> None:
        """Begin with the samples of `other`, which must have the same N and W."""
        self._starts, self._lasts, self._values = other._starts[:], other._lasts[:], other._values[:]
        self._current, self._oldest_ms, self._about = other._current, other._oldest_ms, other._about
        self.quiet_from_ms, self.quiet_until_ms = other.quiet_from_ms, other.quiet_until_ms

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, value) of records after which another ring has the same samples that have not
        expired: for each sample its beginning, and its last record. Changes nothing.

        Leaves out samples that were emptied: they begin when they were emptied, which may be later than the
        current sample, so a record of them would cut the current sample's life short.
        """
        dead_ms, current = now_ms - self._lifetime_ms, self._current
        found: list[tuple[int, float]] = []
        samples = zip(self._starts, self._lasts, self._values, range(len(self._starts)), strict=True)
        for start_ms, last_ms, value, slot in sorted(samples):
            if last_ms > dead_ms and (value or slot == current):
                found += [(start_ms, 0.0), (last_ms, value)]
        return found

    def _settle(self, now_ms: int) -> None:
        """Empty the samples (sums of values recorded in one window) that have expired, and set the time
        (`quiet_until_ms`) until which no other sample can expire. Add a sample if the ring has none.
        """
        if not self.quiet_from_ms <= now_ms < self.quiet_until_ms:
            if not self._starts:
                self._append(now_ms)
            self._purge(now_ms)
            self._note_span()

    def _open(self, now_ms: int) -> None:
        """Make sure that the current sample (sum of values recorded in one window) may take a value at
        `now_ms`: begin a new sample if the ring has none, or if the window of the current sample is over.
        """
        if not self._starts:
            self._append(now_ms)
        elif now_ms - self._starts[self._current] >= self.window_size_ms:
            self._current = (self._current + 1) % self._slots_max
            if self._current == len(self._starts):
                self._append(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._lasts[self._current] = now_ms

    def _append(self, now_ms: int) -> None:
        self._starts.append(now_ms)
        self._lasts.append(now_ms)
        self._values.append(0.0)

    def _reset(self, slot: int, now_ms: int) -> None:
        self._starts[slot] = self._lasts[slot] = now_ms
        self._values[slot] = 0.0

    def _purge(self, now_ms: int) -> None:
        dead_ms = now_ms - self._lifetime_ms
        for slot, last_ms in enumerate(self._lasts):
            if last_ms <= dead_ms:
                self._reset(slot, now_ms)

    def _note_span(self) -> None:
        """Set `quiet_from_ms` and `quiet_until_ms`: the time in which the window of the current sample is not
        over and no sample expires.
        """
        start_ms = self._starts[self._current]
        self._oldest_ms = min(self._starts)
        self._about = added(self._values)
        self.quiet_from_ms = start_ms
        self.quiet_until_ms = min(start_ms + self.window_size_ms, min(self._lasts) + self._lifetime_ms)
        if self.on_examined is not None:
            self.on_examined()

    def _look(self, now_ms: int) -> tuple[float, int]:
        """Return (sum of the samples that have not expired, start in ms of the oldest sample). Changes
        nothing: expired samples are not emptied.
        """
        dead_ms = now_ms - self._lifetime_ms
        total, oldest_ms = 0.0, None
        for start_ms, last_ms, value in zip(self._starts, self._lasts, self._values, strict=True):
            if last_ms <= dead_ms:
                start_ms, value = now_ms, 0.0
            total += value
            oldest_ms = start_ms if oldest_ms is None else min(oldest_ms, start_ms)
        return total, now_ms if oldest_ms is None else oldest_ms


def added(values: list[float]) -> float:
    """Return the sum of the values, added from left to right."""
    total = 0.0
    for value in values:
        total += value
    return total
