"""Reader: a thread that reads the reports of all Weirs, and hands over what they add up to."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from weir.proxy.control.stores.store import StoreError
from weir.quotas.sharing.others import STEP, OthersCharge, OthersUsage
from weir.quotas.sharing.report import ReportError, ReportKey, UnsignedReportError, UsageReport, decode

log = structlog.get_logger("weir.quotas")

POLL_S: Final = 0.05
RETRY_S: Final = 0.5
SILENT_S: Final = 1.5
"""Time (s) of reading without an own report after which the topic is opened again: before the Weir counts as
blind.
"""
FIRST_S: Final = 4.0
"""The same until the first own report is read: the topic may be new, and connections are."""
STOP_S: Final = 3.0
"""Maximum time (s) to wait for the end of the thread: a call of librdkafka may take longer."""
BACKLOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size (bytes) of these reports. Of more, the oldest are left out: their usage counts no longer."""
HAND_OVER_MS: Final = 10
"""Minimum time (ms) between two hand-overs. Trio's thread works for up to 2 ms at each."""
PAUSE_S: Final = 0.002
"""Time (s) of a pause after each `STEP` usages: Trio's thread can run meanwhile."""
OPENINGS: Final = 3
"""Number of openings of the topic whose times are kept."""
BACKLOG_S: Final = 5.0
"""Maximum time (s) for which the reports from before the start are collected."""


class ReadReport(NamedTuple):
    """A record that was read."""

    data: bytes
    at_ms: int
    """Time (ms) at which the broker has appended it, on the broker's clock."""


class OpenTopic(Protocol):
    """An opened topic."""

    def send(self, data: bytes, /) -> bool:
        """Queue a report without waiting; return False if it was dropped. Callable from any thread."""

    def read(self, timeout_s: float, /) -> list[ReadReport]:
        """Return the next records; wait for at most `timeout_s` (s). Raises StoreError."""

    def close(self) -> None:
        """Close the topic."""


class News(NamedTuple):
    """Sums of the reports that were read since the last hand-over."""

    charges: dict[int, list[OthersCharge]]
    """Number of a limiter → units that clients of other Weirs have used."""
    read_back: int
    """Sequence of the newest own report that was read; -1 before the first one."""
    weirs: list[str]
    """Names of the Weirs that were heard recently, this one first."""
    ignored: Counter[str]
    """Number of reports and usages that were not charged, by reason, since the start."""
    returned: list[int]
    """Sequences of the own reports that were read since the last hand-over."""


