"""Tell how old the shown data are, if Weir does not answer, or if the program is paused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weir.cli.quotas.show import clean
from weir.cli.top.cells import duration

LATE_S: Final = 3.0
"""Time (s) beyond the interval without an answer after which the data are stale. A request fails later."""
TOLD_S: Final = 30.0
"""Time (s) for which the end of an outage is shown."""


class Freshness:
    """The age of the data, and the latest outage."""

    def __init__(self, clock: Callable[[], float], interval_s: float) -> None:
        """Begin with fresh data; `clock` returns the time in seconds. `interval_s`: time between readings."""
        self._clock = clock
        self._interval_s = interval_s
        self._good_s = clock()
        self._error = ""
        self._back_s: float | None = None
        self._outage_s = 0.0

    def succeeded(self) -> None:
        """Note that Weir has answered."""
        now_s = self._clock()
        if self._error:
            self._back_s, self._outage_s = now_s, now_s - self._good_s
        self._error, self._good_s = "", now_s

    def failed(self, error: object) -> None:
        """Note that Weir has not answered, and why."""
        self._error = clean(error)

    def is_stale(self, *, paused: bool) -> bool:
        """Return True if Weir has not answered the latest request, or has not answered in time."""
        late = self._clock() - self._good_s > self._interval_s + LATE_S
        return bool(self._error) or (late and not paused)

    def line(self, *, paused: bool) -> str:
        """Return a line about the age of the data; "" if they are fresh."""
        now_s = self._clock()
        age = duration((now_s - self._good_s) * 1000)
        if self.is_stale(paused=paused):
            return f"data are {age} old: {self._error or 'Weir does not answer'}"
        if paused:
            return f"paused, data are {age} old"
        if self._back_s is not None and now_s - self._back_s < TOLD_S:
            return f"Weir answers again, after {duration(self._outage_s * 1000)}"
        return ""
