"""Groups proposed from names: clients whose names begin alike up to a separator, such as `svc-pay-1` and
`svc-pay-2`, probably belong to one team or application.

A proposed group is a comment in the quota file, because only the operator knows who belongs together.

>>> found = named_alike([(name, None) for name in ("pay-1", "pay-2", "pay-3", "etl")], NO_GROUPS)
>>> [(str(member), len(clients)) for member, clients in found.items()]
[('user pay-*', 3)]
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import polars as pl
from pyspark.sql import DataFrame

from weir.pipeline.outcome import Listing
from weir.pipeline.recommend import proposals, use
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import ANONYMOUS, RecommendationPlan
from weir.pipeline.tables import CLIENT
from weir.quotas import Entity, QuotaKey
from weir.quotas.table.group_entry import GroupEntry, group_lines
from weir.quotas.table.groups import NO_GROUPS, Member, MemberPart, QuotaGroups
from weir.quotas.table.quota_entry import Entry, comment, entry_lines

MEMBERS: Final = 3
"""Least number of names of a proposed group."""
GROUPS: Final = 20
"""Maximum number of proposed groups, those with the most names."""
_SEPARATORS: Final = "-_.:/@"
_SEPARATED: Final = re.compile(f"[{_SEPARATORS}]+(?=.)", re.DOTALL)
_UNSAYABLE: Final = re.compile("^<|[*\ufffd]")
"""Pattern of prefixes that cannot be members of a group, or that stand for names that are no text."""
Client: TypeAlias = tuple[str | None, str | None]
"""User and client-id; None for all."""


class GroupProposal(NamedTuple):
    """A proposed group, and its quotas."""

    entry: GroupEntry
    clients: int
    """Number of entities in the group."""
    rates: dict[QuotaKey, float]


def named_alike(clients: Iterable[Client], declared: QuotaGroups) -> dict[Member, list[Client]]:
    """Return prefixes of users with their clients, and then prefixes of the client-ids of other clients. Each
    client is at the longest prefix of its name that at least `MEMBERS` names have. Clients of `declared`
    groups are left out, and so is a prefix of all names, because everybody is in `<all>`.
    """
    free = [each for each in clients if declared.member(each[0] or "", each[1] or "") is None]
    users = _by_prefix("user", [(user or "", (user, client_id)) for user, client_id in free])
    taken = {client for found in users.values() for client in found}
    rest = [
        (client_id or "", (user, client_id)) for user, client_id in free if (user, client_id) not in taken
    ]
    return users | _by_prefix("client_id", rest)


def _by_prefix(part: MemberPart, named: Sequence[tuple[str, Client]]) -> dict[Member, list[Client]]:
    of_name = defaultdict[str, list[Client]](list)
    for name, client in named:
        if name not in ("", ANONYMOUS):
            of_name[name].append(client)
    of_prefix = defaultdict[str, list[str]](list)
    for name in of_name:
        for separated in _SEPARATED.finditer(name):
            of_prefix[name[: separated.end()]].append(name)
    found, taken = dict[Member, list[Client]](), set[str]()
    for prefix in sorted(of_prefix, key=lambda prefix: (-len(prefix), prefix)):
        names = [name for name in of_prefix[prefix] if name not in taken]
        if len(names) >= MEMBERS and len(of_prefix[prefix]) < len(of_name) and not _UNSAYABLE.search(prefix):
            taken.update(names)
            found[Member(part, prefix, True)] = [client for name in names for client in of_name[name]]
    return found


def proposed_groups(
    rows: DataFrame, entities: pl.DataFrame, plan: RecommendationPlan, span: use.CoveredTime, level: str
) -> list[GroupProposal]:
    """Return the groups of entities (columns `CLIENT`) that are named alike, with a quota for what their
    clients used together, as `proposals.wanted` computes it. `rows` are the hours of the roll-up.
    """
    declared = NO_GROUPS if plan.current is None else plan.current.groups
    clients = entities.select(CLIENT).unique().sort(CLIENT).rows()
    members, of_group = defaultdict[str, list[Member]](list), defaultdict[str, list[Client]](list)
    for member, its in named_alike(clients, declared).items():
        name = member.name.strip(_SEPARATORS)
        if name and name not in declared.parents:
            members[name].append(member)
            of_group[name] += its
    names = sorted(members, key=lambda name: (-len(of_group[name]), name))[:GROUPS]
    if not names:
        return []
    rates = _rates({name: of_group[name] for name in names}, rows, plan, span, level)
    return [
        GroupProposal(GroupEntry(name, tuple(members[name])), len(of_group[name]), rates[name])
        for name in names
        if rates[name]
    ]


def _rates(
    clients: dict[str, list[Client]],
    rows: DataFrame,
    plan: RecommendationPlan,
    span: use.CoveredTime,
    level: str,
) -> dict[str, dict[QuotaKey, float]]:
    """Return the quotas of each group with use."""
    each = [
        (*client, key.value, name) for name, its in clients.items() for client in its for key in plan.quotas
    ]
    members = pl.DataFrame(each, dict.fromkeys((*CLIENT, "quota", "prefix"), pl.String), orient="row")
    needs = use.needed(use.hours_of_groups(rows, plan, members), plan, span).filter(pl.col("used") > 0)
    budgets = needs.select(
        *(*POT, "quota"),
        current=pl.lit(None, pl.Float64),
        alone=False,
        named=False,
        hours="hours_used",
        first_ms=0,
    )
    found: dict[str, dict[QuotaKey, float]] = {name: {} for name in clients}
    wanted = proposals.wanted(budgets, needs, plan, level)
    for key in plan.quotas:
        of_quota = wanted.filter(pl.col("quota") == key.value)
        for name, rate in of_quota.select("client_id_prefix", "wanted").iter_rows():
            found[name][key] = rate
    return found


def group_comments(groups: Iterable[GroupProposal]) -> Iterator[list[str]]:
    """Yield the lines of each group and its quotas, as comments of a quota file."""
    for entry, clients, rates in groups:
        why = f"proposed from {clients} names; to limit them together, uncomment the lines below"
        quota = entry_lines(Entry(Entity(group=entry.name), False, rates))
        yield [comment(why), *map(comment, (*group_lines(entry), *quota))]


def of_groups(groups: Sequence[GroupProposal]) -> Listing:
    """Return the proposed groups for the terminal."""
    rows = tuple(
        (entry.name, ", ".join(map(str, entry.members)), clients, key.value, rate)
        for entry, clients, rates in groups
        for key, rate in rates.items()
    )
    title = "groups proposed from names: comments at the end of the file"
    return Listing(title, ("group", "members", "entities", "quota", "together"), rows)
