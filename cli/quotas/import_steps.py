"""The changes by which `weir quotas import` sets quotas in a store: one for each mode and set of options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from weir.cli.exits import CommandError
from weir.cli.quotas.change import QuotaEdits, change, ended_values
from weir.cli.quotas.show import clean
from weir.cli.quotas.source import StoredSource
from weir.quotas import QuotaFileError, QuotaTable
from weir.quotas.table.group_entry import check_groups, concerns_groups
from weir.quotas.table.options import PLAIN, Options
from weir.quotas.table.quota_table import Quota
from weir.quotas.table.times import now_utc


class ImportStep(NamedTuple):
    """Imported quotas of one mode with the same options."""

    before: QuotaTable
    """The quotas of the store before this step."""
    shadow: bool
    options: Options | None
    """New options of the entries; None if they keep theirs."""
    values: dict[Quota, float | None]


def import_steps(before: QuotaTable, table: QuotaTable, *, states_options: bool) -> Iterator[ImportStep]:
    """Yield the changes that set the imported quotas in the store, whose table is `before`. With
    `states_options` their entries get the options that were imported with them, else they keep those that the
    store has. Entries that have ended are replaced. Raises CommandError if groups then could not keep the
    floors of their members.
    """
    waiting: dict[tuple[bool, Options | None], dict[Quota, float | None]] = {}
    now = now_utc()
    for shadow, rates in ((False, table.values), (True, table.shadow)):
        for (entity, key), rate in rates.items():
            ended = ended_values(before, entity, now, shadow=shadow)
            kept = PLAIN if ended else None
            options = table.options_of(entity, shadow=shadow) if states_options else kept
            step = waiting.setdefault((shadow, options), {})
            step.update(ended if not step.keys() & ended else {})
            step[entity, key] = rate
    while waiting:
        shadow, options = mode = _next(before, waiting)
        values = waiting.pop(mode)
        yield ImportStep(before, shadow, options, values)
        before = before.altered(values, shadow=shadow, options=options)


def _next(
    before: QuotaTable, waiting: Mapping[tuple[bool, Options | None], dict[Quota, float | None]]
) -> tuple[bool, Options | None]:
    """Return mode and options of the first change that the store would not refuse: the limit of a group may
    have to rise before a floor does, or to fall after it. Raises CommandError if it would refuse all.
    """
    faults: list[QuotaFileError] = []
    for (shadow, options), values in waiting.items():
        try:
            if concerns_groups(values):
                check_groups(before.altered(values, shadow=shadow, options=options))
            return shadow, options
        except QuotaFileError as error:
            faults.append(error)
    raise CommandError(f"not altered: {clean(faults[0])}")


def apply(steps: Iterable[ImportStep], source: StoredSource, *, dry_run: bool) -> QuotaEdits:
    """Make the changes in the store, or only show them. Raises CommandError if the store refuses one."""
    outcome = QuotaEdits([], "", dry_run)
    for before, shadow, options, values in steps:
        done = change(source, before, values, shadow=shadow, dry_run=dry_run, options=options)
        outcome = outcome.joined(done)
    return outcome
