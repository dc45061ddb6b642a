"""Uplift: a client uses a version that its broker lacks; neither the client nor the broker notices.

`raised` makes the plan of such a version from the plan of a version that the broker has. If both have the
same layout, the version number in the request is overwritten, and at most throttle_time_ms is inserted into
the response. Otherwise a query decodes in one version and encodes in the other. `uplift_rule` decides which
versions are offered.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Final, TypeVar

from weir.protocol.api import request_header_version
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import EncodeError
from weir.protocol.framing import INCOMPLETE, LENGTH_BYTES, request_body
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsResponse,
    FindCoordinatorResponse,
    Message,
)
from weir.protocol.pieces import Pieces
from weir.protocol.scanning.field_offsets import FieldOffset
from weir.protocol.version_differences import Position
from weir.proxy.handlers.api_versions.api_versions import ranges
from weir.proxy.handlers.broker_query import Asking, BrokerQuery, ask
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Forward, Query, Wait
from weir.proxy.handlers.plan import Admit, Context, Plan, ResponseEdit, Rewrite, forward_unchanged
from weir.proxy.handlers.uplift.error_response import error_response
from weir.proxy.handlers.uplift.uplift_rule import Route, UpliftKind, beyond
from weir.proxy.handlers.whole_requests import whole_request

R = TypeVar("R", bound=Message)

_VERSION: Final = Struct(">h")
_VERSION_OFFSET: Final = LENGTH_BYTES + _VERSION.size
_THROTTLE: Final = Struct(">i")


def learn_versions(context: Context) -> BrokerQuery:
    """Ask the broker for its versions, and use the plans for these versions on the connection from then on.
    Needed because the client has not sent ApiVersions.
    """
    answer = yield from ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    context.meet_broker(ranges(answer))
    return None


def plan_unknown(plan: Plan) -> None:
    """Fill the plan of a request that depends on the broker's versions while these are unknown. Ask the
    broker for its versions, once per connection; then decide about the request again.

    Within a SASL exchange, forward the request unchanged and do not ask: there a broker accepts neither the
    request nor ApiVersions, and answers with an error.
    """
    pass_on = plan.admit or forward_unchanged

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if context.client.exchange is not None:
            return pass_on(context, data, frame, end, complete)
        if context.client.client_id(data, frame, end) is None:
            return WAIT
        return Query(learn_versions(context), again=True)

    plan.admit = admit


def raised(plan: Plan, version: int, route: Route) -> Plan:
    """Return the plan for `version`, which the client uses and the broker lacks. The plan is made of `plan`,
    for a version that the broker has.
    """
    taller = replace(plan, version=version, broker_version=plan.version, broker_waits=route.broker_waits)
    if route.kind is UpliftKind.TRANSLATE:
        taller.flexible_request = request_header_version(plan.api_key, version) == 2
        taller.throttle, taller.rewrite = None, None
        taller.admit, taller.whole = _translate(taller), True
        return taller
    taller.admit = _renumbered(plan.admit, plan.version)
    if route.kind is UpliftKind.THROTTLE:
        taller.throttle = None
        taller.rewrite = _inserted(plan.rewrite, last=route.throttle is Position.LAST)
    elif route.broker_waits and plan.throttle is not None:
        taller.rewrite = _overwritten(plan.rewrite, plan.throttle)
    return taller


# In place


def _renumbered(inner: Admit | None, broker_version: int) -> Admit:
    """Return an `admit` (function that decides about requests) that decides like `inner`. In the header of
    each request that is forwarded, it overwrites the version with the broker's.
    """

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        decision = FORWARD if inner is None else inner(context, data, frame, end, complete)
        if isinstance(decision, Forward):
            _VERSION.pack_into(data, frame + _VERSION_OFFSET, broker_version)
        return decision

    return admit


def _inserted(inner: Rewrite | None, *, last: bool) -> Rewrite:
    """Return a rewrite that inserts throttle_time_ms at the beginning of a response's body, or at its end if
    `last`. It also makes the changes of another rewrite, `inner`.
    """

    def rewrite(
        context: Context, data: bytearray, body: int, end: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        if last and not complete:
            return WAIT
        found = None if inner is None else inner(context, data, body, end, complete)
        if isinstance(found, Wait):
            return found
        field = _THROTTLE.pack(context.report_ms)
        start, stop, replacement = found or ((end, end, b"") if last else (body, body, b""))
        if last:
            return ResponseEdit(start, end, replacement + data[stop:end] + field)
        return ResponseEdit(body, stop, field + data[body:start] + replacement)

    return rewrite


def _overwritten(inner: Rewrite | None, throttle: FieldOffset) -> Rewrite:
    """Return a rewrite that replaces the broker's throttle time in a response by Weir's. A broker older than
    KIP-219 has already delayed the response for its own throttle time, so the client must not wait for that
    time again.
    """

    def rewrite(
        context: Context, data: bytearray, body: int, end: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        position = throttle.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return WAIT
        throttle.write(data, position, context.report_ms)
        return None if inner is None else inner(context, data, body, end, complete)

    return rewrite


# Decoded and encoded


def check(plan: Plan, request: Message) -> Pieces[None]:
    """Raise EncodeError if the client's request has set a field that the broker's version lacks."""
    if plan.version == plan.broker_version:
        return
    lost = beyond(request, plan.version, plan.broker_version)
    if lost is not None:
        raise EncodeError(lost, field="topics")
    yield from codec(type(request), plan.broker_version).encode_in_pieces(request)


def forward(plan: Plan, request: Message, answer: type[R], version: int | None = None) -> Asking[R]:
    """Send the client's request to the broker, and return the response. The request is encoded in the
    broker's version of the plan, or in `version` if given.

    Raises EncodeError if that version lacks a field that the client has set; call `check` before to find this
    out without sending anything.
    """
    found = yield from ask(request, plan.broker_version if version is None else version, answer)
    if plan.broker_waits:
        found.throttle_time_ms = 0  # type: ignore[attr-defined]  # every uplifted API has it
    _mark_unknown(found, plan.broker_version)
    return found


def _mark_unknown(answer: Message, version: int) -> None:
    """Set fields of a response to "unknown" if the broker's version lacks them and if their defaults would
    tell the client something else.
    """
    if isinstance(answer, FindCoordinatorResponse) and version < _MESSAGES_FROM:
        answer.error_message = None
    elif isinstance(answer, CreateTopicsResponse):
        for topic in answer.topics:
            if version < _MESSAGES_FROM:
                topic.error_message = None
            if version < _CONFIGS_FROM:
                topic.configs = None


_CONFIGS_FROM: Final = 5
"""First version of CreateTopics whose response has configs."""
_MESSAGES_FROM: Final = 1
"""First version of CreateTopics and FindCoordinator whose response has error messages."""


def _translate(plan: Plan) -> Admit:
    """Return an `admit` (function that decides about requests) for versions that differ in layout from the
    broker's. A query translates each request to the broker's version, and the response back.
    """
    codec_ = codec(request_type(plan.api_key), plan.version)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
        if body == INCOMPLETE:
            return WAIT
        request = whole_request(context, codec_, data, body, end)
        return request if isinstance(request, Query) else Query(_translated(context, plan, request))

    return admit


def _translated(context: Context, plan: Plan, request: Message) -> BrokerQuery:
    try:
        yield from check(plan, request)
        answer = yield from forward(plan, request, response_type(plan.api_key))
    except EncodeError as error:
        return (yield from unsupported(request, plan.version, str(error)))
    if plan.edit is not None:
        plan.edit(answer, context.addresses)
    return answer


def unsupported(request: Message, version: int, why: str) -> Pieces[Message]:
    """Return a response with error UNSUPPORTED_VERSION. It answers a request in this version, with content
    that the broker's version cannot express.
    """
    text = f"the broker is too old for this request: {why}"
    return error_response(request, version, ErrorCode.UNSUPPORTED_VERSION, text)
