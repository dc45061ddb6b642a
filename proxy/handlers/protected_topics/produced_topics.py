"""Produce: records for protected topics are refused.

Most requests have one topic, the same as the previous request of their connection. `_NamesProtected` compares
the request's first bytes with those of the previous request; if they are equal, the request is not parsed. A
request with several topics is searched for protected names, or its fields are scanned: the whole request if
it fits into the buffer; else its beginning, and each further part before the part is forwarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, REQUEST_HEAD, request_body
from weir.protocol.messages import ProduceRequest, ProduceResponse
from weir.protocol.primitives import read_int16_length, read_int32_length, read_wrapped_uvarint
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset
from weir.protocol.scanning.topic_bytes import TopicBytes, names_topics
from weir.protocol.scanning.topic_names import topics_in
from weir.protocol.values import schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import response_frame
from weir.proxy.handlers.decisions import WAIT, Decision, Forward, Reply, Wait

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weir.proxy.handlers.plan import Admit, ByteCounter, Context, Plan
    from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics

NAMED_MAX: Final = max(
    version for version in schema_of(ProduceRequest).versions if names_topics(ProduceRequest, version)
)
"""Last version of Produce whose requests name their topics; later versions have topic ids."""
OVERHEAD_BYTES_MAX: Final = 16 * 1024
"""Maximum number of bytes, without the records, of a refused produce request that Weir answers with an error
response. At a larger request Weir closes the connection, because it would have to decode the request for the
response.
"""
_LENGTHS_BYTES: Final = 10
"""Maximum size (bytes) of two fields of a produce request together: the number of topics, and the length of
the first topic's name.
"""
_TIMEOUT_BYTES: Final = 4
_MANY: Final = -2
SEARCHED_BYTES_MAX: Final = 16 * 1024
"""Maximum size (bytes) of a produce request in which Weir searches the bytes for protected names. In a larger
request, scanning the fields takes less time than such a search.
"""


def capped(offered: Mapping[int, VersionRange]) -> dict[int, VersionRange]:
    """Return the versions offered while topics are protected: those in which produce requests name their
    topics.
    """
    told = dict(offered)
    if (produce := told.get(ApiKey.PRODUCE)) is not None:
        told[ApiKey.PRODUCE] = VersionRange(produce.min, min(produce.max, NAMED_MAX))
    return told


def plan_produce(plan: Plan, protected: ProtectedTopics) -> None:
    """Refuse records for protected topics, unless the client is an admin."""
    inner, timeout = plan.admit, field_offset(ProduceRequest, plan.version, "timeout_ms")
    if inner is None or timeout is None:
        raise AssertionError("produce requests are admitted by bandwidth, and have a timeout")
    if plan.version > NAMED_MAX:
        plan.admit = _with_ids(inner)
        return
    plan.admit, plan.whole = _guarded(plan, protected, inner, timeout), True


def _with_ids(inner: Admit) -> Admit:
    """Return an `admit` that closes the connections of clients, because their requests have ids instead of
    names. Brokers' requests are decided by `inner`.
    """

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if context.client.is_broker:
            return inner(context, data, frame, end, complete)
        _length, api_key, version, _id = REQUEST_HEAD.unpack_from(data, frame)
        detail = f"{ApiKey(api_key).name} v{version} does not name its topics, and some are protected"
        context.violate(CloseReason.TOPICS_UNNAMED, detail)
        return WAIT

    return admit


def _guarded(plan: Plan, protected: ProtectedTopics, inner: Admit, timeout: FieldOffset) -> Admit:
    flexible = plan.flexible_request

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if context.client.is_broker:
            return inner(context, data, frame, end, complete)
        body = request_body(data, frame, end, flexible=flexible)
        position = INCOMPLETE if body == INCOMPLETE else timeout.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return WAIT
        first, stop = _only_topic(data, position + timeout.size, end, complete, flexible=flexible)
        if stop == INCOMPLETE:
            return WAIT
        if stop == _MANY:
            return _many(context, plan, protected, inner, data, frame, body, end, complete)
        if first in protected.on_wire:
            return _named(context, plan, protected, inner, {first}, data, frame, end, complete)
        return _passed(context, plan, protected, inner, data, frame, end, complete)

    return admit


def _passed(
    context: Context,
    plan: Plan,
    protected: ProtectedTopics,
    inner: Admit,
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
) -> Decision | Wait:
    """Return the decision of the other capabilities (such as bandwidth quotas), which do not know protected
    topics. If they cache the decision, it is not used for requests that may name a protected topic.
    """
    decision = inner(context, data, frame, end, complete)
    context.client.cache_unless(plan, _NamesProtected(protected, flexible=plan.flexible_request))
    return decision


class _NamesProtected:
    """Function object (type `NeedsLook`) that returns True if a produce request may name a protected topic. A
    cached decision must not be used for such a request.
    """

    __slots__ = ("_flexible", "_known", "_protected")

    def __init__(self, protected: ProtectedTopics, *, flexible: bool) -> None:
        self._protected = protected
        self._flexible = flexible
        self._known = b""
        """Bytes from the field timeout_ms to the end of the topic's name, in the latest request with only one
        topic, which was not protected. A request with the same bytes needs no look.
        """

    def __call__(self, data: bytearray, position: int, end: int, complete: bool) -> bool:
        known = self._known
        if known and data.startswith(known, position) and position + len(known) <= end:
            return False
        try:
            first, stop = _only_topic(data, position + _TIMEOUT_BYTES, end, complete, flexible=self._flexible)
        except ProtocolError:
            return True
        if stop == _MANY and complete and end - position <= SEARCHED_BYTES_MAX:
            return self._protected.occur(data, position, end)
        if stop < 0 or first in self._protected.on_wire:
            return True
        self._known = bytes(data[position:stop])
        return False


def _only_topic(
    data: bytearray, position: int, end: int, complete: bool, *, flexible: bool
) -> tuple[bytes, int]:
    """Return the name of the request's only topic, and the position behind the name. The array of topics
    begins at `position`.

    The returned position is INCOMPLETE if more bytes are needed, and `_MANY` if the request has no topic or
    several. Raises ProtocolError if the bytes are malformed.
    """
    if not complete and end - position < _LENGTHS_BYTES:
        return b"", INCOMPLETE
    read_count = read_wrapped_uvarint if flexible else read_int32_length
    count, start = read_count(data, position, end)
    if count - flexible != 1:
        return b"", _MANY
    read_length = read_wrapped_uvarint if flexible else read_int16_length
    length, start = read_length(data, start, end)
    length -= flexible
    if length < 0 or (complete and length > end - start):
        raise ProtocolError(f"a topic's name of {length} bytes", offset=start)
    stop = start + length
    return (b"", INCOMPLETE) if stop > end else (bytes(data[start:stop]), stop)


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
    scan = None
    if not complete:
        scan = TopicBytes(ProduceRequest, plan.version, protected.on_wire)
        scan.feed(data, body, end)
        named = set(scan.begun)
    elif end - body <= SEARCHED_BYTES_MAX and not protected.occur(data, body, end):
        named = set()
    else:
        named = topics_in(ProduceRequest, plan.version, "topic_data")(data, body, end, protected.on_wire)
    if named:
        return _named(context, plan, protected, inner, named, data, frame, end, complete)
    decision = _passed(context, plan, protected, inner, data, frame, end, complete)
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
    decision = _passed(context, plan, protected, inner, data, frame, end, complete)
    if isinstance(decision, Forward):
        protected.changed(context, ApiKey.PRODUCE, names)
    return decision


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
    """Answer the request, once it is complete, with TOPIC_AUTHORIZATION_FAILED for every partition."""
    ledger = context.client.identify(data, frame, end, context.now_ms)
    if not complete or ledger is None:
        return WAIT
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
        throttle_ms = context.mute(throttle_ms) - context.now_ms
    answer = _refusal(request, throttle_ms)
    return Reply(response_frame(plan.api_key, plan.version, correlation_id, answer))


def _refusal(request: ProduceRequest, throttle_ms: int) -> ProduceResponse:
    topic, partition = ProduceResponse.TopicProduceResponse, ProduceResponse.PartitionProduceResponse
    return ProduceResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            topic(
                name=asked.name,
                partition_responses=[
                    partition(
                        index=one.index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, base_offset=-1
                    )
                    for one in asked.partition_data
                ],
            )
            for asked in request.topic_data
        ],
    )


class _Every:
    """A stand-in for a set of all topic names: `in` is True for every topic."""

    def __contains__(self, _topic: object) -> bool:
        return True


def _overhead_bytes(plan: Plan, data: bytearray, body: int, end: int) -> int:
    """Return the size (bytes) of a complete request without its records. Raises ProtocolError if it is
    malformed.
    """
    scan = TopicBytes(ProduceRequest, plan.version, _Every())  # type: ignore[arg-type]  # asked for `in` only
    scan.feed(data, body, end)
    return end - body - sum(scan.begun.values())


def _close(context: Context, names: Collection[str]) -> None:
    detail = f"records for {', '.join(sorted(names))}, which only Weir's admins may write to"
    context.violate(CloseReason.TOPIC_PROTECTED, detail)


class _Watch:
    """A byte counter that closes the connection if a client that is no admin sends records for a protected
    topic. Another byte counter, if any, counts the bytes.
    """

    __slots__ = ("_context", "_counter", "_protected", "_scan")

    def __init__(
        self, context: Context, protected: ProtectedTopics, scan: TopicBytes, counter: ByteCounter | None
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
        names = [topic.decode() for topic in self._scan.begun]
        if names and self._protected.refuses(context.client):
            self._protected.refused(context, ApiKey.PRODUCE, names)
            _close(context, names)
        elif self._counter is not None:
            while start < stop:
                start = self._counter.feed(data, start, stop)
        return stop

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Log the protected topics that an admin has changed, and charge the counted bytes; return the
        throttle time (ms).
        """
        if self._scan.begun:
            self._protected.changed(
                self._context, ApiKey.PRODUCE, [topic.decode() for topic in self._scan.begun]
            )
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
