"""Partition mutations under a shadow quota alone: the broker gets the request unchanged, its results are
charged.

Topics that fail for a reason of their own cost nothing, as at a controller. To know the cost of a deletion,
and of a topic with the default number of partitions, Weir asks the broker the same questions as for an
enforced quota.
"""

from __future__ import annotations

from typing import TypeVar

from protocol.messages import Message
from proxy.handlers.mutations.auto_creation import charge_created
from proxy.handlers.mutations.charged_mutation import ChargedMutation
from proxy.handlers.mutations.mutated_topics import Answer
from proxy.handlers.mutations.topic_queries import Asking
from proxy.handlers.uplift.uplift import forward

M = TypeVar("M", bound=Message)


class ShadowMutation(ChargedMutation[M]):
    """One request without an enforced quota."""

    def answer(self) -> Asking[Answer]:
        """Return the broker's own answer."""
        mutation = self.mutation
        yield from charge_created(self.context, self.ledger, self.late)
        topics = yield from mutation.topics(strict=self.strict, would_refuse=lambda _costs, _now_ms: False)
        self.asked = sum(topic.cost for topic in topics if not topic.invalid)
        answer = yield from forward(self.plan, mutation.request, mutation.answer)
        self.asked = 0
        result_of = mutation.finder(mutation.results(answer))
        results = [(topic, result_of(topic)) for topic in topics if not topic.invalid]
        done = [topic for topic, result in results if result is not None and self.was_done(topic, result)]
        yield from self.charge_late(done)
        return answer
