"""A cluster's controller, which creates, grows and deletes topics.

It does so as a KRaft controller of Kafka 3.9, or as an older one where a switch says so: a topic's own errors
first, and free; then, if it has a bucket, the quota of KIP-599. With a bucket it is the model that Weir is
compared with, without one the broker behind Weir.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.kfake.cluster import NO_ID, Answer, Cluster, Handler
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    Message,
)
from weir.proxy.addresses import Address

OK, UNKNOWN_TOPIC, TIMED_OUT, INVALID_TOPIC = 0, 3, 7, 17
EXISTS, PARTITIONS, REPLICATION_FACTOR, ASSIGNMENT, CONFIG = 36, 37, 38, 39, 40
NOT_CONTROLLER, INVALID_REQUEST, POLICY, THROTTLED, UNKNOWN_TOPIC_ID = 41, 42, 44, 89, 100

NODE: Final = 1
PARTITIONS_MAX: Final = 10_000
"""What a controller makes at once."""
_LEGAL: Final = re.compile(r"[-._a-zA-Z0-9]{1,249}")
_STRICT_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}


@dataclass
class Bucket:
    """KIP-599's token bucket: full at first; a violation is a balance below zero."""

    rate: float
    burst: float
    tokens: float = 0.0
    last_ms: int | None = None

    def balance(self, now_ms: int) -> float:
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


@dataclass(frozen=True)
class Policy:
    """A CreateTopicPolicy (KIP-108) that limits what exists with a prefix; also asked about growth."""

    prefix: str
    topics_max: int
    partitions_max: int


class _Admitted:
    """What a policy has admitted in one request, beside what exists."""

    def __init__(self, policy: Policy | None, sizes: dict[str, int]) -> None:
        self._policy = policy
        self._sizes = sizes

    def code(self, name: str, size: int) -> int:
        policy = self._policy
        if policy is None or not name.startswith(policy.prefix):
            return OK
        after = self._sizes | {name: size}
        its = [size for name, size in after.items() if name.startswith(policy.prefix)]
        grows = name not in self._sizes
        if (grows and len(its) > policy.topics_max) or sum(its) > policy.partitions_max:
            return POLICY
        self._sizes = after
        return OK


@dataclass(kw_only=True)
class Controller(Cluster):
    """One broker, with node id 1, that is the controller."""

    nodes: dict[int, Address] = field(default_factory=lambda: {NODE: Address("kafka", 9092)})
    bucket: Bucket | None = None
    policy: Policy | None = None
    num_partitions: int = 3
    creates: bool = True
    """Whether topics come into being by being asked for (auto.create.topics.enable)."""
    creation_takes: int = 0
    """How many more requests are answered before such a topic is seen."""
    tells_configs: bool = True
    accepts_configs: bool = False
    """Whether topics may have configurations; it knows none."""
    controller: bool = True
    fenced: int = 0
    """How many further brokers are registered, which Metadata does not show, and which may have replicas."""
    timed_out: set[str] = field(default_factory=set)
    """Topics whose creation is answered with REQUEST_TIMED_OUT, though it happens."""
    zookeeper: bool = False
    """Deletes a topic that is named twice, once; before KRaft."""
    throttle_ms: int = 0
    """The broker's own throttle time, in all its mutation responses."""
    coming: dict[str, int] = field(default_factory=dict)
    """Topics asked for, and the number of requests until they exist."""

    def __post_init__(self) -> None:
        known: dict[int, Handler | Message] = {
            ApiKey.CREATE_TOPICS: self.create,
            ApiKey.CREATE_PARTITIONS: self.grow,
            ApiKey.DELETE_TOPICS: self.delete,
            ApiKey.DESCRIBE_CONFIGS: self.describe,
        }
        self.handlers = known | self.handlers
        super().__post_init__()

    def answer(self, frame: bytes, now_ms: int | None = None, node_id: int = NODE) -> bytes:
        """See Cluster. Topics come into being before the answer."""
        for name in [name for name, left in self.coming.items() if not left]:
            del self.coming[name]
            self.topics.get(name) or self.add(name, self.num_partitions)
        self.coming = {name: left - 1 for name, left in self.coming.items()}
        return super().answer(frame, now_ms, node_id)

    def missing(self, name: str, *, create: bool) -> int:
        """The error code of a topic that does not exist, and may come into being."""
        if not _LEGAL.fullmatch(name):
            return INVALID_TOPIC
        if create and self.creates and not (self.bucket and self.bucket.balance(self.now_ms) < 0):
            self.coming.setdefault(name, self.creation_takes)
        return UNKNOWN_TOPIC

    def describe(self, request: DescribeConfigsRequest, _version: int, _now_ms: int) -> Answer:
        (resource,) = request.resources
        assert resource.resource_name == str(NODE)
        told = DescribeConfigsResponse.DescribeConfigsResult
        result = told(resource_type=4, resource_name=resource.resource_name)
        if self.tells_configs:
            config = DescribeConfigsResponse.DescribeConfigsResourceResult
            told_now = {"num.partitions": self.num_partitions, "auto.create.topics.enable": self.creates}
            result.configs = [config(name=key, value=str(value).lower()) for key, value in told_now.items()]
        else:
            result.error_code = 29
        return DescribeConfigsResponse(results=[result])

    def _quota(self, api_key: ApiKey, version: int) -> _Quota:
        return _Quota(self.bucket, version >= _STRICT_FROM[api_key], self.now_ms)

    def create(self, request: CreateTopicsRequest, version: int, _now_ms: int) -> Answer:
        quota = self._quota(ApiKey.CREATE_TOPICS, version)
        admitted = _Admitted(self.policy, self.sizes())
        times = Counter(topic.name for topic in request.topics)
        done, repeated = [], []
        for topic in request.topics:
            if times[topic.name] > 1:
                repeated += [topic.name] if topic.name not in repeated else []
                continue
            cost = len(topic.assignments) or topic.num_partitions
            cost = self.num_partitions if cost == -1 else cost
            code = self._creation_error(topic) or admitted.code(topic.name, cost)
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
            return OK if all(ids == [self.leader] for ids in manual) else ASSIGNMENT
        if counts[0] == 0 or counts[0] < -1 or counts[0] > PARTITIONS_MAX:
            return PARTITIONS
        if counts[1] == 0 or counts[1] < -1 or counts[1] > len(self.nodes) + self.fenced:
            return REPLICATION_FACTOR
        return CONFIG if topic.configs and not self.accepts_configs else OK

    def grow(self, request: CreatePartitionsRequest, version: int, _now_ms: int) -> Answer:
        quota = self._quota(ApiKey.CREATE_PARTITIONS, version)
        admitted = _Admitted(self.policy, self.sizes())
        times = Counter(topic.name for topic in request.topics)
        done, repeated = [], []
        for topic in request.topics:
            if times[topic.name] > 1:
                repeated += [topic.name] if topic.name not in repeated else []
                continue
            code = self._growth_error(topic) or admitted.code(topic.name, topic.count)
            if not code:
                added = topic.count - self.topics[topic.name].partitions
                code = OK if quota.admits(added) else THROTTLED
                strangers = [each for each in topic.assignments or () if each.broker_ids != [self.leader]]
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

    def delete(self, request: DeleteTopicsRequest, version: int, _now_ms: int) -> Answer:
        quota = self._quota(ApiKey.DELETE_TOPICS, version)
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
