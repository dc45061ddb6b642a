"""Groups: which clients share the quotas of a group, and which group is part of another one.

A client is in at most one group. The first of these decides: its user by name, the longest prefix of its
user, its client-id by name, the longest prefix of its client-id. Its chain is that group and its parents.
All clients are in the group `<all>`, which is the last one of each chain and needs no declaration.

>>> groups = QuotaGroups().updated({Member("user", "svc-pay-", True): "payments"}, {"payments": ""})
>>> groups.chain("svc-pay-7", "app"), groups.chain("alice", "app")
(('payments', '<all>'), ('<all>',))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from weir.quotas.table.immutable_map import ImmutableMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ALL: Final = "<all>"
"""Name of the group of all clients."""
DEPTH_MAX: Final = 4
"""Maximum number of groups in a chain, without `<all>`."""

MemberPart: TypeAlias = Literal["user", "client_id"]


class Member(NamedTuple):
    """A name, or a prefix of names, that is in a group."""

    part: MemberPart
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """Return a text such as `user svc-pay-*`."""
        return f"{self.part.replace('_', '-')} {self.name}{'*' if self.is_prefix else ''}"


class GroupError(ValueError):
    """The parents of groups are unknown, in a circle, or too many. The text says which, and the remedy."""

    def __init__(self, group: str, what: str) -> None:
        """Begin with the group whose parent is wrong."""
        super().__init__(what)
        self.group = group


class QuotaGroups:
    """Members and parents of all groups. Immutable. A look-up costs one access to a dictionary for each kind
    of name and each length of prefixes, however many members there are.
    """

    __slots__ = ("_lengths", "members", "parents")

    def __init__(self) -> None:
        self.members: ImmutableMap[Member, str] = ImmutableMap()
        """Member → its group."""
        self.parents: ImmutableMap[str, str] = ImmutableMap()
        """Group → its parent, "" for none; has every declared group."""
        self._lengths: dict[tuple[str, int], int] = {}
        """(Part, number of characters) → number of prefixes of this length."""

    def updated(self, members: Mapping[Member, str | None], parents: Mapping[str, str | None]) -> QuotaGroups:
        """Return the groups after these changes; None removes a member, or a group. Costs as much as the
        changes.
        """
        if not members and not parents:
            return self
        made = QuotaGroups()
        made.members, made.parents = self.members.updated(members), self.parents.updated(parents)
        made._lengths = dict(self._lengths)
        for member, group in members.items():
            if member.is_prefix:
                place = member.part, len(member.name)
                number = made._lengths.get(place, 0) + (group is not None) - (member in self.members)
                made._lengths[place] = number
                if not number:
                    del made._lengths[place]
        made._lengths = dict(sorted(made._lengths.items(), reverse=True))  # user before client_id, long first
        return made

    def member(self, user: str, client_id: str) -> Member | None:
        """Return the member by which a client is in its group; None if it is in no declared group."""
        return self._member("user", user) or self._member("client_id", client_id)

    def _member(self, part: MemberPart, name: str) -> Member | None:
        if not name:
            return None
        exact = Member(part, name)
        if exact in self.members:
            return exact
        for its_part, length in self._lengths:
            if its_part == part and length <= len(name):
                prefix = Member(part, name[:length], True)
                if prefix in self.members:
                    return prefix
        return None

    def chain(self, user: str, client_id: str) -> tuple[str, ...]:
        """Return the groups of a client, from its own to `<all>`."""
        group = self.of(user, client_id)
        return self.above(group) if group else _NO_GROUP

    def of(self, user: str, client_id: str) -> str:
        """Return the declared group of a client; empty for none."""
        member = self.member(user, client_id) if self.members else None
        return "" if member is None else self.members[member]

    def above(self, group: str) -> tuple[str, ...]:
        """Return a group, its parents, and `<all>`."""
        chain: list[str] = []
        while group and group not in chain:  # a circle is refused where groups are read
            chain.append(group)
            group = self.parents.get(group, "")
        return (*chain, ALL)

    def check(self) -> None:
        """Raise GroupError if a parent is not declared, or if parents are too deep or in a circle."""
        for error in self.faults():
            raise error

    def faults(self) -> Iterator[GroupError]:
        """Yield what is wrong with parents, in the order of the groups. A parent that is wrong does not count
        for later groups. Costs as much as there are groups: others may have written them.
        """
        parents = dict(self.parents)
        for group in self.parents:
            what = _fault(group, parents)
            if what:
                parents[group] = ""
                yield GroupError(group, what)

    def __eq__(self, other: object) -> bool:
        """Return True if both have the same groups with the same members and parents."""
        if not isinstance(other, QuotaGroups):
            return NotImplemented
        return self is other or (self.members == other.members and self.parents == other.parents)

    def __hash__(self) -> int:
        return hash(frozenset(self.parents.items()))


def _fault(group: str, parents: Mapping[str, str]) -> str:
    """Return what is wrong with the parent of a group; empty for nothing."""
    parent, chain = parents[group], [group]
    if parent and parent not in parents:
        return f"parent {parent} of group {group} is no group; declare it"
    while parent:
        if parent in chain:
            return f"group {group} is its own ancestor; remove a parent"
        chain.append(parent)
        if len(chain) > DEPTH_MAX:
            return f"{' in '.join(chain)}: more than {DEPTH_MAX} groups; remove a parent"
        parent = parents.get(parent, "")
    return ""


_NO_GROUP: Final = (ALL,)
NO_GROUPS: Final = QuotaGroups()
