"""Produce: records for protected topics are refused.

Most requests have one topic, the same as the previous request of their connection. `names_protected` compares
the request's first bytes with those of the previous request; if they are equal, the request is not parsed. A
request with several topics is searched for protected names, or its fields are scanned: the whole request if
it fits into the buffer; else its beginning, and each further part before the part is forwarded.

From v13 on, requests have topic ids (`topics.names_by_id`). A request waits while Weir asks the broker for
unknown names. A topic whose name stays unknown may be protected. So it gets UNKNOWN_TOPIC_ID unless the
client is an admin, as from a broker that does not know the topic yet; clients then refresh their metadata.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, REQUEST_HEAD, request_body
from weir.protocol.messages import ProduceRequest, ProduceResponse
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset
from weir.protocol.scanning.topic_bytes import TopicBytes, names_topics
from weir.protocol.scanning.topic_names import topics_in
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import response_frame
from weir.proxy.handlers.decisions import WAIT, Decision, Forward, Reply, Wait
from weir.proxy.handlers.plan import ARRIVAL_QUOTA
from weir.proxy.handlers.protected_topics.only_topic import (
    MANY,
    SEARCHED_BYTES_MAX,
    OnlyTopic,
    names_protected,
    only_topic,
)
from weir.proxy.handlers.topics.asked_names import ask_first

if TYPE_CHECKING:
    from collections.abc import Collection

    from weir.proxy.handlers.plan import Admit, Context, Plan, RequestByteCounter
    from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics

OVERHEAD_BYTES_MAX: Final = 16 * 1024
"""Maximum number of bytes, without the records, of a refused produce request that Weir answers with an error
response. At a larger request Weir closes the connection, because it would have to decode the request for the
response.
"""


@cache
def has_ids(version: int) -> bool:
    """Return True if produce requests of this version have topic ids instead of names."""
    return not names_topics(ProduceRequest, version)


def plan_produce(plan: Plan, protected: ProtectedTopics) -> None:
    """Refuse records for protected topics, unless the client is an admin."""
    inner, timeout = plan.admit, field_offset(ProduceRequest, plan.version, "timeout_ms")
    if inner is None or timeout is None:
        raise AssertionError("produce requests are admitted by bandwidth, and have a timeout")
    plan.admit, plan.whole = _guarded(plan, protected, inner, timeout), True
    plan.needs_look = names_protected(
        protected, flexible=plan.flexible_request, with_ids=has_ids(plan.version)
    )


def _guarded(plan: Plan, protected: ProtectedTopics, inner: Admit, timeout: FieldOffset) -> Admit:
    flexible, with_ids = plan.flexible_request, has_ids(plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if context.client.is_broker:
            return inner(context, data, frame, end, complete)
        body = request_body(data, frame, end, flexible=flexible)
        position = INCOMPLETE if body == INCOMPLETE else timeout.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return WAIT
        first, stop = only_topic(
            data, position + timeout.size, end, complete, flexible=flexible, with_ids=with_ids
        )
        if stop == INCOMPLETE:
            return WAIT
        if stop == MANY:
            return _many(context, plan, protected, inner, data, frame, body, end, complete)
        name = context.cluster.names_by_id.name(first) if with_ids else first
        if name is None:
            return _unnamed(context, plan, protected, inner, {first}, data, frame, end, complete)
        if name in protected.on_wire:
            return _named(context, plan, protected, inner, {name}, data, frame, end, complete)
        return _passed(context, inner, data, frame, end, complete)

    return admit


def _passed(
    context: Context, inner: Admit, data: bytearray, frame: int, end: int, complete: bool
) -> Decision | Wait:
    """Return the decision of the other capabilities (such as bandwidth quotas), which do not know protected
    topics.
    """
    context.state_of(OnlyTopic).known = b""
    return inner(context, data, frame, end, complete)


def _many(
    context: Context,
    plan: Plan,
    protected: ProtectedTopics,
    inner: Admit,
    data: bytearray,
    frame: int,
    body: int,
    end: int,
    complete: bool,
) -> Decision | Wait:
    """Return the decision about a produce request with several topics; some may be protected."""
    if not complete and end - frame < context.buffer_bytes:
        return WAIT
    scan, names, unknown = None, context.cluster.names_by_id, set[bytes]()
    if not complete:
        scan = TopicBytes(ProduceRequest, plan.version, protected.on_wire, names.recent)
        scan.feed(data, body, end)
        named = _name(context, protected, scan)
        unknown = scan.unknown
    elif (
        not has_ids(plan.version)
        and end - body <= SEARCHED_BYTES_MAX
        and not protected.occur(data, body, end)
    ):
        named = set()
    else:
        find = topics_in(ProduceRequest, plan.version, "topic_data")
        named = find(data, body, end, protected.on_wire, names.recent, unknown)
        found = {topic_id: name for topic_id in unknown if (name := names.name(topic_id)) is not None}
        named |= protected.on_wire.intersection(found.values())
        unknown -= found.keys()
    if named:
        return _named(context, plan, protected, inner, named, data, frame, end, complete)
    if unknown or context.client.user in context.cluster.unnamed_topics.met:
        return _unnamed(context, plan, protected, inner, unknown, data, frame, end, complete, scan)
    return _watched(context, protected, inner, scan, data, frame, end, complete)


def _name(context: Context, protected: ProtectedTopics, scan: TopicBytes) -> set[bytes]:
    """Look up the names of topic ids that the scan did not know. Return the protected topics of the scanned
    bytes.
    """
    for topic_id in tuple(scan.unknown):
        name = context.cluster.names_by_id.name(topic_id)
        if name is not None:
            scan.count_as(topic_id, name if name in protected.on_wire else None)
    return set(scan.begun.keys() - scan.unknown)


def _watched(
    context: Context,
    protected: ProtectedTopics,
    inner: Admit,
    scan: TopicBytes | None,
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
) -> Decision | Wait:
    """Return the decision of the other capabilities. `scan` has scanned the bytes of an incomplete request
    with several topics, and goes on with the others; None for other requests.
    """
    decision = _passed(context, inner, data, frame, end, complete)
    if scan is None or not isinstance(decision, Forward):
        return decision
    byte_counter, counted_to = decision.byte_counter, decision.counted_to
    while byte_counter is not None and 0 < counted_to < end:
        counted_to = byte_counter.feed(data, counted_to, end)
    return decision.but(byte_counter=_Watch(context, protected, scan, byte_counter))


def _named(
    context: Context,
    plan: Plan,
    protected: ProtectedTopics,
    inner: Admit,
    topics: Collection[bytes],
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
) -> Decision | Wait:
    """Return the decision about a produce request with records for the protected topics `topics`: refuse it,
    unless the client is an admin.
    """
    names = [topic.decode() for topic in topics]
    if protected.refuses(context.client):
        return _refuse(context, plan, protected, names, data, frame, end, complete)
    decision = _passed(context, inner, data, frame, end, complete)
    if isinstance(decision, Forward):
        protected.changed(context, ApiKey.PRODUCE, names)
    return decision


def _unnamed(
    context: Context,
    plan: Plan,
    protected: ProtectedTopics,
    inner: Admit,
    unknown: Collection[bytes],
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
    scan: TopicBytes | None = None,
) -> Decision | Wait:
    """Return the decision about a produce request with topic ids whose names are unknown, or whose client has
    sent such ids before: ask the broker for the names. If it gives none for this request, refuse the request,
    unless the client is an admin.
    """
    query = ask_first(context, unknown)
    if query is not None:
        return query
    if unknown and protected.refuses(context.client):
        return _refuse(context, plan, protected, (), data, frame, end, complete)
    return _watched(context, protected, inner, scan, data, frame, end, complete)


def _refuse(
    context: Context,
    plan: Plan,
    protected: ProtectedTopics,
    names: Collection[str],
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
) -> Decision | Wait:
    """Answer the request, once it is complete, with an error for every partition:
    TOPIC_AUTHORIZATION_FAILED, or UNKNOWN_TOPIC_ID if the names of its topics are unknown (`names` is empty).
    """
    ledger = context.client.identify(data, frame, end, context.now_ms)
    if not complete or ledger is None:
        return WAIT
    if names:
        protected.refused(context, ApiKey.PRODUCE, names)
    body = request_body(data, frame, end, flexible=plan.flexible_request)
    if _overhead_bytes(plan, data, body, end) > OVERHEAD_BYTES_MAX:
        _close(context, names)
        return WAIT
    request = codec(ProduceRequest, plan.version).decode_request(data, body, end)
    if request.acks == 0:
        _close(context, names)
        return WAIT
    length, _key, _version, correlation_id = REQUEST_HEAD.unpack_from(data, frame)
    throttle_ms = max((charge(ledger, length, context.now_ms) for charge in plan.on_arrival), default=0)
    if throttle_ms > 0:
        throttle_ms = context.mute(throttle_ms, ARRIVAL_QUOTA) - context.now_ms
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if names else ErrorCode.UNKNOWN_TOPIC_ID
    answer = _refusal(request, code, throttle_ms)
    return Reply(response_frame(plan.api_key, plan.version, correlation_id, answer))


def _refusal(request: ProduceRequest, code: ErrorCode, throttle_ms: int) -> ProduceResponse:
    topic, partition = ProduceResponse.TopicProduceResponse, ProduceResponse.PartitionProduceResponse
    return ProduceResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            topic(
                name=asked.name,
                topic_id=asked.topic_id,
                partition_responses=[
                    partition(index=one.index, error_code=code, base_offset=-1)
                    for one in asked.partition_data
                ],
            )
            for asked in request.topic_data
        ],
    )


class _Every:
    """A stand-in for a set of all topic names, and for a table of the names of all ids: every topic is in
    the set, and every id has a name.
    """

    def __contains__(self, _topic: object) -> bool:
        return True

    def get(self, topic_id: bytes) -> bytes:
        return topic_id


def _overhead_bytes(plan: Plan, data: bytearray, body: int, end: int) -> int:
    """Return the size (bytes) of a complete request without its records. Raises ProtocolError if it is
    malformed.
    """
    every: Any = _Every()
    scan = TopicBytes(ProduceRequest, plan.version, every, every)
    scan.feed(data, body, end)
    return end - body - sum(scan.begun.values())


def _close(context: Context, names: Collection[str]) -> None:
    """Close the connection, because of records for these protected topics, or for topics without a name."""
    if not names:
        detail = "records for topic ids whose names the broker does not tell, while topics are protected"
        context.violate(CloseReason.TOPICS_UNNAMED, detail)
        return
    detail = f"records for {', '.join(sorted(names))}, which only Weir's admins may write to"
    context.violate(CloseReason.TOPIC_PROTECTED, detail)


class _Watch:
    """A byte counter that closes the connection if a client that is no admin sends records for a protected
    topic. Another byte counter, if any, counts the bytes.
    """

    __slots__ = ("_context", "_counter", "_protected", "_scan")
    quota: Final = ARRIVAL_QUOTA

    def __init__(
        self,
        context: Context,
        protected: ProtectedTopics,
        scan: TopicBytes,
        counter: RequestByteCounter | None,
    ) -> None:
        self._context = context
        self._protected = protected
        self._scan = scan
        self._counter = counter

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Scan the body's next bytes for records of protected topics, before these bytes are forwarded. Close
        the connection at such records unless the client is an admin. Return `stop`. Raises ProtocolError if
        the other byte counter finds the bytes malformed.
        """
        context = self._context
        try:
            self._scan.feed(data, start, stop)
        except ProtocolError as error:
            context.violate(CloseReason.REQUEST_MALFORMED, str(error))
            return stop
        names = [topic.decode() for topic in _name(context, self._protected, self._scan)]
        unknown = self._scan.unknown
        if (names or unknown) and self._protected.refuses(context.client):
            if names:
                self._protected.refused(context, ApiKey.PRODUCE, names)
            context.cluster.unnamed_topics.meet(context.client.user, unknown)
            _close(context, names)
        elif self._counter is not None:
            while start < stop:
                start = self._counter.feed(data, start, stop)
        return stop

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Log the protected topics that an admin has changed, and charge the counted bytes; return the
        throttle time (ms).
        """
        named = _name(self._context, self._protected, self._scan)
        if named:
            self._protected.changed(self._context, ApiKey.PRODUCE, [topic.decode() for topic in named])
        return 0 if self._counter is None else self._counter.charge(now_ms, told=told)

    def first_hold_ms(self, context: Context) -> int:
        """Return the time (ms) for which to hold the request's bytes that were not counted yet, because they
        go to a topic over its rate; 0 for no hold.
        """
        return 0 if self._counter is None else self._counter.first_hold_ms(context)

    def cut(self, now_ms: int) -> None:
        """Charge the bytes that were forwarded of a request that will not be completed."""
        if self._counter is not None:
            self._counter.cut(now_ms)
