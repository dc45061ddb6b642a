"""SASL: SaslHandshake, SaslAuthenticate, and the owners of delegation tokens.

All frames are forwarded unchanged. The connection's principal changes when the broker has accepted the
client, and not before (`exchange` decides when). Until then the client's next requests wait, as at a broker;
they are charged to the new principal. Tokens without a Kafka header are in `proxy.connection.tokens`.
"""

from __future__ import annotations

from typing import Final

import structlog

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, LENGTH, request_body
from weir.protocol.messages import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.protocol.pieces import each
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import BrokerQuery
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Forward, Query, Wait
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.sasl.exchange import SaslExchange, SaslStep
from weir.proxy.handlers.sasl.identity import ANONYMOUS
from weir.proxy.handlers.unread import passed_unread
from weir.proxy.handlers.uplift.uplift import forward
from weir.proxy.handlers.whole_requests import readable_request

log = structlog.get_logger("weir.authentication")

FORWARD_SERIAL: Final = Forward(serial=True, exempt=True, sasl=True)
UNREAD: Final = Forward(serial=True, exempt=True, unread=True, sasl=True)
SASL_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
TOKEN_BYTES_MAX: Final = 512 * 1024
"""Maximum length (bytes) of a SASL token or a SASL request: the default of Kafka's
`sasl.server.max.receive.size`.
"""
MECHANISMS_BYTES_MAX: Final = 16 * 1024
"""Maximum length (bytes) of the body of a SaslHandshake response, which lists the broker's mechanisms."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""Maximum size (bytes) of a broker's response that is kept until it is complete, to be read as a whole."""


def plan_sasl_handshake(plan: Plan) -> None:
    """Track the SASL exchange that a SaslHandshake begins. An exchange that was in progress ends; it counts
    as successful only if the broker's response to the SaslHandshake shows that.
    """
    request, response = codec(SaslHandshakeRequest, plan.version), codec(SaslHandshakeResponse, plan.version)
    flexible = plan.flexible_request

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        claim, before, decision = context.identities.rules.claim, context.client.exchange, FORWARD_SERIAL
        body = request_body(data, frame, end, flexible=flexible) if complete else INCOMPLETE
        if body == INCOMPLETE:
            return _wait_for_request(context, data, frame)
        try:
            asked = request.decode_request(data, body, end)
        except ProtocolError:  # brokers cannot read it either
            asked, decision = SaslHandshakeRequest(), UNREAD
        context.client.follow(SaslExchange(asked.mechanism, claim, raw=plan.version == 0, before=before))
        return decision

    def rewrite(context: Context, data: bytearray, body: int, end: int, complete: bool) -> Wait | None:
        _check_length(body, end, MECHANISMS_BYTES_MAX)
        if not complete:
            return WAIT
        answer, exchange = response.decode(data, body, end), context.client.exchange
        if exchange is not None:
            before, exchange.before = exchange.before, None
            if before is not None and before.has_succeeded(answer.error_code):
                succeeded(context, before)
            exchange.accepted = answer.error_code == ErrorCode.NONE
            if exchange.accepted:
                context.identities.behind_sasl.add(context.node_id)
            context.client.follow(exchange if exchange.accepted else None)
            if not exchange.accepted:
                _failed(context, exchange, answer.error_code)
        _charge_refused(context, plan, answer.error_code, end - body)
        return None

    plan.admit, plan.rewrite, plan.whole = admit, rewrite, True


def plan_sasl_authenticate(plan: Plan) -> None:
    """Read SASL tokens and the broker's responses to them. They have no effect unless the broker has accepted
    a SaslHandshake.
    """
    request = codec(SaslAuthenticateRequest, plan.version)
    response = codec(SaslAuthenticateResponse, plan.version)
    flexible = plan.flexible_request

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        decision = FORWARD_SERIAL
        body = request_body(data, frame, end, flexible=flexible) if complete else INCOMPLETE
        if body == INCOMPLETE:
            return _wait_for_request(context, data, frame)
        try:
            asked = request.decode_request(data, body, end)
        except ProtocolError:
            asked, decision = SaslAuthenticateRequest(), UNREAD
        exchange = context.client.exchange
        if exchange is not None:
            exchange.token(asked.auth_bytes)
        return decision

    def rewrite(context: Context, data: bytearray, body: int, end: int, complete: bool) -> Wait | None:
        if not complete:
            return _wait(body, end)
        answer, exchange = response.decode(data, body, end), context.client.exchange
        if exchange is not None:
            code = answer.error_code
            settle(
                context, exchange, exchange.answer(code, answer.auth_bytes, answer.session_lifetime_ms), code
            )
        _charge_refused(context, plan, answer.error_code, end - body)
        return None

    plan.admit, plan.rewrite, plan.whole = admit, rewrite, True


