"""UsageSharing: reports usage of own clients, and charges the reported usage of others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from weir.proxy.config.settings import ConfigError
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.control.quota_registry import UNSEEN, QuotaRegistry
from weir.proxy.control.sharing.problems import SharingProblems
from weir.proxy.control.sharing.reader import News, OpenTopic, ReportReader
from weir.proxy.control.stores.store import StoreError
from weir.proxy.outage import Outage
from weir.quotas.sharing.blindness import Blindness, Sight
from weir.quotas.sharing.others import OthersCharge
from weir.quotas.sharing.own import OwnUsage
from weir.quotas.sharing.report import ReportKey, encode
from weir.quotas.sharing.shared import LOOK_MS, SharedLimiters

if TYPE_CHECKING:
    from weir.proxy.config.config import Config
    from weir.proxy.control.supervisor import Works

log = structlog.get_logger("weir.quotas")

INHERITED_MS: Final = 5000
"""Maximum time (ms) after a take-over for which reports are not charged, if own reports do not come back.
After that, only charges from before the take-over are left out.
"""
OPENING_MS: Final = 15_000
"""Time (ms) after the start for which reports may not get through, as long as nothing has failed: somebody
makes the topic, or the machine is slow.
"""


class _Takeover(NamedTuple):
    """A take-over from a former Weir."""

    at_ms: int | None = None
    """Time (ms) at which limiters had the usage of the former Weir; None before."""
    sequence: int = 0
    """Sequence of the first own report after that."""


class UsageSharing:
    """The part of sharing that runs on Trio's thread. It owns the limiters' side; the reader owns the
    reports.
    """

    def __init__(
        self,
        registry: QuotaRegistry,
        open_link: Callable[[], OpenTopic],
        weir: str,
        incarnation: int,
        clock_ms: Callable[[], int],
        *,
        key: ReportKey | None = None,
    ) -> None:
        """Begin without reading the topic. `weir` and `incarnation` name this process. `clock_ms` is the
        limiters' clock (ms). `key`: key that signs reports; None for none.
        """
        self.weir: Final = weir
        self._registry = registry
        self._clock_ms = clock_ms
        self._began_ms = clock_ms()
        self._key = key
        self.own: Final = OwnUsage(weir, incarnation, registry.memory_ms)
        """Usage of own clients."""
        self.blindness: Final = Blindness(clock_ms())
        """State of hearing the others, and the part of limits that follows."""
        self.limiters: Final = SharedLimiters(
            self.own, self.blindness, registry.memory_ms, registry.sample_ms
        )
        """The limiters that take part."""
        self.weirs = 0
        """Number of Weirs heard recently, this one included; 0 before the topic was read."""
        self.others: tuple[str, ...] = ()
        """Names of the other Weirs heard recently."""
        self.ignored: Counter[str] = Counter()
        """Number of reports and usages that were not charged, by reason."""
        self.unsent = 0
        """Number of own reports that were dropped because the topic is not open."""
        self.failure = ""
        """Reason why the topic could not be used; empty once an own report was read back."""
        self.on_absorb: list[Callable[[Mapping[int, list[OthersCharge]]], None]] = []
        """Functions to call with usage of others that is charged, by the numbers of limiters."""
        self.on_look: list[Callable[[], None]] = []
        """Functions to call after each look."""
        self._trip_ms = 0
        self._problems = SharingProblems()
        self._joined = UNSEEN
        """Stamp of the registry at the last `join`."""
        self._takeover: _Takeover | None = None
        """State of a take-over; None if limiters lack no usage, and reports say nothing that they have."""
        self._token: trio.lowlevel.TrioToken | None = None
        self._outage = Outage(
            log,
            "usage is not shared with other Weirs, trying again",
            "usage is shared with other Weirs again",
        )
        self._reader = ReportReader(
            open_link,
            weir,
            incarnation,
            clock_ms,
            lambda news: self._soon(partial(self._heard, news)),
            lambda error: self._soon(partial(self._note_failure, error)),
            key,
        )

    def join(self) -> None:
        """Share the quotas of brokers, and rates of topics, that were added since the last call."""
        if self._registry.stamp != self._joined:
            self._joined = self._registry.stamp
            for name, quotas, window_s in self._registry.shared():
                self.limiters.join(name, quotas, window_s)

    def begin_takeover(self) -> None:
        """Charge no usage of others until `end_takeover`: the former Weir tells it then, with that of its own
        clients.
        """
        self._takeover = _Takeover()

    def end_takeover(self) -> None:
        """Note that limiters have the usage of the former Weir now. Reports from before the next own one are
        not charged.
        """
        if self._takeover is not None:
            self._takeover = _Takeover(self._clock_ms(), self.own.sequence)
            self.own.hurry()

    def staleness_ms(self) -> int:
        """Return the time (ms) from sending an own report to reading it, or the time since the oldest one
        that did not come back, if that is longer.
        """
        since_ms = self.own.waits_since_ms()
        return self._trip_ms if since_ms is None else max(self._trip_ms, self._clock_ms() - since_ms)

    async def run(self, works: Works) -> None:
        """Share until cancelled; then send the last usage."""
        self._token = trio.lowlevel.current_trio_token()
        self._reader.start()
        log.info("sharing usage", weir=self.weir)
        try:
            while True:
                self.look()
                works()
                await trio.sleep(LOOK_MS / 1000)
        finally:
            try:
                self.report_now()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._reader.stop)

    def report_now(self) -> None:
        """Report the usage of own clients. Call this before a take-over or the end of this process."""
        self.own.hurry()
        self.look()

    def look(self) -> None:
        """Collect the usage of own clients, and send the reports that are due."""
        now_ms = self._clock_ms()
        self.join()
        self.limiters.look(now_ms)
        for report in self.own.due(now_ms):
            if not self._reader.send(encode(report, self._key), report.sequence):
                self.unsent += 1
                self.own.unsent(report.sequence)
        if not self._outage and self._is_cut_off(now_ms):
            self._outage.failed(reason=self._reason)
        for call in self.on_look:
            call()

    def _soon(self, call: Callable[[], None]) -> None:
        """Have Trio's thread call `call`. An exception would end the process, so it is logged."""

        def guarded() -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001  # a bug
                reason = f"internal error, please report this: {type(error).__name__}: {error}"
                self.failure = reason
                self._outage.failed(reason=reason, exc_info=error)

        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(guarded)

    def _heard(self, news: News) -> None:
        now_ms = self._clock_ms()
        charges = self._not_inherited(news, now_ms)
        self.limiters.absorb(charges, now_ms)
        for call in self.on_absorb:
            call(charges)
        self.weirs, self.others, self.ignored = len(news.weirs), tuple(news.weirs[1:]), news.ignored
        self._problems.look_at(self.weirs, news.ignored, now_ms)
        sent_ms = self.own.returned(news.returned)
        if sent_ms is not None:
            self.failure = ""
            self._outage.over()
            self._trip_ms = now_ms - sent_ms
            self.blindness.heard(self.weirs, now_ms)

    def _not_inherited(self, news: News, now_ms: int) -> Mapping[int, list[OthersCharge]]:
        """Return the charges that the former Weir has not sent."""
        takeover = self._takeover
        if takeover is None:
            return news.charges
        if takeover.at_ms is None:
            return {}
        is_over = now_ms - takeover.at_ms >= INHERITED_MS
        if is_over or news.read_back >= takeover.sequence:
            self._takeover = None
        if not is_over:
            return {}
        later = {
            number: [each for each in some if each.at_ms > takeover.at_ms]
            for number, some in news.charges.items()
        }
        return {number: some for number, some in later.items() if some}

    def _note_failure(self, error: StoreError) -> None:
        self.failure = str(error)
        if self._outage:
            self._outage.failed(reason=self._reason)

    def _is_cut_off(self, now_ms: int) -> bool:
        """Return True if reports do not get through, and not only because the first opening takes long."""
        if self.blindness.sight is Sight.NEVER:
            return bool(self.failure) or now_ms - self._began_ms >= OPENING_MS
        return self.blindness.sight is Sight.BLIND

    @property
    def _reason(self) -> str:
        return self.failure or "own reports do not come back"

    def conditions(self) -> Iterator[Condition]:
        """Yield the problems that are present: reports do not get through, or somebody else writes some."""
        if self._is_cut_off(self._clock_ms()):
            yield problem(
                "usage_not_shared",
                f"Quotas are not shared with other Weirs: {self._reason}.",
                "Repair the cluster, or Weir's permissions on usage_share_topic.",
            )
        yield from self._problems.conditions(self._reader.opened_ms, self._clock_ms())


def usage_sharing(
    config: Config, registry: QuotaRegistry, clock_ms: Callable[[], int]
) -> UsageSharing | None:
    """Return the sharing that the configuration describes; None without `usage_share_topic`. It connects when
    it runs. Raises ConfigError.
    """
    settings = config.settings
    topic = settings.usage_share_topic
    if not topic:
        return None
    try:
        from weir.proxy.control.sharing.topic import open_topic  # an optional library of 20 MB
    except ImportError:
        raise ConfigError(
            "usage_share_topic needs confluent-kafka: install it beside Weir, pip install confluent-kafka"
        ) from None
    return UsageSharing(
        registry,
        lambda: open_topic(topic, config),
        config.name,
        time.time_ns(),
        clock_ms,
        key=config.share_key,
    )
