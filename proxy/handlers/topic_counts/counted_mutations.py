"""CreateTopics, CreatePartitions and DeleteTopics under limits on the number of topics and partitions.

Topics above a limit are refused with POLICY_VIOLATION; the others are forwarded, through the quota on
mutations. Deleted topics are told to the object that counts, so that a deletion makes room at once.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    Message,
)
from weir.protocol.pieces import chosen, each
from weir.proxy.handlers.broker_query import Asking, BrokerQuery
from weir.proxy.handlers.mutations.mutated_topics import (
    Answer,
    Creation,
    Deletion,
    Growth,
    MutatedTopic,
    Mutation,
    TopicResult,
)
from weir.proxy.handlers.mutations.mutations import charged, ledger_of
from weir.proxy.handlers.mutations.topic_queries import broker_versions
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.topic_counts.counted_requests import QueryFor, plan_counted
from weir.proxy.handlers.uplift.uplift import forward
from weir.quotas.topic_counts import LATE, TopicGrowth

M = TypeVar("M", bound=Message)

_REFUSED: Final = ErrorCode.POLICY_VIOLATION
_VALID: Final = frozenset({ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
_VALIDATED_FROM: Final[Mapping[int, int]] = {ApiKey.CREATE_TOPICS: 1}
"""First version that has validate_only, by API key; CreatePartitions always has it."""
_MAY_BE_DONE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT})
"""Error codes after which a topic may still change, so that it counts until metadata shows it."""


def plan_create_topics(plan: Plan) -> None:
    """Refuse topics above a limit."""
    plan_counted(plan, CreateTopicsRequest, _query_of(Creation))


def plan_create_partitions(plan: Plan) -> None:
    """Refuse partitions above a limit."""
    plan_counted(plan, CreatePartitionsRequest, _query_of(Growth))


def plan_delete_topics(plan: Plan) -> None:
    """Note deleted topics."""
    plan_counted(plan, DeleteTopicsRequest, _query_of(Deletion))


def _query_of(mutation: Callable[[M, Context], Mutation[M]]) -> QueryFor[M]:
    def query_for(context: Context, plan: Plan, client_id: str, asked: M) -> BrokerQuery | None:
        if isinstance(asked, CreateTopicsRequest | CreatePartitionsRequest) and not any(
            context.cluster.counted_topics.has(topic.name) for topic in asked.topics
        ):
            return None
        return _CountedMutation(context, plan, client_id, mutation(asked, context)).query()

    return query_for


class _CountedMutation:
    """Counts the topics that one request changes."""

    def __init__(self, context: Context, plan: Plan, client_id: str, mutation: Mutation[M]) -> None:
        self._context = context
        self._plan = plan
        self._client_id = client_id
        self._mutation = mutation
        self._counted = context.cluster.counted_topics
        self._held = set[str]()
        """Topics that count as being created or grown by this request."""

    def query(self) -> BrokerQuery:
        """Return the query; if the connection ends before the broker's answer, topics count as lost."""
        with self._counted.held(self._context) as self._held:
            return (yield from self._query())

    def _query(self) -> BrokerQuery:
        """Forward the topics that no limit refuses. Return the broker's response if it got the whole request;
        else one merged from its results and Weir's refusals, in the order of the request.
        """
        mutation = self._mutation
        if isinstance(mutation, Deletion):
            sent_ms = self._context.now_ms
            answer = yield from self._forwarded(mutation)
            self._note_deletions(mutation.results(answer), sent_ms)
            return answer
        topics = yield from mutation.topics(strict=True, would_refuse=lambda _costs, _now_ms: True)
        limited = [
            topic for topic in topics if topic.name and not topic.doomed and self._counted.has(topic.name)
        ]
        refused = yield from self._refused(limited)
        admitted = [topic for topic in limited if topic not in refused]
        if not refused:
            answer = yield from self._forwarded(mutation)
            yield from self._settle(admitted, mutation.results(answer))
            return answer
        answer = yield from self._without(topics, refused)
        results = mutation.results(answer)
        yield from self._settle(admitted, results)
        result_of = yield from mutation.finder(results)

        def result(topic: MutatedTopic) -> TopicResult | None:
            why = refused.get(topic)
            return result_of(topic) if why is None else mutation.failed(topic, _REFUSED, why)

        found = yield from each(result, topics)
        merged = mutation.merged({id(one): one for one in found if one is not None}.values())
        merged.throttle_time_ms = answer.throttle_time_ms
        return merged

    def _refused(self, limited: Sequence[MutatedTopic]) -> Asking[dict[MutatedTopic, str]]:
        """Return the topics above a limit, with the reasons. Topics that the broker would refuse itself are
        forwarded, and take no room: such errors, as of a configuration, come before a policy.
        """
        wanted = list(map(_growth, limited))
        reasons = yield from self._counted.reserve(wanted, validate_only=True)
        failing = (yield from self._failing(limited)) if any(reasons) else set()
        limited = [topic for topic in limited if topic not in failing]
        is_validated = _is_validated(self._mutation)
        reasons = yield from self._counted.reserve(list(map(_growth, limited)), validate_only=is_validated)
        refused = {topic: why for topic, why in zip(limited, reasons, strict=True) if why}
        if not is_validated:
            self._held.update(topic.name or "" for topic in limited if topic not in refused)
        return refused

    def _failing(self, topics: Sequence[MutatedTopic]) -> Asking[set[MutatedTopic]]:
        """Have the broker validate topics; return those that it would refuse."""
        plan, mutation = self._plan, self._mutation
        version = max(plan.broker_version, _VALIDATED_FROM.get(plan.api_key, 0))
        spoken = (yield from broker_versions(self._context)).get(plan.api_key)
        if spoken is None or version not in spoken:
            return set()
        part = mutation.part(topics)
        part.validate_only = True  # type: ignore[attr-defined]  # of creations and growth
        answer = yield from forward(plan, part, mutation.answer, version)
        result_of = yield from mutation.finder(mutation.results(answer))

        def fails(topic: MutatedTopic) -> bool:
            result = result_of(topic)
            return result is not None and result.error_code not in _VALID

        return set((yield from chosen(fails, topics)))

    def _without(self, topics: Sequence[MutatedTopic], refused: dict[MutatedTopic, str]) -> Asking[Answer]:
        rest = [topic for topic in topics if topic not in refused]
        if not rest:
            return self._mutation.merged(())
        part = type(self._mutation)(self._mutation.part(rest), self._context)
        return (yield from self._forwarded(part))

    def _forwarded(self, mutation: Mutation[M]) -> Asking[Answer]:
        """Forward a request, and charge it to the quota on mutations, if there is one."""
        context = self._context
        ledger = ledger_of(context, self._client_id)
        if ledger is None:
            return (yield from forward(self._plan, mutation.request, mutation.answer))
        answer = yield from charged(context, self._plan, ledger, self._client_id, mutation)
        assert isinstance(answer, CreateTopicsResponse | CreatePartitionsResponse | DeleteTopicsResponse)
        return answer

    def _settle(self, topics: Sequence[MutatedTopic], results: Sequence[TopicResult]) -> Asking[None]:
        """Tell the results of topics that count. Those of topics that may still change stay under way."""
        if _is_validated(self._mutation):
            return
        sizes: dict[str, int | None] = {}
        result_of = yield from self._mutation.finder(results)
        for topic in topics:
            result = result_of(topic)
            if topic.name in self._held:
                late = result is None or result.error_code in _MAY_BE_DONE
                sizes[topic.name or ""] = LATE if late else None
            if result is None:
                continue
            if result.error_code == ErrorCode.NONE:
                partitions = self._mutation.done(topic, result)
                sizes[topic.name or ""] = _growth(topic).after if partitions is None else partitions
        if sizes:
            self._counted.settle_held(self._held, sizes, self._context.now_ms)

    def _note_deletions(self, results: Sequence[TopicResult], sent_ms: int) -> None:
        cluster, sizes = self._context.cluster, dict[str, int | None]()
        for result in results:
            if result.error_code == ErrorCode.NONE and result.name and self._counted.has(result.name):
                assert isinstance(result, DeleteTopicsResponse.DeletableTopicResult)
                cluster.learn(result.name, 0, result.topic_id, self._context.now_ms)
                sizes[result.name] = 0
        if sizes:
            self._counted.settle(sizes, self._context.now_ms, sent_ms)


def _is_validated(mutation: Mutation[M]) -> bool:
    return isinstance(mutation, Creation | Growth) and mutation.request.validate_only


def _growth(topic: MutatedTopic) -> TopicGrowth:
    entry = topic.entry
    if isinstance(entry, CreatePartitionsRequest.CreatePartitionsTopic):
        before = entry.count - topic.cost if topic.cost else 0  # unknown: Metadata may be late
        return TopicGrowth(topic.name or "", before, entry.count)
    return TopicGrowth(topic.name or "", 0, topic.cost or topic.late_cost)