def _charge_refused(context: Context, plan: Plan, error_code: int, length: int) -> None:
    """Charge request time if the broker has refused the request because no exchange was in progress. Such a
    request was processed by the broker's request handlers; requests of an exchange are not, and cost no
    request time.
    """
    if error_code == ErrorCode.ILLEGAL_SASL_STATE:
        context.charge_time(plan, length)


def _wait_for_request(context: Context, data: bytearray, frame: int) -> Wait:
    """Wait for the whole request; close the connection of a client that announces a longer one than brokers
    read before login.
    """
    (length,) = LENGTH.unpack_from(data, frame)
    if length > TOKEN_BYTES_MAX:
        detail = f"a SASL request of {length} bytes, limit {TOKEN_BYTES_MAX} (sasl.server.max.receive.size)"
        context.violate(CloseReason.REQUEST_TOO_LARGE, detail)
    return WAIT


def _wait(body: int, end: int) -> Wait:
    _check_length(body, end, ANSWER_BYTES_MAX)
    return WAIT


def _check_length(body: int, end: int, most: int) -> None:
    if end - body > most:
        raise ProtocolError(f"an answer to SASL of more than {most} bytes")


# Results


def settle(
    context: Context, exchange: SaslExchange, step: SaslStep, error_code: int = ErrorCode.NONE
) -> None:
    """Act on the broker's response to a SASL token, whose meaning is `step`: change the principal after
    success, count a failure.
    """
    if step is SaslStep.SUCCEEDED:
        succeeded(context, exchange)
    elif step is SaslStep.FAILED:
        _failed(context, exchange, error_code)


def succeeded(context: Context, exchange: SaslExchange) -> None:
    """Change the principal, because the broker has accepted the client."""
    context.client.follow(None)
    context.client.become(_principal(context, exchange))
    context.counters.authentications_succeeded[exchange.mechanism] += 1
    client = context.client
    log.debug("authenticated", user=client.user, mechanism=exchange.mechanism, client=client.peer)


def _failed(context: Context, exchange: SaslExchange, error_code: int) -> None:
    """Keep the principal, because the broker has refused the client, and count the failure."""
    context.counters.authentications_failed[exchange.mechanism] += 1
    log.debug(
        "authentication failed",
        mechanism=exchange.mechanism,
        client=context.client.peer,
        error_code=error_code,
        user=context.client.user,
    )


def _principal(context: Context, exchange: SaslExchange) -> str:
    claimed, mechanism = exchange.claimed, exchange.mechanism
    if exchange.hidden:
        return _hidden(context, mechanism, "the mechanism does not show it")
    if claimed is None:
        return _hidden(context, mechanism, exchange.unreadable)
    if not claimed.is_token_id:
        return claimed.name
    owner = context.identities.owner(claimed.name)
    if owner is not None:
        return owner
    why = "a delegation token's owner is not shown, nor was it created or described through this Weir"
    return _hidden(context, "delegation token", why)


def _hidden(context: Context, what: str, why: str) -> str:
    """Return the substitute name for a client whose name Weir cannot see; close the connection if there is
    none. `what` says how these clients authenticate; log the substitution once per `what`.
    """
    user = context.identities.rules.unreadable
    if not user:
        context.violate(CloseReason.NAME_UNREADABLE, why)
    context.counters.names_hidden += 1
    if context.identities.first_time(what):
        log.warning("cannot see the names of authenticated clients", how=what, user=user, reason=why)
    return user or ANONYMOUS


# Delegation tokens


def plan_create_delegation_token(plan: Plan) -> None:
    """Learn the owner of a new delegation token from CreateDelegationToken responses."""
    response = codec(CreateDelegationTokenResponse, plan.version)

    def rewrite(context: Context, data: bytearray, body: int, end: int, complete: bool) -> Wait | None:
        if not complete:
            return _wait(body, end)
        answer = response.decode(data, body, end)
        if answer.error_code == ErrorCode.NONE:
            context.identities.learn_owner(answer.token_id, answer.principal_name)
        return None

    plan.rewrite = rewrite


def plan_describe_delegation_token(plan: Plan) -> None:
    """Learn the owners of delegation tokens from DescribeDelegationToken responses. A query reads the request
    and the response in pieces, because a user may have any number of tokens.
    """
    codec_ = codec(DescribeDelegationTokenRequest, plan.version)
    flexible = plan.flexible_request

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        body = request_body(data, frame, end, flexible=flexible) if complete else INCOMPLETE
        if body == INCOMPLETE:
            return WAIT
        request = readable_request(context, codec_, data, body, end)
        if request is None:
            return passed_unread(FORWARD)
        return request if isinstance(request, Query) else Query(_described(context, plan, request))

    plan.admit, plan.whole = admit, True


def _described(context: Context, plan: Plan, request: DescribeDelegationTokenRequest) -> BrokerQuery:
    answer = yield from forward(plan, request, DescribeDelegationTokenResponse)
    if answer.error_code == ErrorCode.NONE:
        learn = context.identities.learn_owner
        yield from each(lambda token: learn(token.token_id, token.principal_name), answer.tokens)
    return answer
