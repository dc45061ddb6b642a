"""A broker that is also its cluster's controller, without sockets and without a clock of its own.

It answers ApiVersions, Metadata, DescribeConfigs and the three mutations as a KRaft controller of Kafka 3.9
does, or as an older broker where a switch says so: a topic's own errors first, and free; then, if it has been
given a bucket, the quota of KIP-599. With one it is the model that Weir is compared with, without one the
broker behind Weir.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tests.proxy.wire import Wire
from tests.wire.frames import head_of, request_body_of, response, split
from weir.protocol.api import ApiKey, versions
from weir.protocol.codec import request_type
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.protocol.versions import VersionRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weir.protocol.messages import Message
    from weir.proxy.connection.connection import Connection

OK, UNKNOWN_TOPIC, TIMED_OUT, INVALID_TOPIC = 0, 3, 7, 17
EXISTS, PARTITIONS, REPLICATION_FACTOR, ASSIGNMENT, CONFIG = 36, 37, 38, 39, 40
NOT_CONTROLLER, INVALID_REQUEST, THROTTLED, UNKNOWN_TOPIC_ID = 41, 42, 89, 100

NO_ID: Final = UUID(int=0)
NODE: Final = 1
PARTITIONS_MAX: Final = 10_000
"""What a controller makes at once."""
_LEGAL: Final = re.compile(r"[-._a-zA-Z0-9]{1,249}")
_STRICT_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}


def everything() -> dict[int, VersionRange]:
    """The versions that Weir knows, of what this broker can answer."""
    answered = (
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.HEARTBEAT,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
    )
    return {int(key): known for key in answered if (known := versions(key)) is not None}


@dataclass
class Bucket:
    """KIP-599's token bucket: full at first; a violation is a balance below zero."""

    rate: float
    burst: float
    tokens: float = 0.0
    last_ms: int | None = None

    def balance(self, now_ms: int) -> float:
        """What is there now."""
        if self.last_ms is None:
            self.tokens = self.burst
        else:
            self.tokens = min(self.burst, self.tokens + self.rate * ((now_ms - self.last_ms) / 1000))
        self.last_ms = now_ms
        return self.tokens

    def wait_ms(self) -> int:
        """From the last reading until the balance is zero; 0 if it is not below."""
        return max(0, int(-self.tokens / self.rate * 1000 + 0.5))


@dataclass
class _Quota:
    """One request under the quota; of no bucket, everything is admitted."""

    bucket: Bucket | None
    strict: bool
    now_ms: int
    throttle_ms: int = 0

    def admits(self, cost: int) -> bool:
        bucket = self.bucket
        if bucket is None:
            return True
        if self.strict and bucket.balance(self.now_ms) < 0:
            self.throttle_ms = bucket.wait_ms()
            return False
        bucket.balance(self.now_ms)
        bucket.tokens -= cost
        if not self.strict and bucket.tokens < 0:
            self.throttle_ms = bucket.wait_ms()
        return True


@dataclass
class Topic:
    """A topic that exists."""

    partitions: int
    topic_id: UUID


