"""`/api/connections`: the open connections of clients."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from weir.proxy.admin.api.operation import Call, Operation
from weir.proxy.control.snapshots.connections import ConnectionFilter, read_connections
from weir.proxy.control.snapshots.records import Connections


async def _connections(call: Call) -> Connections:
    if call.state.server.workers is not None:
        raise HTTPException(501, "connections are listed with workers = 1 only")
    return await call.state.read(read_connections(call.state.snapshots, call.query_of(ConnectionFilter)))


OPERATIONS = (
    Operation(
        "GET", "/api/connections", "Open connections", Connections, _connections, query=ConnectionFilter
    ),
)
