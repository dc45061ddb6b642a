"""Requests that may create or delete topics, while a limit on their number is set."""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from weir.protocol.messages import Message
from weir.proxy.handlers.broker_query import BrokerQuery
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.mutations.decoded_requests import ChargedRequests
from weir.proxy.handlers.plan import Context, Plan

R = TypeVar("R", bound=Message)

QueryFor: TypeAlias = Callable[[Context, Plan, str, R], BrokerQuery | None]
"""Function (context, plan, client-id, request) that returns the query that counts the request's topics; None
if none of them counts.
"""
IsHarmless: TypeAlias = Callable[[Context, Plan, bytearray, int, int], bool]
"""Function (context, plan, data, frame, end) that returns True if the complete request `data[frame:end]`
needs not be decoded, because it can create no topic.
"""


def plan_counted(
    plan: Plan, request: type[R], query_for: QueryFor[R], is_harmless: IsHarmless | None = None
) -> None:
    """Answer requests whose topics count by a query."""
    requests = ChargedRequests(plan, request)
    pass_on = requests.pass_on

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        counted = context.cluster.counted_topics
        if not counted.prefixes:
            return pass_on(context, data, frame, end, complete)
        if is_harmless is not None and complete and is_harmless(context, plan, data, frame, end):
            return pass_on(context, data, frame, end, complete)
        client_id = context.client.client_id(data, frame, end)
        if client_id is None:
            return WAIT
        asked = requests.read(context, data, frame, end, complete, enforced=counted.is_enforced)
        if not isinstance(asked, Message):
            return asked
        query = query_for(context, plan, client_id, asked)
        return pass_on(context, data, frame, end, complete) if query is None else Query(query)

    plan.admit, plan.whole = admit, True
