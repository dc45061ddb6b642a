"""How reading the quota file went."""

from __future__ import annotations

from collections.abc import Callable


class QuotaFileState:
    """The outcome of the latest attempt, and the time of the latest good one."""

    def __init__(self, wall_clock_s: Callable[[], float]) -> None:
        """Begin with a good one: a process does not start with a bad quota file."""
        self._wall_clock_s = wall_clock_s
        self.last_was_good = True
        self.last_good_s = wall_clock_s()
        """Unix time."""

    def note(self, *, good: bool) -> None:
        """An attempt was made now."""
        self.last_was_good = good
        if good:
            self.last_good_s = self._wall_clock_s()
