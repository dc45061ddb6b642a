"""One CreateTopics, CreatePartitions or DeleteTopics request and its charges: the code that enforced quotas
and shadow quotas share.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

import structlog

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import EncodeError
from weir.protocol.messages import Message
from weir.protocol.pieces import PIECE_ITEMS, chosen
from weir.proxy.handlers.broker_query import Asking, BrokerQuery
from weir.proxy.handlers.mutations import topic_queries
from weir.proxy.handlers.mutations.mutated_topics import Answer, MutatedTopic, Mutation, TopicResult
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.uplift.uplift import check, unsupported
from weir.quotas import NO_LEDGER, MutationLedger, QuotaKey

log = structlog.get_logger("weir.mutations")

M = TypeVar("M", bound=Message)

STRICT_FROM: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""First version, by API, whose responses may have error 89, THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
_QUOTA: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT})
"""Error codes (and success) after which a topic keeps its charge. A creation that timed out may still
succeed, so it is not refunded.
"""


def throttle(context: Context, throttle_ms: int, partitions: int, refused: int) -> int:
    """Let the client wait for `throttle_ms`; count the throttle time, and the changed partitions and refused
    topics that have led to it. Return the time (ms) that the response must tell.
    """
    if throttle_ms:
        throttle_ms = context.mute(throttle_ms, QuotaKey.CONTROLLER_MUTATION_RATE) - context.now_ms
    context.note_mutations(partitions, refused, throttle_ms)
    return throttle_ms


class ChargedMutation(ABC, Generic[M]):
    """One CreateTopics, CreatePartitions or DeleteTopics request and its charges."""

    def __init__(
        self, context: Context, plan: Plan, ledger: MutationLedger, client_id: str, mutation: Mutation[M]
    ) -> None:
        """Begin to process the request `mutation`; nothing is charged yet."""
        self.context = context
        self.plan = plan
        self.ledger = ledger
        self.mutation = mutation
        self.strict = plan.version >= STRICT_FROM[plan.api_key]
        self.late = ledger.begin_late()
        """Charge for partitions whose number is known only after the broker has answered, and for topics that
        succeeded although Weir expected them to fail.
        """
        self._shadow = None if ledger.shadow is None else ledger.shadow.begin(strict=self.strict)
        self._client_id = client_id
        self._done = 0
        """Number of partitions that were charged before their topics were forwarded and that keep the charge.
        Partitions that are charged after the broker's answer are not included.
        """
        self.asked = 0
        """Number of partitions in the part of the request that is at the broker now; 0 while no part is
        there.
        """

    @abstractmethod
    def answer(self) -> Asking[Answer]:
        """Forward the request, or part of it, to the broker. Charge the client for the topics that are
        created, grown or deleted. Return the response for the client.
        """

    def finish(self) -> int:
        """Record the request's charges in the budgets of its client. Return the throttle time (ms)."""
        if self._shadow is not None:
            self._shadow.finish(self.context.now_ms)
        return self.late.finish(self.context.now_ms)

    def query(self) -> BrokerQuery:
        """Run the request as a query: charge and forward it, throttle the client if necessary, and return the
        response with every topic's result.
        """
        try:
            yield from check(self.plan, self.mutation.request)
        except EncodeError as error:
            return (yield from unsupported(self.mutation.request, self.plan.version, str(error)))
        try:
            answer = yield from self.answer()
        except GeneratorExit:  # the connection has closed; charges stay
            throttle_ms = self.finish()
            self.context.note_mutations(self._done + self.asked + int(self.late.taken), 0, throttle_ms)
            raise
        results = self.mutation.results(answer)
        refused = sum(result.error_code == _QUOTA for result in results)
        throttle_ms = throttle(self.context, self.finish(), self._done + int(self.late.taken), refused)
        answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
        self._say(len(results), refused, throttle_ms)
        return answer

    def was_done(self, topic: MutatedTopic, result: TopicResult) -> bool:
        """Return True if the topic keeps its charge after this result: the change has succeeded, or may still
        succeed. In that case, charge the shadow quota. After success, also record the topic's new number of
        partitions.
        """
        if result.error_code == ErrorCode.NONE:
            self.mutation.done(topic, result)
        done = result.error_code in _DONE or result.error_code in topic.charged_errors
        if done:
            self._done += topic.cost
        if done and topic.cost and self._shadow is not None:
            self._shadow.admit(topic.cost, self.context.now_ms)
        return done

    def charge_late(self, done: Sequence[MutatedTopic]) -> Asking[None]:
        """Charge topics that succeeded although Weir expected them to fail, or whose number of partitions was
        unknown when the request was forwarded.

        A topic that the broker's Metadata does not show yet is charged when Metadata shows it.
        """
        guessed = yield from chosen(lambda topic: topic.assumed or not topic.cost, done)
        context = self.context
        names = [topic.name for topic in guessed if topic.assumed and topic.name]
        there = (yield from topic_queries.topics(context, names)) if names else topic_queries.Topics()
        for number, topic in enumerate(guessed):
            if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                yield None
            known = there.by_name.get(topic.name or "") if topic.assumed else None
            if known is None and topic.assumed and topic.name and self.ledger != NO_LEDGER:
                context.cluster.pending_creations.add([topic.name], self.ledger, context.now_ms, topic.cost)
            else:
                cost = topic.late_cost if known is None else known.partitions
                self.late.charge(max(cost - topic.cost, 0), context.now_ms)

    def _say(self, topics: int, refused: int, throttle_ms: int) -> None:
        """Log the request with the client's name, because metrics name only the budget, which several clients
        may share.
        """
        log.debug(
            "mutation",
            request=type(self.mutation.request).__name__,
            user=self.context.client.user,
            client_id=self._client_id,
            topics=topics,
            refused=refused,
            throttle_ms=throttle_ms,
            **self._tokens(),
        )

    def _tokens(self) -> dict[str, float]:
        budgets = zip(("tokens", "shadow_tokens"), self.ledger, strict=True)
        now_ms = self.context.now_ms
        return {name: round(budget.tokens(now_ms), 3) for name, budget in budgets if budget is not None}
