"""The run's own topic: created before the cases, removed after them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.probe.judging import named
from weir.conformance.probe.link import (
    ClosedError,
    ConversationError,
    ProbeTarget,
    UnreadableError,
    same_host,
)
from weir.conformance.probe.login import Login, connect
from weir.conformance.probe.requests.names import Names
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.api import versions as known_versions
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weir.protocol.values import Message
    from weir.protocol.versions import VersionRange

PARTITIONS: Final = 2
READY_S: Final = 60.0
"""Time (s) for which the probe waits until the topic has leaders, and until the coordinators are there."""
AUTOMATIC_S: Final = 10.0
"""Time (s) for which the probe waits for the topic of a target that should create it by itself."""
POLL_S: Final = 0.1
WORK_MS: Final = 20_000
_GROUP, _TRANSACTION = 0, 1
_NOT_YET: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class UnusableError(Exception):
    """Raised if the target cannot be probed. The text says why, and what to do."""


class TargetCluster:
    """The target as a client sees it: what it offers, and how to reach it."""

    def __init__(self, target: ProbeTarget, login: Login | None, offered: Mapping[int, VersionRange]) -> None:
        self.target = target
        self.login = login
        self.offered = offered
        self.notes: list[str] = []
        """Lines for the user about what was not probed."""
        self.left: list[str] = []
        """Lines for the user about what could not be removed."""

    def usable(self) -> dict[int, VersionRange]:
        """Return API key → versions that both sides have, without APIs that have none in common."""
        return {
            api_key: both
            for api_key, offered in self.offered.items()
            if (known := known_versions(api_key)) is not None and (both := known.intersect(offered))
        }

    def version(self, api_key: ApiKey, at_most: int = 32_767) -> int | None:
        """Return the highest version that both sides have; None if they have none in common."""
        known, offered = known_versions(api_key), self.offered.get(api_key)
        both = known.intersect(offered) if known is not None and offered is not None else None
        usable = [version for version in both or () if version <= at_most]
        return usable[-1] if usable else None

    def ask(
        self, message: Message, api_key: ApiKey, at_most: int = 32_767, timeout_s: float | None = None
    ) -> Message:
        """Send a request on a connection of its own; return the response. Raises ConversationError,
        UnusableError. `timeout_s`: instead of the target's.
        """
        version = self.version(api_key, at_most)
        if version is None:
            raise UnusableError(f"the target offers no usable version of {api_name(api_key)}")
        with connect(self.target, self.login) as link:
            return link.ask(message, api_key, version, timeout_s)

    def metadata(self, topic: str | None) -> MetadataResponse:
        """Return the metadata of a topic, or of all; a topic of a target without CreateTopics is created.

        Asks in lower versions, too, if a response does not decode, or the target closes the connection. A
        proxy may not decode its broker's response either. The cases then show the defect.
        """
        version = self.version(ApiKey.METADATA)
        while True:
            try:
                answer = self.ask(self._metadata_request(topic, version or 0), ApiKey.METADATA, version or 0)
            except (UnreadableError, ClosedError):
                lower = version and self.version(ApiKey.METADATA, version - 1)
                if not lower:  # version 0 cannot ask for all topics
                    raise
                version = lower
            else:
                assert isinstance(answer, MetadataResponse)
                return answer

    def _metadata_request(self, topic: str | None, version: int) -> MetadataRequest:
        wanted = None if topic is None else [MetadataRequest.MetadataRequestTopic(name=topic)]
        if wanted is None and version == 0:
            wanted = []
        creates = ApiKey.CREATE_TOPICS not in self.offered or version < 4  # older versions create always
        return MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)


@contextlib.contextmanager
def scratch(cluster: TargetCluster, names: Names) -> Iterator[Names]:
    """Create the run's topic; give its names, with ids; remove everything with these names in the end.

    Raises UnusableError, ConversationError.
    """
    try:
        yield _created(cluster, names)
    finally:
        _remove(cluster, names)


def _created(cluster: TargetCluster, names: Names) -> Names:
    """Create the topic. A target that cannot answer is probed without it: the cases show its faults."""
    try:
        return _prepared(cluster, names)
    except UnreadableError as error:
        _go_without(cluster, str(error))
        return names


def _go_without(cluster: TargetCluster, reason: str) -> None:
    cluster.notes.append(
        f"probed without the scratch topic: {reason}; cases that use a topic may show errors for its lack"
    )


def _prepared(cluster: TargetCluster, names: Names) -> Names:
    found = cluster.metadata(None if cluster.version(ApiKey.METADATA) else names.topic)
    node_id = _node_id(cluster.target, found)
    if ApiKey.CREATE_TOPICS in cluster.offered:
        _create(cluster, names, node_id)
    names = msgspec.structs.replace(names, node_id=node_id)
    for kind in (_GROUP, _TRANSACTION):
        _await_coordinator(cluster, names, kind)
    return _await_topic(cluster, names)


def _node_id(target: ProbeTarget, found: MetadataResponse) -> int:
    """Return the id of the broker that is probed: the one with the target's address, or the first."""
    brokers = sorted(found.brokers, key=lambda broker: broker.node_id)
    there = [broker for broker in brokers if broker.port == target.port]
    same = [broker for broker in there if same_host(broker.host, target.host)]
    return next((broker.node_id for broker in (*same, *brokers)), 0)


