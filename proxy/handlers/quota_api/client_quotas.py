"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546) regardless of the broker's versions.

Weir answers admins only, and only while the broker answers their requests; Kafka's tools work as with a
broker. If the brokers store the quotas (quotas = broker), Weir forwards both APIs, and reads the
brokers' quotas again after an alteration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from weir.protocol.codec import Codec, codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import EncodeError, ProtocolError
from weir.protocol.framing import INCOMPLETE, REQUEST_HEAD, request_body
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from weir.protocol.pieces import at_once, release
from weir.protocol.primitives import read_int32_length, read_wrapped_uvarint
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import BrokerQuery, ask, framed_body, response_frame, wait_for
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Reply, Wait
from weir.proxy.handlers.plan import Context, Plan, ResponseEdit
from weir.proxy.handlers.quota_api.alterations import (
    CHANGES_MAX,
    Alterations,
    read_alterations,
    refused_all,
    refused_whole,
)
from weir.proxy.handlers.quota_api.entities import Refused, invalid
from weir.proxy.handlers.quota_api.filters import ClientQuotaFilter, described, read_filter
from weir.proxy.handlers.quota_api.quota_admin import Changes
from weir.proxy.handlers.whole_requests import keep
from weir.quotas import QuotaTable

_Framing: TypeAlias = Callable[[Message], bytes]

AT_ONCE_MAX: Final = 200
"""Maximum number of quotas in a quota table that Weir describes on the reactor's thread (this takes about 1
ms). A larger table is described in another thread.
"""
DENIED_BYTES_MAX: Final = 16 * 1024
"""Maximum length (bytes) of a request from a client that is no admin, for which Weir sends an error response;
at a longer request Weir closes the connection.
"""
NAMED_BYTES_MAX: Final = 512
"""Maximum length (bytes) of a denied AlterClientQuotas request whose error response names the request's
entities. Kafka's tools look for these names; the response to a longer request names none.
"""
ELEMENTS_MAX: Final = 5 * CHANGES_MAX
"""Maximum number of elements in an AlterClientQuotas request: entries, parts of their entities, and changes
together.
"""
COMPONENTS_MAX: Final = 16
"""Maximum number of components of the filter in a DescribeClientQuotas request. A longer filter is refused
without being decoded. There are four entity types, so a valid filter has at most four components.
"""

_FAILED: Final = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "quotas cannot be described, Weir's log says why")
_TOO_LARGE: Final = Refused(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)
_TOO_LONG: Final = Refused(
    ErrorCode.UNKNOWN_SERVER_ERROR, "an entity's name is longer than the 32767 bytes that Kafka can say"
)


