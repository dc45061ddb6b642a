"""`/api/connections`: the open connections of clients."""

from __future__ import annotations

from weir.proxy.admin.api.operation import Call, Operation
from weir.proxy.control.snapshots.connections import ConnectionFilter, read_connections
from weir.proxy.control.snapshots.records import Connections
from weir.proxy.control.supervisor import in_steps


async def _connections(call: Call) -> Connections:
    wanted, list_connections = call.query_of(ConnectionFilter), call.state.server.list_connections
    if list_connections is not None:
        return await list_connections(wanted)
    await in_steps(call.state.traffic.look(call.state.sources.now_ms()))
    return await call.state.read(read_connections(call.state.snapshots, wanted))


OPERATIONS = (
    Operation(
        "GET", "/api/connections", "Open connections", Connections, _connections, query=ConnectionFilter
    ),
)
