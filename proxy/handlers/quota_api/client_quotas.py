"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546), whatever versions the broker has.

Weir answers admins only, and only while the broker answers them; Kafka's tools work as with a broker. If the
brokers store the quotas (quota_store = broker), Weir forwards both APIs, and reads the brokers' quotas again
after an alteration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from protocol.codec import Codec, codec
from protocol.error_codes import ErrorCode
from protocol.errors import EncodeError
from protocol.framing import REQUEST_HEAD
from protocol.messages import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from proxy.close_reasons import CloseReason
from proxy.handlers.broker_query import BrokerQuery, ask, response_frame, whole_request
from proxy.handlers.decisions import WAIT, Decision, Defer, Query, Reply, Wait
from proxy.handlers.deferred import Deferred
from proxy.handlers.plan import Context, Plan, ResponseEdit
from proxy.handlers.quota_api.alterations import read_alterations, refused_all
from proxy.handlers.quota_api.entities import Refused
from proxy.handlers.quota_api.filters import Filter, described, read_filter
from quotas import QuotaTable

M = TypeVar("M", bound=Message)
_Framing: TypeAlias = Callable[[Message], bytes]

AT_ONCE_MAX: Final = 200
"""Number of quotas described within the request (about 1 ms); more are described in a thread."""
DENIED_BYTES_MAX: Final = 16 * 1024
"""Length of the longest request that is read to send an error to a client that is no admin: decoding 1 MB
takes a second.
"""

_FAILED: Final = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "quotas cannot be described, Weir's log says why")
_TOO_LONG: Final = Refused(
    ErrorCode.UNKNOWN_SERVER_ERROR, "an entity's name is longer than the 32767 bytes that Kafka can say"
)


def plan_describe(plan: Plan) -> None:
    """Answer DescribeClientQuotas from the quota table."""
    codec_ = codec(DescribeClientQuotasRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        asked = _asked(context, plan, codec_, data, frame, end, complete)
        if asked is None:
            return WAIT
        request, rejection = asked
        framed, table = _framing(plan, data, frame), context.quota_admin.table
        try:
            _check_allowed(rejection)
            wanted = read_filter(request)
        except Refused as refused:
            return Reply(framed(_not_described(refused)))
        if not _authorized_again(context):
            return Query(_authorize_again(context), again=True)
        if len(table) <= AT_ONCE_MAX:
            return Reply(_description(framed, table, wanted))
        deferred = Deferred()

        def done(made: bytes | None) -> None:
            deferred.answer(made or framed(_not_described(_FAILED)))

        context.quota_admin.compute(partial(_description, framed, table, wanted), done)
        return _answered(deferred)

    plan.admit, plan.whole = admit, True


def plan_alter(plan: Plan) -> None:
    """Check AlterClientQuotas, store the changes, and answer when they are in force."""
    codec_ = codec(AlterClientQuotasRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        asked = _asked(context, plan, codec_, data, frame, end, complete)
        if asked is None:
            return WAIT
        request, rejection = asked
        framed = _framing(plan, data, frame)
        try:
            _check_allowed(rejection)
        except Refused as refused:
            return Reply(framed(refused_all(request, refused)))
        alterations = read_alterations(request)
        if request.validate_only or not alterations.changes:
            return Reply(framed(alterations.response()))
        if not _authorized_again(context):
            return Query(_authorize_again(context), again=True)
        deferred = Deferred()

        def done(reason: str | None) -> None:
            failure = None if reason is None else Refused(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
            deferred.answer(framed(alterations.response(failure)))

        context.quota_admin.alter(alterations.changes, context.client.user, context.client.peer, done)
        return _answered(deferred)

    plan.admit, plan.whole = admit, True


def plan_pass_alter(plan: Plan) -> None:
    """Forward AlterClientQuotas; then read the broker's quotas again."""

    def rewrite(
        context: Context, _data: bytearray, _body: int, _end: int, _complete: bool
    ) -> ResponseEdit | None:
        context.quota_admin.altered_at_broker()
        return None

    plan.rewrite = rewrite


def _asked(
    context: Context, plan: Plan, codec_: Codec[M], data: bytearray, frame: int, end: int, complete: bool
) -> tuple[M, str | None] | None:
    """Return the request, once it is complete, and the reason to reject it, if any; None until then.

    A rejected client gets an error once per request. If a rejected request is too long, the connection is
    closed.
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
    request = whole_request(codec_, data, frame, end, complete, flexible=plan.flexible_request)
    return None if request is None else (request, rejection)


def _authorize_again(context: Context) -> BrokerQuery:
    """Ask the broker for the metadata of no topic.

    A broker closes connections whose clients have not authenticated, or not again in time (KIP-368). Requests
    that Weir answers must not bypass that.
    """
    yield from ask(MetadataRequest(topics=[]), 1, MetadataResponse)
    context.authorized_again = True
    return None


def _authorized_again(context: Context) -> bool:
    """Return True if the broker has answered on behalf of this very request."""
    authorized_again, context.authorized_again = context.authorized_again, False
    return authorized_again


def _check_allowed(rejection: str | None) -> None:
    if rejection is not None:
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, rejection)


def _framing(plan: Plan, data: bytearray, frame: int) -> _Framing:
    """Return a function that makes a frame of a response to the request at `frame`."""
    (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
    return partial(response_frame, plan.api_key, plan.version, correlation_id)


def _description(framed: _Framing, table: QuotaTable, wanted: Filter) -> bytes:
    try:
        return framed(described(table, wanted))
    except EncodeError:  # no client has such a name, but a file may
        return framed(_not_described(_TOO_LONG))


def _not_described(refused: Refused) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=refused.code, error_message=refused.text, entries=None)


def _answered(deferred: Deferred) -> Decision:
    """Reply at once if the result is already available."""
    return Reply(deferred.frame) if deferred.frame is not None else Defer(deferred)
