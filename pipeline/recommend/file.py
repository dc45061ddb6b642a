"""Format the recommendation as a quota file: one entry after another, with reasons as comments.

Clients choose their names freely; `quotas.table.quota_entry` escapes them in strings and comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby

from weir.pipeline.recommend.current import Kept
from weir.pipeline.recommend.groups import GroupProposal, group_comments
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import PAIRS, QUOTAS, RecommendationPlan, entity_of, everybody
from weir.pipeline.recommend.reasons import Row
from weir.quotas import DEFAULT, Entity, QuotaKey
from weir.quotas.table.group_entry import group_lines
from weir.quotas.table.options import PLAIN
from weir.quotas.table.quota_entry import Entry, comment, entry_lines
from weir.quotas.table.replication_entry import replication_lines


def lines(
    header: Iterable[str],
    proposals: Iterable[Row],
    plan: RecommendationPlan,
    level: str,
    kept: Kept,
    groups: Iterable[GroupProposal] = (),
) -> Iterator[str]:
    """Yield the lines of the quota file, with line ends: header, groups in force, default entry, proposed
    entries, kept entries, and proposed groups as comments. `proposals` have the columns `POT`, `quota`,
    `proposed`, `reason` and `flags`; those of one entity must be adjacent.

    Raises QuotaFileError for a name that a quota file cannot contain.
    """
    yield from (f"{comment(line)}\n" for line in header)
    for block in chain(_blocks(proposals, plan, level, kept), group_comments(groups)):
        yield from ("\n", *(f"{line}\n" for line in block))


def _blocks(
    proposals: Iterable[Row], plan: RecommendationPlan, level: str, kept: Kept
) -> Iterator[Iterable[str]]:
    rest, was = dict(kept.rates), [f"as in {plan.current_name}"]
    floors: dict[QuotaKey, float] = {key: plan.floor(key) for key in QUOTAS if key in plan.quotas}

    def entry(
        entity: Entity, rates: dict[QuotaKey, float], comments: dict[QuotaKey, list[str]]
    ) -> Iterator[str]:
        """Return the lines of an entry with these values, and with those that the entity keeps."""
        options = kept.options.get(entity, PLAIN)
        if rates:  # a temporary entry would take its proposal with it
            options = options._replace(until=None)
        rates = {**rates, **rest.pop(entity, {})}
        return entry_lines(Entry(entity, False, rates, options), comments)

    def floor(entity: Entity, whose: str) -> Iterator[str]:
        return entry(entity, floors, {next(iter(floors)): [f"the floor: for each {whose}"]})

    for group in kept.groups:
        yield [*map(comment, was), *group_lines(group)]
    if plan.with_default:
        yield floor(everybody(level), "client without an entry")
    for entity, rows in groupby(proposals, key=lambda row: entity_of(*(row[name] for name in POT))):
        if plan.with_default and level == PAIRS and entity.client_id is None:
            # without this entry, they would share the user's budget
            yield floor(Entity(entity.user, DEFAULT), "of the user's other client-ids")
        values = {QuotaKey(row["quota"]): row for row in rows}
        comments = dict.fromkeys(rest.get(entity, {}), was) | {key: _why(row) for key, row in values.items()}
        yield entry(entity, {key: row["proposed"] for key, row in values.items()}, comments)
    for entity, rates in list(rest.items()):
        yield entry(entity, {}, {next(iter(rates)): was})
    for shadow in kept.shadow:
        yield entry_lines(shadow, {next(iter(shadow.rates)): was})
    for throttles in kept.replication:
        yield [*map(comment, was), *replication_lines(throttles)]


def _why(row: Row) -> list[str]:
    return [row["reason"], *([f"! {', '.join(row['flags'])}"] if row["flags"] else [])]