@dataclass
class Controller:
    """What it has, how it is set up, and what it was asked."""

    spoken: Mapping[int, VersionRange] = field(default_factory=everything)
    topics: dict[str, Topic] = field(default_factory=dict)
    bucket: Bucket | None = None
    num_partitions: int = 3
    brokers: int = 1
    creates: bool = True
    """Whether topics come into being by being asked for (auto.create.topics.enable)."""
    creation_takes: int = 0
    """How many more requests are answered before such a topic is seen."""
    tells_configs: bool = True
    controller: bool = True
    timed_out: set[str] = field(default_factory=set)
    """Topics whose creation is answered with REQUEST_TIMED_OUT, though it happens."""
    zookeeper: bool = False
    """Deletes a topic that is named twice, once; before KRaft."""
    lag: set[str] = field(default_factory=set)
    """Topics that Metadata does not show yet."""
    throttle_ms: int = 0
    """The broker's own throttle time, in all its mutation responses."""
    asked: list[tuple[Message, int]] = field(default_factory=list)
    """Each request, and its version."""
    now_ms: int = 0
    _coming: dict[str, int] = field(default_factory=dict)
    _made: int = 0

    def add(self, name: str, partitions: int) -> Topic:
        """Have a topic."""
        self._made += 1
        self.topics[name] = Topic(partitions, UUID(int=1000 + self._made))
        return self.topics[name]

    def sizes(self) -> dict[str, int]:
        """Topics and their partitions."""
        return {name: topic.partitions for name, topic in self.topics.items()}

    def asked_of(self, kind: type[Message]) -> list[int]:
        """The versions in which this was asked, in order."""
        return [version for message, version in self.asked if isinstance(message, kind)]

    def answer(self, frame: bytes) -> bytes:
        """The response to a request's frame."""
        head = head_of(frame)
        spoken = self.spoken.get(head.api_key)
        if spoken is None or head.version not in spoken:
            assert head.api_key == ApiKey.API_VERSIONS, f"the broker does not speak {head}"
            refusal = ApiVersionsResponse(error_code=35, api_keys=[])
            return response(refusal, 0, head.correlation_id)
        message = request_body_of(frame, request_type(head.api_key), head.version)
        self.asked.append((message, head.version))
        self._let_topics_come()
        return response(self._answered(message, head.version), head.version, head.correlation_id)

    def _answered(self, message: Message, version: int) -> Message:
        match message:
            case ApiVersionsRequest():
                entry = ApiVersionsResponse.ApiVersion
                return ApiVersionsResponse(
                    api_keys=[
                        entry(api_key=key, min_version=one.min, max_version=one.max)
                        for key, one in self.spoken.items()
                    ]
                )
            case MetadataRequest():
                return self._metadata(message, version)
            case DescribeConfigsRequest():
                return self._configs(message)
            case CreateTopicsRequest():
                return self._create(message, self._quota(ApiKey.CREATE_TOPICS, version), version)
            case CreatePartitionsRequest():
                return self._grow(message, self._quota(ApiKey.CREATE_PARTITIONS, version))
            case DeleteTopicsRequest():
                return self._delete(message, self._quota(ApiKey.DELETE_TOPICS, version))
            case HeartbeatRequest():
                return HeartbeatResponse()
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=NODE, host="kafka", port=9092)
        raise AssertionError(f"not scripted: {message}")

    def _quota(self, api_key: ApiKey, version: int) -> _Quota:
        return _Quota(self.bucket, version >= _STRICT_FROM[api_key], self.now_ms)

    # Metadata, configs

    def _let_topics_come(self) -> None:
        for name in [name for name, left in self._coming.items() if not left]:
            del self._coming[name]
            self.topics.get(name) or self.add(name, self.num_partitions)
        self._coming = {name: left - 1 for name, left in self._coming.items()}

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        broker = MetadataResponse.MetadataResponseBroker
        brokers = [broker(node_id=NODE + n, host="kafka", port=9092 + n) for n in range(self.brokers)]
        return MetadataResponse(brokers=brokers, topics=self._described(request, version))

    def _described(
        self, request: MetadataRequest, version: int
    ) -> list[MetadataResponse.MetadataResponseTopic]:
        wanted = request.topics
        if wanted is None or (version == 0 and not wanted):
            return [self._topic(name) for name in self.topics if name not in self.lag]
        ids = [topic.topic_id for topic in wanted if topic.topic_id != NO_ID]
        if ids:  # then names are not looked at
            assert version >= 12
            return [self._topic_by_id(topic_id) for topic_id in ids]
        failed = MetadataResponse.MetadataResponseTopic
        if any(topic.name is None for topic in wanted):  # neither a name nor an id: none is answered
            return [failed(error_code=-1, name=topic.name or "") for topic in wanted]
        names = dict.fromkeys(topic.name or "" for topic in wanted)
        return [self._named(name, create=request.allow_auto_topic_creation) for name in names]

    def _named(self, name: str, *, create: bool) -> MetadataResponse.MetadataResponseTopic:
        if name in self.topics and name not in self.lag:
            return self._topic(name)
        if not _LEGAL.fullmatch(name):
            return MetadataResponse.MetadataResponseTopic(error_code=INVALID_TOPIC, name=name)
        if create and self.creates and not (self.bucket and self.bucket.balance(self.now_ms) < 0):
            self._coming.setdefault(name, self.creation_takes)
        return MetadataResponse.MetadataResponseTopic(error_code=UNKNOWN_TOPIC, name=name)

    def _topic_by_id(self, topic_id: UUID) -> MetadataResponse.MetadataResponseTopic:
        for name, topic in self.topics.items():
            if topic.topic_id == topic_id and name not in self.lag:
                return self._topic(name)
        return MetadataResponse.MetadataResponseTopic(
            error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )

    def _topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        topic = self.topics[name]
        partition = MetadataResponse.MetadataResponsePartition
        return MetadataResponse.MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            partitions=[
                partition(partition_index=index, leader_id=NODE) for index in range(topic.partitions)
            ],
        )

    def _configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        (resource,) = request.resources
        assert resource.resource_name == str(NODE)
        told = DescribeConfigsResponse.DescribeConfigsResult
        if not self.tells_configs:
            refused = told(error_code=29, resource_type=4, resource_name=resource.resource_name)
            return DescribeConfigsResponse(results=[refused])
        config = DescribeConfigsResponse.DescribeConfigsResourceResult(
            name="num.partitions", value=str(self.num_partitions)
        )
        found = told(resource_type=4, resource_name=resource.resource_name, configs=[config])
        return DescribeConfigsResponse(results=[found])

    # Mutations

    def _create(self, request: CreateTopicsRequest, quota: _Quota, version: int) -> CreateTopicsResponse:
        times = Counter(topic.name for topic in request.topics)
        done, repeated = [], []
        for topic in request.topics:
            if times[topic.name] > 1:
                repeated += [topic.name] if topic.name not in repeated else []
                continue
            cost = len(topic.assignments) or topic.num_partitions
            cost = self.num_partitions if cost == -1 else cost
            code = self._creation_error(topic)
            if not code:
                code = OK if quota.admits(cost) else THROTTLED
            if not code and not request.validate_only:
                self.add(topic.name, cost)
                code = TIMED_OUT if topic.name in self.timed_out else OK
            size = cost if version >= 5 and not code else -1
            done.append((topic.name, code, size))
        done += [(name, INVALID_REQUEST, -1) for name in repeated]
        result = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(
            throttle_time_ms=max(quota.throttle_ms, self.throttle_ms),
            topics=[result(name=name, error_code=code, num_partitions=size) for name, code, size in done],
        )

    def _creation_error(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        manual = [each.broker_ids for each in topic.assignments]
        counts = (topic.num_partitions, topic.replication_factor)
        if not self.controller:
            return NOT_CONTROLLER
        if topic.name in {".", ".."} or not _LEGAL.fullmatch(topic.name):
            return INVALID_TOPIC
        if topic.name in self.topics:
            return EXISTS
        if manual:
            if counts != (-1, -1):
                return INVALID_REQUEST
            return OK if all(ids == [NODE] for ids in manual) else ASSIGNMENT
        if counts[0] == 0 or counts[0] < -1 or counts[0] > PARTITIONS_MAX:
            return PARTITIONS
        if counts[1] == 0 or counts[1] < -1 or counts[1] > self.brokers:
            return REPLICATION_FACTOR
        return CONFIG if topic.configs else OK

    def _grow(self, request: CreatePartitionsRequest, quota: _Quota) -> CreatePartitionsResponse:
        times = Counter(topic.name for topic in request.topics)
        done, repeated = [], []
        for topic in request.topics:
            if times[topic.name] > 1:
                repeated += [topic.name] if topic.name not in repeated else []
                continue
            code = self._growth_error(topic)
            if not code:
                added = topic.count - self.topics[topic.name].partitions
                code = OK if quota.admits(added) else THROTTLED
                strangers = [each for each in topic.assignments or () if each.broker_ids != [NODE]]
                code = ASSIGNMENT if not code and strangers else code
            if not code and not request.validate_only:
                self.topics[topic.name].partitions = topic.count
            done.append((topic.name, code))
        result = CreatePartitionsResponse.CreatePartitionsTopicResult
        done = [(name, INVALID_REQUEST) for name in repeated] + done
        return CreatePartitionsResponse(
            throttle_time_ms=max(quota.throttle_ms, self.throttle_ms),
            results=[result(name=name, error_code=code) for name, code in done],
        )

    def _growth_error(self, topic: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
        if not self.controller:
            return NOT_CONTROLLER
        if topic.name not in self.topics:
            return UNKNOWN_TOPIC
        added = topic.count - self.topics[topic.name].partitions
        if added <= 0 or added > PARTITIONS_MAX:
            return PARTITIONS
        if topic.assignments is not None and len(topic.assignments) != added:
            return ASSIGNMENT
        return OK

    def _delete(self, request: DeleteTopicsRequest, quota: _Quota) -> DeleteTopicsResponse:
        state = DeleteTopicsRequest.DeleteTopicState
        entries = request.topics or [state(name=name) for name in request.topic_names]
        ids = {topic.topic_id: name for name, topic in self.topics.items()}
        names = [ids.get(one.topic_id) if one.name is None else one.name for one in entries]
        keys = [entry.topic_id if name is None else name for entry, name in zip(entries, names, strict=True)]
        times = Counter(keys)
        results = []
        for entry, name, key in zip(entries, names, keys, strict=True):
            code = self._deletion_error(entry, name, repeated=times[key] > 1)
            topic_id = self.topics[name].topic_id if name in self.topics else entry.topic_id
            if not code and name in self.topics:
                code = OK if quota.admits(self.topics[name].partitions) else THROTTLED
                if not code:
                    del self.topics[name]
            result = DeleteTopicsResponse.DeletableTopicResult
            results.append(result(name=name, topic_id=topic_id, error_code=code))
        return DeleteTopicsResponse(
            throttle_time_ms=max(quota.throttle_ms, self.throttle_ms), responses=results
        )

    def _deletion_error(
        self, entry: DeleteTopicsRequest.DeleteTopicState, name: str | None, *, repeated: bool
    ) -> int:
        if not self.controller:
            return NOT_CONTROLLER
        if entry.name is not None and entry.topic_id != NO_ID:
            return INVALID_REQUEST
        if entry.name is None and entry.topic_id == NO_ID:
            return INVALID_REQUEST
        if repeated:
            return OK if self.zookeeper else INVALID_REQUEST
        if name is None:
            return UNKNOWN_TOPIC_ID
        return OK if name in self.topics else UNKNOWN_TOPIC


class ControllerClient:
    """A client's connection through Weir to a controller, which answers at once."""

    def __init__(self, session: Connection, controller: Controller) -> None:
        self.session = session
        self.controller = controller
        self.wire = Wire(session)

    def send(self, now_ms: int, *frames: bytes) -> list[bytes]:
        """Send requests; return the responses' frames that come of it."""
        self.controller.now_ms = now_ms
        self.wire.feed(now_ms, client=b"".join(frames))
        while self.wire.to_broker:
            asked = split(bytes(self.wire.to_broker))
            self.wire.to_broker.clear()
            for frame in asked:
                self.wire.feed(now_ms, broker=self.controller.answer(frame))
        assert self.session.violation is None, self.session.violation
        told = split(bytes(self.wire.to_client))
        self.wire.to_client.clear()
        return told


def names_of(messages: Sequence[tuple[Message, int]]) -> list[str]:
    """What was asked, in words: "Metadata v12"."""
    return [f"{type(message).__name__.removesuffix('Request')} v{version}" for message, version in messages]
