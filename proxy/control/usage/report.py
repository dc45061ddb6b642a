"""Log lines about recording: at once when a problem begins, once a minute while it lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from proxy.control.usage.tally import Tally

log = structlog.get_logger("weir.usage")

PERIOD_S: Final = 60.0


class Report:
    """Compares the tally with the last log lines."""

    def __init__(self, tally: Tally, to: str, monotonic_s: Callable[[], float]) -> None:
        """`to` is the destination of records."""
        self._tally = tally
        self._to = to
        self._monotonic_s = monotonic_s
        self._told_s: dict[str, float] = {}
        self._failing = False
        self._dropped = dict(tally.dropped)
        self._deleted = 0
        self._recovered = 0

    def __call__(self, *, last: bool = False) -> None:
        """Log changes of the tally; at the end without waiting for a minute to pass."""
        if last:
            self._told_s.clear()
        self._tell_failure()
        self._tell_dropped()
        self._tell_files()

    def _tell_failure(self) -> None:
        failure = self._tally.failure
        if failure and self._is_due("failure"):
            self._failing = True
            log.warning("usage cannot be written, trying again", to=self._to, reason=failure)
        elif not failure and self._failing:
            self._failing = False
            log.info("usage is written again", to=self._to)

    def _tell_dropped(self) -> None:
        now = dict(self._tally.dropped)
        new = {
            loss.value: count - self._dropped[loss]
            for loss, count in now.items()
            if count > self._dropped[loss]
        }
        if new and self._is_due("dropped"):
            self._dropped = now
            log.warning("usage records dropped", to=self._to, **new)

    def _tell_files(self) -> None:
        tally = self._tally
        if tally.deleted_files > self._deleted and self._is_due("deleted"):
            log.warning(
                "oldest files of usage deleted, usage_keep_bytes is reached",
                to=self._to,
                files=tally.deleted_files - self._deleted,
            )
            self._deleted = tally.deleted_files
        if tally.recovered_files > self._recovered:
            log.info(
                "usage files of killed writers finished",
                to=self._to,
                files=tally.recovered_files - self._recovered,
            )
            self._recovered = tally.recovered_files

    def _is_due(self, what: str) -> bool:
        now_s = self._monotonic_s()
        if now_s - self._told_s.get(what, float("-inf")) < PERIOD_S:
            return False
        self._told_s[what] = now_s
        return True
