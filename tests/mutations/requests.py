"""CreateTopics, CreatePartitions and DeleteTopics in every version, and one shape for what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tests.wire import frames
from weir.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

TIMEOUT_MS: Final = 30_000
NO_ID: Final = UUID(int=0)
DELETE_BY_ID: Final = 6
"""The version of DeleteTopics from which on topics may be named by id."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one topic. Fields that the version lacks are at their defaults."""

    name: str | None
    error_code: int
    error_message: str | None = None
    topic_id: UUID = NO_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: int | None = None
    """How many there are; None: no list."""
    topic_config_error_code: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    throttle_ms: int
    results: tuple[Result, ...]

    @property
    def error_codes(self) -> tuple[int, ...]:
        return tuple(result.error_code for result in self.results)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic to create; `assignments` (one list of node ids per partition) replaces the two counts."""

    name: str
    partitions: int = 1
    replicas: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Create:
    topics: tuple[Topic, ...]
    version: int = 7
    validate_only: bool = False

    def frame(self, client_id: str) -> bytes:
        body = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in self.topics],
            timeout_ms=TIMEOUT_MS,
            validate_only=self.validate_only,
        )
        return frames.request(body, self.version, client_id=client_id.encode())

    def answer(self, frame: bytes) -> Answer:
        response = frames.body_of(frame, CreateTopicsResponse, self.version)
        return Answer(response.throttle_time_ms, tuple(map(_created, response.topics)))


def _creatable(topic: Topic) -> CreateTopicsRequest.CreatableTopic:
    manual = bool(topic.assignments)
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if manual else topic.partitions,
        replication_factor=-1 if manual else topic.replicas,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in enumerate(topic.assignments)
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in topic.configs.items()
        ],
    )


def _created(result: CreateTopicsResponse.CreatableTopicResult) -> Result:
    return Result(
        result.name,
        result.error_code,
        result.error_message,
        result.topic_id,
        result.num_partitions,
        result.replication_factor,
        None if result.configs is None else len(result.configs),
        result.topic_config_error_code,
    )


@dataclass(frozen=True, slots=True)
class Grow:
    """CreatePartitions of one or more topics: name to new count."""

    counts: tuple[tuple[str, int], ...]
    version: int = 3
    validate_only: bool = False
    assignments: Sequence[Sequence[int]] | None = None
    """Of the new partitions, for each topic alike."""

    def frame(self, client_id: str) -> bytes:
        body = CreatePartitionsRequest(
            topics=[self._topic(name, count) for name, count in self.counts],
            timeout_ms=TIMEOUT_MS,
            validate_only=self.validate_only,
        )
        return frames.request(body, self.version, client_id=client_id.encode())

    def _topic(self, name: str, count: int) -> CreatePartitionsRequest.CreatePartitionsTopic:
        manual = self.assignments
        made = CreatePartitionsRequest.CreatePartitionsAssignment
        assignments = None if manual is None else [made(broker_ids=list(ids)) for ids in manual]
        return CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=assignments)

    def answer(self, frame: bytes) -> Answer:
        response = frames.body_of(frame, CreatePartitionsResponse, self.version)
        results = (Result(one.name, one.error_code, one.error_message) for one in response.results)
        return Answer(response.throttle_time_ms, tuple(results))


@dataclass(frozen=True, slots=True)
class Delete:
    """DeleteTopics by name, or (from version 6 on) by id."""

    topics: tuple[str | UUID, ...]
    version: int = 6

    def frame(self, client_id: str) -> bytes:
        body = DeleteTopicsRequest(
            topics=[_deletable(topic) for topic in self.topics] if self.version >= DELETE_BY_ID else [],
            topic_names=[str(topic) for topic in self.topics] if self.version < DELETE_BY_ID else [],
            timeout_ms=TIMEOUT_MS,
        )
        return frames.request(body, self.version, client_id=client_id.encode())

    def answer(self, frame: bytes) -> Answer:
        response = frames.body_of(frame, DeleteTopicsResponse, self.version)
        results = (
            Result(one.name, one.error_code, one.error_message, one.topic_id) for one in response.responses
        )
        return Answer(response.throttle_time_ms, tuple(results))


def _deletable(topic: str | UUID) -> DeleteTopicsRequest.DeleteTopicState:
    state = DeleteTopicsRequest.DeleteTopicState
    return state(name=topic) if isinstance(topic, str) else state(name=None, topic_id=topic)


Mutation = Create | Grow | Delete
