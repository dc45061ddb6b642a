"""Requests that create, delete, grow, shorten or configure topics: protected topics are removed from the
request and refused.

A request that contains no protected name is forwarded as usual, without being decoded. Other requests are
decoded. Their remaining topics are sent in a request of their own, through the other capabilities (mutation
quotas, uplift), and results for the refused topics are added to the response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import INCOMPLETE, LENGTH, LENGTH_BYTES, REQUEST_HEAD, request_body
from weir.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AlterConfigsResponse,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsResponse,
    Message,
    WriteTxnMarkersRequest,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import Asking, BrokerQuery, response_frame
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Reply, Wait
from weir.proxy.handlers.mutations.topic_queries import broker_topics
from weir.proxy.handlers.plan import forward_unchanged
from weir.proxy.handlers.protected_topics.nested_topics import nested_names, without_nested
from weir.proxy.handlers.unread import passed_unread
from weir.proxy.handlers.uplift.uplift import forward
from weir.proxy.handlers.whole_requests import keep, readable_request

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Admit, Context, Plan
    from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics

REFUSED_BYTES_MAX: Final = 64 * 1024
"""Maximum length (bytes) of a request with a protected name that is decoded for a client that is no admin;
the connection is closed at a longer one.
"""
TEXT: Final = "the topic is Weir's own: only Weir's admins may change it"
_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOPIC_RESOURCE: Final = 2
_UNCLEAN: Final = 1
_IDS_FROM: Final = 6
"""First version of DeleteTopics that has topic ids."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Fields that name the topics in an API's request, and fields that have the topics' results in its
    response.
    """

    entries: str
    """Name of the array of topics in the request."""
    name: Callable[[Any], str | None]
    """Function that returns the name of the topic in an entry of the request; None if the entry has no name.
    """
    results: str
    """Name of the array of results in the response."""
    refused: Callable[[Any, str], object]
    """Function (entry, topic's name) that returns the result for a topic's entry that Weir has refused."""


def plan_change(plan: Plan, protected: ProtectedTopics) -> None:
    """Refuse changes of protected topics, unless the client is an admin."""
    pass_on, codec_ = plan.admit or forward_unchanged, codec(request_type(plan.api_key), plan.version)
    has_ids = plan.api_key == ApiKey.DELETE_TOPICS and plan.version >= _IDS_FROM

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if context.client.is_broker:
            return pass_on(context, data, frame, end, complete)
        if not complete:
            return WAIT
        named = protected.occur(data, frame, end)
        if not named and not has_ids and plan.api_key != ApiKey.ELECT_LEADERS:
            return pass_on(context, data, frame, end, complete)
        if named and end - frame > REFUSED_BYTES_MAX and protected.refuses(context.client):
            detail = f"{end - frame} bytes that may change protected topics, limit {REFUSED_BYTES_MAX}"
            context.violate(CloseReason.REQUEST_TOO_LARGE, detail)
            return WAIT
        body = request_body(data, frame, end, flexible=plan.flexible_request)
        if body == INCOMPLETE:
            return WAIT
        request = readable_request(context, codec_, data, body, end)
        if request is None:
            return passed_unread(pass_on(context, data, frame, end, complete))
        if isinstance(request, Query):
            return request
        guarded = _GuardedRequest(context, plan, protected, pass_on, bytes(data[frame:body]))
        return guarded.decision(request) or pass_on(context, data, frame, end, complete)

    plan.admit, plan.whole = admit, True


class _GuardedRequest:
    """One request that may change protected topics."""

    def __init__(
        self, context: Context, plan: Plan, protected: ProtectedTopics, pass_on: Admit, head: bytes
    ) -> None:
        """Begin to process a request of the connection `context`. `head` is the request's frame up to its
        body.
        """
        self._context = context
        self._plan = plan
        self._protected = protected
        self._pass_on = pass_on
        self._head = head
        self._refuses = protected.refuses(context.client)

    def decision(self, request: Message) -> Decision | None:
        """Return the decision about the request; None if the request is to be forwarded as usual."""
        if isinstance(request, AddPartitionsToTxnRequest):
            return self._transaction(request)
        if isinstance(request, ElectLeadersRequest) and request.topic_partitions is None:
            return self._election_of_all(request)
        if isinstance(request, WriteTxnMarkersRequest | AlterReplicaLogDirsRequest):
            names = nested_names(request) & self._protected.names
            return Query(without_nested(request, names, self._forwarded)) if self._noted(names) else None
        by_name = isinstance(request, DeleteTopicsRequest) and self._plan.version < _IDS_FROM
        change = _DELETION_BY_NAME if by_name else _CHANGES[self._plan.api_key]
        if isinstance(request, DeleteTopicsRequest) and any(topic.topic_id.int for topic in request.topics):
            return Query(self._by_id(request, change))
        names = self._names(request, change)
        if not self._noted(names):
            return None
        return Query(self._without(request, change, names))

    def _names(self, request: Message, change: _Change) -> set[str]:
        """Return the names of the protected topics that the request would change. None are changed by a
        preferred election of leaders.
        """
        if isinstance(request, ElectLeadersRequest) and request.election_type != _UNCLEAN:
            return set()
        return {
            name
            for entry in getattr(request, change.entries)
            if (name := change.name(entry)) in self._protected.names
        }

    def _noted(self, names: set[str]) -> bool:
        """Log that the client changes, or tries to change, these protected topics. Return True if the change
        must be refused, because the client is no admin.
        """
        if names and self._refuses:
            self._protected.refused(self._context, self._plan.api_key, names)
        elif names:
            self._protected.changed(self._context, self._plan.api_key, names)
        return bool(names) and self._refuses

    def _by_id(self, request: DeleteTopicsRequest, change: _Change) -> BrokerQuery:
        """Process a DeleteTopics request by topic id: ask the broker for the protected topics' ids, and
        forward the deletion of all topics that the client may delete. Return the response, with refusals of
        the other topics.
        """
        there = yield from broker_topics(self._context, sorted(self._protected.names))
        ids = {topic.topic_id: name for name, topic in there.by_name.items() if name in self._protected.names}
        by_id = replace(change, name=lambda entry: ids.get(entry.topic_id, entry.name))
        names = self._names(request, by_id)
        return (yield from self._without(request, by_id, names if self._noted(names) else set()))

    def _without(self, request: Message, change: _Change, names: set[str]) -> BrokerQuery:
        """Forward the request without the topics `names`, if others remain; return the response, with
        refusals of `names` added.
        """
        entries = getattr(request, change.entries)
        kept = [entry for entry in entries if change.name(entry) not in names]
        refused = [entry for entry in entries if change.name(entry) in names]
        answer = response_type(self._plan.api_key)()
        if kept or not refused:
            setattr(request, change.entries, kept)
            answer = yield from self._forwarded(request)
        results = getattr(answer, change.results)
        results += [change.refused(entry, change.name(entry) or "") for entry in refused]
        return answer

    def _forwarded(self, request: Message) -> Asking[Message]:
        """Forward the request as the other capabilities (mutation quotas, uplift) decide, and return the
        response.
        """
        plan, frame = self._plan, bytearray(self._head)
        frame += codec(type(request), plan.version).encode(request)
        LENGTH.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
        keep(self._context, request)  # else a large request would be decoded by a query, and pass undecided
        decision = self._pass_on(self._context, frame, 0, len(frame), True)
        keep(self._context, None)
        if isinstance(decision, Query):
            answer = yield from decision.query
            if answer is not None:
                assert not isinstance(answer, bytes)  # only quota administration returns frames
                return answer
        return (yield from forward(plan, request, response_type(plan.api_key)))

    def _transaction(self, request: AddPartitionsToTxnRequest) -> Decision | None:
        """Process AddPartitionsToTxn: refuse the whole request if it adds a protected topic, because a broker
        adds all partitions or none. Return None if the request is to be forwarded as usual.
        """
        topics = [*request.v3_and_below_topics]
        topics += [topic for one in request.transactions for topic in one.topics]
        if not self._noted({topic.name for topic in topics} & self._protected.names):
            return None
        transaction = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
        return self._reply(
            AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    self._not_added(topic) for topic in request.v3_and_below_topics
                ],
                results_by_transaction=[
                    transaction(
                        transactional_id=one.transactional_id,
                        topic_results=[self._not_added(topic) for topic in one.topics],
                    )
                    for one in request.transactions
                ],
            )
        )

    def _not_added(
        self, topic: AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    ) -> AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult:
        code = _REFUSED if topic.name in self._protected.names else ErrorCode.OPERATION_NOT_ATTEMPTED
        partition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
        return AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                partition(partition_index=index, partition_error_code=code) for index in topic.partitions
            ],
        )

    def _election_of_all(self, request: ElectLeadersRequest) -> Decision | None:
        if request.election_type != _UNCLEAN or not self._noted(set(self._protected.names)):
            return None
        return self._reply(ElectLeadersResponse(error_code=_REFUSED))

    def _reply(self, answer: Message) -> Decision:
        (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(self._head)
        return Reply(response_frame(self._plan.api_key, self._plan.version, correlation_id, answer))


# Functions that return the topic's name of an entry


def _name(entry: Any) -> str | None:
    name: str | None = entry.name
    return name


def _configured(entry: Any) -> str | None:
    name: str = entry.resource_name
    return name if entry.resource_type == _TOPIC_RESOURCE else None


# Functions that return the result of a refused entry


def _not_created(_entry: Any, name: str) -> object:
    result = CreateTopicsResponse.CreatableTopicResult
    return result(name=name, error_code=_REFUSED, error_message=TEXT)


def _not_grown(_entry: Any, name: str) -> object:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    return result(name=name, error_code=_REFUSED, error_message=TEXT)


def _not_deleted(entry: Any, name: str) -> object:
    result = DeleteTopicsResponse.DeletableTopicResult
    return result(name=name, topic_id=entry.topic_id, error_code=_REFUSED, error_message=TEXT)


def _not_deleted_by_name(_entry: str, name: str) -> object:
    result = DeleteTopicsResponse.DeletableTopicResult
    return result(name=name, error_code=_REFUSED, error_message=TEXT)


def _not_shortened(entry: Any, name: str) -> object:
    partition = DeleteRecordsResponse.DeleteRecordsPartitionResult
    return DeleteRecordsResponse.DeleteRecordsTopicResult(
        name=name,
        partitions=[
            partition(partition_index=one.partition_index, low_watermark=-1, error_code=_REFUSED)
            for one in entry.partitions
        ],
    )


def _not_configured(entry: Any, name: str) -> object:
    return AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=_REFUSED,
        error_message=TEXT,
        resource_type=entry.resource_type,
        resource_name=name,
    )


def _not_configured_incrementally(entry: Any, name: str) -> object:
    return IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=_REFUSED,
        error_message=TEXT,
        resource_type=entry.resource_type,
        resource_name=name,
    )


def _not_reassigned(entry: Any, name: str) -> object:
    partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
    return AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
        name=name,
        partitions=[
            partition(partition_index=one.partition_index, error_code=_REFUSED, error_message=TEXT)
            for one in entry.partitions
        ],
    )


def _not_elected(entry: Any, name: str) -> object:
    partition = ElectLeadersResponse.PartitionResult
    return ElectLeadersResponse.ReplicaElectionResult(
        topic=name,
        partition_result=[
            partition(partition_id=index, error_code=_REFUSED, error_message=TEXT)
            for index in entry.partitions
        ],
    )


_CHANGES: Final[Mapping[int, _Change]] = {
    ApiKey.CREATE_TOPICS: _Change("topics", _name, "topics", _not_created),
    ApiKey.CREATE_PARTITIONS: _Change("topics", _name, "results", _not_grown),
    ApiKey.DELETE_TOPICS: _Change("topics", _name, "responses", _not_deleted),
    ApiKey.DELETE_RECORDS: _Change("topics", _name, "topics", _not_shortened),
    ApiKey.ALTER_CONFIGS: _Change("resources", _configured, "responses", _not_configured),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Change(
        "resources", _configured, "responses", _not_configured_incrementally
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _Change("topics", _name, "responses", _not_reassigned),
    ApiKey.ELECT_LEADERS: _Change(
        "topic_partitions", lambda entry: str(entry.topic), "replica_election_results", _not_elected
    ),
}
_DELETION_BY_NAME: Final = _Change("topic_names", str, "responses", _not_deleted_by_name)