class ReportReader:
    """Reads the topic on a thread of its own, and opens it again after failures."""

    def __init__(
        self,
        open_link: Callable[[], OpenTopic],
        weir: str,
        incarnation: int,
        clock_ms: Callable[[], int],
        hand_over: Callable[[News], None],
        failed: Callable[[StoreError], None],
        key: ReportKey | None = None,
    ) -> None:
        """Begin without a thread. `clock_ms` is the clock (ms) of limiters. `hand_over` and `failed` are
        called on the reader's thread. `key`: key by which reports must be signed;
        None to believe all.
        """
        self._open_link = open_link
        self._others = OthersUsage(weir, incarnation, is_signed=key is not None)
        self._key = key
        self._clock_ms = clock_ms
        self._hand_over = hand_over
        self._failed = failed
        self.opened_ms: Final[deque[int]] = deque(maxlen=OPENINGS)
        """Times (ms) at which the topic was opened, the oldest first."""
        self._link: OpenTopic | None = None
        self._stopping = threading.Event()
        self._backlog: deque[ReadReport] | None = deque()
        """Reports from before the first own report; None once that was read."""
        self._backlog_bytes = 0
        self._is_due = False
        """True if something is to be handed over."""
        self._handed_ms = -HAND_OVER_MS
        """Time (ms) of the last hand-over."""
        self._usages = 0
        """Number of usages that were taken since the last pause."""
        self._began_ms = 0
        self._silent_s = 0.0
        self._bug = ""
        """Type and text of the last unexpected exception."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a thread. A former one that has not ended ends after its present read, and changes nothing
        any more.
        """
        self._stopping.set()
        self._stopping = threading.Event()
        run = partial(self._run, self._stopping)
        self._thread = threading.Thread(target=run, name="shared usage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end, at most for `STOP_S`. Blocks."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def send(self, data: bytes, sequence: int) -> bool:
        """Queue the report with this sequence without waiting; return False if it was dropped. Callable from
        any thread.
        """
        link = self._link
        self._others.sent = sequence + 1
        return link is not None and link.send(data)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._read_on(stopping)
            except StoreError as error:
                self._failed(error)
                stopping.wait(RETRY_S)
            except Exception as error:  # noqa: BLE001  # a bug, or a library's: the thread must go on
                self._say_bug(error)
                self._failed(StoreError(f"internal error, please report this: {_named(error)}"))
                stopping.wait(RETRY_S)

    def _say_bug(self, error: Exception) -> None:
        """Log an unexpected exception with its stack trace, unless it was the last one too."""
        if _named(error) != self._bug:
            self._bug = _named(error)
            log.error(
                "internal error while usage of other Weirs was read; please report this", exc_info=error
            )

    def _read_on(self, stopping: threading.Event) -> None:
        """Open the topic, and read it until stopped. Raises StoreError."""
        link = self._open_link()
        try:
            if stopping.is_set():
                return
            self._began_ms, self._silent_s = self._clock_ms(), SILENT_S - FIRST_S
            self._link = link
            self.opened_ms.append(self._began_ms)
            while not stopping.is_set():
                self._read(link, stopping)
        finally:
            if self._link is link:
                self._link = None
            _close(link)

    def _read(self, link: OpenTopic, stopping: threading.Event) -> None:
        before_ms, before = self._clock_ms(), self._others.read_back
        records = link.read(HAND_OVER_MS / 1000 if self._is_due else POLL_S)
        if stopping.is_set():
            return
        now_ms = self._clock_ms()
        for record in records:
            self._take(record, now_ms)
        if self._backlog and now_ms - self._began_ms >= 1000 * BACKLOG_S:
            self._take_backlog(self._backlog[-1].at_ms, now_ms)
        if self._others.read_back > before:
            self._silent_s = 0.0
        else:
            self._silent_s += min((now_ms - before_ms) / 1000, 2 * POLL_S)  # a stopped process did not read
        self._is_due = self._is_due or bool(records)
        if self._is_due and not self._backlog and now_ms - self._handed_ms >= HAND_OVER_MS:
            self._hand_over(self._news(now_ms))
            self._is_due, self._handed_ms = self._others.has_charges, now_ms
        if self._silent_s >= SILENT_S:
            raise StoreError("own reports of usage do not come back")

    def _news(self, now_ms: int) -> News:
        others = self._others
        return News(
            others.charges(),
            others.read_back,
            others.weirs(now_ms),
            Counter(others.ignored),
            others.returned(),
        )

    def _take(self, record: ReadReport, now_ms: int) -> None:
        try:
            report = decode(record.data, self._key)
        except ReportError as error:
            is_unsigned = isinstance(error, UnsignedReportError)
            self._others.ignored["unsigned" if is_unsigned else "unreadable"] += 1
            return
        if self._backlog is None:
            self._count(report, now_ms)
            return
        self._backlog.append(record)
        self._backlog_bytes += len(record.data)
        while self._backlog_bytes > BACKLOG_BYTES_MAX:
            self._backlog_bytes -= len(self._backlog.popleft().data)
        if self._others.is_own(report) and report.sequence < self._others.sent:
            self._take_backlog(record.at_ms, now_ms)

    def _take_backlog(self, present_ms: int, now_ms: int) -> None:
        """Count the reports from before the first own one, with their ages. `present_ms` is the present time
        (ms) on the broker's clock.
        """
        backlog, self._backlog = self._backlog or (), None
        for data, at_ms in backlog:
            self._count(decode(data), now_ms, now_ms - max(present_ms - at_ms, 0))

    def _count(self, report: UsageReport, now_ms: int, at_ms: int | None = None) -> None:
        """Count a report, with pauses: else Trio's thread would wait for this one."""
        for usages in self._others.steps(report, now_ms, at_ms):
            self._usages += usages
            if self._usages >= STEP:
                self._usages = 0
                time.sleep(PAUSE_S)


def _close(link: OpenTopic) -> None:
    """Close the topic. An error is only logged, because an earlier one is the reason for closing."""
    try:
        link.close()
    except Exception as error:  # noqa: BLE001  # librdkafka's, or of its Python library
        log.warning("topic of shared usage not closed", reason=_named(error))


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
