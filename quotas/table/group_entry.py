"""One `[[group]]` entry of a quota file: the members and the parent of a group, in both directions.

[[group]]
name = "payments"
users = ["alice", "svc-pay-*"]   # names, or prefixes with one star at the end
client_ids = ["pay-*"]
parent = "retail"
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.table.ends import in_force_at
from weir.quotas.table.entities import DEFAULT
from weir.quotas.table.groups import ALL, GroupError, Member, QuotaGroups
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_delta import QuotaDelta
from weir.quotas.table.quota_entry import EntryError, QuotaFileError, quoted, shown
from weir.quotas.table.quota_kind import FLOORS, KINDS
from weir.quotas.table.times import now_utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from weir.quotas.table.groups import MemberPart
    from weir.quotas.table.quota_kind import QuotaKey
    from weir.quotas.table.quota_table import Quota, QuotaTable

GROUP: Final = "group"
_PARTS: Final[Mapping[str, MemberPart]] = {"users": "user", "client_ids": "client_id"}
FLOOR_KEYS: Final = frozenset(FLOORS.values())
GROUP_KEYS: Final = ("name", *_PARTS, "parent")


class GroupEntry(NamedTuple):
    """One group of a quota file."""

    name: str
    members: tuple[Member, ...]
    parent: str = ""
    """The group that it is a part of; empty for none."""

    def __str__(self) -> str:
        """Return a text such as `group payments`."""
        return f"group {self.name}"


def read_group(values: Mapping[str, object]) -> GroupEntry:
    """Return the group in a TOML table. Raises EntryError."""
    for key in values:
        if key not in GROUP_KEYS:
            close = get_close_matches(key.lower(), GROUP_KEYS, n=1)
            advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(GROUP_KEYS)}"
            raise EntryError(f"unknown key {shown(key)}; {advice}", key)
    if "name" not in values:
        raise EntryError("has no name; add name")
    name = _name("name", values["name"])
    parent = _name("parent", values["parent"]) if "parent" in values else ""
    members = [member for key in _PARTS if key in values for member in _members(key, values[key])]
    return GroupEntry(name, tuple(members), parent)


def _name(key: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise EntryError(f"{key} must be a name in quotes, not {shown(name)}", key)
    if name.startswith("<"):
        raise EntryError(
            f"{key} is {shown(name)}; every client is in {ALL}, and no other name begins with <", key
        )
    return name


def _members(key: str, names: object) -> Iterator[Member]:
    if not isinstance(names, list):
        raise EntryError(f'{key} must be a list such as ["alice", "svc-*"], not {shown(names)}', key)
    for name in names:
        start = name.removesuffix("*") if isinstance(name, str) else ""
        if name == "*":
            raise EntryError(
                f'{key} has "*"; write a quota for group = "{ALL}", in which every client is', key
            )
        if not start or start.startswith("<"):
            raise EntryError(
                f"{key} has {shown(name)}; write a name, or a prefix with one star at its end", key
            )
        if "*" in start:
            raise EntryError(f"{key} has {shown(name)}; only one star is possible, at the end", key)
        yield Member(_PARTS[key], start, name.endswith("*"))


def group_values(entry: GroupEntry) -> dict[str, str | list[str]]:
    """Return the table of a group, which `read_group` reads back."""
    values: dict[str, str | list[str]] = {"name": entry.name}
    for key, part in _PARTS.items():
        names = [f"{name}{'*' if prefix else ''}" for its, name, prefix in entry.members if its == part]
        if names:
            values[key] = names
    return {**values, "parent": entry.parent} if entry.parent else values


def group_lines(entry: GroupEntry) -> Iterator[str]:
    """Yield the lines of TOML for a group, which `read_group` reads back. Raises QuotaFileError."""
    yield f"[[{GROUP}]]"
    for key, value in group_values(entry).items():
        names = f"[{', '.join(map(_quoted, value))}]" if isinstance(value, list) else _quoted(value)
        yield f"{key} = {names}"


def _quoted(name: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in name):
        raise QuotaFileError(f"group or member {name!a} is not valid Unicode; rename it")
    return quoted(name)


def group_entries(groups: QuotaGroups) -> list[GroupEntry]:
    """Return the entries that declare these groups."""
    members: dict[str, list[Member]] = {name: [] for name in groups.parents}
    for member, group in groups.members.items():
        members[group].append(member)
    return [GroupEntry(name, tuple(its), groups.parents[name]) for name, its in members.items()]


def groups_of(entries: Iterable[GroupEntry]) -> QuotaGroups:
    members: dict[Member, str | None] = {}
    parents: dict[str, str | None] = {}
    for entry in entries:
        members.update(dict.fromkeys(entry.members, entry.name))
        parents[entry.name] = entry.parent
    return QuotaGroups().updated(members, parents)


def regrouped(table: QuotaTable, entries: Iterable[GroupEntry], removed: Iterable[str] = ()) -> QuotaTable:
    """Return the table with these groups instead of those of the same names, without the groups `removed`;
    others stay. Raises QuotaFileError.
    """
    before, made = table.groups, {entry.name: entry for entry in entries}
    members: dict[Member, str | None] = {
        member: None for member, group in before.members.items() if group in made
    }
    for entry in made.values():
        for member in entry.members:
            other = members.get(member) or before.members.get(member)
            if other is not None and (other not in made or members.get(member)):
                raise QuotaFileError(f"{member} is a member already, of group {shown(other)}; remove one")
            members[member] = entry.name
    parents: dict[str, str | None] = {name: entry.parent for name, entry in made.items()}
    parents.update(dict.fromkeys(removed))
    after = table.applied(QuotaDelta(members=members, parents=parents))
    try:
        after.groups.check()
    except GroupError as error:
        raise QuotaFileError(str(error)) from None
    check_groups(after)
    return after


def concerns_groups(changes: Iterable[Quota]) -> bool:
    """Return True if a change of these quotas may be one that `check_groups` refuses."""
    return any(entity.group is not None or key in FLOOR_KEYS for entity, key in changes)


def check_groups(table: QuotaTable) -> None:
    """Raise QuotaFileError if a quota is for an unknown group, or a group cannot keep its members' floors."""
    limited = {entity.group for entity, _key in (*table.values, *table.shadow) if entity.group is not None}
    for group in sorted(limited - table.groups.parents.keys() - {ALL}):
        advice = f"add a [[{GROUP}]] of this name"
        if group.strip("<>").casefold() == ALL.strip("<>"):
            advice = f'write group = "{ALL}" for every client'
        raise QuotaFileError(f"a quota is for group {shown(group)}, which is none; {advice}")
    check_floors(table)


