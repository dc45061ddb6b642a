"""DescribeClientQuotas and AlterClientQuotas, answered in the broker's place (KIP-546), whatever it speaks.

Only admins are answered, and only while the broker answers them too; Kafka's tools then work as they do with
a broker. Where the brokers themselves store the quotas (quota_store = broker), both pass through, and Weir
looks again after an alteration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from protocol.codec import codec
from protocol.error_codes import ErrorCode
from protocol.errors import EncodeError, ProtocolError
from protocol.heads import INCOMPLETE, REQUEST_HEAD, request_body
from protocol.messages import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from protocol.primitives import read_int32_length, read_wrapped_uvarint
from proxy.close_reasons import CloseReason
from proxy.handlers.broker_query import BrokerQuery, ask, response_frame
from proxy.handlers.decisions import WAIT, Decision, Defer, Query, Reply, Wait
from proxy.handlers.deferred import Deferred
from proxy.handlers.plan import Context, Plan, ResponseEdit
from proxy.handlers.quota_api.alterations import CHANGES_MAX, read_alterations, refused_all, refused_whole
from proxy.handlers.quota_api.entities import Refused, invalid
from proxy.handlers.quota_api.filters import Filter, described, read_filter
from quotas import QuotaTable

_Framing: TypeAlias = Callable[[Message], bytes]

AT_ONCE_MAX: Final = 200
"""Quotas that are described here and now (about 1 ms); more are left to a thread."""
DENIED_BYTES_MAX: Final = 16 * 1024
"""The longest request whose client is told that it is denied; the connection is closed at a longer one."""
NAMED_BYTES_MAX: Final = 512
"""The longest denied alteration whose entity is read, for the error to name: Kafka's tools look for it."""
COMPONENTS_MAX: Final = 16
"""Number of components of a filter that are read: with four, a type comes twice or is unknown."""

_FAILED: Final = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "quotas cannot be described, Weir's log says why")
_TOO_LARGE: Final = Refused(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)
_TOO_LONG: Final = Refused(
    ErrorCode.UNKNOWN_SERVER_ERROR, "an entity's name is longer than the 32767 bytes that Kafka can say"
)


def plan_describe(plan: Plan) -> None:
    """Answer it from the table."""
    codec_ = codec(DescribeClientQuotasRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        judged = _judged(context, plan, data, frame, end, complete)
        if judged is None:
            return WAIT
        denied, body = judged
        framed, table = _framing(plan, data, frame), context.management.table
        try:
            if denied is not None:
                raise denied
            if _count(plan, data, body, end) > COMPONENTS_MAX:
                raise invalid(f"a filter of more than {COMPONENTS_MAX} components")
            wanted = read_filter(codec_.decode_request(data, body, end))
        except Refused as refused:
            return Reply(framed(_not_described(refused)))
        if not _vouched(context):
            return Query(_be_vouched_for(context), again=True)
        if len(table) <= AT_ONCE_MAX:
            return Reply(_description(framed, table, wanted))
        deferred = Deferred()

        def done(made: bytes | None) -> None:
            deferred.answer(made or framed(_not_described(_FAILED)))

        context.management.compute(partial(_description, framed, table, wanted), done)
        return _answered(deferred)

    plan.admit, plan.whole = admit, True


def plan_alter(plan: Plan) -> None:
    """Check it, have it stored, and answer when it is in force."""
    codec_ = codec(AlterClientQuotasRequest, plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        judged = _judged(context, plan, data, frame, end, complete)
        if judged is None:
            return WAIT
        denied, body = judged
        framed, count = _framing(plan, data, frame), _count(plan, data, body, end)
        if denied is not None and (count != 1 or end - frame > NAMED_BYTES_MAX):
            return Reply(framed(refused_whole(denied)))
        if count > CHANGES_MAX:
            return Reply(framed(refused_whole(_TOO_LARGE)))
        request = codec_.decode_request(data, body, end)
        if denied is None and sum(len(entry.ops) for entry in request.entries) > CHANGES_MAX:
            denied = _TOO_LARGE
        if denied is not None:
            return Reply(framed(refused_all(request, denied)))
        alterations = read_alterations(request)
        if request.validate_only or not alterations.changes:
            return Reply(framed(alterations.response()))
        if not _vouched(context):
            return Query(_be_vouched_for(context), again=True)
        deferred = Deferred()

        def done(reason: str | None) -> None:
            failure = None if reason is None else Refused(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
            deferred.answer(framed(alterations.response(failure)))

        context.management.alter(alterations.changes, context.client.user, context.client.peer, done)
        return _answered(deferred)

    plan.admit, plan.whole = admit, True


def plan_pass_alter(plan: Plan) -> None:
    """The broker answers it; then its quotas are looked at again."""

    def rewrite(
        context: Context, _data: bytearray, _body: int, _end: int, _complete: bool
    ) -> ResponseEdit | None:
        context.management.altered_at_broker()
        return None

    plan.rewrite = rewrite


def _judged(
    context: Context, plan: Plan, data: bytearray, frame: int, end: int, complete: bool
) -> tuple[Refused | None, int] | None:
    """Return why the request is denied, if it is, and where its body begins, once it is here as a whole; None
    until then. Nothing of the body is read.

    A client that may not ask is denied, and counted, once; the connection is closed at a long request of it.
    """
    length = REQUEST_HEAD.unpack_from(data, frame)[0]
    if not complete and length <= DENIED_BYTES_MAX:
        return None
    denial = context.management.denial(context.client.user, context.client.peer)
    if denial is not None and length > DENIED_BYTES_MAX:
        detail = (
            f"{length} bytes about client quotas, from one who may not see them: limit {DENIED_BYTES_MAX}"
        )
        context.violate(CloseReason.REQUEST_TOO_LARGE, detail)
        return None
    body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
    if body == INCOMPLETE:
        return None
    return None if denial is None else Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denial), body


def _count(plan: Plan, data: bytearray, body: int, end: int) -> int:
    """Return how many elements the array says to have that the body begins with. Raises ProtocolError."""
    if plan.flexible_request:
        count = read_wrapped_uvarint(data, body, end)[0] - 1
    else:
        count = read_int32_length(data, body, end)[0]
    if count > end - body:
        raise ProtocolError(f"an array of {count} elements in {end - body} bytes")
    return count


def _be_vouched_for(context: Context) -> BrokerQuery:
    """Ask the broker for the metadata of no topic.

    It closes connections whose clients have not authenticated, or not again in time (KIP-368), and what Weir
    answers by itself must not be a way around that.
    """
    yield from ask(MetadataRequest(topics=[]), 1, MetadataResponse)
    context.authorized_again = True
    return None


def _vouched(context: Context) -> bool:
    """Whether the broker has answered for this very request."""
    authorized_again, context.authorized_again = context.authorized_again, False
    return authorized_again


def _framing(plan: Plan, data: bytearray, frame: int) -> _Framing:
    """How a response to the request at `frame` becomes a frame."""
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
    """Nobody waits for an answer that is here."""
    return Reply(deferred.frame) if deferred.frame is not None else Defer(deferred)
