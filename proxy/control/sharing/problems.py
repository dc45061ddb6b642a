"""Problems that reports show: somebody else writes some, or own ones are lost again and again."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final

from weir.proxy.control.events.health import Condition, problem
from weir.proxy.control.sharing.reader import OPENINGS
from weir.quotas.sharing.others import WEIRS_MAX

STRANGE: Final = ("unreadable", "unsigned", "forged", "jumped")
"""Reasons for ignoring reports that no Weir has sent."""
TOO_MANY: Final = ("weirs", "limiters")
"""Reasons for ignoring reports and usages because others have all places."""
RECENT_MS: Final = 60_000
"""Time (ms) for which ignored reports and openings of the topic count as a problem. As long after the start,
other Weirs may start too.
"""
JUMP_MS: Final = 600_000
"""Time (ms) for which a jump of the number of Weirs counts as a problem."""
STEP_MS: Final = 10_000
"""Length (ms) of a period. The smallest number of Weirs in each period is kept."""


class SharingProblems:
    """Finds the problems in what the reader hands over."""

    def __init__(self) -> None:
        """Begin before the first news."""
        self._ignored: Counter[str] = Counter()
        self._strange_ms = self._full_ms = -math.inf
        """Times (ms) of the latest reports that no Weir has sent, and of too many Weirs or limiters."""
        self._weirs = 0
        self._began_ms: int | None = None
        """Time (ms) of the first news."""
        self._fewest: deque[tuple[int, int]] = deque()
        """(Time in ms, smallest number of Weirs in the `STEP_MS` after that), the oldest first."""

    def look_at(self, weirs: int, ignored: Counter[str], now_ms: int) -> None:
        """Look at news: the number of Weirs, and the number of ignored reports by reason."""
        if any(ignored[reason] > self._ignored[reason] for reason in STRANGE):
            self._strange_ms = now_ms
        if any(ignored[reason] > self._ignored[reason] for reason in TOO_MANY):
            self._full_ms = now_ms
        self._ignored, self._weirs = ignored, weirs
        if self._began_ms is None:
            self._began_ms = now_ms
        if now_ms - self._began_ms < RECENT_MS:
            return
        while self._fewest and now_ms - self._fewest[0][0] >= JUMP_MS:
            self._fewest.popleft()
        if self._fewest and now_ms - self._fewest[-1][0] < STEP_MS:
            at_ms, fewest = self._fewest.pop()
            self._fewest.append((at_ms, min(fewest, weirs)))
        else:
            self._fewest.append((now_ms, weirs))

    def conditions(self, opened_ms: Sequence[int], now_ms: int) -> Iterator[Condition]:
        """Yield the problems that are present. `opened_ms`: times (ms) of the last openings of the topic."""
        if len(opened_ms) == OPENINGS and now_ms - opened_ms[0] < RECENT_MS:
            yield problem(
                "usage_topic_reopened",
                "Own reports of usage were lost: Weir has opened usage_share_topic again twice in a minute.",
                "Look at the brokers' load, and at the leader of the topic's partition.",
                logged=True,
            )
        if now_ms - self._strange_ms < RECENT_MS:
            yield problem(
                "usage_reports_ignored",
                "usage_share_topic has forged reports, or those of Weirs with another key. They are ignored.",
                "Refuse other writers by an ACL, and give all Weirs the same share_key_file. "
                "weir_share_ignored_total has the reasons.",
                logged=True,
            )
        fewest = min((weirs for _at_ms, weirs in self._fewest), default=self._weirs)
        if now_ms - self._full_ms < RECENT_MS:
            yield _too_many(
                f"More than {WEIRS_MAX} Weirs report usage, or usage of too many limiters is reported."
            )
        elif self._weirs > 2 * fewest + 2:
            yield _too_many(f"{self._weirs} Weirs report usage, and lately only {fewest} did.")


def _too_many(what: str) -> Condition:
    return problem(
        "usage_weirs_jumped",
        what,
        f"Refuse other writers by an ACL. At most {WEIRS_MAX} Weirs can share quotas.",
        logged=True,
    )
