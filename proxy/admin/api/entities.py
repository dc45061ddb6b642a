"""`/api/entities` and `/api/throttled`: who uses which quota, and who is throttled."""

from __future__ import annotations

from weir.proxy.admin.api.operation import Call, Operation
from weir.proxy.control.snapshots.entities import EntityFilter, SortedEntities, read_entities, read_throttled
from weir.proxy.control.snapshots.records import Entities


async def _entities(call: Call) -> Entities:
    state = call.state
    async with state.reading:
        return await read_entities(state.snapshots, state.history, call.query_of(SortedEntities))


async def _throttled(call: Call) -> Entities:
    state = call.state
    async with state.reading:
        return await read_throttled(state.snapshots, state.history, call.query_of(EntityFilter))


OPERATIONS = (
    Operation("GET", "/api/entities", "Entities with a quota", Entities, _entities, query=SortedEntities),
    Operation(
        "GET",
        "/api/throttled",
        "Entities that are throttled or were in the last 30 s, the longest throttle times first",
        Entities,
        _throttled,
        query=EntityFilter,
    ),
)
