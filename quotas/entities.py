"""Entities: whom a quota is set for, which of several quotas wins, and who shares a budget (KIP-55).

An entity is a user, a client-id, or a client-id of a user. Each part is a name or the default, which stands
for every name that has no quota of its own. A client-id may also be a prefix, which is Weir's own. There are
eleven such *levels*, Kafka's eight among them; the first that has a quota for a client decides, and it
decides two things at once: the limit, and with whom it is shared. Everyone with equal `Tags` draws on one
budget.

A default is a value, never a common pot: clients under the default user's quota have a budget each. A prefix
is a pot: all client-ids that match share one budget. Of several prefixes that match, the longest counts.

A topic's quota is no level: it holds in addition, for all clients of the topic together. Nor is an IP
address's, which is of connections.

An empty client-id is no client-id. No quota can name it and no default means it: only the levels without a
client-id apply, whatever else is configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from quotas.names import sanitize


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
        if "" in client or "" in alone or Prefix("") in client:
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
    """Who shares a budget: the names as clients give them; "" where the quota does not distinguish.

    A prefix has a field of its own: a client-id may be any string, so no spelling of a prefix as a client-id
    is safe from being one.
    """

    user: str
    client_id: str
    client_id_prefix: str = ""
    """The prefix, as the quota table gives it, of all client-ids that share. Then `client_id` is ""."""
    topic: str = ""
    """The topic, of a topic's budget. Then all else is ""."""
    ip: str = ""
    """The address, of the connections from one. Then all else is ""."""

    @property
    def sanitized_user(self) -> str:
        """The user as in Kafka's metrics. (Their `client-id` tag is the plain `client_id`.)"""
        return sanitize(self.user)


class Part(Enum):
    """What a level says about the user, or about the client-id."""

    NAMED = "named"
    PREFIX = "prefix"
    """Of client-ids only."""
    DEFAULT = "default"
    ABSENT = "absent"

    @classmethod
    def of(cls, name: Name | Prefix | None) -> Part:
        """The part that `name` is in its entity."""
        if isinstance(name, str):
            return cls.NAMED
        if name is None:
            return cls.ABSENT
        return cls.DEFAULT if name is DEFAULT else cls.PREFIX


class Level(NamedTuple):
    """A kind of entity. A budget is per name of each part that is not absent, or per prefix."""

    user: Part
    client_id: Part


LEVELS: Final = (
    Level(Part.NAMED, Part.NAMED),
    Level(Part.NAMED, Part.PREFIX),
    Level(Part.NAMED, Part.DEFAULT),
    Level(Part.NAMED, Part.ABSENT),
    Level(Part.DEFAULT, Part.NAMED),
    Level(Part.DEFAULT, Part.PREFIX),
    Level(Part.DEFAULT, Part.DEFAULT),
    Level(Part.DEFAULT, Part.ABSENT),
    Level(Part.ABSENT, Part.NAMED),
    Level(Part.ABSENT, Part.PREFIX),
    Level(Part.ABSENT, Part.DEFAULT),
)
"""In order of precedence. Without the prefixes, they are Kafka's."""
