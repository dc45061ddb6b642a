"""Partition mutation quotas (KIP-599): CreateTopics, CreatePartitions, DeleteTopics.

A Kafka controller charges each topic in turn, after validating it. Weir charges before the broker sees the
request, forwards the admitted topics, and refunds the charges of topics that the broker refuses. If such a
refund makes the quota admit further topics of the request, Weir forwards these, too. Topics that are sure to
fail cost nothing and are forwarded, because the broker gives the best error text. So each topic gets the
result that a broker with the same quota would send.

In versions that have error 89, topics are refused while the balance is negative (strict). In older versions
everything is admitted, and a client with a negative balance is throttled (permissive). `mutated_topics` has
the costs of the three APIs.

A shadow quota is charged for successful changes when the broker has answered; no request is refused or
throttled.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, Message
from weir.protocol.pieces import PIECE_ITEMS, chosen, each
from weir.proxy.handlers.broker_query import Asking, BrokerQuery
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.mutations.auto_creation import charge_created
from weir.proxy.handlers.mutations.charged_mutation import ChargedMutation
from weir.proxy.handlers.mutations.decoded_requests import ChargedRequests
from weir.proxy.handlers.mutations.mutated_topics import (
    REFUSED,
    Answer,
    Creation,
    Deletion,
    Growth,
    MutatedTopic,
    Mutation,
    TopicResult,
)
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.uplift.uplift import forward
from weir.quotas import NO_LEDGER, MutationLedger

M = TypeVar("M", bound=Message)

ROUNDS_MAX: Final = 16
"""Maximum number of times that Weir forwards a part of one request. After each part, Weir refunds the charges
of topics that the broker has refused; the quota may then admit further topics, which form the next part.
"""
_QUOTA: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_NOT_CONTROLLER: Final = ErrorCode.NOT_CONTROLLER
_INVALID: Final = ErrorCode.INVALID_REQUEST
_UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR


def plan_create_topics(plan: Plan) -> None:
    """Charge CreateTopics requests: each topic costs its number of partitions."""
    _plan(plan, CreateTopicsRequest, Creation)


def plan_create_partitions(plan: Plan) -> None:
    """Charge CreatePartitions requests: each topic costs the number of partitions added."""
    _plan(plan, CreatePartitionsRequest, Growth)


def plan_delete_topics(plan: Plan) -> None:
    """Charge DeleteTopics requests: each topic costs its number of partitions."""
    _plan(plan, DeleteTopicsRequest, Deletion)


def _plan(plan: Plan, request: type[M], mutation: Callable[[M, Context], Mutation[M]]) -> None:
    requests = ChargedRequests(plan, request)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        client_id = context.client.client_id(data, frame, end)
        if client_id is None:
            return WAIT
        ledger = ledger_of(context, client_id)
        if ledger is None:
            return requests.pass_on(context, data, frame, end, complete)
        asked = requests.read(context, data, frame, end, complete, enforced=ledger.enforced is not None)
        if not isinstance(asked, Message):
            return asked
        return Query(charged(context, plan, ledger, client_id, mutation(asked, context)))

    plan.admit, plan.whole = admit, True


def ledger_of(context: Context, client_id: str) -> MutationLedger | None:
    """Return the ledger to which mutations of the client are charged: one without budgets if only its usage
    is recorded, None if neither.
    """
    ledger = context.client.quotas.mutation_ledger(context.client.user, client_id, context.now_ms)
    return NO_LEDGER if ledger is None and context.client.recorded else ledger


def charged(
    context: Context, plan: Plan, ledger: MutationLedger, client_id: str, mutation: Mutation[M]
) -> BrokerQuery:
    """Return the query that charges and forwards a request."""
    kind: type[ChargedMutation[M]] = _ShadowMutation if ledger.enforced is None else _EnforcedMutation
    return kind(context, plan, ledger, client_id, mutation).query()


class _EnforcedMutation(ChargedMutation[M]):
    """One CreateTopics, CreatePartitions or DeleteTopics request of a client with an enforced quota."""

    def __init__(
        self, context: Context, plan: Plan, ledger: MutationLedger, client_id: str, mutation: Mutation[M]
    ) -> None:
        super().__init__(context, plan, ledger, client_id, mutation)
        assert ledger.enforced is not None
        self._budget = ledger.enforced
        self._charge = self._budget.begin(strict=self.strict)

    def finish(self) -> int:
        """Record the request's charges in the budgets of its client. Return the throttle time (ms)."""
        return max(self._charge.finish(self.context.now_ms), super().finish())

    def answer(self) -> Asking[Answer]:
        """Forward the topics that the quota admits. Return the broker's response if it got the whole request;
        else return a response merged from the broker's results and Weir's refusals.
        """
        mutation = self.mutation
        yield from charge_created(self.context, self.ledger, self.late)
        topics = yield from mutation.topics(strict=self.strict, would_refuse=self._budget.would_refuse)
        invalid = [topic for topic in topics if topic.invalid]
        failed = yield from each(lambda topic: mutation.failed(topic, _INVALID, topic.invalid), invalid)
        results_of = dict(zip(invalid, failed, strict=True))
        waiting, broker_ms = [topic for topic in topics if topic not in results_of], 0
        for _round in range(ROUNDS_MAX):
            admitted = yield from chosen(self._admits, waiting)
            if topics and not admitted:
                break
            self.asked = sum(topic.cost for topic in admitted)
            answer = yield from forward(self.plan, mutation.part(admitted), mutation.answer)
            self.asked = 0
            outcome = yield from self._compare(admitted, mutation.results(answer))
            if len(admitted) == len(topics):
                return answer
            broker_ms = max(broker_ms, answer.throttle_time_ms)
            results_of.update(outcome.results)
            waiting = [topic for topic in waiting if topic not in outcome.results]
            if outcome.not_controller:
                results_of.update((topic, mutation.failed(topic, _NOT_CONTROLLER)) for topic in waiting)
                break
            if not (waiting and outcome.made_room):
                break
        results = yield from each(
            lambda topic: results_of.get(topic) or mutation.failed(topic, _QUOTA, REFUSED), topics
        )
        merged = mutation.merged({id(result): result for result in results}.values())
        merged.throttle_time_ms = broker_ms
        return merged

    def _admits(self, topic: MutatedTopic) -> bool:
        return not topic.cost or self._charge.admit(topic.cost, self.context.now_ms)

    def _compare(
        self, topics: Sequence[MutatedTopic], results: Sequence[TopicResult]
    ) -> Asking[_RoundOutcome]:
        """Compare the forwarded topics with the broker's results: refund the charges of topics that the
        broker refused, and charge partitions whose number was unknown before. Return the results.
        """
        outcome = _RoundOutcome({}, made_room=False)
        done: list[MutatedTopic] = []
        result_of = yield from self.mutation.finder(results)
        for number, topic in enumerate(topics):
            if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                yield None
            result = result_of(topic) or self.mutation.failed(topic, _UNKNOWN)
            outcome.results[topic] = result
            outcome.not_controller = outcome.not_controller or result.error_code == _NOT_CONTROLLER
            if self.was_done(topic, result):
                done.append(topic)
            elif topic.cost:
                self._charge.refund(topic.cost, self.context.now_ms)
                outcome.made_room = True
        yield from self.charge_late(done)
        return outcome


