"""How the quota store is doing, for metrics and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

Result: TypeAlias = Literal["stored", "unchanged", "failed"]
RESULTS: Final[tuple[Result, ...]] = ("stored", "unchanged", "failed")
"""What becomes of an alteration: unchanged means that all of it was so already."""


class StoreHealth:
    """The outcome of the latest attempt to read the store, the time of the latest good one, and changes."""

    def __init__(self, wall_clock_s: Callable[[], float], name: str = "file") -> None:
        """Begin with a good one: a process that has no quotas to start with does not start."""
        self._wall_clock_s = wall_clock_s
        self.name = name
        """The store's."""
        self.last_was_good = True
        self.last_good_s = wall_clock_s()
        """Unix time."""
        self.last_change_s = 0.0
        """Unix time of the latest change that Weir has stored; 0 if there was none."""
        self.alterations: Counter[Result] = Counter()
        self.denied = 0
        """Requests of those who may not describe and alter quotas."""
        self._denial_said_s = 0.0

    def note(self, *, good: bool) -> None:
        """An attempt to read was made now."""
        self.last_was_good = good
        if good:
            self.last_good_s = self._wall_clock_s()

    def note_alteration(self, result: Result) -> None:
        """An alteration was asked for, and this became of it."""
        self.alterations[result] += 1
        if result == "stored":
            self.last_change_s = self._wall_clock_s()

    def note_denied(self) -> bool:
        """Somebody may not; whether to say so, which is once a second."""
        self.denied += 1
        now_s = self._wall_clock_s()
        say = abs(now_s - self._denial_said_s) >= 1
        if say:
            self._denial_said_s = now_s
        return say
