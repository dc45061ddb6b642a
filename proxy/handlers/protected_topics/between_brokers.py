"""Requests by which brokers and controllers change replicas.

With these, a client could delete a protected topic's replicas at brokers without an authorizer. They are
refused as a whole, as by an authorizer (ClusterAction), because some name topics by id, and no client needs
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.protocol.codec import response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import REQUEST_HEAD
from weir.proxy.handlers.broker_query import response_frame
from weir.proxy.handlers.decisions import WAIT, Decision, Reply, Wait
from weir.proxy.handlers.plan import forward_unchanged

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context, Plan
    from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics


def plan_refuse(plan: Plan, protected: ProtectedTopics) -> None:
    """Refuse the requests of clients that are neither admins nor brokers."""
    pass_on = plan.admit or forward_unchanged
    refusal = response_type(plan.api_key)()
    refusal.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[attr-defined]  # all of them have it

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if not protected.refuses(context.client):
            return pass_on(context, data, frame, end, complete)
        if not complete:
            return WAIT
        protected.refused(context, plan.api_key, protected.names)
        (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
        return Reply(response_frame(plan.api_key, plan.version, correlation_id, refusal))

    plan.admit, plan.whole = admit, True
