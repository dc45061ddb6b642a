"""Format the recommendation as a quota file: one entry after another, with reasons as comments.

Clients choose their names freely; `quotas.table.quota_entry` escapes them in strings and comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from weir.pipeline.recommend.current import Kept
from weir.pipeline.recommend.plan import PAIRS, QUOTAS, Plan, everybody
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey
from weir.quotas.table.options import PLAIN, Options
from weir.quotas.table.quota_entry import Entry, comment, entry_lines
from weir.quotas.table.replication_entry import replication_lines


class Proposed(NamedTuple):
    """One line of the table of proposals: entity, quota and value, with the reason and the flags."""

    user: str | None
    client_id: str | None
    client_id_prefix: str | None
    quota: str
    proposed: float
    reason: str
    flags: Sequence[str]

    @property
    def entity(self) -> Entity:
        """Entity that the value is proposed for."""
        prefix = self.client_id_prefix
        return Entity(self.user, self.client_id if prefix is None else Prefix(prefix))


def lines(
    header: Iterable[str], proposals: Iterable[Proposed], plan: Plan, level: str, kept: Kept
) -> Iterator[str]:
    """Yield the lines of the quota file, with line ends: header, default entry, proposed entries, kept
    entries. In `proposals`, the values of one entity must be adjacent.

    Raises QuotaFileError for a name that a quota file cannot contain.
    """
    yield from _ended(map(comment, header))
    rest = dict(kept.rates)
    floors: dict[QuotaKey, float] = {key: plan.floor(key) for key in QUOTAS if key in plan.quotas}
    if plan.with_default:
        default = everybody(level)
        told: dict[QuotaKey, list[str]] = {
            next(iter(floors)): ["the floor: for each client without an entry"]
        }
        rates = {**floors, **rest.pop(default, {})}
        yield from _block(Entry(default, False, rates, kept.options.get(default, PLAIN)), told)
    for entity, rows in groupby(proposals, key=lambda row: row.entity):
        if plan.with_default and level == PAIRS and entity.client_id is None:
            others = Entity(entity.user, DEFAULT)  # else these would share the user's budget
            rates = {**floors, **rest.pop(others, {})}
            told_of_others = {next(iter(floors)): ["the floor: for each of the user's other client-ids"]}
            yield from _block(Entry(others, False, rates), told_of_others)
        options = kept.options.get(entity, PLAIN)
        yield from _entry(entity, list(rows), rest.pop(entity, {}), plan, options)
    was = f"as in {plan.current_name}"
    for entity, rates in rest.items():
        options = kept.options.get(entity, PLAIN)
        yield from _block(Entry(entity, False, rates, options), {next(iter(rates)): [was]})
    for entry in kept.shadow:
        yield from _block(entry, {next(iter(entry.rates)): [was]})
    for throttles in kept.replication:
        yield "\n"
        yield from _ended([comment(was), *replication_lines(throttles)])


def _entry(
    entity: Entity, rows: Sequence[Proposed], others: dict[QuotaKey, float], plan: Plan, options: Options
) -> Iterator[str]:
    """Yield the lines of an entity's entry in the quota file: its proposed values, and the values of further
    quotas in `others`, which the entity has in the current file.
    """
    rates = {QuotaKey(row.quota): row.proposed for row in rows}
    comments = {QuotaKey(row.quota): _comments(row) for row in rows}
    was = {key: [f"as in {plan.current_name}"] for key in others}
    yield from _block(Entry(entity, False, {**rates, **others}, options), {**was, **comments})


def _comments(row: Proposed) -> list[str]:
    return [row.reason, *([f"! {', '.join(row.flags)}"] if row.flags else [])]


def _block(entry: Entry, comments: dict[QuotaKey, list[str]]) -> Iterator[str]:
    yield "\n"
    yield from _ended(entry_lines(entry, comments))


def _ended(lines: Iterable[str]) -> Iterator[str]:
    return (f"{line}\n" for line in lines)
