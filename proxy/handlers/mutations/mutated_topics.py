"""What the three APIs of KIP-599 do to topics, and what each topic costs.

A `Mutation` is one request: its topics with their costs, parts of it, and the answer that is put together
of several. Costs are those of a KRaft controller (3.9): partitions that are created, added or deleted, also
where validate_only is set. What would fail whatever the quota costs nothing, as far as that can be known
here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from msgspec.structs import replace

from protocol.error_codes import ErrorCode
from protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    Message,
)
from protocol.values import ZERO_UUID
from proxy.handlers.mutations import topic_queries
from proxy.handlers.mutations.topic_queries import Asking
from proxy.handlers.plan import Context

REFUSED: Final = "The throttling quota has been exceeded."
"""Kafka's own words for error 89; its brokers leave them to the client, Weir tells them to all."""

Q = TypeVar("Q", bound=Message)
Answer: TypeAlias = CreateTopicsResponse | CreatePartitionsResponse | DeleteTopicsResponse
Finder: TypeAlias = "Callable[[Topic], Result | None]"
WouldRefuse: TypeAlias = Callable[[Sequence[int], int], bool]
"""(costs, now_ms) -> whether a strict request for them would have a topic refused."""


@dataclass(slots=True, eq=False)
class Topic:
    """One topic of a request."""

    entry: object
    """What the request says about it."""
    name: str | None
    cost: int
    """Partitions charged when it is admitted. 0: it is sure to fail."""
    topic_id: UUID = ZERO_UUID
    assumed: bool = False
    """The cost is a guess until the topic is there."""
    late_cost: int = 1
    """What is charged if it succeeds though it was sure to fail."""
    charged_errors: frozenset[int] = frozenset()
    """Errors that cost all the same."""
    invalid: str | None = None
    """Why it is told INVALID_REQUEST and not forwarded: brokers differ in what they make of it."""


class Result(Protocol):
    """What an answer says about one topic."""

    @property
    def name(self) -> str | None:
        """The topic's; None where the client may not see it."""

    @property
    def error_code(self) -> int:
        """What became of it."""


class Mutation(ABC, Generic[Q]):
    """One request, and how to take it apart."""

    answer: ClassVar[type[Answer]]

    def __init__(self, request: Q, context: Context) -> None:
        """Take a decoded request, and who asks."""
        self.request = request
        self.context = context

    @abstractmethod
    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[Topic]]:
        """Its topics in order, with their costs."""

    def part(self, topics: Sequence[Topic]) -> Q:
        """The same request for some of its topics."""
        return replace(self.request, topics=[topic.entry for topic in topics], unknown_tagged_fields=())

    @abstractmethod
    def results(self, answer: Answer) -> Sequence[Result]:
        """What an answer says, topic by topic."""

    @abstractmethod
    def failed(self, topic: Topic, error: ErrorCode, text: str | None = None) -> Result:
        """What a topic is told when Weir answers for it."""

    @abstractmethod
    def merged(self, results: Iterable[Result]) -> Answer:
        """An answer of results from several."""

    def finder(self, results: Sequence[Result]) -> Finder:
        """What finds the result that is about a topic."""
        by_name = {result.name: result for result in reversed(results)}
        return lambda topic: by_name.get(topic.name)

    def done(self, topic: Topic, result: Result) -> None:
        """Learn that a topic's mutation has happened."""
        partitions, topic_id = self.left(topic, result)
        cluster = self.context.cluster
        if topic.name and partitions is not None:
            cluster.recent_topics.learn(topic.name, partitions, topic_id, self.context.now_ms)
            if not partitions:
                cluster.harmless_requests.forget()

    @abstractmethod
    def left(self, topic: Topic, result: Result) -> tuple[int | None, UUID]:
        """How many partitions a topic has after its mutation (None: not known), and its id if known."""