def plan_describe(plan: Plan) -> None:
    """Answer DescribeClientQuotas from the quota table."""
    codec_ = codec(DescribeClientQuotasRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        checked = _checked(context, plan, data, frame, end, complete)
        if checked is None:
            return WAIT
        denied, body = checked
        framed, table = _framing(plan, data, frame), context.quota_admin.table
        try:
            if denied is not None:
                raise denied
            if _count(plan, data, body, end) > COMPONENTS_MAX:
                raise invalid(f"a filter of more than {COMPONENTS_MAX} components")
            wanted = read_filter(codec_.decode_request(data, body, end))
        except Refused as refused:
            return Reply(framed(_not_described(refused)))
        if not _authorized_again(context):
            return Query(_authorize_again(context), again=True)
        if len(table) <= AT_ONCE_MAX:
            return Reply(_description(framed, table, wanted))
        return Query(_described_elsewhere(context, framed, table, wanted))

    plan.admit, plan.whole = admit, True


def plan_alter(plan: Plan) -> None:
    """Check AlterClientQuotas, store the changes, and answer when they are in force."""
    codec_ = codec(AlterClientQuotasRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        checked = _checked(context, plan, data, frame, end, complete)
        if checked is None:
            return WAIT
        denied, body = checked
        framed, count = _framing(plan, data, frame), _count(plan, data, body, end)
        if denied is not None and (count != 1 or end - frame > NAMED_BYTES_MAX):
            return Reply(framed(refused_whole(denied)))
        if count > CHANGES_MAX:
            return Reply(framed(refused_whole(_TOO_LARGE)))
        if denied is not None:
            return Reply(framed(at_once(refused_all(codec_.decode_request(data, body, end), denied))))
        prepared = context.decoded
        if isinstance(prepared, ProtocolError):
            raise prepared
        if not isinstance(prepared, _Prepared):
            part = bytes(memoryview(data)[body:end])
            return Query(_prepare(context, codec_, part, _framing_body(plan, data, frame)), again=True)
        if not prepared.changes:
            return Reply(prepared.frame)
        return Query(_store(context, framed, prepared))

    plan.admit, plan.whole = admit, True


class _Prepared(NamedTuple):
    """An AlterClientQuotas request that was checked, and the response that Weir sends if the quota store does
    not fail.
    """

    frame: bytes
    changes: Changes
    """Changes that Weir must store before it sends the response; empty if there is nothing to store."""
    alterations: Alterations

    def failed(self, reason: str) -> AlterClientQuotasResponse:
        """Return the response that Weir sends if the quota store has failed for this reason."""
        return at_once(self.alterations.response(Refused(ErrorCode.UNKNOWN_SERVER_ERROR, reason)))


def _prepare(
    context: Context,
    codec_: Codec[AlterClientQuotasRequest],
    body: bytes,
    framed: Callable[[bytes], bytes],
) -> BrokerQuery:
    """Decode and check an AlterClientQuotas request in pieces. If it changes quotas, have the broker confirm
    before that the client is still authenticated.
    """
    try:
        request = yield from codec_.decode_in_pieces(body, elements_max=ELEMENTS_MAX)
    except ProtocolError as error:
        keep(context, error)
        return None
    alterations = Alterations()
    if sum(len(entry.ops) for entry in request.entries) > CHANGES_MAX:
        response = yield from refused_all(request, _TOO_LARGE)
    else:
        alterations = yield from read_alterations(request)
        response = yield from alterations.response()
    changes = {} if request.validate_only else alterations.changes
    if changes:
        yield from ask(MetadataRequest(topics=[]), 1, MetadataResponse)  # see `_authorize_again`
    frame = framed((yield from codec(AlterClientQuotasResponse, codec_.version).encode_in_pieces(response)))
    yield from release(request.entries)
    yield from release(response.entries)
    keep(context, _Prepared(frame, changes, alterations))
    return None


def _store(context: Context, framed: _Framing, prepared: _Prepared) -> BrokerQuery:
    """Store the changes of an AlterClientQuotas request, and answer when they are in force."""
    admin, client = context.quota_admin, context.client
    reason = yield from wait_for(partial(admin.alter, prepared.changes, client.user, client.peer))
    return prepared.frame if reason is None else framed(prepared.failed(reason))


def plan_pass_alter(plan: Plan) -> None:
    """Forward requests that alter quotas; then read the brokers' quotas again."""

    def rewrite(
        context: Context, _data: bytearray, _body: int, _end: int, _complete: bool
    ) -> ResponseEdit | None:
        context.quota_admin.altered_at_broker()
        return None

    plan.rewrite = rewrite


def _checked(
    context: Context, plan: Plan, data: bytearray, frame: int, end: int, complete: bool
) -> tuple[Refused | None, int] | None:
    """Check the client's permission. Return (the error if the client is not permitted, else None; position of
    the request's body); None until the request is complete. The body is not read.

    A long request of a client without permission closes the connection.
    """
    length = REQUEST_HEAD.unpack_from(data, frame)[0]
    if not complete and length <= DENIED_BYTES_MAX:
        return None
    rejection = context.quota_admin.rejection(context.client.user, context.client.peer)
    if rejection is not None and length > DENIED_BYTES_MAX:
        detail = (
            f"{length} bytes about client quotas, from one who may not see them: limit {DENIED_BYTES_MAX}"
        )
        context.violate(CloseReason.REQUEST_TOO_LARGE, detail)
        return None
    body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
    if body == INCOMPLETE:
        return None
    return None if rejection is None else Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, rejection), body


def _count(plan: Plan, data: bytearray, body: int, end: int) -> int:
    """Return the number of elements in the array at the beginning of the body, as the array's length field
    states it. Raises ProtocolError if the body is too short for that number.
    """
    if plan.flexible_request:
        count = read_wrapped_uvarint(data, body, end)[0] - 1
    else:
        count = read_int32_length(data, body, end)[0]
    if count > end - body:
        raise ProtocolError(f"an array of {count} elements in {end - body} bytes")
    return count


class QuotaApiState:
    """State of a connection for requests that Weir itself answers."""

    __slots__ = ("authorized_again",)

    def __init__(self) -> None:
        self.authorized_again = False
        """True if the broker has just confirmed that the client is authenticated, for the request that is
        being processed.
        """


def _authorize_again(context: Context) -> BrokerQuery:
    """Have the broker confirm that the client is authenticated: ask for the metadata of no topic on the
    client's connection.

    A broker closes the connection of a client that has not authenticated, or has not reauthenticated in time
    (KIP-368). Requests that Weir answers itself must not bypass that check.
    """
    yield from ask(MetadataRequest(topics=[]), 1, MetadataResponse)
    context.state_of(QuotaApiState).authorized_again = True
    return None


def _authorized_again(context: Context) -> bool:
    """Return True if the broker has just confirmed that the client is authenticated. Also reset the
    confirmation: the next request needs another one.
    """
    state = context.state_of(QuotaApiState)
    authorized_again, state.authorized_again = state.authorized_again, False
    return authorized_again


def _framing_body(plan: Plan, data: bytearray, frame: int) -> Callable[[bytes], bytes]:
    """Return a function that makes a response frame of an encoded response body. The response answers the
    client's request that begins at `frame`.
    """
    (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
    return partial(framed_body, plan.api_key, plan.version, correlation_id)


def _framing(plan: Plan, data: bytearray, frame: int) -> _Framing:
    """Return a function that encodes a response message and makes a frame of it. The response answers the
    client's request that begins at `frame`.
    """
    (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
    return partial(response_frame, plan.api_key, plan.version, correlation_id)


def _description(framed: _Framing, table: QuotaTable, wanted: ClientQuotaFilter) -> bytes:
    try:
        return framed(described(table, wanted))
    except EncodeError:  # a quota file may contain names too long for the wire
        return framed(_not_described(_TOO_LONG))


def _described_elsewhere(
    context: Context, framed: _Framing, table: QuotaTable, wanted: ClientQuotaFilter
) -> BrokerQuery:
    """Describe a large quota table in another thread."""
    work = partial(_description, framed, table, wanted)
    frame = yield from wait_for(partial(context.quota_admin.compute, work))
    return frame or framed(_not_described(_FAILED))


def _not_described(refused: Refused) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=refused.code, error_message=refused.text, entries=None)
