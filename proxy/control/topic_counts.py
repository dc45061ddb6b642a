"""Counting of the cluster's topics (`quotas.topic_counts`): reads them from brokers' metadata, and answers
workers, whose clients create topics.

While there are limits, topics are read every `refresh_s`, and before a creation is admitted, so that
creations past this Weir count, also those of another Weir. But reading takes at most a tenth of the time: a
reading stays fresh for ten times as long as it took. (Decoding 10,000 topics with 100,000 partitions takes
0.4 s of CPU.) If no broker answers, the last known topics count, which is told as a problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import structlog
import trio

from weir.protocol.messages import MetadataRequest, MetadataResponse
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.cluster.discovery import METADATA_VERSION
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.control.replication.cluster_connection import ClusterConnection, QueriedBroker
from weir.proxy.control.supervisor import Works
from weir.proxy.outage import Outage
from weir.quotas import QuotaTable
from weir.quotas.topic_counts import NEVER, TopicCounts, TopicGrowth

log = structlog.get_logger("weir")

Done: TypeAlias = Callable[[list[str]], None]

READ_S: Final = 10.0
"""Maximum time (s) of a reading."""
SHARE: Final = 10
"""A reading stays fresh for as many times as long as it took."""
_FULL: Final = "Delete topics, or raise the limit: weir quotas set --topic-prefix."
_UNREAD: Final = "Start the brokers, or give Weir a login that may DESCRIBE all topics (upstream_sasl_*)."


class TopicCounter:
    """Counts the topics of a cluster while there are limits on their number."""

    def __init__(
        self,
        brokers: Callable[[], Iterable[Address]],
        access: Access,
        timeout_s: float,
        refresh_s: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        """Begin without limits. `brokers` returns the addresses to ask; each response may take `timeout_s`.
        Topics are read every `refresh_s`. `now_ms` is the clock of budgets.
        """
        self.counts = TopicCounts()
        self._cluster = ClusterConnection(brokers, access, timeout_s)
        self._refresh_s = refresh_s
        self._now_ms = now_ms
        self._waiting: list[tuple[Sequence[TopicGrowth], bool, Done]] = []
        self._fresh_until_s = 0.0
        self._wanted = trio.Event()
        self._outage = Outage(
            log, "topics not counted, the last known ones count", "topics are counted again"
        )

    def use(self, table: QuotaTable) -> None:
        """Use the limits of the table in force from now on."""
        was_idle = not self.counts.prefixes
        self.counts.use(table)
        if was_idle and self.counts.prefixes:
            self._wanted.set()

    def reserve(self, wanted: Sequence[TopicGrowth], validate_only: bool, done: Done) -> None:
        """Call `done` with the result of `TopicCounts.reserve`, now or after a reading."""
        self._waiting.append((wanted, validate_only, done))
        if trio.current_time() < self._fresh_until_s:
            self._answer()
        else:
            self._wanted.set()

    def settle(self, sizes: Mapping[str, int | None], now_ms: int, sent_ms: int = NEVER) -> None:
        """Take the results of changes (`TopicCounts.settle`)."""
        self.counts.settle(sizes, now_ms, sent_ms)

    async def follow(self, works: Works) -> None:
        """Read topics while there are limits, until cancelled: work for `Supervisor.keep_running`."""
        self._fresh_until_s = 0.0
        try:
            while True:
                if self.counts.prefixes:
                    await self._read()
                works()
                self._wanted = trio.Event()
                self._answer()
                with trio.move_on_after(self._refresh_s()):
                    await self._wanted.wait()
        finally:
            self._fresh_until_s = math.inf  # workers that drain still ask
            self._answer()
            await self._cluster.aclose()

    def conditions(self) -> Iterator[Condition]:
        """Yield the problems of counting: topics are not read, or a limit is reached."""
        if self.counts.prefixes and self._outage.failing:
            known = "The last known ones count" if self.counts.is_known else "Nothing is refused"
            yield problem(
                "topics_not_counted", f"Topics are not counted: {self._outage.reason}. {known}.", _UNREAD
            )
        for limit, number, _refused in self.counts.readings():
            if number >= limit.value and not limit.is_shadow:
                key = limit.key.value
                what = f"{key} of topic prefix {limit.prefix} is reached: {number} of {limit.value:.0f}."
                yield problem(f"{key} {limit.prefix}", what, _FULL, logged=True)

    async def _read(self) -> None:
        began_s = trio.current_time()
        try:
            answer = await self._cluster.ask(_metadata, READ_S)
        except QuestionError as error:
            self._outage.failed(reason=str(error))
        else:
            self._outage.over()
            sizes = {topic.name: len(topic.partitions) for topic in answer.topics if topic.name}
            self.counts.read({name: size for name, size in sizes.items() if size}, self._now_ms())
        now_s = trio.current_time()
        self._fresh_until_s = now_s + SHARE * (now_s - began_s)

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, validate_only, done in waiting:
            done(self.counts.reserve(wanted, self._now_ms(), validate_only=validate_only))


async def _metadata(broker: QueriedBroker) -> MetadataResponse:
    answer = await broker.ask(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)
    if not answer.brokers:  # a broker that has just started, before the controller has told it the cluster
        text = f"{broker.connection.address}: it knows no broker of the cluster yet"
        raise QuestionError(text, reachable=True, foreign=False)
    return answer
