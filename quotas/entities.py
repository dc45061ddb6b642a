"""Entities: whom a quota is set for, which of several quotas wins, and who shares a budget (KIP-55).

An entity is a user, a client-id, or a client-id of a user. Each part is a name or the default, which stands
for every name that has no quota of its own. There are eight such *levels*; the first that has a quota for a
client decides, and it decides two things at once: the limit, and with whom it is shared. Everyone with equal
`Tags` draws on one budget.

A default is a value, never a common pot: clients under the default user's quota have a budget each.

An empty client-id is no client-id. No quota can name it and no default means it: only the levels without a
client-id apply, whatever else is configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from quotas.names import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable


class Default(Enum):
    """The type of `DEFAULT`; distinct from every string, so that a user may be called `<default>`."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
"""The default user, or the default client-id."""

Name: TypeAlias = str | Literal[Default.DEFAULT]
"""A name, not empty, or the default."""


class Prefix(NamedTuple):
    """Every client-id that begins with `start`: one budget for all of them. Weir's own, not Kafka's."""

    start: str


@dataclass(frozen=True, slots=True)
class Entity:
    """Whom a quota is set for. A part that is None is not part of the entity.

    An IP address (of connections, KIP-612) and a topic (Weir's own) stand alone.
    """

    user: Name | None = None
    client_id: Name | Prefix | None = None
    ip: Name | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if there is no part, an empty one, or a combination that cannot be."""
        client = [part for part in (self.user, self.client_id) if part is not None]
        alone = [part for part in (self.ip, self.topic) if part is not None]
        if not client and not alone:
            raise ValueError("an entity needs a user, a client-id, or both; or an ip; or a topic")
        if len(alone) > 1 or (alone and client):
            raise ValueError("an ip, and a topic, stand alone")
        if "" in (*client, *alone) or Prefix("") in client:
            raise ValueError("an entity's names must not be empty")

    def __str__(self) -> str:
        """Such as `user alice, client-id <default>`."""
        parts: tuple[tuple[str, Name | None], ...]
        if isinstance(self.client_id, Prefix):
            parts = (("user", self.user), ("client-id prefix", self.client_id.start))
        else:
            parts = (
                ("user", self.user),
                ("client-id", self.client_id),
                ("ip", self.ip),
                ("topic", self.topic),
            )
        return ", ".join(
            f"{kind} {part.value if isinstance(part, Default) else part}"
            for kind, part in parts
            if part is not None
        )


class Tags(NamedTuple):
    """Who shares a budget: the names as clients give them; "" where the quota does not distinguish."""

    user: str
    client_id: str

    @property
    def sanitized_user(self) -> str:
        """The user as in Kafka's metrics. (Their `client-id` tag is the plain `client_id`.)"""
        return sanitize(self.user)


class Limit(NamedTuple):
    """What applies to a client: a value, and who shares it."""

    value: float
    tags: Tags


class Part(Enum):
    """What a level says about the user, or about the client-id."""

    NAMED = "named"
    DEFAULT = "default"
    ABSENT = "absent"

    @classmethod
    def of(cls, name: Name | None) -> Part:
        """The part that `name` is in its entity."""
        if name is None:
            return cls.ABSENT
        return cls.DEFAULT if name is DEFAULT else cls.NAMED


class Level(NamedTuple):
    """A kind of entity. A budget is per name of each part that is not absent."""

    user: Part
    client_id: Part


LEVELS: Final = (
    Level(Part.NAMED, Part.NAMED),
    Level(Part.NAMED, Part.DEFAULT),
    Level(Part.NAMED, Part.ABSENT),
    Level(Part.DEFAULT, Part.NAMED),
    Level(Part.DEFAULT, Part.DEFAULT),
    Level(Part.DEFAULT, Part.ABSENT),
    Level(Part.ABSENT, Part.NAMED),
    Level(Part.ABSENT, Part.DEFAULT),
)
"""In order of precedence."""


class _Rung(NamedTuple):
    """A level that has quotas, made ready for lookup."""

    per_user: bool
    per_client_id: bool
    names_user: bool
    names_client_id: bool
    values: dict[tuple[str, str], float]
    """By (user, client-id), "" for a part that is not named."""


class Limits:
    """The limits of one quota key. Immutable; a lookup costs one dict access per level in use."""

    __slots__ = ("_rungs",)

    def __init__(self, quotas: Iterable[tuple[Entity, float]] = ()) -> None:
        """Take each entity's value."""
        values: dict[Level, dict[tuple[str, str], float]] = {level: {} for level in LEVELS}
        for entity, value in quotas:
            if isinstance(entity.client_id, Prefix):
                continue
            level = Level(Part.of(entity.user), Part.of(entity.client_id))
            values[level][_plain(entity.user), _plain(entity.client_id)] = value
        self._rungs = tuple(
            _Rung(
                level.user is not Part.ABSENT,
                level.client_id is not Part.ABSENT,
                level.user is Part.NAMED,
                level.client_id is Part.NAMED,
                values[level],
            )
            for level in LEVELS
            if values[level]
        )

    def resolve(self, user: str, client_id: str) -> Limit | None:
        """What applies to a client; None if nothing does.

        `user` is the name of its principal, without type; a null client-id is the empty one.
        """
        found = self._find(user, client_id)
        if found is None:
            return None
        (per_user, per_client_id, *_), value = found
        return Limit(value, Tags(user if per_user else "", client_id if per_client_id else ""))

    def named(self, user: str, client_id: str) -> Tags:
        """The names that the quota which applies gives itself; "" for a part that it leaves to the client."""
        found = self._find(user, client_id)
        if found is None:
            return Tags("", "")
        rung = found[0]
        return Tags(user if rung.names_user else "", client_id if rung.names_client_id else "")

    def _find(self, user: str, client_id: str) -> tuple[_Rung, float] | None:
        for rung in self._rungs:
            per_user, per_client_id, names_user, names_client_id, values = rung
            if (per_client_id and not client_id) or (per_user and not user):
                continue
            value = values.get((user if names_user else "", client_id if names_client_id else ""))
            if value is not None:
                return rung, value
        return None

    def of(self, tags: Tags) -> float | None:
        """The value that holds for those who share `tags`; None if no level that shares so has one."""
        user, client_id = tags
        for per_user, per_client_id, names_user, names_client_id, values in self._rungs:
            if per_user == bool(user) and per_client_id == bool(client_id):
                value = values.get((user if names_user else "", client_id if names_client_id else ""))
                if value is not None:
                    return value
        return None

    def same_as(self, other: Limits) -> bool:
        """Whether both have the same values for the same entities."""
        return self._rungs == other._rungs


def _plain(name: Name | None) -> str:
    return name if isinstance(name, str) else ""
