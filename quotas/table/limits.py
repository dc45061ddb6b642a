"""Limits: the quotas of one key, prepared for lookup: the limit of a client, and the clients that share it.

>>> etl = Entity(client_id=Prefix("etl-"))
>>> limits = Limits({Entity("alice"): QuotaValue(10.0), etl: QuotaValue(5.0)})
>>> limits.resolve("alice", "etl-1") == Limit(10.0, Tags("alice", ""))
True
>>> limits.resolve("bob", "etl-1") == Limit(5.0, Tags("", "", client_id_prefix="etl-"))
True
"""

from __future__ import annotations

from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from weir.quotas.table.entities import BELOW_FLOORS, DEFAULT, LEVELS, Entity, Level, Name, Part, Prefix, Tags
from weir.quotas.table.immutable_map import ImmutableMap
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_delta import QuotaValue

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_Key: TypeAlias = tuple[str, str]
"""(user, client-id or prefix) of an entry; "" for a part that the entry does not name."""


class Limit(NamedTuple):
    """The limit that applies to a client, a topic or an address."""

    value: float
    """Units per second; percent of one thread for request time."""
    tags: Tags
    """Tags of the clients that share the limit."""
    is_shadow: bool = False
    """True if the limit is counted, not enforced."""
    pacing: Pacing = Pacing.KAFKA
    """Kind of limiter of a byte rate, Kafka's or smooth: that of the entry, or else the default of the table.
    Other quotas ignore it.
    """
    scope: Scope = Scope.BROKER
    """Scope of the budget: one per broker, or one for all brokers of the cluster. Only byte rates and request
    time have a scope.
    """


class _Mark(NamedTuple):
    """Mode and options of an entry."""

    is_shadow: bool = False
    options: Options = PLAIN


class _LevelQuotas(NamedTuple):
    """All quotas of one level (kind of entity, such as a user with a client-id), prepared for lookup; for a
    level of prefixes, all prefixes of one length.
    """

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
    """Number of characters in each client-id prefix that these entries name; 0 if they name no prefixes."""
    values: ImmutableMap[_Key, float]
    marks: ImmutableMap[_Key, _Mark]
    """Only for shadow entries, and for entries that have options."""

    @classmethod
    def of(cls, level: Level, prefix_chars: int) -> _LevelQuotas:
        return cls(
            level.user is not Part.ABSENT,
            level.client_id is not Part.ABSENT,
            level.user is Part.NAMED,
            level.client_id is Part.NAMED,
            prefix_chars,
            ImmutableMap(),
            ImmutableMap(),
        )


CHANGED_MAX: Final = 1000
"""Number of changed entities above which their limiters are not looked up one by one."""
_PLAIN_MARK: Final = _Mark()
_VERSIONS: Final = count()