class Creation(Mutation[CreateTopicsRequest]):
    """CreateTopics: a topic costs its partitions, not times its replicas."""

    answer = CreateTopicsResponse

    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[Topic]]:
        """Only if there may be no room for all is it looked which exist already."""
        entries = self.request.topics
        default = None
        if any(_partitions(entry) == _DEFAULT for entry in entries):
            default = yield from topic_queries.default_partitions(self.context)
        times = Counter(entry.name for entry in entries)
        topics = [_creation(entry, times[entry.name] > 1, default) for entry in entries]
        if strict and would_refuse([topic.cost for topic in topics], self.context.now_ms):
            there = yield from topic_queries.topics(self.context, list(times))
            for topic, entry in zip(topics, entries, strict=True):
                if entry.name in there.by_name or not _can_be_placed(entry, there.broker_ids):
                    topic.cost = 0
        return sorted(topics, key=lambda topic: times[topic.name or ""] > 1)  # a broker answers them last

    def results(self, answer: Answer) -> Sequence[Result]:
        """What an answer says, topic by topic."""
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics

    def failed(self, topic: Topic, error: ErrorCode, text: str | None = None) -> Result:
        """What a topic is told when Weir answers for it."""
        told = CreateTopicsResponse.CreatableTopicResult
        return told(name=topic.name or "", error_code=error, error_message=text)

    def left(self, topic: Topic, result: Result) -> tuple[int | None, UUID]:
        """As many as it costs, or as the answer tells (v5); it did not come by being asked for."""
        assert isinstance(result, CreateTopicsResponse.CreatableTopicResult)
        if self.request.validate_only:
            return None, ZERO_UUID
        self.context.cluster.pending_creations.created(result.name)
        guess = None if topic.assumed else topic.late_cost
        return (result.num_partitions if result.num_partitions > 0 else guess), result.topic_id

    def merged(self, results: Iterable[Result]) -> CreateTopicsResponse:
        """An answer of results from several."""
        return CreateTopicsResponse(topics=list(results))  # type: ignore[arg-type]  # all from such answers


_DEFAULT: Final = -1
"""Says that the broker's default is wanted."""
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def _partitions(entry: CreateTopicsRequest.CreatableTopic) -> int:
    return len(entry.assignments) or entry.num_partitions


def _creation(entry: CreateTopicsRequest.CreatableTopic, repeated: bool, default: int | None) -> Topic:
    partitions = _partitions(entry)
    assumed = partitions == _DEFAULT and default is None
    if partitions == _DEFAULT:
        partitions = default or 1
    cost = 0 if repeated or not _can_be_created(entry) else partitions
    return Topic(entry, entry.name, cost, assumed=assumed, late_cost=max(partitions, 1))


def _can_be_created(entry: CreateTopicsRequest.CreatableTopic) -> bool:
    """Whether nothing in the request itself makes a broker refuse the topic."""
    asked = (entry.num_partitions, entry.replication_factor)
    if entry.assignments:
        numbers = asked == (_DEFAULT, _DEFAULT)
    else:
        numbers = all(number == _DEFAULT or number > 0 for number in asked)
    return numbers and _NAME.fullmatch(entry.name) is not None


def _can_be_placed(entry: CreateTopicsRequest.CreatableTopic, brokers: set[int]) -> bool:
    """Whether there are the brokers that the topic wants."""
    wanted = {broker_id for assignment in entry.assignments for broker_id in assignment.broker_ids}
    return wanted <= brokers and entry.replication_factor <= len(brokers)


class Growth(Mutation[CreatePartitionsRequest]):
    """CreatePartitions: a topic costs the partitions that it gets."""

    answer = CreatePartitionsResponse

    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[Topic]]:  # noqa: ARG002 - costs are never known without looking
        """How many partitions a topic has, only the broker knows."""
        entries = self.request.topics
        times = Counter(entry.name for entry in entries)
        there = yield from topic_queries.topics(self.context, list(times))
        topics = [_growth(entry, times[entry.name] > 1, there) for entry in entries]
        return sorted(topics, key=lambda topic: times[topic.name or ""] == 1)  # a broker answers these first

    def results(self, answer: Answer) -> Sequence[Result]:
        """What an answer says, topic by topic."""
        assert isinstance(answer, CreatePartitionsResponse)
        return answer.results

    def failed(self, topic: Topic, error: ErrorCode, text: str | None = None) -> Result:
        """What a topic is told when Weir answers for it."""
        told = CreatePartitionsResponse.CreatePartitionsTopicResult
        return told(name=topic.name or "", error_code=error, error_message=text)

    def left(self, topic: Topic, result: Result) -> tuple[int | None, UUID]:  # noqa: ARG002 - the answer does not tell
        """As many as were asked for."""
        assert isinstance(topic.entry, CreatePartitionsRequest.CreatePartitionsTopic)
        return (None if self.request.validate_only else topic.entry.count), topic.topic_id

    def merged(self, results: Iterable[Result]) -> CreatePartitionsResponse:
        """An answer of results from several."""
        return CreatePartitionsResponse(results=list(results))  # type: ignore[arg-type]  # all from such answers


