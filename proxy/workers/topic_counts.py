"""A worker's way to the object that counts topics, in the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.handlers.topic_counts.counted_topics import CountedTopics
from weir.proxy.workers.messages import CountTopics, Message, TopicsChanged, TopicsCounted
from weir.proxy.workers.supervisor_questions import SupervisorQuestions
from weir.quotas import QuotaTable
from weir.quotas.topic_counts import TopicCounts, TopicGrowth


class TopicCountLink:
    """Asks the supervisor about topics that clients create, and tells it the results."""

    def __init__(
        self,
        counted: CountedTopics,
        registry: QuotaRegistry,
        post: Callable[[Message], None],
        first_number: int,
    ) -> None:
        """Use the limits of `registry` from now on. Questions have numbers from `first_number` on, which no
        other process has.
        """
        self._counted = counted
        self._post = post
        self._questions: SupervisorQuestions[list[str]] = SupervisorQuestions(first_number)
        self._limits = TopicCounts()
        """Without topics: only its prefixes are used."""
        counted.reserve_at, counted.settle = self._reserve, self._settle
        registry.on_update.append(self._use)
        self._use(registry.in_force)

    def take(self, message: TopicsCounted) -> None:
        """Tell the reasons to the connection that waits for them."""
        self._questions.take(message.number, message.reasons)

    def _use(self, table: QuotaTable) -> None:
        self._limits.use(table)
        self._counted.use(self._limits.prefixes, is_enforced=self._limits.is_enforced)

    def _reserve(
        self, wanted: Sequence[TopicGrowth], validate_only: bool, done: Callable[[list[str]], None]
    ) -> None:
        self._post(CountTopics(self._questions.begin(done), list(wanted), validate_only))

    def _settle(self, sizes: Mapping[str, int | None], now_ms: int, sent_ms: int) -> None:
        if sizes:
            self._post(TopicsChanged(dict(sizes), now_ms, sent_ms))
