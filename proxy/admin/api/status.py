"""`/api/status`: whether Weir itself is well."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from weir.proxy.admin.api.operation import ApiState, Call, Operation
from weir.proxy.build import VERSION
from weir.proxy.connection import connection
from weir.proxy.control.snapshots.records import (
    Certificate,
    Problem,
    Status,
    Store,
    Totals,
    Usage,
)


async def _status(call: Call) -> Status:
    state = call.state
    server, now_ms = state.server, state.snapshots.unix_ms()
    unready = await state.readiness.problem()
    state.traffic.look(state.sources.now_ms())
    config, sharing = server.config, state.sources.sharing
    return Status(
        name=config.name,
        upstream=config.settings.upstream,
        weirs=0 if sharing is None else sharing.weirs,
        others=() if sharing is None else sharing.others,
        version=VERSION,
        compiled=not connection.__file__.endswith(".py"),
        python=platform.python_version(),
        started_ms=int(state.started_s * 1000),
        now_ms=now_ms,
        ready=unready is None,
        all_in_shadow=_all_in_shadow(state),
        problems=tuple(_problems(state, now_ms)),
        stores=(_store(state),),
        workers=state.sources.workers.records(),
        usage=_usage(state),
        certificates=tuple(
            Certificate(name=files.name, expires_ms=int(files.expires_s * 1000))
            for files in config.tls_files
            if files.expires_s
        ),
        totals=_totals(state),
    )


def _all_in_shadow(state: ApiState) -> bool:
    table = state.sources.quota_registry.in_force
    return bool(table.shadow) and not table.values


def _totals(state: ApiState) -> Totals:
    traffic = state.traffic
    return Totals(
        connections=traffic.latest.connections.total(),
        requests_per_s=traffic.requests_per_s,
        in_bytes_per_s=traffic.in_bytes_per_s(),
        out_bytes_per_s=traffic.out_bytes_per_s(),
        throttled_entities=len({key.tags for key in state.history.throttled_now(state.sources.now_ms())}),
        throttled_connections=traffic.latest.throttled.total(),
    )


def _store(state: ApiState) -> Store:
    store = state.sources.store
    return Store(
        name=store.name,
        quotas=len(state.sources.quota_registry.table),
        updated_ms=int(max(store.last_good_s, store.last_change_s) * 1000) or None,
        failing_since_ms=int(store.outage.changed_s * 1000) if store.outage.failing else None,
        error=store.outage.reason,
    )


def _usage(state: ApiState) -> Usage:
    tally = state.sources.usage
    if tally is None:
        return Usage(enabled=False, dropped=0, error=None)
    return Usage(enabled=True, dropped=sum(tally.dropped.values()), error=tally.failure or None)


def _problems(state: ApiState, now_ms: int) -> Iterator[Problem]:
    """Yield the conditions that need an operator."""
    for condition, lasted_ms in state.server.health.look(state.sources.now_ms()):
        since_ms = now_ms - lasted_ms if condition.since_s is None else int(condition.since_s * 1000)
        yield Problem(what=condition.what, since_ms=since_ms, remedy=condition.remedy)


OPERATIONS = (Operation("GET", "/api/status", "ApiState of this Weir", Status, _status),)
