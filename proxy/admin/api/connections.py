"""`/api/connections`: the open connections of clients, and the end of their waits."""

from __future__ import annotations

import msgspec

from weir.proxy.admin.api.operation import WHO, Call, Operation
from weir.proxy.admin.problems import ProblemError
from weir.proxy.control.release import end_throttles
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.records import Connections, Release, Released
from weir.proxy.logs import audit_logger

audit = audit_logger("weir.audit")


async def _connections(call: Call) -> Connections:
    async with call.state.reading:
        return await call.state.sources.workers.list_connections(call.query_of(ConnectionFilter))


async def _release(call: Call) -> Released:
    its = call.body_of(Release)
    if not (its.user or its.client_id or its.group):
        raise ProblemError(422, "name a user, a client-id, or a group")
    wanted = ConnectionFilter(user=its.user, client_id=its.client_id, group=its.group)
    sources = call.state.sources
    async with call.state.reading:
        number = await sources.workers.end_waits(wanted)
        still = await sources.workers.list_connections(
            msgspec.structs.replace(wanted, state="THROTTLED", sort="waits")
        )
    await call.state.read(end_throttles(sources.quota_registry, wanted, sources.now_ms()))
    who = {"principal": f"User:{WHO}", "client": call.peer}
    names = {"user": its.user, "client_id": its.client_id, "group": its.group}
    audit.info("waits ended", **who, **names, connections=number)
    waits_ms = (each.waits_until_ms - still.now_ms for each in still.connections if each.waits_until_ms)
    return Released(
        connections=number,
        waiting=len(still.connections) + still.hidden,
        wait_ms=max(waits_ms, default=0),
    )


OPERATIONS = (
    Operation(
        "GET", "/api/connections", "Open connections", Connections, _connections, query=ConnectionFilter
    ),
    Operation(
        "POST",
        "/api/connections/release",
        "End the waits of connections, as far as their usage is within the present quotas",
        Released,
        _release,
        body=Release,
        changes=True,
    ),
)
