"""`/request-time`, `/shared-usage` and `/replication`, which `weir quotas explain` and `weir replication
status` read.
"""

from __future__ import annotations

import msgspec

from weir.proxy.admin import request_time, shared_usage
from weir.proxy.admin.api.operation import Call, Operation
from weir.proxy.admin.replication import status
from weir.proxy.control.snapshots.filters import Text


class ClientQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of a client."""

    user: Text = ""
    """Name of the principal; empty for ANONYMOUS."""
    client_id: Text = ""


async def _request_time(call: Call) -> request_time.RequestTimeReport:
    sources = call.state.sources
    query = call.query_of(ClientQuery)
    asked = {request_time.USER: query.user, request_time.CLIENT_ID: query.client_id}
    return request_time.report(sources.quota_registry, asked, sources.now_ms())


async def _shared_usage(call: Call) -> shared_usage.SharedUsageReport:
    query = call.query_of(ClientQuery)
    return shared_usage.report(call.state.sources.sharing, query.user, query.client_id)


async def _replication(call: Call) -> status.ReplicationStatus:
    sources = call.state.sources
    return await call.state.read(status.read(sources.replication, sources.now_ms()))


OPERATIONS = (
    Operation(
        "GET",
        request_time.PATH,
        "Request time of a client by API",
        request_time.RequestTimeReport,
        _request_time,
        query=ClientQuery,
    ),
    Operation(
        "GET",
        shared_usage.PATH,
        "Use of the quotas that a client shares over several Weirs",
        shared_usage.SharedUsageReport,
        _shared_usage,
        query=ClientQuery,
    ),
    Operation("GET", status.PATH, "Replication quotas", status.ReplicationStatus, _replication),
)
