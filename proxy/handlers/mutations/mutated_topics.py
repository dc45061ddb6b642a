"""The requests of KIP-599, topic by topic, and the cost of each topic.

A `Mutation` is one request: its topics with their costs, parts of it, and a response merged from several.
Costs are those of a KRaft controller (3.9): the number of partitions created, added or deleted, also with
validate_only. A topic that would fail regardless of the quota costs nothing, as far as Weir can predict that.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from msgspec.structs import replace

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
from weir.protocol.pieces import PIECE_ITEMS, Pieces, chosen, each
from weir.protocol.values import ZERO_UUID
from weir.proxy.handlers.broker_query import Asking
from weir.proxy.handlers.mutations import topic_queries
from weir.proxy.handlers.plan import Context

REFUSED: Final = "The throttling quota has been exceeded."
"""Kafka's error text for error 89 (THROTTLING_QUOTA_EXCEEDED). Weir sends the text. Brokers send none, and
Kafka's own clients fill it in.
"""

Q = TypeVar("Q", bound=Message)
Answer: TypeAlias = CreateTopicsResponse | CreatePartitionsResponse | DeleteTopicsResponse
Finder: TypeAlias = "Callable[[MutatedTopic], TopicResult | None]"
WouldRefuse: TypeAlias = Callable[[Sequence[int], int], bool]
"""Function (costs, now_ms) that returns True if the quota would refuse at least one topic of a request;
`costs` are the costs of its topics. Called only for versions that have error 89 (THROTTLING_QUOTA_EXCEEDED).
"""


@dataclass(slots=True, eq=False)
class MutatedTopic:
    """One topic of a CreateTopics, CreatePartitions or DeleteTopics request, and its cost."""

    entry: object
    """Element of the request's array of topics that describes this topic."""
    name: str | None
    cost: int
    """Number of partitions charged when the topic is admitted; 0 if the broker is sure to refuse the topic.
    """
    topic_id: UUID = ZERO_UUID
    assumed: bool = False
    """True if the cost is a guess, because the broker's default number of partitions is unknown. The topic's
    true number is charged when the topic exists.
    """
    doomed: bool = False
    """True if every broker refuses the topic, whatever exists."""
    late_cost: int = 1
    """Number of partitions charged if the topic succeeds although Weir expected the broker to refuse it."""
    charged_errors: frozenset[int] = frozenset()
    """Error codes, besides success and timeout, after which the topic's charge is not refunded."""
    invalid: str | None = None
    """Error text if Weir answers the topic with INVALID_REQUEST and does not forward it, because brokers
    differ in how they handle such a topic; else None.
    """


class TopicResult(Protocol):
    """One topic's result in a response."""

    @property
    def name(self) -> str | None:
        """The topic's name; None if the client may not see it."""

    @property
    def error_code(self) -> int:
        """The topic's error code."""


class Mutation(ABC, Generic[Q]):
    """One CreateTopics, CreatePartitions or DeleteTopics request, which can be split by topic."""

    answer: ClassVar[type[Answer]]

    def __init__(self, request: Q, context: Context) -> None:
        """Take a decoded request and the context of its connection."""
        self.request = request
        self.context = context

    @abstractmethod
    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[MutatedTopic]]:
        """Return the topics in order, with their costs."""

    def part(self, topics: Sequence[MutatedTopic]) -> Q:
        """Return a copy of the request with only these topics."""
        return replace(self.request, topics=[topic.entry for topic in topics], unknown_tagged_fields=())

    @abstractmethod
    def results(self, answer: Answer) -> Sequence[TopicResult]:
        """Return the results, one per topic, in the broker's response `answer`."""

    @abstractmethod
    def failed(self, topic: MutatedTopic, error: ErrorCode, text: str | None = None) -> TopicResult:
        """Return a result with this error, for a topic that Weir answers without the broker."""

    @abstractmethod
    def merged(self, results: Iterable[TopicResult]) -> Answer:
        """Return one response of this API that contains these results of topics."""

    def finder(self, results: Sequence[TopicResult]) -> Pieces[Finder]:
        """Return a function that finds a topic's result among `results`. The work is done in pieces, with
        pauses between them, because a broker may send many results.
        """
        by_name: dict[str | None, TopicResult] = {}
        yield from each(lambda result: by_name.setdefault(result.name, result), results)
        return lambda topic: by_name.get(topic.name)

    def done(self, topic: MutatedTopic, result: TopicResult) -> int | None:
        """Record that a topic was created, grown or deleted, with its present number of partitions. Return
        this number; None if it is unknown.
        """
        partitions, topic_id = self.left(topic, result)
        if topic.name and partitions is not None:
            self.context.cluster.learn(topic.name, partitions, topic_id, self.context.now_ms)
        return partitions

    @abstractmethod
    def left(self, topic: MutatedTopic, result: TopicResult) -> tuple[int | None, UUID]:
        """Return the topic's number of partitions after it was created, grown or deleted (None if unknown),
        and its id if known.
        """


