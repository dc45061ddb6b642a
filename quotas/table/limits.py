"""Limits: the quotas of one key, prepared for lookup: the limit of a client, and the clients that share it.

>>> limits = Limits([(Entity("alice"), 10.0), (Entity(client_id=Prefix("etl-")), 5.0)])
>>> limits.resolve("alice", "etl-1") == Limit(10.0, Tags("alice", ""))
True
>>> limits.resolve("bob", "etl-1") == Limit(5.0, Tags("", "", client_id_prefix="etl-"))
True
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.table.entities import DEFAULT, LEVELS, Entity, Level, Name, Part, Prefix, Tags
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Limit(NamedTuple):
    """The limit that applies to a client, a topic or an address."""

    value: float
    """Units per second; percent of one thread for request time."""
    tags: Tags
    """Tags of the clients that share the limit."""
    is_shadow: bool = False
    """True if the limit is counted, not enforced."""
    pacing: Pacing = Pacing.KAFKA
    """Pacing of the entry, or the default; only used for byte rates."""
    scope: Scope = Scope.BROKER
    """Scope of the budget; only used for byte rates and request time."""


class _LevelQuotas(NamedTuple):
    """All quotas of one level (for a level of prefixes: all prefixes of one length), prepared for lookup."""

    per_user: bool
    """True if each user has a budget of its own."""
    per_client_id: bool
    """True if each client-id or prefix has a budget of its own."""
    names_user: bool
    """True if the entries of this level name users; False if they are for the default user or for any user.
    """
    names_client_id: bool
    """True if the entries of this level name client-ids or prefixes; False if they are for the default
    client-id or for any.
    """
    prefix_chars: int
    """Number of characters in each prefix; 0 if the level has no prefixes."""
    values: dict[tuple[str, str], float]
    """(user, client-id or prefix) → value; "" for a part that the entries do not name."""
    shadows: set[tuple[str, str]]
    """Keys of `values`, (user, client-id or prefix), whose entries are shadow entries."""
    options: dict[tuple[str, str], Options]
    """(user, client-id or prefix) → options; only for entries that have options."""

    @classmethod
    def of(cls, level: Level, prefix_chars: int) -> _LevelQuotas:
        return cls(
            level.user is not Part.ABSENT,
            level.client_id is not Part.ABSENT,
            level.user is Part.NAMED,
            level.client_id is Part.NAMED,
            prefix_chars,
            {},
            set(),
            {},
        )


class Limits:
    """The limits of one quota key. Immutable.

    A lookup costs one dict access per level in use; for a level with prefixes, one per length of prefixes.
    """

    __slots__ = ("_has_options", "_is_shadow", "_levels", "_pacing", "_unleveled")

    def __init__(
        self,
        quotas: Iterable[tuple[Entity, float]] = (),
        shadow: Iterable[tuple[Entity, float]] = (),
        options: Mapping[tuple[Entity, bool], Options] = MappingProxyType({}),
        pacing: Pacing = Pacing.KAFKA,
    ) -> None:
        """Prepare the values (units per second) of the enforced entries `quotas` and the entries `shadow` for
        lookup. If an entity is in both, its shadow entry counts. `options`: (entity, True for its shadow
        entry) → options. `pacing`: default of entries without pacing.
        """
        self._pacing = pacing
        self._has_options = pacing is not Pacing.KAFKA or bool(options)
        levels: dict[tuple[Level, int], _LevelQuotas] = {}
        """(level, number of characters in the level's prefixes or 0) → all quotas of that level."""
        self._unleveled: dict[tuple[str, Name], tuple[float, bool]] = {}
        """(`topic` or `ip`, name) → (value, True for a shadow entry); these entities belong to no level."""
        self._is_shadow = False
        for entity, value in quotas:
            self._add(levels, entity, value, False, options.get((entity, False), PLAIN))
        for entity, value in shadow:
            self._is_shadow = True
            self._add(levels, entity, value, True, options.get((entity, True), PLAIN))
        in_order = sorted(levels.items(), key=lambda item: (LEVELS.index(item[0][0]), -item[0][1]))
        self._levels = tuple(quotas for _level, quotas in in_order)

    def _add(
        self,
        levels: dict[tuple[Level, int], _LevelQuotas],
        entity: Entity,
        value: float,
        is_shadow: bool,
        options: Options,
    ) -> None:
        user, client_id = entity.user, entity.client_id
        if user is None and client_id is None:
            if entity.topic is not None:
                self._unleveled[_TOPIC, entity.topic] = value, is_shadow
            elif entity.ip is not None:
                self._unleveled[_IP, entity.ip] = value, is_shadow
            return
        name = _plain(client_id)
        prefix_chars = len(name) if isinstance(client_id, Prefix) else 0
        level = Level(Part.of(user), Part.of(client_id))
        its = levels.get((level, prefix_chars))
        if its is None:
            its = levels[level, prefix_chars] = _LevelQuotas.of(level, prefix_chars)
        key = _plain(user), name
        its.values[key] = value
        if is_shadow:
            its.shadows.add(key)
        its.options.pop(key, None)  # options of the enforced entry
        if options != PLAIN:
            its.options[key] = options

    def resolve(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if the client has no limit.

        `user` is the name of its principal, without type; for a null client-id, pass "".
        """
        found = self._find(user, client_id)
        if found is None:
            return None
        level, key, value = found
        prefix = key[1] if level.prefix_chars else ""
        tags = Tags(
            user if level.per_user else "", client_id if level.per_client_id and not prefix else "", prefix
        )
        is_shadow = self._is_shadow and key in level.shadows
        if not self._has_options:
            return Limit(value, tags, is_shadow)
        pacing, scope = self._options(level, key)
        return Limit(value, tags, is_shadow, pacing, scope)

    def _options(self, level: _LevelQuotas, key: tuple[str, str]) -> tuple[Pacing, Scope]:
        pacing, scope = level.options.get(key, PLAIN)
        return pacing or self._pacing, scope

    def named(self, user: str, client_id: str) -> Tags:
        """Return the user, client-id and prefix that are named in the entry that applies to a client; "" for
        a default or missing part.
        """
        found = self._find(user, client_id)
        if found is None:
            return Tags("", "")
        level, (its_user, name), _value = found
        return Tags(its_user, "", name) if level.prefix_chars else Tags(its_user, name)

    def _find(self, user: str, client_id: str) -> tuple[_LevelQuotas, tuple[str, str], float] | None:
        levels = self._levels if user and client_id else self._levels_for(user, client_id)
        for level in levels:
            _, _, names_user, names_client_id, prefix_chars, values, _, _ = level
            name = client_id if names_client_id else client_id[:prefix_chars] if prefix_chars else ""
            key = (user if names_user else "", name)
            value = values.get(key)
            if value is not None:
                return level, key, value
        return None

    def _levels_for(self, user: str, client_id: str) -> tuple[_LevelQuotas, ...]:
        """Return the levels that can apply to a client with an empty user or client-id. Levels with a budget
        per user do not apply to an empty user, levels with a budget per client-id not to an empty client-id.
        """
        return tuple(
            level
            for level in self._levels
            if not (level.per_user and not user) and not (level.per_client_id and not client_id)
        )

    def resolve_topic(self, topic: str) -> Limit | None:
        """Return the limit of a topic, which applies in addition to the client's limit; None for no limit."""
        found = self._unleveled.get((_TOPIC, topic))
        return found and Limit(found[0], Tags("", "", topic=topic), found[1])

    def resolve_ip(self, ip: str) -> Limit | None:
        """Return the limit of connections from an address in canonical form (`canonical_ip`); None for no
        limit.
        """
        found = self._unleveled.get((_IP, ip)) or self._unleveled.get((_IP, DEFAULT))
        return found and Limit(found[0], Tags("", "", ip=ip), found[1])

    def names_ip(self, ip: str) -> bool:
        """Return True if an address has an entry of its own."""
        return (_IP, ip) in self._unleveled

    def of(self, tags: Tags) -> float | None:
        """Return the value of the entry that limits the clients with these `tags`; None if no entry does.

        If this object has shadow entries, return None also if that entry is enforced.
        """
        if tags.topic or tags.ip:
            limit = self.resolve_topic(tags.topic) if tags.topic else self.resolve_ip(tags.ip)
            return None if limit is None or limit.is_shadow != self._is_shadow else limit.value
        found = self._shared(tags)
        if found is None:
            return None
        level, key, value = found
        return value if (key in level.shadows) == self._is_shadow else None

    def options_of(self, tags: Tags) -> tuple[Pacing, Scope]:
        """Return pacing and scope of the limit for the clients that share `tags`; Kafka's if they have no
        limit. Not for tags of topics or addresses.
        """
        found = self._shared(tags) if self._has_options else None
        return (Pacing.KAFKA, Scope.BROKER) if found is None else self._options(found[0], found[1])

    def _shared(self, tags: Tags) -> tuple[_LevelQuotas, tuple[str, str], float] | None:
        """Return (level, key in its `values`, value) of the entry that limits the clients with these `tags`;
        None if no entry does.
        """
        user, client_id, prefix, _topic, _ip = tags
        prefix_chars = len(prefix)
        has_user, has_client_id = user != "", client_id != "" or prefix_chars > 0
        for level in self._levels:
            per_user, per_client_id, names_user, names_client_id, its_chars, values, _, _ = level
            if per_user == has_user and per_client_id == has_client_id and its_chars == prefix_chars:
                key = (user if names_user else "", client_id if names_client_id else prefix)
                value = values.get(key)
                if value is not None:
                    return level, key, value
        return None

    def entry_of(self, tags: Tags) -> Entity | None:
        """Return the entity of the entry that limits the clients that share `tags`; None if no entry does."""
        if tags.topic:
            return Entity(topic=tags.topic) if (_TOPIC, tags.topic) in self._unleveled else None
        if tags.ip:
            names = [name for name in (tags.ip, DEFAULT) if (_IP, name) in self._unleveled]
            return Entity(ip=names[0]) if names else None
        found = self._shared(tags)
        if found is None:
            return None
        level, (user, name), _value = found
        its_user = (user if level.names_user else DEFAULT) if level.per_user else None
        if level.prefix_chars:
            return Entity(its_user, Prefix(name))
        return Entity(its_user, (name if level.names_client_id else DEFAULT) if level.per_client_id else None)

    @property
    def has_options(self) -> bool:
        """True if a limit may have another pacing or scope than Kafka's."""
        return self._has_options

    def same_as(self, other: Limits) -> bool:
        """Return True if these limits and `other` have the same values and options for the same entities."""
        return (
            self._levels == other._levels
            and self._unleveled == other._unleveled
            and self._pacing is other._pacing
        )


NONE: Final = Limits()
"""Limits without any entry."""

_TOPIC: Final = "topic"
_IP: Final = "ip"


def _plain(name: Name | Prefix | None) -> str:
    if isinstance(name, str):
        return name
    return name.start if isinstance(name, Prefix) else ""
