"""Log times in which the process stood still: stopped by a signal, swapped out, or its machine paused.

Metrics and /healthz are silent meanwhile, and afterwards nothing else tells why clients waited.
"""

from __future__ import annotations

from typing import Final

import structlog

log = structlog.get_logger("weir")

STALL_S: Final = 5.0
"""Time (s) between two looks, which should be a second apart, from which the process stood still."""


class Stalls:
    """Compares the times of periodic looks."""

    def __init__(self, now_s: float) -> None:
        """Begin now, a second before the first look."""
        self._last_s = now_s

    def look(self, now_s: float) -> None:
        """Log if the previous look is long ago. `now_s` is the time (s) of any steady clock."""
        if now_s - self._last_s >= STALL_S:
            log.warning("process stood still", seconds=round(now_s - self._last_s, 1))
        self._last_s = now_s
