"""`/api/quotas` and `/api/groups`: the quota table, its changes, and their preview.

Changes are checked like entries of a quota file, because they can have all that an entry has. They take the
path of Kafka's AlterClientQuotas (KIP-546) to the store and the audit log.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import trio

from weir.proxy.admin.api.operation import WHO, Call, Operation
from weir.proxy.admin.problems import ProblemError
from weir.proxy.control.snapshots.filters import Filter
from weir.proxy.control.snapshots.preview import read_preview
from weir.proxy.control.snapshots.quotas import quota_of, read_groups, read_quotas
from weir.proxy.control.snapshots.records import (
    ChangedQuota,
    ClientGroups,
    Preview,
    QuotaChange,
    QuotaOps,
    Quotas,
)
from weir.proxy.control.stores.alterations import QuotaAlteration
from weir.proxy.control.stores.records import entity_of
from weir.proxy.handlers.quota_api.quota_admin import Changes
from weir.quotas import Entity, QuotaFileError, QuotaTable, render
from weir.quotas.table.ends import check_new_end
from weir.quotas.table.group_entry import check_groups, concerns_groups
from weir.quotas.table.names import canonical_ip
from weir.quotas.table.options import Options
from weir.quotas.table.quota_entry import least
from weir.quotas.table.quota_table import NO_BUDGETS, has_budgets
from weir.quotas.table.times import later, now_utc

ANSWER_S: Final = 20.0
"""Maximum time (s) to wait for the store."""


class QuotaFilter(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the lists of quotas and of groups."""

    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of records to leave out at the start."""


async def _quotas(call: Call) -> Quotas:
    state = call.state
    table, query = state.sources.quota_registry.table, call.query_of(QuotaFilter)
    quotas, hidden = await state.compute(lambda: read_quotas(table, query.q, query.limit, query.offset))
    settings = state.server.config.settings
    return Quotas(
        now_ms=state.snapshots.unix_ms(),
        hidden=hidden,
        quotas=quotas,
        store=state.sources.store.name,
        writable=state.has_token and (settings.quota_store != "file" or bool(settings.quotas)),
    )


async def _groups(call: Call) -> ClientGroups:
    state, query = call.state, call.query_of(QuotaFilter)
    groups = state.sources.quota_registry.table.groups
    found, hidden = await state.compute(lambda: read_groups(groups, query.q, query.limit, query.offset))
    return ClientGroups(now_ms=state.snapshots.unix_ms(), hidden=hidden, groups=found)


async def _change(call: Call) -> ChangedQuota:
    change = call.body_of(QuotaChange)
    entity, changes = _checked(change)
    registry, shadow = call.state.sources.quota_registry, change.mode == "shadow"
    options = _new_options(registry.table, change, entity, changes)

    def altered() -> QuotaTable:
        after = registry.table.altered(changes, shadow=shadow, options=options)
        _check_groups(after, changes)
        return after

    after = await call.state.compute(altered)
    if not change.dry_run:
        await _store(call, QuotaAlteration(changes, shadow, options))
        after = registry.table
    quota = await call.state.compute(lambda: quota_of(after, entity, shadow=shadow))
    return ChangedQuota(quota=quota, dry_run=change.dry_run)


def _new_options(table: QuotaTable, change: QuotaChange, entity: Entity, changes: Changes) -> Options | None:
    """Return the options that the entry gets; None if it keeps its own. Raises ProblemError."""
    given, shadow = (change.pacing, change.scope, change.until), change.mode == "shadow"
    if given == (None, None, None):
        return None
    if not has_budgets(entity) and given[:2] != (None, None):
        raise ProblemError(422, NO_BUDGETS)
    try:
        options = table.options_of(entity, shadow=shadow).replaced(*given)
        if change.until is not None and options.until is not None:
            later(options.until, now_utc())
            check_new_end(table, changes, options, shadow=shadow)
    except QuotaFileError as error:
        raise ProblemError(422, str(error)) from None
    except ValueError as error:
        raise ProblemError(422, f"until is {change.until!r}, must be {error}") from None
    return options


async def _preview(call: Call) -> Preview:
    wanted = call.body_of(QuotaOps)
    entity, changes = _checked(wanted)
    state, shadow = call.state, wanted.mode == "shadow"
    table, keys = state.sources.quota_registry.table, [key for _entity, key in changes]
    options = table.options_of(entity, shadow=shadow).replaced(wanted.pacing, wanted.scope, None)

    def altered() -> QuotaTable:
        # A preview in shadow counts as if enforced; only the change itself has to keep the floors.
        _check_groups(table.altered(changes, shadow=shadow, options=options), changes)
        after = table.altered(changes)
        after = after.altered(changes, shadow=True) if shadow else after
        for key in keys:
            after.limits(key)  # prepares the lookups
        return after

    after = await state.compute(altered)
    found = read_preview(state.snapshots, state.history, entity, keys, after, shadow=shadow)
    return await state.read(found)


def _checked(change: QuotaOps) -> tuple[Entity, Changes]:
    """Return the entity and the changes of a request. Raises ProblemError for quotas that cannot exist."""
    names: dict[str, str | None] = dict(change.entity.items())
    try:
        if (ip := names.get("ip")) is not None:
            names["ip"] = canonical_ip(ip)
        entity = entity_of(names)
        changes = {(entity, key): value for key, value in change.rates.items()}
        render(QuotaTable({quota: least(quota[1]) if new is None else new for quota, new in changes.items()}))
    except (QuotaFileError, ValueError) as error:
        raise ProblemError(422, str(error)) from None
    return entity, changes


def _check_groups(table: QuotaTable, changes: Changes) -> None:
    try:
        if concerns_groups(changes):
            check_groups(table)
    except QuotaFileError as error:
        raise ProblemError(422, str(error)) from None


async def _store(call: Call, alteration: QuotaAlteration) -> None:
    """Store the changes and put them in force. Raises ProblemError if the store does not."""
    manager = call.state.sources.quota_manager
    if manager is None:
        raise ProblemError(409, "quotas are not managed here")
    done = trio.Event()
    errors: list[str] = []

    def note(error: str | None) -> None:
        if error is not None:
            errors.append(error)
        done.set()

    manager.alter_entries(alteration, WHO, call.peer, note)
    with trio.move_on_after(ANSWER_S):
        await done.wait()
    if not done.is_set():
        raise ProblemError(409, f"the store has not answered within {ANSWER_S:g} s: look at the quotas again")
    if errors:
        raise ProblemError(409, errors[0])


OPERATIONS = (
    Operation("GET", "/api/quotas", "Quotas as configured", Quotas, _quotas, query=QuotaFilter),
    Operation(
        "GET", "/api/groups", "Groups of clients with their members", ClientGroups, _groups, query=QuotaFilter
    ),
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
