"""Limits: the quotas of one key, made ready for lookup. Which of them applies to a client, and who shares it.

>>> limits = Limits([(Entity("alice"), 10.0), (Entity(client_id=Prefix("etl-")), 5.0)])
>>> limits.resolve("alice", "etl-1") == Limit(10.0, Tags("alice", ""))
True
>>> limits.resolve("bob", "etl-1") == Limit(5.0, Tags("", "", client_id_prefix="etl-"))
True
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.entities import DEFAULT, LEVELS, Entity, Level, Name, Part, Prefix, Tags
from quotas.options import PLAIN, Options, Pacing, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Limit(NamedTuple):
    """What applies to a client, a topic or an address: a value, and who shares it."""

    value: float
    tags: Tags
    is_shadow: bool = False
    """It is counted, not enforced."""
    pacing: Pacing = Pacing.KAFKA
    """How it is held; of byte rates only."""
    scope: Scope = Scope.BROKER
    """How far the budget reaches; of byte rates and request time only."""


class _Rung(NamedTuple):
    """A level that has quotas, made ready for lookup; of the prefixes of a level, those of one length."""

    per_user: bool
    per_client_id: bool
    names_user: bool
    names_client_id: bool
    prefix_chars: int
    """The length of the prefixes, 0 if the level has none."""
    values: dict[tuple[str, str], float]
    """By (user, client-id or prefix), "" for a part that is not named."""
    shadows: set[tuple[str, str]]
    """Those among them that are shadow entries."""
    options: dict[tuple[str, str], Options]
    """Those of entries that have some."""

    @classmethod
    def of(cls, level: Level, prefix_chars: int) -> _Rung:
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
    """The limits of one quota key. Immutable; a lookup costs one dict access per level in use; of a level
    with prefixes, one per length of them.
    """

    __slots__ = ("_alone", "_has_options", "_is_shadow", "_pacing", "_rungs")

    def __init__(
        self,
        quotas: Iterable[tuple[Entity, float]] = (),
        shadow: Iterable[tuple[Entity, float]] = (),
        options: Mapping[tuple[Entity, bool], Options] = MappingProxyType({}),
        pacing: Pacing = Pacing.KAFKA,
    ) -> None:
        """Take each entity's value. Of an entity that has both, the shadow entry counts. `options` are by
        entity, and whether it is the shadow entry; `pacing` is that of entries that say none.
        """
        self._pacing = pacing
        self._has_options = pacing is not Pacing.KAFKA or bool(options)
        rungs: dict[tuple[Level, int], _Rung] = {}
        """By level, and the length of its prefixes."""
        self._alone: dict[tuple[str, Name], tuple[float, bool]] = {}
        """Of topics and addresses: the value, and whether it is a shadow entry."""
        self._is_shadow = False
        for entity, value in quotas:
            self._add(rungs, entity, value, False, options.get((entity, False), PLAIN))
        for entity, value in shadow:
            self._is_shadow = True
            self._add(rungs, entity, value, True, options.get((entity, True), PLAIN))
        in_order = sorted(rungs.items(), key=lambda item: (LEVELS.index(item[0][0]), -item[0][1]))
        self._rungs = tuple(rung for _level, rung in in_order)

    def _add(
        self,
        rungs: dict[tuple[Level, int], _Rung],
        entity: Entity,
        value: float,
        is_shadow: bool,
        options: Options,
    ) -> None:
        user, client_id = entity.user, entity.client_id
        if user is None and client_id is None:
            if entity.topic is not None:
                self._alone[_TOPIC, entity.topic] = value, is_shadow
            elif entity.ip is not None:
                self._alone[_IP, entity.ip] = value, is_shadow
            return
        name = _plain(client_id)
        prefix_chars = len(name) if isinstance(client_id, Prefix) else 0
        level = Level(Part.of(user), Part.of(client_id))
        rung = rungs.get((level, prefix_chars))
        if rung is None:
            rung = rungs[level, prefix_chars] = _Rung.of(level, prefix_chars)
        key = _plain(user), name
        rung.values[key] = value
        if is_shadow:
            rung.shadows.add(key)
        rung.options.pop(key, None)  # those of the enforced entry
        if options != PLAIN:
            rung.options[key] = options

    def resolve(self, user: str, client_id: str) -> Limit | None:
        """What applies to a client; None if nothing does.

        `user` is the name of its principal, without type; a null client-id is the empty one.
        """
        found = self._find(user, client_id)
        if found is None:
            return None
        rung, key, value = found
        prefix = key[1] if rung.prefix_chars else ""
        tags = Tags(
            user if rung.per_user else "", client_id if rung.per_client_id and not prefix else "", prefix
        )
        is_shadow = self._is_shadow and key in rung.shadows
        if not self._has_options:
            return Limit(value, tags, is_shadow)
        pacing, scope = self._options(rung, key)
        return Limit(value, tags, is_shadow, pacing, scope)

    def _options(self, rung: _Rung, key: tuple[str, str]) -> tuple[Pacing, Scope]:
        pacing, scope = rung.options.get(key, PLAIN)
        return pacing or self._pacing, scope

    def named(self, user: str, client_id: str) -> Tags:
        """The names that the quota which applies gives itself; "" for a part that it leaves to the client."""
        found = self._find(user, client_id)
        if found is None:
            return Tags("", "")
        rung, (its_user, name), _value = found
        return Tags(its_user, "", name) if rung.prefix_chars else Tags(its_user, name)

    def _find(self, user: str, client_id: str) -> tuple[_Rung, tuple[str, str], float] | None:
        rungs = self._rungs if user and client_id else self._rungs_for(user, client_id)
        for rung in rungs:
            _, _, names_user, names_client_id, prefix_chars, values, _, _ = rung
            name = client_id if names_client_id else client_id[:prefix_chars] if prefix_chars else ""
            key = (user if names_user else "", name)
            value = values.get(key)
            if value is not None:
                return rung, key, value
        return None

    def _rungs_for(self, user: str, client_id: str) -> tuple[_Rung, ...]:
        """Those for somebody who lacks a name: no level that is per name means the empty one."""
        return tuple(
            rung
            for rung in self._rungs
            if not (rung.per_user and not user) and not (rung.per_client_id and not client_id)
        )

    def resolve_topic(self, topic: str) -> Limit | None:
        """What applies to a topic, in addition to what applies to the client; None if nothing does."""
        found = self._alone.get((_TOPIC, topic))
        return found and Limit(found[0], Tags("", "", topic=topic), found[1])

    def resolve_ip(self, ip: str) -> Limit | None:
        """What applies to the connections from an address, in its canonical form; None if nothing does."""
        found = self._alone.get((_IP, ip)) or self._alone.get((_IP, DEFAULT))
        return found and Limit(found[0], Tags("", "", ip=ip), found[1])

    def names_ip(self, ip: str) -> bool:
        """Whether an address has an entry of its own."""
        return (_IP, ip) in self._alone

    @property
    def has_topics(self) -> bool:
        """Whether any topic has a quota."""
        return any(kind == _TOPIC for kind, _name in self._alone)

    def of(self, tags: Tags) -> float | None:
        """The value that holds for those who share `tags`; None if no level that shares so has one.

        Of limits with shadow entries, None too if the entry that wins is enforced: it counts nothing there.
        """
        if tags.topic or tags.ip:
            limit = self.resolve_topic(tags.topic) if tags.topic else self.resolve_ip(tags.ip)
            return None if limit is None or limit.is_shadow != self._is_shadow else limit.value
        found = self._shared(tags)
        if found is None:
            return None
        rung, key, value = found
        return value if (key in rung.shadows) == self._is_shadow else None

    def options_of(self, tags: Tags) -> tuple[Pacing, Scope]:
        """How the limit of those who share `tags` (not of topics, not of addresses) is held, and how far it
        reaches; plainly if they have none.
        """
        found = self._shared(tags) if self._has_options else None
        return (Pacing.KAFKA, Scope.BROKER) if found is None else self._options(found[0], found[1])

    def _shared(self, tags: Tags) -> tuple[_Rung, tuple[str, str], float] | None:
        """What holds for those who share `tags`."""
        user, client_id, prefix, _topic, _ip = tags
        prefix_chars = len(prefix)
        has_user, has_client_id = user != "", client_id != "" or prefix_chars > 0
        for rung in self._rungs:
            per_user, per_client_id, names_user, names_client_id, its_chars, values, _, _ = rung
            if per_user == has_user and per_client_id == has_client_id and its_chars == prefix_chars:
                key = (user if names_user else "", client_id if names_client_id else prefix)
                value = values.get(key)
                if value is not None:
                    return rung, key, value
        return None

    @property
    def has_options(self) -> bool:
        """Whether any limit may be other than Kafka's in its pacing or its scope."""
        return self._has_options

    def same_as(self, other: Limits) -> bool:
        """Whether both have the same values, and options, for the same entities."""
        return self._rungs == other._rungs and self._alone == other._alone and self._pacing is other._pacing


NONE: Final = Limits()
"""Nobody is limited."""

_TOPIC: Final = "topic"
_IP: Final = "ip"


def _plain(name: Name | Prefix | None) -> str:
    if isinstance(name, str):
        return name
    return name.start if isinstance(name, Prefix) else ""