def _create(cluster: TargetCluster, names: Names, node_id: int) -> None:
    """Create the topic with its leaders at the target: other brokers would answer NOT_LEADER."""
    placed = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=[node_id])
        for number in range(PARTITIONS)
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name=names.topic, num_partitions=-1, replication_factor=-1, assignments=placed
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=WORK_MS)
    answer = at_controller(cluster, request, ApiKey.CREATE_TOPICS)
    assert isinstance(answer, CreateTopicsResponse)
    for result in answer.topics:
        if result.error_code:
            raise UnusableError(
                f"the target refuses to create the scratch topic: {named([result.error_code])}: "
                "probe with a user that may create topics"
            )


def at_controller(cluster: TargetCluster, message: Message, api_key: ApiKey) -> Message:
    """Ask the target, or the controller if the target says that it is not the controller."""
    answer = cluster.ask(message, api_key, timeout_s=READY_S)
    codes = error_codes(answer, api_key, cluster.version(api_key) or 0)
    if ErrorCode.NOT_CONTROLLER not in codes:
        return answer
    found = cluster.metadata(None)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
    if found.controller_id not in addresses:
        raise UnusableError("the target is not the controller, and does not name it: probe the controller")
    host, port = addresses[found.controller_id]
    there = msgspec.structs.replace(cluster.target, host=host, port=port)
    return TargetCluster(there, cluster.login, cluster.offered).ask(message, api_key, timeout_s=READY_S)


def _await_topic(cluster: TargetCluster, names: Names) -> Names:
    """Wait until each partition has a leader. Return the names with the topic's id."""
    automatic = ApiKey.CREATE_TOPICS not in cluster.offered
    deadline = time.monotonic() + (AUTOMATIC_S if automatic else READY_S)
    while time.monotonic() < deadline:
        for topic in cluster.metadata(names.topic).topics:
            leaders = [partition.leader_id for partition in topic.partitions if partition.leader_id >= 0]
            if topic.error_code == 0 and leaders and len(leaders) == len(topic.partitions):
                return msgspec.structs.replace(names, topic_id=topic.topic_id)
        time.sleep(POLL_S)
    if not automatic:
        raise UnusableError(f"the scratch topic {names.topic} has no leaders after {READY_S:g} s")
    _go_without(cluster, "the target offers no CreateTopics, and creates none by itself")
    return names


def _await_coordinator(cluster: TargetCluster, names: Names, kind: int) -> None:
    """Wait until the target has a coordinator: the first request creates its topic."""
    version = cluster.version(ApiKey.FIND_COORDINATOR, at_most=3)
    if version is None or (kind and not version):
        return
    request = FindCoordinatorRequest(key=names.topic, key_type=kind)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        answer = cluster.ask(request, ApiKey.FIND_COORDINATOR, at_most=3)
        assert isinstance(answer, FindCoordinatorResponse)
        if answer.error_code not in _NOT_YET:
            return
        time.sleep(POLL_S)
    cluster.notes.append(f"the target has no coordinator after {READY_S:g} s; its cases show error 15")


def _remove(cluster: TargetCluster, names: Names) -> None:
    """Remove all topics with the run's prefix. Notes failures, as the run has its results already."""
    try:
        left = _topics(cluster, names)
        if left and ApiKey.DELETE_TOPICS not in cluster.offered:
            cluster.left.append(f"the target has no DeleteTopics: remove {', '.join(left)}")
        elif left:
            _delete(cluster, left)
    except (ConversationError, UnusableError) as error:
        cluster.left.append(f"the topic {names.topic} may be left: {error}")


def _topics(cluster: TargetCluster, names: Names) -> list[str]:
    """Return the topics with the run's prefix; without a list of topics, the one that it created."""
    if cluster.version(ApiKey.METADATA) == 0:
        return [names.topic]
    try:
        found = cluster.metadata(None)
    except UnreadableError:
        return [names.topic]
    return [topic.name for topic in found.topics if topic.name and topic.name.startswith(names.prefix)]


def _delete(cluster: TargetCluster, topics: list[str]) -> None:
    states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in topics]
    modern = (cluster.version(ApiKey.DELETE_TOPICS) or 0) >= 6
    request = DeleteTopicsRequest(
        topics=states if modern else [], topic_names=[] if modern else topics, timeout_ms=WORK_MS
    )
    answer = at_controller(cluster, request, ApiKey.DELETE_TOPICS)
    assert isinstance(answer, DeleteTopicsResponse)
    for result in answer.responses:
        if result.error_code:
            cluster.left.append(f"the topic {result.name} is left: {named([result.error_code])}")


def remove_groups(cluster: TargetCluster, groups: list[str]) -> None:
    """Remove the groups of cases, as far as they are empty: others end with their members."""
    if groups and cluster.version(ApiKey.DELETE_GROUPS) is not None:
        with contextlib.suppress(ConversationError):
            cluster.ask(DeleteGroupsRequest(groups_names=groups), ApiKey.DELETE_GROUPS)


def error_codes(message: Message, api_key: int, version: int) -> list[int]:
    """Return the distinct error codes in a response, ascending, without 0."""
    found = schema.api(api_key)
    assert found is not None
    codes: set[int] = set()
    _collect(message, found.response.layout(version), codes)
    return sorted(codes - {0})


def _collect(value: object, layout: schema.Layout, codes: set[int]) -> None:
    for slot in (*layout.fields, *layout.tagged):
        inner = getattr(value, slot.name)
        if slot.struct is not None:
            for each in inner if isinstance(inner, list) else [inner]:
                if each is not None:
                    _collect(each, slot.struct, codes)
        elif slot.name.endswith("error_code"):
            codes.add(inner)


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, or "API 999"."""
    found = schema.api(api_key)
    return f"API {api_key}" if found is None else found.name
