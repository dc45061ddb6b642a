"""Plans of Fetch at replication listeners: replica fetches are exempt from clients' quotas, and limited by
replication quotas.
"""

from __future__ import annotations

import sys

from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, request_body
from weir.protocol.messages import FetchRequest
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.replication.incoming_fetch import IncomingFetch
from weir.proxy.handlers.replication.replica_fetcher import EXEMPT, ReplicaFetches
from weir.proxy.handlers.replication.replica_fetches import IsReplicaFetch, replica_fetch_test
from weir.proxy.handlers.whole_requests import whole_request


def plan_fetch(plan: Plan) -> None:
    """Limit replica fetches of brokers by replication quotas (KIP-73), instead of clients' quotas. All other
    fetches are a consumer's.
    """
    inner, version = plan.admit, plan.version
    if inner is None:
        raise AssertionError("bandwidth comes before replication")
    is_replica_fetch = replica_fetch_test(version, flexible=plan.flexible_request)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if not context.client.is_broker or context.client.before_login:
            return inner(context, data, frame, end, complete)
        if context.client.identify(data, frame, end, context.now_ms) is None:
            return WAIT
        replica = _is_replica(is_replica_fetch, data, frame, end, complete)
        if replica is None:
            return WAIT
        if not replica:
            return inner(context, data, frame, end, complete)
        return _limited(context, plan, data, frame, end, complete)

    plan.admit, plan.whole = admit, True


def _limited(
    context: Context, plan: Plan, data: bytearray, frame: int, end: int, complete: bool
) -> Decision | Wait:
    """Return the decision about a replica fetch."""
    fetcher = context.state_of(ReplicaFetches).fetcher
    if fetcher is None or not fetcher.reads:
        return EXEMPT
    body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
    if body == INCOMPLETE:
        return WAIT
    codec_ = codec(FetchRequest, plan.version)
    request = whole_request(context, codec_, data, body, end, elements_max=sys.maxsize)
    if isinstance(request, Query):
        return request
    return fetcher.decide(context, IncomingFetch(data, frame, body, end, plan.version), request)


def _is_replica(
    is_replica_fetch: IsReplicaFetch, data: bytearray, frame: int, end: int, complete: bool
) -> bool | None:
    """Return True if the fetch is a replica's, False if not or if the fetch cannot be read, None if more
    bytes are needed.
    """
    try:
        return is_replica_fetch(data, frame, end, complete)
    except ProtocolError:
        return False
