"""Clients that use versions which Weirs with other settings offer, and this one does not.

Some clients learn versions once, such as franz-go before 1.22. They do not notice that Weir was started again
with `uplift = false`, or that they are now connected to another Weir. A broker would close their connections
without a word. Weir answers with an error, counts and logs the client, and shows it to operators as a
problem.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from weir.protocol import schema
from weir.protocol.codec import codec, request_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import INCOMPLETE, request_body
from weir.protocol.values import Message
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.broker_query import BrokerQuery
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.uplift.error_response import error_response, may_tell_error
from weir.proxy.handlers.whole_requests import whole_request
from weir.proxy.logs import Note, at_once

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context, Plan, RequestClient

log = structlog.get_logger("weir")

CLIENTS_MAX: Final = 100
"""Maximum number of clients whose requests are counted by client; those of others are counted together."""
OTHERS: Final = "others"
_CLIENT_ID_CHARS_MAX: Final = 64


class OutdatedClients:
    """Counts and logs requests in versions that this Weir does not offer. Connections share the object."""

    def __init__(self, note: Note = at_once) -> None:
        """Begin without clients. `note` limits the rate of log lines."""
        self._note = note

    def add(self, context: Context, who: str, api: str, version: int) -> None:
        """Count and log a request."""
        counts = context.counters.not_offered
        counts[who if who in counts or len(counts) < CLIENTS_MAX else OTHERS] += 1
        details = {"who": who, "client": context.client.peer, "api": api, "version": version}
        self._note(("version not offered", api, version), _say, details)


def name_of(client: RequestClient, client_id: str) -> str:
    """Return the names of a client for operators: its library, client-id and IP address."""
    host = client.peer.rpartition(":")[0]
    shown = repr(client_id[:_CLIENT_ID_CHARS_MAX])
    return f"{client.software or 'a client of unknown library'} (client-id {shown}, {host})"


def plan_withheld(plan: Plan, outdated: OutdatedClients) -> None:
    """Answer requests in a version that this Weir does not offer with UNSUPPORTED_VERSION. If the response
    has no place for an error, close the connection.
    """
    codec_ = codec(request_type(plan.api_key), plan.version)
    found = schema.api(plan.api_key)
    api = str(plan.api_key) if found is None else found.name

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
        client_id = context.client.client_id(data, frame, end)
        if body == INCOMPLETE or client_id is None:
            return WAIT
        request = whole_request(context, codec_, data, body, end)
        if isinstance(request, Query):
            return request
        outdated.add(context, name_of(context.client, client_id), api, plan.version)
        what = f"{api} v{plan.version} is not offered here"
        if not may_tell_error(request, plan.version):
            context.violate(CloseReason.REQUEST_VERSION_UNKNOWN, what)
            return WAIT
        text = f"{what}: restart the client, so that it asks for the versions again"
        return Query(_refused(request, plan.version, text))

    plan.admit, plan.whole = admit, True


def _refused(request: Message, version: int, text: str) -> BrokerQuery:
    return (yield from error_response(request, version, ErrorCode.UNSUPPORTED_VERSION, text))


def _say(count: int, details: Mapping[str, object]) -> None:
    log.warning("version not offered", count=count, **details)
