"""Entities: the subjects of quotas, the precedence of quotas, and the clients that share a budget (KIP-55).

An entity is a user, a client-id, or a client-id of a user. Each part is a name or the default. The default
stands for every name without a quota of its own. A client-id may also be a prefix, which Kafka does not have.
The forms of both parts make eleven *levels*, among them Kafka's eight. The first level with a quota for a
client decides the limit, and also the clients that share the limit: all clients with equal `Tags` share one
budget.

A default quota is a value, not a shared budget: each client under the default user's quota has a budget of
its own. All client-ids that match a prefix share one budget. If several prefixes match, the longest counts.

Topics, groups and IP addresses are not levels. A topic's quota applies in addition to the clients' quotas,
to all clients of the topic together; a group's quota likewise, to all its members. An IP address's quota
limits connections, and a topic prefix's quota the topics with this prefix.

An empty client-id counts as no client-id: only levels without a client-id apply, neither names nor defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias


class Default(Enum):
    """Type of `DEFAULT`, which stands for the default user, client-id or IP address. A type of its own
    differs from every string, so that a user may be called `<default>`.
    """

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
"""Name of the default user, client-id or IP address in an `Entity`."""

Name: TypeAlias = str | Literal[Default.DEFAULT]
"""Name in an entity: a non-empty string, or `DEFAULT`."""


class Prefix(NamedTuple):
    """All client-ids that begin with `start`; they share one budget. Kafka has no prefixes."""

    start: str


@dataclass(frozen=True, slots=True)
class Entity:
    """The subject of a quota. A field is None if the entity does not have this part.

    An IP address (for connections, KIP-612), a topic, a group or a topic prefix (not in Kafka) cannot be
    combined with another part.
    """

    user: Name | None = None
    client_id: Name | Prefix | None = None
    ip: Name | None = None
    topic: str | None = None
    group: str | None = None
    topic_prefix: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if there is no part, an empty name, or an invalid combination."""
        client = [part for part in (self.user, self.client_id) if part is not None]
        others = self.ip, self.topic, self.group, self.topic_prefix
        alone = [part for part in others if part is not None]
        if not client and not alone:
            raise ValueError(
                "an entity needs a user, a client-id, or both; or an ip, a topic, a topic prefix, or a group"
            )
        if len(alone) > 1 or (alone and client):
            raise ValueError("an ip, a topic, a topic prefix and a group stand alone")
        if "" in client or "" in alone or Prefix("") in client:
            raise ValueError("an entity's names must not be empty")

    def __str__(self) -> str:
        """Return a text such as `user alice, client-id <default>`."""
        parts: tuple[tuple[str, Name | None], ...]
        if isinstance(self.client_id, Prefix):
            parts = (("user", self.user), ("client-id prefix", self.client_id.start))
        else:
            parts = (
                ("user", self.user),
                ("client-id", self.client_id),
                ("ip", self.ip),
                ("topic", self.topic),
                ("group", self.group),
                ("topic prefix", self.topic_prefix),
            )
        return ", ".join(
            f"{kind} {part.value if isinstance(part, Default) else part}"
            for kind, part in parts
            if part is not None
        )


class Tags(NamedTuple):
    """Names that identify a budget, as clients send them; "" for a name that does not matter to the budget.

    A prefix has a field of its own because a client-id may be any string, also one that looks like a prefix.
    """

    user: str
    client_id: str
    client_id_prefix: str = ""
    """Prefix in the quota table; all client-ids with it share the budget. If set, `client_id` is ""."""
    topic: str = ""
    """Topic whose byte rate the budget limits; then all other fields are ""."""
    ip: str = ""
    """Client address (canonical form) whose connections the budget limits; then all other fields are ""."""
    group: str = ""
    """Group whose members share the budget; then all other fields are "", but `client_id` is `BELOW_FLOORS`
    for the part that members use below their floors.
    """


BELOW_FLOORS: Final = "<below floors>"
"""Client-id in the tags of the limiter that counts what members of a group use below their floors."""


class Part(Enum):
    """Form that the user, or the client-id, has in the entities of a level: absent, a name, the default, or a
    prefix.
    """

    NAMED = "named"
    PREFIX = "prefix"
    """Form of a client-id prefix; users have no prefixes."""
    DEFAULT = "default"
    ABSENT = "absent"

    @classmethod
    def of(cls, name: Name | Prefix | None) -> Part:
        """Return the form (absent, name, default or prefix) of `name`, which is an entity's user or
        client-id.
        """
        if isinstance(name, str):
            return cls.NAMED
        if name is None:
            return cls.ABSENT
        return cls.DEFAULT if name is DEFAULT else cls.PREFIX


class Level(NamedTuple):
    """A kind of entity: the form of its user and the form of its client-id (absent, a name, the default, or a
    prefix). At a level, each combination of user and client-id (or prefix) has a budget; a part that is
    absent is left out of the combination.
    """

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
"""All levels in order of precedence. Apart from the levels of prefixes, levels and order are Kafka's."""