@dataclass(slots=True)
class _RoundOutcome:
    """Results of the topics that Weir has forwarded in one part of a request. Weir may forward several parts
    one after another.
    """

    results: dict[MutatedTopic, TopicResult]
    made_room: bool
    """True if a topic's charge was refunded. The quota may then admit topics of the request that it has not
    admitted before.
    """
    not_controller: bool = False
    """True if the broker is not the controller, so no topic can succeed."""


class _ShadowMutation(ChargedMutation[M]):
    """One request under a shadow quota alone: the broker gets the request unchanged, and its results are
    charged.

    Topics that fail for a reason of their own cost nothing, as at a controller. To learn the cost of a
    deletion, and of a topic with the default number of partitions, Weir sends the broker the same queries as
    for an enforced quota.
    """

    def answer(self) -> Asking[Answer]:
        """Forward the whole request, charge the shadow quota for the topics that succeeded, and return the
        broker's response unchanged.
        """
        mutation = self.mutation
        yield from charge_created(self.context, self.ledger, self.late)
        topics = yield from mutation.topics(strict=self.strict, would_refuse=lambda _costs, _now_ms: False)
        self.asked = sum(topic.cost for topic in topics if not topic.invalid)
        answer = yield from forward(self.plan, mutation.request, mutation.answer)
        self.asked = 0
        result_of = yield from mutation.finder(mutation.results(answer))

        def was_done(topic: MutatedTopic) -> bool:
            result = None if topic.invalid else result_of(topic)
            return result is not None and self.was_done(topic, result)

        done = yield from chosen(was_done, topics)
        yield from self.charge_late(done)
        return answer