class Creation(Mutation[CreateTopicsRequest]):
    """A CreateTopics request: each topic costs its number of partitions, regardless of replicas."""

    answer = CreateTopicsResponse

    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[MutatedTopic]]:
        """Return the topics with their costs. The broker is asked for existing topics, which cost nothing,
        only if the quota may refuse some topics.
        """
        entries = self.request.topics
        default = None
        if _DEFAULT in (yield from each(_partitions, entries)):
            default = yield from topic_queries.default_partitions(self.context)
        times = Counter(entry.name for entry in entries)
        topics = yield from each(lambda entry: _creation(entry, times[entry.name] > 1, default), entries)
        if strict and would_refuse([topic.cost for topic in topics], self.context.now_ms):
            there = yield from topic_queries.topics(self.context, list(times))
            for number, (topic, entry) in enumerate(zip(topics, entries, strict=True)):
                if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                    yield None
                if entry.name in there.by_name or not _can_be_placed(entry, there.broker_ids):
                    topic.cost = 0
        return sorted(topics, key=lambda topic: times[topic.name or ""] > 1)  # brokers answer duplicates last

    def results(self, answer: Answer) -> Sequence[TopicResult]:
        """Return the results, one per topic, in the broker's response `answer`."""
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics

    def failed(self, topic: MutatedTopic, error: ErrorCode, text: str | None = None) -> TopicResult:
        """Return a result with this error, for a topic that Weir answers without the broker."""
        result = CreateTopicsResponse.CreatableTopicResult
        return result(name=topic.name or "", error_code=error, error_message=text)

    def left(self, topic: MutatedTopic, result: TopicResult) -> tuple[int | None, UUID]:
        """Return the created topic's number of partitions (from the response, or else the requested number;
        None if unknown) and its id. Also remove the topic from the pending automatic creations.
        """
        assert isinstance(result, CreateTopicsResponse.CreatableTopicResult)
        if self.request.validate_only:
            return None, ZERO_UUID
        self.context.cluster.pending_creations.created(result.name)
        guess = None if topic.assumed else topic.late_cost
        return (result.num_partitions if result.num_partitions > 0 else guess), result.topic_id

    def merged(self, results: Iterable[TopicResult]) -> CreateTopicsResponse:
        """Return one CreateTopics response that contains these results of topics."""
        return CreateTopicsResponse(topics=list(results))  # type: ignore[arg-type]  # all from such answers


_DEFAULT: Final = -1
"""Value in a CreateTopics request, for the number of partitions or of replicas, by which the client asks for
the broker's default.
"""
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def _partitions(entry: CreateTopicsRequest.CreatableTopic) -> int:
    return len(entry.assignments) or entry.num_partitions


def _creation(entry: CreateTopicsRequest.CreatableTopic, repeated: bool, default: int | None) -> MutatedTopic:
    partitions = _partitions(entry)
    assumed = partitions == _DEFAULT and default is None
    if partitions == _DEFAULT:
        partitions = default or 1
    doomed = repeated or not _can_be_created(entry)
    cost, late_cost = 0 if doomed else partitions, max(partitions, 1)
    return MutatedTopic(entry, entry.name, cost, assumed=assumed, doomed=doomed, late_cost=late_cost)


