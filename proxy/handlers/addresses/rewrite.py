"""Replace brokers' addresses in responses by Weir's.

Where addresses are near the beginning of a response (Metadata, FindCoordinator, DescribeCluster), only the
fields up to them are decoded and encoded again; all later fields are forwarded unchanged. The last result is
cached: while the cluster's brokers stay the same, rewriting is one comparison of bytes. Where addresses are
at the end (NodeEndpoints of KIP-951, sent only with errors about leadership), only they are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from weir.protocol.codec import Codec, codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError, UnencodableError
from weir.protocol.framing import INCOMPLETE, request_body
from weir.protocol.messages import (
    DescribeClusterResponse,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Message,
    MetadataResponse,
    ProduceResponse,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
)
from weir.protocol.pieces import PIECE_ITEMS, each
from weir.protocol.primitives import read_int32_length, read_wrapped_uvarint
from weir.protocol.scanning.array_mask import ArrayMask
from weir.protocol.scanning.endpoint_mask import EndpointMask
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset, tag_section
from weir.protocol.scanning.same_shape import SHAPE_BYTES_MAX, FieldFinder
from weir.proxy.addresses import Address, AdvertisedAddresses
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import BrokerQuery, ask
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Query, Wait
from weir.proxy.handlers.plan import IN_PARTS, Admit, Context, Plan, ResponseEdit, Rewrite
from weir.proxy.handlers.unread import passed_unread
from weir.proxy.handlers.whole_requests import whole_request

M = TypeVar("M", bound=Message)
Edit: TypeAlias = Callable[[M, AdvertisedAddresses], None]


def plan_metadata(plan: Plan) -> None:
    """Replace the brokers' addresses by Weir's in Metadata responses. The topics, which follow the addresses,
    are not decoded.
    """
    plan.rewrite = _head(codec(MetadataResponse, plan.version), "brokers", edit_metadata)


def plan_describe_cluster(plan: Plan) -> None:
    """Replace the brokers' addresses by Weir's in DescribeCluster responses (KIP-700)."""
    plan.rewrite = _head(codec(DescribeClusterResponse, plan.version), "brokers", _edit_describe_cluster)


def plan_find_coordinator(plan: Plan) -> None:
    """Replace the addresses of coordinators in FindCoordinator responses: one broker's up to v3, one per key
    from v4 on (KIP-699).

    From v4 on, requests with more than `COORDINATORS_MAX` keys close the connection. A response to at most
    `PIECE_ITEMS` keys is decoded once, when it is complete. A response to more keys is decoded in pieces, by
    a query.
    """
    if plan.version >= 4:
        codec_ = codec(FindCoordinatorResponse, plan.version)
        plan.rewrite = _head(codec_, "coordinators", _edit_coordinators, whole=True)
        plan.admit, plan.whole = _bounded_keys(plan), True
    else:
        plan.rewrite = _head(codec(FindCoordinatorResponse, plan.version), "port", _edit_coordinator)
        plan.edit = _edit_find_coordinator


def _bounded_keys(plan: Plan) -> Admit:
    """Return an `admit` (function that decides about requests) that forwards requests of at most
    `COORDINATORS_MAX` keys. It closes the connection at a request with more.
    """
    codec_ = codec(FindCoordinatorRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if not complete:
            return WAIT
        body = request_body(data, frame, end, flexible=True)
        try:
            count = (
                read_wrapped_uvarint(data, body + _KEY_TYPE_BYTES, end)[0] - 1 if body != INCOMPLETE else -1
            )
        except ProtocolError:
            count = -1
        if not 0 <= count <= end - body:  # no broker can read it
            return passed_unread(FORWARD)
        if count > COORDINATORS_MAX:
            detail = f"a request for {count} coordinators, limit {COORDINATORS_MAX}: split it"
            context.violate(CloseReason.REQUEST_TOO_LARGE, detail)
            return WAIT
        if count <= PIECE_ITEMS:
            return FORWARD
        try:
            request = whole_request(context, codec_, data, body, end)
        except UnencodableError:
            raise
        except ProtocolError:  # no broker can read it
            return passed_unread(FORWARD)
        return request if isinstance(request, Query) else Query(_coordinators(context, plan.version, request))

    return admit


def _coordinators(context: Context, version: int, request: FindCoordinatorRequest) -> BrokerQuery:
    """Ask the broker for a request's many coordinators in a query, and return the response with their
    addresses replaced.
    """
    answer = yield from ask(request, version, FindCoordinatorResponse)
    yield from each(partial(_edit_coordinator, addresses=context.addresses), answer.coordinators)
    return answer


def plan_produce_endpoints(plan: Plan) -> None:
    """Replace the brokers' addresses by Weir's in Produce responses: in the tagged field NodeEndpoints
    (KIP-951, from v10 on).
    """
    if plan.version >= 10:
        _plan_tagged_endpoints(plan, ProduceResponse)


def plan_fetch_endpoints(plan: Plan) -> None:
    """Replace the brokers' addresses by Weir's in Fetch responses: in the tagged field NodeEndpoints
    (KIP-951, from v16 on).
    """
    if plan.version >= 16:
        _plan_tagged_endpoints(plan, FetchResponse)


def plan_share_fetch_endpoints(plan: Plan) -> None:
    """Replace the brokers' addresses by Weir's in ShareFetch responses: in the array NodeEndpoints at their
    end (KIP-932).
    """
    _plan_last_endpoints(plan, ShareFetchResponse)


def plan_share_acknowledge_endpoints(plan: Plan) -> None:
    """Replace the brokers' addresses by Weir's in ShareAcknowledge responses: in the array NodeEndpoints at
    their end (KIP-932).
    """
    _plan_last_endpoints(plan, ShareAcknowledgeResponse)


def _plan_tagged_endpoints(plan: Plan, message: type[M]) -> None:
    """Replace the addresses in the tagged field NodeEndpoints. In a response that is forwarded in parts, mask
    the field: overwrite it with an unknown tag and zeros.
    """
    tags = tag_section(message, plan.version)
    if tags is not None:
        plan.rewrite_stream = lambda _body_bytes: EndpointMask(message, plan.version)
        plan.rewrite = _tail(codec(message, plan.version), FieldFinder(tags), b"\x00")


def _plan_last_endpoints(plan: Plan, message: type[M]) -> None:
    """Replace the addresses in the array NodeEndpoints at the end of a response. In a response that is
    forwarded in parts, mask the array: overwrite its contents.
    """
    endpoints = field_offset(message, plan.version, _ENDPOINTS)
    if endpoints is not None:
        plan.rewrite_stream = partial(ArrayMask, message, plan.version, _ENDPOINTS)
        plan.rewrite = _tail(codec(message, plan.version), FieldFinder(endpoints), _EMPTY_COMPACT_ARRAY)


COORDINATORS_MAX: Final = 10_000
"""Maximum number of coordinators that one request may ask for. Weir decodes and encodes each of them in the
response.
"""
CACHED_BYTES_MAX: Final = 64 * 1024
"""Maximum length (bytes) of a response's first fields for which Weir caches the rewritten bytes."""
HEAD_BYTES_MAX: Final = 256 * 1024
"""Maximum length (bytes) of the first fields of a response that are decoded. They are decoded again with each
part that arrives.
"""
BROKERS_MAX: Final = 2_000
"""Maximum number of brokers in a response: about twice as many as the largest clusters have. They take 13 ms
in one turn of the reactor, once per change of the cluster if they have at most `CACHED_BYTES_MAX`.
"""
WHOLE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Maximum length (bytes) of a FindCoordinator response that is decoded at once and not in pieces; it has at
most `PIECE_ITEMS` keys.
"""
ENDPOINTS_BYTES_MAX: Final = 8 * 1024
"""Maximum length (bytes) of the field NodeEndpoints that is decoded: about 200 brokers, which take 3 ms. A
longer field is masked: its contents are overwritten.
"""
_KEY_TYPE_BYTES: Final = 1
"""Size (bytes) of the first field of FindCoordinator requests, which the array of keys follows."""
_ENDPOINTS = "node_endpoints"
_EMPTY_COMPACT_ARRAY = b"\x01"
_THROTTLE_BYTES = 4
_BROKERS = 1
"""Endpoint type of brokers in DescribeCluster, from v1 on; controllers have type 2."""


def _head(codec_: Codec[M], through: str, edit: Edit[M], *, whole: bool = False) -> Rewrite:
    """Return a function that replaces addresses in the first fields of a response, up to and including the
    field `through`. The last result per advertised host is cached. With `whole`, the function waits until a
    response is complete, so that the response is decoded only once.

    A throttle time at the beginning of a response is not among the cached bytes, because it differs between
    responses.
    """
    throttle = field_offset(codec_.message, codec_.version, "throttle_time_ms")
    skip = _THROTTLE_BYTES if throttle is not None and throttle.fixed_offset == 0 else 0
    array = _array(codec_, through)
    cached: dict[str, tuple[int, bytes, bytes]] = {}

    def rewrite(
        context: Context, data: bytearray, body: int, end: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        if whole and not complete:
            return _wait_for_head(body, end, WHOLE_BYTES_MAX)
        start = body + skip
        addresses = context.addresses
        version, seen, answer = cached.get(addresses.host, _NOTHING)
        if version != addresses.address_book.version or not (
            data.startswith(seen, start) and start + len(seen) <= end
        ):
            try:
                if array is not None:
                    _check_count(*array, data, body, end)
                message, stop = codec_.decode_prefix(data, body, end, through)
            except ProtocolError:
                if complete:
                    raise
                return _wait_for_head(body, end, HEAD_BYTES_MAX)
            edit(message, addresses)
            if hold_ms := addresses.address_book.hold_ms():
                context.hold_response(hold_ms)
                return WAIT
            seen, answer = bytes(data[start:stop]), codec_.encode_prefix(message, through)[skip:]
            if len(seen) <= CACHED_BYTES_MAX:
                cached[addresses.host] = (addresses.address_book.version, seen, answer)
        return _replace(data, start, start + len(seen), answer)

    return rewrite


_NOTHING = (-1, b"", b"")


def _array(codec_: Codec[M], name: str) -> tuple[FieldOffset, bool] | None:
    """Return the offset of a field, and True if its count is a varint; None if the field is no array."""
    found = field_offset(codec_.message, codec_.version, name)
    slot = next(slot for slot in codec_.layout.fields if slot.name == name)
    return (found, slot.compact) if found is not None and slot.is_array else None


def _check_count(array: FieldOffset, compact: bool, data: bytearray, body: int, end: int) -> None:
    """Raise ProtocolError if the array has more than `BROKERS_MAX` elements, or its count has not arrived."""
    position = array.locate(data, body, end, False)
    if position == INCOMPLETE:
        raise ProtocolError("ends before the brokers")
    read_count = read_wrapped_uvarint if compact else read_int32_length
    if read_count(data, position, end)[0] - compact > BROKERS_MAX:
        raise ProtocolError(f"more than {BROKERS_MAX} brokers", offset=position)


def _wait_for_head(body: int, end: int, most: int) -> Wait:
    if end - body > most:
        raise ProtocolError(f"more than {most} bytes of brokers")
    return WAIT


def _tail(codec_: Codec[M], endpoints: FieldFinder, nothing: bytes) -> Rewrite:
    """Return a function that replaces the brokers' addresses in the array or tagged field `endpoints` of a
    response, without decoding the fields before it. A response in which this field is empty (its bytes are
    `nothing`) is forwarded unchanged. The function returns IN_PARTS if more elements are before the field
    than this turn may scan, or the field is longer than `ENDPOINTS_BYTES_MAX`.
    """

    def rewrite(
        context: Context, data: bytearray, body: int, end: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        if not complete:
            return WAIT
        if end - body <= SHAPE_BYTES_MAX:
            position = endpoints.find(data, body, end)
        else:
            elements_max = context.clock.elements_left()
            position = endpoints.find(data, body, end, elements_max)
            context.clock.scanned += elements_max - endpoints.elements_left
            if position == INCOMPLETE:
                return IN_PARTS
        if data.startswith(nothing, position):
            return None
        if end - position > ENDPOINTS_BYTES_MAX:
            return IN_PARTS
        message = codec_.decode_suffix(data, position, end, endpoints.field)
        _edit_endpoints(message, context.addresses)
        return _replace(data, position, end, codec_.encode_suffix(message, endpoints.field))

    return rewrite


def _replace(data: bytearray, start: int, stop: int, replacement: bytes) -> ResponseEdit | None:
    """Replace `data[start:stop]` by `replacement`. If the length stays the same, change `data` and return
    None; else return an edit that replaces the bytes.
    """
    if len(replacement) != stop - start:
        return ResponseEdit(start, stop, replacement)
    data[start:stop] = replacement
    return None


# Edits, per message


def edit_metadata(message: MetadataResponse, addresses: AdvertisedAddresses) -> None:
    message.brokers = [broker for broker in message.brokers if _advertise(broker, broker.node_id, addresses)]


def _edit_describe_cluster(message: DescribeClusterResponse, addresses: AdvertisedAddresses) -> None:
    if message.endpoint_type != _BROKERS:
        return  # controllers are not reached through Weir (KIP-919)
    message.brokers = [
        broker for broker in message.brokers if _advertise(broker, broker.broker_id, addresses)
    ]


def _edit_endpoints(message: Message, addresses: AdvertisedAddresses) -> None:
    nodes: list[_Node] = message.node_endpoints  # type: ignore[attr-defined]  # four types of one shape
    nodes[:] = [node for node in nodes if _advertise(node, node.node_id, addresses)]


def _edit_find_coordinator(message: Message, addresses: AdvertisedAddresses) -> None:
    if isinstance(message, FindCoordinatorResponse):
        _edit_coordinator(message, addresses)


def _edit_coordinators(message: FindCoordinatorResponse, addresses: AdvertisedAddresses) -> None:
    for coordinator in message.coordinators:
        _edit_coordinator(coordinator, addresses)


def _edit_coordinator(
    found: FindCoordinatorResponse | FindCoordinatorResponse.Coordinator, addresses: AdvertisedAddresses
) -> None:
    """Replace a coordinator's address by Weir's. If Weir has no listener for the coordinator, report the
    coordinator as not available, so that the client asks again.
    """
    if found.node_id >= 0 and not _advertise(found, found.node_id, addresses):
        found.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        found.node_id, found.host, found.port = -1, "", -1


class _HostAndPort(Protocol):
    host: str
    port: int


class _Node(_HostAndPort, Protocol):
    node_id: int


def _advertise(broker: _HostAndPort, node_id: int, addresses: AdvertisedAddresses) -> bool:
    """Replace the broker's address by Weir's address for this node; return False if Weir has no listener for
    the node.
    """
    ours = addresses.of(node_id, Address(broker.host, broker.port))
    if ours is None:
        return False
    broker.host, broker.port = ours
    return True