class Limits:
    """The limits of one quota key. Immutable.

    A lookup costs one dict access per level in use; for a level with prefixes, one per length of prefixes.
    """

    __slots__ = (
        "_by_level",
        "_changed",
        "_former",
        "_has_options",
        "_is_shadow",
        "_levels",
        "_pacing",
        "_unleveled",
        "_version",
        "groups",
    )

    def __init__(
        self,
        values: Mapping[Entity, QuotaValue] = MappingProxyType({}),
        pacing: Pacing = Pacing.KAFKA,
    ) -> None:
        """Prepare the values (units per second) of enforced entries for lookup. `pacing`: default of entries
        without pacing.
        """
        self._pacing = pacing
        self._has_options = False
        self._by_level: dict[tuple[Level, int], _LevelQuotas] = {}
        """(level, number of characters in the level's prefixes or 0) → all quotas of that level."""
        self._levels: tuple[_LevelQuotas, ...] = ()
        self._unleveled: ImmutableMap[tuple[str, Name], tuple[float, _Mark]] = ImmutableMap()
        """(`topic`, `topic_prefix`, `group` or `ip`, name) → (value, mode and options), for the entries that
        are not among the levels (kinds of entities of users and client-ids).
        """
        self.groups: frozenset[str] = frozenset()
        """Groups that have an entry."""
        self._is_shadow = False
        self._version = next(_VERSIONS)
        """Number that only these limits have, of those in this process."""
        self._former = self._version
        """Version of the limits that these were made from, by changes of the entities `_changed`."""
        self._changed: Collection[Entity] = ()
        self._apply(values, ())

    def applied(self, changes: Mapping[Entity, QuotaValue | None], shadow: Collection[Entity] = ()) -> Limits:
        """Return the limits after these changes; None removes an entry. Entities in `shadow` get shadow
        entries, the others enforced ones. An entity has one entry here. Costs as much as the changes.
        """
        made = Limits(pacing=self._pacing)
        made._by_level, made._unleveled = dict(self._by_level), self._unleveled
        made._is_shadow, made.groups = self._is_shadow, self.groups
        made._former, made._changed = self._version, changes.keys()
        made._apply(changes, shadow)
        return made

    def _apply(self, changes: Mapping[Entity, QuotaValue | None], shadow: Collection[Entity]) -> None:
        self._is_shadow = self._is_shadow or len(shadow) > 0
        unleveled: dict[tuple[str, Name], tuple[float, _Mark] | None] = {}
        leveled: dict[tuple[Level, int], dict[_Key, tuple[float, _Mark] | None]] = {}
        for entity, value in changes.items():
            user, client_id = entity.user, entity.client_id
            entry = value and (value.value, _Mark(entity in shadow, value.options))
            if entity.topic is not None:
                unleveled[_TOPIC, entity.topic] = entry
            elif entity.topic_prefix is not None:
                unleveled[_TOPIC_PREFIX, entity.topic_prefix] = entry
            elif entity.group is not None:
                unleveled[_GROUP, entity.group] = entry
            elif entity.ip is not None:
                unleveled[_IP, entity.ip] = entry
            else:
                name = _plain(client_id)
                prefix_chars = len(name) if isinstance(client_id, Prefix) else 0
                level = Level(Part.of(user), Part.of(client_id))
                its = leveled.setdefault((level, prefix_chars), {})
                its[_plain(user), name] = entry
        self._unleveled = self._unleveled.updated(unleveled)
        groups = {entity.group for entity in changes if entity.group is not None}
        if groups:
            kept = {group for group in groups | self.groups if (_GROUP, group) in self._unleveled}
            self.groups = frozenset(kept)
        for place, entries in leveled.items():
            self._apply_to_level(place, entries)
        in_order = sorted(self._by_level.items(), key=lambda item: (LEVELS.index(item[0][0]), -item[0][1]))
        self._levels = tuple(quotas for _level, quotas in in_order)
        self._has_options = self._pacing is not Pacing.KAFKA or any(level.marks for level in self._levels)

    def _apply_to_level(
        self, place: tuple[Level, int], entries: Mapping[_Key, tuple[float, _Mark] | None]
    ) -> None:
        """Change the entries of one level; forget the level with its last entry, so that no lookup pays."""
        level = self._by_level.get(place) or _LevelQuotas.of(*place)
        marks: dict[_Key, _Mark | None] = {}
        for key, entry in entries.items():
            mark = _PLAIN_MARK if entry is None else entry[1]
            if mark != _PLAIN_MARK or key in level.marks:
                marks[key] = None if mark == _PLAIN_MARK else mark
        values = level.values.updated({key: entry and entry[0] for key, entry in entries.items()})
        if values:
            self._by_level[place] = level._replace(values=values, marks=level.marks.updated(marks))
        else:
            self._by_level.pop(place, None)

    def changed_tags(self, before: Limits) -> list[Tags] | None:
        """Return the tags of the limiters that may have another limit than in `before`. None stands for any
        limiter: these limits were not made from `before`, a default entry has changed, or too many entries.
        """
        changed = self._changed
        if self._former != before._version or len(changed) > CHANGED_MAX:
            return None
        if any(DEFAULT in (entity.user, entity.client_id, entity.ip) for entity in changed):
            return None
        found: list[Tags] = []
        for entity in changed:
            if entity.group is not None:
                found += [Tags("", part, group=entity.group) for part in ("", BELOW_FLOORS)]
                continue
            is_prefix, name = isinstance(entity.client_id, Prefix), _plain(entity.client_id)
            found.append(
                Tags(
                    _plain(entity.user),
                    "" if is_prefix else name,
                    name if is_prefix else "",
                    entity.topic or "",
                    _plain(entity.ip),
                )
            )
        return found

    def resolve(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if the client has no limit.

        `user` is the name of the client's principal, without type; for a null client-id, pass "".
        """
        found = self._find(user, client_id)
        if found is None:
            return None
        level, key, value = found
        prefix = key[1] if level.prefix_chars else ""
        tags = Tags(
            user if level.per_user else "", client_id if level.per_client_id and not prefix else "", prefix
        )
        is_shadow = self._is_shadow and level.marks.get(key, _PLAIN_MARK).is_shadow
        if not self._has_options:
            return Limit(value, tags, is_shadow)
        pacing, scope = self._options(level, key)
        return Limit(value, tags, is_shadow, pacing, scope)

    def _options(self, level: _LevelQuotas, key: tuple[str, str]) -> tuple[Pacing, Scope]:
        pacing, scope, _until = level.marks.get(key, _PLAIN_MARK).options
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
            _, _, names_user, names_client_id, prefix_chars, values, _ = level
            name = client_id if names_client_id else client_id[:prefix_chars] if prefix_chars else ""
            key = (user if names_user else "", name)
            value = values.get(key)
            if value is not None:
                return level, key, value
        return None

    def _levels_for(self, user: str, client_id: str) -> tuple[_LevelQuotas, ...]:
        """Return the quotas, by level (kind of entity), that can apply to a client with an empty user or
        client-id. Levels with a budget per user do not apply to an empty user, levels with a budget per
        client-id not to an empty client-id.
        """
        return tuple(
            level
            for level in self._levels
            if not (level.per_user and not user) and not (level.per_client_id and not client_id)
        )

    def resolve_topic(self, topic: str) -> Limit | None:
        """Return the limit of a topic, which applies in addition to the client's limit; None for no limit."""
        found = self._unleveled.get((_TOPIC, topic))
        return found and Limit(found[0], Tags("", "", topic=topic), found[1].is_shadow)

    def resolve_prefix(self, prefix: str) -> Limit | None:
        """Return the limit of a topic prefix; None if it has no limit."""
        found = self._unleveled.get((_TOPIC_PREFIX, prefix))
        return found and Limit(found[0], Tags("", ""), found[1].is_shadow)

    def resolve_group(self, group: str) -> Limit | None:
        """Return the limit of a group, which applies in addition to its members' limits; None for none."""
        found = self._unleveled.get((_GROUP, group))
        if found is None:
            return None
        value, (is_shadow, (pacing, scope, _until)) = found
        return Limit(value, Tags("", "", group=group), is_shadow, pacing or self._pacing, scope)

    def resolve_ip(self, ip: str) -> Limit | None:
        """Return the limit of connections from an address in canonical form (`canonical_ip`); None for no
        limit.
        """
        found = self._unleveled.get((_IP, ip)) or self._unleveled.get((_IP, DEFAULT))
        return found and Limit(found[0], Tags("", "", ip=ip), found[1].is_shadow)

    def names_ip(self, ip: str) -> bool:
        """Return True if an IP address has an entry of its own, other than the default entry."""
        return (_IP, ip) in self._unleveled

    def of(self, tags: Tags) -> float | None:
        """Return the value of the entry that limits the clients with these `tags`; None if no entry limits
        them.

        If this object has shadow entries, return None also if that entry is enforced.
        """
        if tags.topic or tags.ip or tags.group:
            limit = self._of_unleveled(tags)
            return None if limit is None or limit.is_shadow != self._is_shadow else limit.value
        found = self._shared(tags)
        if found is None:
            return None
        level, key, value = found
        return value if level.marks.get(key, _PLAIN_MARK).is_shadow == self._is_shadow else None

    def _of_unleveled(self, tags: Tags) -> Limit | None:
        if tags.group:
            return self.resolve_group(tags.group)
        return self.resolve_topic(tags.topic) if tags.topic else self.resolve_ip(tags.ip)

    def options_of(self, tags: Tags) -> tuple[Pacing, Scope]:
        """Return pacing and scope of the limit for the clients that share `tags`. Return Kafka's pacing and
        scope (one budget per broker) if no limit applies to these clients. Not for tags of topics or
        addresses.
        """
        if tags.group:
            limit = self.resolve_group(tags.group)
            return (Pacing.KAFKA, Scope.BROKER) if limit is None else (limit.pacing, limit.scope)
        found = self._shared(tags) if self._has_options else None
        return (Pacing.KAFKA, Scope.BROKER) if found is None else self._options(found[0], found[1])

    def _shared(self, tags: Tags) -> tuple[_LevelQuotas, tuple[str, str], float] | None:
        """Return (level, key in `values` of the level, value) of the entry that limits the clients with these
        `tags`; None if no entry limits them.
        """
        user, client_id, prefix, _topic, _ip, _group = tags
        prefix_chars = len(prefix)
        has_user, has_client_id = user != "", client_id != "" or prefix_chars > 0
        for level in self._levels:
            per_user, per_client_id, names_user, names_client_id, its_chars, values, _ = level
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
        if tags.group:
            return Entity(group=tags.group) if (_GROUP, tags.group) in self._unleveled else None
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
    def is_empty(self) -> bool:
        """True if no entry has a limit."""
        return not self._levels and not self._unleveled

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
_TOPIC_PREFIX: Final = "topic_prefix"
_GROUP: Final = "group"
_IP: Final = "ip"


def _plain(name: Name | Prefix | None) -> str:
    if isinstance(name, str):
        return name
    return name.start if isinstance(name, Prefix) else ""