def _can_be_created(entry: CreateTopicsRequest.CreatableTopic) -> bool:
    """Return False if a broker would refuse the topic for its name, number of partitions or number of
    replicas.
    """
    asked = (entry.num_partitions, entry.replication_factor)
    if entry.assignments:
        numbers = asked == (_DEFAULT, _DEFAULT)
    else:
        numbers = all(number == _DEFAULT or number > 0 for number in asked)
    return numbers and _NAME.fullmatch(entry.name) is not None


def _can_be_placed(entry: CreateTopicsRequest.CreatableTopic, brokers: set[int]) -> bool:
    """Return True if all brokers that the request assigns replicas to exist, and there are at least as many
    brokers as replicas.
    """
    wanted = {broker_id for assignment in entry.assignments for broker_id in assignment.broker_ids}
    return wanted <= brokers and entry.replication_factor <= len(brokers)


class Growth(Mutation[CreatePartitionsRequest]):
    """A CreatePartitions request: each topic costs the number of partitions that the request adds to it."""

    answer = CreatePartitionsResponse

    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[MutatedTopic]]:  # noqa: ARG002 - costs are never known without looking
        """Return the topics with their costs; ask the broker for the topics' numbers of partitions."""
        entries = self.request.topics
        times = Counter(entry.name for entry in entries)
        there = yield from topic_queries.topics(self.context, list(times))
        topics = yield from each(lambda entry: _growth(entry, times[entry.name] > 1, there), entries)
        return sorted(
            topics, key=lambda topic: times[topic.name or ""] == 1
        )  # brokers answer duplicates first

    def results(self, answer: Answer) -> Sequence[TopicResult]:
        """Return the results, one per topic, in the broker's response `answer`."""
        assert isinstance(answer, CreatePartitionsResponse)
        return answer.results

    def failed(self, topic: MutatedTopic, error: ErrorCode, text: str | None = None) -> TopicResult:
        """Return a result with this error, for a topic that Weir answers without the broker."""
        result = CreatePartitionsResponse.CreatePartitionsTopicResult
        return result(name=topic.name or "", error_code=error, error_message=text)

    def left(self, topic: MutatedTopic, result: TopicResult) -> tuple[int | None, UUID]:  # noqa: ARG002 - the answer does not tell
        """Return the number of partitions that the client requested (None if it asked only for validation),
        and the topic's id.
        """
        assert isinstance(topic.entry, CreatePartitionsRequest.CreatePartitionsTopic)
        return (None if self.request.validate_only else topic.entry.count), topic.topic_id

    def merged(self, results: Iterable[TopicResult]) -> CreatePartitionsResponse:
        """Return one CreatePartitions response that contains these results of topics."""
        return CreatePartitionsResponse(results=list(results))  # type: ignore[arg-type]  # all from such answers


def _growth(
    entry: CreatePartitionsRequest.CreatePartitionsTopic, repeated: bool, there: topic_queries.Topics
) -> MutatedTopic:
    known = there.by_name.get(entry.name)
    added = entry.count - known.partitions if known is not None else 0
    unlike = entry.assignments is not None and len(entry.assignments) != added
    cost = 0 if repeated or unlike else max(added, 0)
    late_cost = max(added if known is not None else entry.count - 1, 1)  # metadata may be late: at least 1
    charged = {ErrorCode.INVALID_REPLICA_ASSIGNMENT} if entry.assignments is not None and cost else ()
    topic_id = ZERO_UUID if known is None else known.topic_id
    return MutatedTopic(
        entry,
        entry.name,
        cost,
        topic_id,
        doomed=repeated or entry.count <= 0,
        late_cost=late_cost,
        charged_errors=frozenset(charged),
    )


