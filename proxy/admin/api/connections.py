"""`/api/connections`: the open connections of clients."""

from __future__ import annotations

from weir.proxy.admin.api.operation import Call, Operation
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.records import Connections


async def _connections(call: Call) -> Connections:
    async with call.state.reading:
        return await call.state.sources.workers.list_connections(call.query_of(ConnectionFilter))


OPERATIONS = (
    Operation(
        "GET", "/api/connections", "Open connections", Connections, _connections, query=ConnectionFilter
    ),
)