def check_floors(table: QuotaTable, now: datetime | None = None) -> None:
    """Raise QuotaFileError if a group cannot keep its members' floors. `now` decides which entries have
    ended; None for the present time.

    Only enforced floors and enforced limits count. So the end of an entry, which takes a floor or a limit
    away, is never the cause of an error.
    """
    for entity, key in (*table.shadow, *table.values):
        parts = entity.user, entity.client_id
        if key in FLOOR_KEYS and (DEFAULT in parts or not any(isinstance(name, str) for name in parts)):
            raise QuotaFileError(
                f"{key.value} of {entity}: a floor is for a named user or client-id, "
                "because each client of a default would have one"
            )
    for fault in floor_faults(in_force_at(table, now or now_utc())):
        raise QuotaFileError(fault)


def claimable_floors(table: QuotaTable) -> Iterator[str]:
    """Yield the enforced floors above the limit of a group whose clients may claim them. Such a floor is of a
    client-id without a user, or of a user whose client-ids may be in the group.
    """
    for (entity, key), floor in table.values.items():
        rate_key, user = KINDS[key].floor_of, entity.user
        name = entity.client_id if isinstance(entity.client_id, str) else ""
        if rate_key is None or (isinstance(user, str) and (name or table.groups.of(user, ""))):
            continue
        unnamed = "client_id" if isinstance(user, str) else "user"
        own = table.groups.chain(user if isinstance(user, str) else "", name)
        for group in dict.fromkeys(
            above
            for member, its in table.groups.members.items()
            if member.part == unnamed
            for above in table.groups.above(its)
            if above not in own
        ):
            limit = table.limits(rate_key).resolve_group(group)
            if limit is not None and floor > limit.value:
                yield (
                    f"{key.value} of {entity} is above the {rate_key.value} of group {group}, "
                    f"whose clients may have it; name its {unnamed}"
                )


def floor_faults(table: QuotaTable, *, shadow: bool = False) -> Iterator[str]:
    """Yield the reasons why groups cannot keep their members' enforced floors, or with `shadow` the floors of
    shadow entries.
    """
    floors: dict[tuple[str, QuotaKey], float] = {}
    for key, floor_key in FLOORS.items():
        for (entity, its_key), floor in (table.shadow if shadow else table.values).items():
            if its_key is not floor_key:
                continue
            user, client_id = entity.user, entity.client_id
            names = (name if isinstance(name, str) else "" for name in (user, client_id))
            for group in table.groups.chain(*names):
                limit = (table.shadow_limits(key) if shadow else table.limits(key)).resolve_group(group)
                if limit is None:
                    continue
                floors[group, key] = floors.get((group, key), 0.0) + floor
                if floors[group, key] > limit.value:
                    yield (
                        f"the floors of group {group} are {floors[group, key]:.0f} bytes/s, above its "
                        f"{key.value} of {limit.value:.0f}; lower {floor_key.value} of {entity}"
                    )
                scope = table.options_of(entity, shadow=shadow).scope
                if limit.scope is Scope.CLUSTER and scope is not Scope.CLUSTER:
                    yield (
                        f"{floor_key.value} of {entity} is at each broker, and the {key.value} of its group "
                        f'{group} at all together; write scope = "cluster"'
                    )