class Deletion(Mutation[DeleteTopicsRequest]):
    """A DeleteTopics request: each topic costs its number of partitions. From v6 on, a request gives topics
    by name or id.
    """

    answer = DeleteTopicsResponse

    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[MutatedTopic]]:  # noqa: ARG002 - costs are never known without looking
        """Ask the broker for the topics' numbers of partitions; return the topics with their costs."""
        state = DeleteTopicsRequest.DeleteTopicState
        named = yield from each(lambda name: state(name=name), self.request.topic_names)
        entries = self.request.topics or named
        names = {entry.name for entry in entries if entry.name is not None}
        ids = {entry.topic_id for entry in entries if entry.name is None}
        there = yield from topic_queries.topics(self.context, names, ids)
        topics: dict[object, MutatedTopic] = {}
        for number, entry in enumerate(entries):
            if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                yield None
            topic = _deletion(entry, there)
            key = topic if topic.invalid else topic.name or topic.topic_id
            if key in topics:  # perhaps once by name and once by id
                topics[key].invalid = _TWICE
            else:
                topics[key] = topic
        return list(topics.values())

    def part(self, topics: Sequence[MutatedTopic]) -> DeleteTopicsRequest:
        """Return a copy of the request with only these topics."""
        if self.request.topics:
            return super().part(topics)
        names = [topic.name or "" for topic in topics]
        return replace(self.request, topic_names=names, unknown_tagged_fields=())

    def results(self, answer: Answer) -> Sequence[TopicResult]:
        """Return the results, one per topic, in the broker's response `answer`."""
        assert isinstance(answer, DeleteTopicsResponse)
        return answer.responses

    def failed(self, topic: MutatedTopic, error: ErrorCode, text: str | None = None) -> TopicResult:
        """Return a result with this error, name and id, for a topic that Weir answers without the broker."""
        result = DeleteTopicsResponse.DeletableTopicResult
        return result(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=text)

    def left(self, topic: MutatedTopic, result: TopicResult) -> tuple[int | None, UUID]:  # noqa: ARG002 - it is gone
        """Return 0 partitions and the topic's id. If the topic was created automatically and its partitions
        were not charged yet, charge them now.
        """
        pending = self.context.cluster.pending_creations.created(topic.name or "")
        if pending is not None:
            charge = pending.ledger.begin_late()
            charge.charge(max(topic.cost, topic.late_cost) - pending.charged, self.context.now_ms)
            charge.finish(self.context.now_ms)
        return 0, topic.topic_id

    def merged(self, results: Iterable[TopicResult]) -> DeleteTopicsResponse:
        """Return one DeleteTopics response that contains these results of topics."""
        return DeleteTopicsResponse(responses=list(results))  # type: ignore[arg-type]  # all from such answers

    def finder(self, results: Sequence[TopicResult]) -> Pieces[Finder]:
        """Return a function that finds a topic's result by id or by name, because a broker omits names that
        the client may not see.
        """
        named = yield from chosen(lambda result: result.name is not None, results)
        by_name = yield from super().finder(named)
        by_id: dict[UUID, TopicResult] = {}

        def add(result: TopicResult) -> None:
            if isinstance(result, DeleteTopicsResponse.DeletableTopicResult) and result.topic_id != ZERO_UUID:
                by_id[result.topic_id] = result

        yield from each(add, results)
        return lambda topic: by_id.get(topic.topic_id) or by_name(topic)


_TWICE: Final = "The request names the topic more than once."
_NOT_ONE: Final = "The request gives not one of name and id."


def _deletion(entry: DeleteTopicsRequest.DeleteTopicState, there: topic_queries.Topics) -> MutatedTopic:
    if (entry.name is None) == (entry.topic_id == ZERO_UUID):
        return MutatedTopic(entry, entry.name, 0, topic_id=entry.topic_id, invalid=_NOT_ONE)
    found = there.by_id.get(entry.topic_id) if entry.name is None else there.by_name.get(entry.name)
    if found is None:
        return MutatedTopic(entry, entry.name, 0, topic_id=entry.topic_id)
    return MutatedTopic(entry, found.name, found.partitions, topic_id=found.topic_id)
