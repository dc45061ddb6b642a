"""`/api/quotas`: the quota table, its changes, and their preview.

Changes take the path of Kafka's AlterClientQuotas (KIP-546): the same checks, store and audit log.
"""

from __future__ import annotations

from typing import Final

import trio

from weir.protocol.messages import AlterClientQuotasRequest
from weir.proxy.admin.api.operation import Call, Operation
from weir.proxy.admin.problems import ProblemError
from weir.proxy.control.snapshots.filters import Filter
from weir.proxy.control.snapshots.preview import read_preview
from weir.proxy.control.snapshots.quotas import quota_of, read_quotas
from weir.proxy.control.snapshots.records import ChangedQuota, Preview, QuotaChange, QuotaOps, Quotas
from weir.proxy.handlers.quota_api.alterations import Alterations
from weir.proxy.handlers.quota_api.quota_admin import Changes
from weir.quotas import Entity, QuotaTable

WHO: Final = "admin-token"
"""Name of the principal in the audit log of changes."""
ANSWER_S: Final = 20.0
"""Maximum time (s) to wait for the store."""
_Request = AlterClientQuotasRequest


async def _quotas(call: Call) -> Quotas:
    state = call.state
    table, query = state.sources.quota_registry.table, call.query_of(Filter)
    quotas, hidden = await state.compute(lambda: read_quotas(table, query.q, query.limit))
    settings = state.server.config.settings
    return Quotas(
        now_ms=state.snapshots.unix_ms(),
        hidden=hidden,
        quotas=quotas,
        store=state.sources.store.name,
        writable=state.has_token and (settings.quota_store != "file" or bool(settings.quotas)),
    )


async def _change(call: Call) -> ChangedQuota:
    change = call.body_of(QuotaChange)
    entity, changes = _checked(change)
    if not change.dry_run:
        await _store(call, changes)
    table = call.state.sources.quota_registry.table
    quota = await call.state.compute(
        lambda: quota_of(table.altered(changes) if change.dry_run else table, entity)
    )
    return ChangedQuota(quota=quota, dry_run=change.dry_run)


async def _preview(call: Call) -> Preview:
    entity, changes = _checked(call.body_of(QuotaOps))
    state = call.state
    table, keys = state.sources.quota_registry.table, [key for _entity, key in changes]

    def altered() -> QuotaTable:
        after = table.altered(changes)
        for key in keys:
            after.limits(key)  # prepares the lookups
        return after

    after = await state.compute(altered)
    return await state.read(read_preview(state.snapshots, state.history, entity, keys, after))


def _checked(change: QuotaOps) -> tuple[Entity, Changes]:
    """Return the entity and the changes of a request. Raises ProblemError, with Kafka's text, for quotas that
    cannot exist.
    """
    names = change.entity.items()
    ops = change.ops.items()
    entry = _Request.EntryData(
        entity=[_Request.EntityData(entity_type=kind, entity_name=name) for kind, name in names],
        ops=[_Request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    found = Alterations()
    found.read(entry)
    ((_wire, refused),) = found.outcomes.values()
    if refused is not None:
        raise ProblemError(422, refused.text)
    if not found.changes:  # it only removes quotas that the entity cannot have
        raise ProblemError(422, "the entity cannot have these quotas")
    return next(entity for entity, _key in found.changes), found.changes


async def _store(call: Call, changes: Changes) -> None:
    """Store the changes and put them in force. Raises ProblemError if the store does not."""
    done = trio.Event()
    errors: list[str] = []

    def note(error: str | None) -> None:
        if error is not None:
            errors.append(error)
        done.set()

    call.state.sources.quota_admin.alter(changes, WHO, call.peer, note)
    with trio.move_on_after(ANSWER_S):
        await done.wait()
    if not done.is_set():
        raise ProblemError(409, f"the store has not answered within {ANSWER_S:g} s: look at the quotas again")
    if errors:
        raise ProblemError(409, errors[0])


OPERATIONS = (
    Operation("GET", "/api/quotas", "Quotas as configured", Quotas, _quotas, query=Filter),
    Operation(
        "POST",
        "/api/quotas",
        "Change the quotas of an entity",
        ChangedQuota,
        _change,
        body=QuotaChange,
        changes=True,
    ),
    Operation(
        "POST",
        "/api/quotas/preview",
        "Effect that a change would have had on the last ten minutes",
        Preview,
        _preview,
        body=QuotaOps,
    ),
)
