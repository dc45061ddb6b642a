"""One mutation request on its way to the broker and back, and those who pay for it: what enforced quotas and
shadow quotas have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

import structlog

from protocol.api import ApiKey
from protocol.error_codes import ErrorCode
from protocol.errors import EncodeError
from protocol.messages import Message
from proxy.handlers.broker_query import BrokerQuery
from proxy.handlers.mutations import topic_queries
from proxy.handlers.mutations.mutated_topics import Answer, Mutation, Result, Topic
from proxy.handlers.mutations.topic_queries import Asking
from proxy.handlers.plan import Context, Plan
from proxy.handlers.uplift.uplift import check, unsupported
from quotas import NO_LEDGER, MutationLedger

log = structlog.get_logger("weir.mutations")

M = TypeVar("M", bound=Message)

STRICT_FROM: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""The first version of each API that knows error 89 (KIP-599)."""
_QUOTA: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT})
"""What costs what it was charged: of a topic that has timed out nobody knows that it does not come."""


class PaidMutation(ABC, Generic[M]):
    """One request, and those who pay for it."""

    def __init__(
        self, context: Context, plan: Plan, ledger: MutationLedger, client_id: str, mutation: Mutation[M]
    ) -> None:
        """Begin with nothing charged."""
        self.context = context
        self.plan = plan
        self.ledger = ledger
        self.mutation = mutation
        self.strict = plan.version >= STRICT_FROM[plan.api_key]
        self.late = ledger.begin_late()
        """For what could not be charged in time."""
        self._shadow = None if ledger.shadow is None else ledger.shadow.begin(strict=self.strict)
        self._client_id = client_id
        self._done = 0
        """Partitions made or deleted that were charged in time."""
        self.asked = 0
        """Partitions that the broker was asked for and has not answered about."""

    @abstractmethod
    def answer(self) -> Asking[Answer]:
        """Have the broker do it, or part of it, and charge that; return what the client is told."""

    def finish(self) -> int:
        """Count what was taken; return how long the client must wait, in ms."""
        if self._shadow is not None:
            self._shadow.finish(self.context.now_ms)
        return self.late.finish(self.context.now_ms)

    def query(self) -> BrokerQuery:
        """Tell what became of every topic, and have the client wait if it must."""
        try:
            check(self.plan, self.mutation.request)
        except EncodeError as error:
            return unsupported(self.mutation.request, str(error))
        try:
            answer = yield from self.answer()
        except GeneratorExit:  # the connection has ended; what was charged stays charged
            throttle_ms = self.finish()
            self.context.note_mutations(self._done + self.asked + int(self.late.taken), 0, throttle_ms)
            raise
        throttle_ms = self.finish()
        if throttle_ms:
            throttle_ms = self.context.mute(throttle_ms) - self.context.now_ms
        answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
        results = self.mutation.results(answer)
        refused = sum(result.error_code == _QUOTA for result in results)
        self.context.note_mutations(self._done + int(self.late.taken), refused, throttle_ms)
        self._say(len(results), refused, throttle_ms)
        return answer

    def was_done(self, topic: Topic, result: Result) -> bool:
        """Whether a topic costs what it was charged; learn what was done, and charge it to the shadow."""
        if result.error_code == ErrorCode.NONE:
            self.mutation.done(topic, result)
        done = result.error_code in _DONE or result.error_code in topic.charged_errors
        if done:
            self._done += topic.cost
        if done and topic.cost and self._shadow is not None:
            self._shadow.admit(topic.cost, self.context.now_ms)
        return done

    def charge_late(self, done: Sequence[Topic]) -> Asking[None]:
        """Charge what was done though it was sure to fail, or done without knowing its size.

        A topic that cannot be seen yet is charged when it can.
        """
        guessed = [topic for topic in done if topic.assumed or not topic.cost]
        context = self.context
        names = [topic.name for topic in guessed if topic.assumed and topic.name]
        there = (yield from topic_queries.topics(context, names)) if names else topic_queries.Topics()
        for topic in guessed:
            known = there.by_name.get(topic.name or "") if topic.assumed else None
            if known is None and topic.assumed and topic.name and self.ledger != NO_LEDGER:
                context.cluster.pending_creations.add([topic.name], self.ledger, context.now_ms, topic.cost)
            else:
                cost = topic.late_cost if known is None else known.partitions
                self.late.charge(max(cost - topic.cost, 0), context.now_ms)

    def _say(self, topics: int, refused: int, throttle_ms: int) -> None:
        """Metrics know budgets, this line the clients that share them."""
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