def _growth(
    entry: CreatePartitionsRequest.CreatePartitionsTopic, repeated: bool, there: topic_queries.Topics
) -> Topic:
    known = there.by_name.get(entry.name)
    added = entry.count - known.partitions if known is not None else 0
    unlike = entry.assignments is not None and len(entry.assignments) != added
    cost = 0 if repeated or unlike else max(added, 0)
    late_cost = max(added if known is not None else entry.count - 1, 1)  # metadata lag: it has one at least
    charged = {ErrorCode.INVALID_REPLICA_ASSIGNMENT} if entry.assignments is not None and cost else ()
    topic_id = ZERO_UUID if known is None else known.topic_id
    return Topic(entry, entry.name, cost, topic_id, late_cost=late_cost, charged_errors=frozenset(charged))


class Deletion(Mutation[DeleteTopicsRequest]):
    """DeleteTopics: a topic costs its partitions, whether it is named or given by its id (v6)."""

    answer = DeleteTopicsResponse

    def topics(self, *, strict: bool, would_refuse: WouldRefuse) -> Asking[list[Topic]]:  # noqa: ARG002 - costs are never known without looking
        """How many partitions a topic has, only the broker knows."""
        state = DeleteTopicsRequest.DeleteTopicState
        named = [state(name=name) for name in self.request.topic_names]
        entries = self.request.topics or named
        names = {entry.name for entry in entries if entry.name is not None}
        ids = {entry.topic_id for entry in entries if entry.name is None}
        there = yield from topic_queries.topics(self.context, names, ids)
        topics: dict[object, Topic] = {}
        for entry in entries:
            topic = _deletion(entry, there)
            told = topic if topic.invalid else topic.name or topic.topic_id
            if told in topics:  # be it once by name and once by id
                topics[told].invalid = _TWICE
            else:
                topics[told] = topic
        return list(topics.values())

    def part(self, topics: Sequence[Topic]) -> DeleteTopicsRequest:
        """The same request for some of its topics."""
        if self.request.topics:
            return super().part(topics)
        names = [topic.name or "" for topic in topics]
        return replace(self.request, topic_names=names, unknown_tagged_fields=())

    def results(self, answer: Answer) -> Sequence[Result]:
        """What an answer says, topic by topic."""
        assert isinstance(answer, DeleteTopicsResponse)
        return answer.responses

    def failed(self, topic: Topic, error: ErrorCode, text: str | None = None) -> Result:
        """What a topic is told when Weir answers for it; a broker too gives both name and id."""
        told = DeleteTopicsResponse.DeletableTopicResult
        return told(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=text)

    def left(self, topic: Topic, result: Result) -> tuple[int | None, UUID]:  # noqa: ARG002 - it is gone
        """None. If it had come by being asked for, that is still to be paid for."""
        missed = self.context.cluster.pending_creations.created(topic.name or "")
        if missed is not None:
            charge = missed.ledger.begin_late()
            charge.charge(max(topic.cost, topic.late_cost) - missed.paid, self.context.now_ms)
            charge.finish(self.context.now_ms)
        return 0, topic.topic_id

    def merged(self, results: Iterable[Result]) -> DeleteTopicsResponse:
        """An answer of results from several."""
        return DeleteTopicsResponse(responses=list(results))  # type: ignore[arg-type]  # all from such answers

    def finder(self, results: Sequence[Result]) -> Finder:
        """By name, or by id: a broker does not name what the client may not see."""
        by_name = super().finder([result for result in results if result.name is not None])
        by_id = {
            result.topic_id: result
            for result in results
            if isinstance(result, DeleteTopicsResponse.DeletableTopicResult) and result.topic_id != ZERO_UUID
        }
        return lambda topic: by_id.get(topic.topic_id) or by_name(topic)


_TWICE: Final = "The request names the topic more than once."
_NOT_ONE: Final = "The request gives not one of name and id."


def _deletion(entry: DeleteTopicsRequest.DeleteTopicState, there: topic_queries.Topics) -> Topic:
    if (entry.name is None) == (entry.topic_id == ZERO_UUID):
        return Topic(entry, entry.name, 0, topic_id=entry.topic_id, invalid=_NOT_ONE)
    found = there.by_id.get(entry.topic_id) if entry.name is None else there.by_name.get(entry.name)
    if found is None:
        return Topic(entry, entry.name, 0, topic_id=entry.topic_id)
    return Topic(entry, found.name, found.partitions, topic_id=found.topic_id)
