"""Why a client is limited as it is: every level in order, which entry wins, why others do not, who shares.

>>> table = QuotaTable({(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
>>> produce = explain(table, "alice", "app").charges[0]
>>> produce.limit.value, produce.shared_by
(1000.0, 'all connections of user alice, whatever the client-id, at each broker')
>>> [(step.who, step.reason) for step in produce.steps][2:4]
[('user alice, client-id <default>', 'no entry'), ('user alice', 'wins')]
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.entities import DEFAULT, LEVELS, Entity, Name, Part, Prefix, Tags
from quotas.options import Scope
from quotas.table import QuotaKey, QuotaTable, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from quotas.limits import Limit, Limits


class Verdict(Enum):
    """What becomes of an entry."""

    WINS = "wins"
    """It is enforced."""
    COUNTED = "counted"
    """A shadow entry that would win if it were enforced."""
    OUTRANKED = "outranked"
    """Another entry comes first."""
    NOT_MEANT = "not meant"
    """It does not mean clients without a client-id."""
    NO_ENTRY = "no entry"
    """There is none at this level."""


@dataclass(frozen=True, slots=True)
class Step:
    """One entry that was looked at, or a level that has none."""

    who: str
    """Such as `user alice, client-id <default>`."""
    entity: Entity | None
    """Whose entry it is; None if there is none."""
    value: float | None
    is_shadow: bool
    verdict: Verdict
    reason: str
    """The verdict in words."""


@dataclass(frozen=True, slots=True)
class Charge:
    """How one quota is found for a client, a topic, or an address."""

    key: QuotaKey
    subject: str
    """`client`, `topic` or `ip`. A topic's quota counts in addition to the client's."""
    steps: tuple[Step, ...]
    """In order of precedence."""
    limit: Limit | None
    """What is enforced; None: nothing."""
    shared_by: str
    """Who shares that budget, in words; "" if there is none."""
    shadow: Limit | None
    """What is only counted; None: nothing."""
    shadow_shared_by: str

    @property
    def is_paced(self) -> bool:
        """Whether a pacing means anything to this quota."""
        return self.key in _VERBS

    @property
    def is_scoped(self) -> bool:
        """Whether a scope means anything to this quota."""
        return self.key in _VERBS or self.key is QuotaKey.REQUEST_PERCENTAGE


@dataclass(frozen=True, slots=True)
class Explanation:
    """All quotas that concern a client."""

    user: str
    client_id: str
    """As the client gives it."""
    taken_as: str
    """The client-id that is looked up: another one only if clients without one are given a name."""
    ip: str | None
    topic: str | None
    charges: tuple[Charge, ...]


def explain(
    table: QuotaTable,
    user: str,
    client_id: str,
    *,
    ip: str | None = None,
    topic: str | None = None,
    unnamed: str = "",
) -> Explanation:
    """Explain what limits a client, and the connections from its address and its use of a topic, if given.

    `user` is the name of its principal, without type; "" is no client-id, and then the client is taken to be
    called `unnamed`. `ip` is spelled as `canonical_ip` does. Of a global shadow mode, give `in_shadow()`.
    Raises ValueError if there is no user: without authentication it is ANONYMOUS.
    """
    if not user:
        raise ValueError("a client has a user; without authentication it is ANONYMOUS")
    taken_as = client_id or unnamed
    charges = [_client_charge(table, key, user, taken_as) for key in keys_of(Entity(user))]
    if topic is not None:
        charges += [_topic_charge(table, key, topic) for key in _VERBS]
    if ip is not None:
        charges.append(_ip_charge(table, ip))
    return Explanation(user, client_id, taken_as, ip, topic, tuple(charges))


_VERBS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "produce to",
    QuotaKey.CONSUMER_BYTE_RATE: "fetch from",
}
_SCOPES: Final = {
    QuotaKey.CONTROLLER_MUTATION_RATE: "in the whole cluster",
    QuotaKey.CONNECTION_CREATION_RATE: "at each listener",
}


def _reach(key: QuotaKey, limit: Limit) -> str:
    return _SCOPES.get(key) or (
        "at all brokers together" if limit.scope is Scope.CLUSTER else "at each broker"
    )


class _Candidate(NamedTuple):
    """A level, as far as it concerns the client."""

    who: str
    entity: Entity | None
    """None if there can be no entry."""
    why_not: str = ""
    """Why an entry of this level does not mean the client; "" if it does."""


def _client_charge(table: QuotaTable, key: QuotaKey, user: str, client_id: str) -> Charge:
    candidates = list(_candidates(table, key, user, client_id))
    return _charge(
        table, key, "client", candidates, lambda limits: limits.resolve(user, client_id), _client_words
    )


def _topic_charge(table: QuotaTable, key: QuotaKey, topic: str) -> Charge:
    entity = Entity(topic=topic)
    return _charge(
        table,
        key,
        "topic",
        [_Candidate(str(entity), entity)],
        lambda limits: limits.resolve_topic(topic),
        lambda tags: f"all clients that {_VERBS[key]} topic {tags.topic}",
    )


def _ip_charge(table: QuotaTable, ip: str) -> Charge:
    return _charge(
        table,
        QuotaKey.CONNECTION_CREATION_RATE,
        "ip",
        [_Candidate(str(entity), entity) for entity in (Entity(ip=ip), Entity(ip=DEFAULT))],
        lambda limits: limits.resolve_ip(ip),
        lambda tags: f"all connections from {tags.ip}",
    )


def _charge(
    table: QuotaTable,
    key: QuotaKey,
    subject: str,
    candidates: Sequence[_Candidate],
    resolve: Callable[[Limits], Limit | None],
    words: Callable[[Tags], str],
) -> Charge:
    limit = resolve(table.limits(key))
    shadow = resolve(table.shadow_limits(key))
    if shadow is not None and not shadow.is_shadow:
        shadow = None

    def shared_by(limit: Limit | None) -> str:
        return "" if limit is None else f"{words(limit.tags)}, {_reach(key, limit)}"

    steps = tuple(_steps(table, key, candidates))
    return Charge(key, subject, steps, limit, shared_by(limit), shadow, shared_by(shadow))


def _steps(table: QuotaTable, key: QuotaKey, candidates: Sequence[_Candidate]) -> Iterator[Step]:
    """Every entry that concerns the client, the shadow entry of an entity before its enforced one."""
    enforced: _Candidate | None = None
    first: _Candidate | None = None
    """The first that has either; a shadow entry counts only if it is that one's."""
    for candidate in candidates:
        who, entity, why_not = candidate
        entries = 0
        for is_shadow, values in ((True, table.shadow), (False, table.values)):
            value = None if entity is None else values.get((entity, key))
            if value is None:
                continue
            entries += 1
            if why_not:
                verdict, reason = Verdict.NOT_MEANT, why_not
            else:
                verdict, reason = _verdict(first if is_shadow else enforced, is_shadow=is_shadow)
                first = first or candidate
                enforced = enforced if is_shadow else enforced or candidate
            yield Step(who, entity, value, is_shadow, verdict, reason)
        if not entries:
            if entity is None and why_not:
                yield Step(who, None, None, False, Verdict.NOT_MEANT, why_not)
            else:
                yield Step(who, None, None, False, Verdict.NO_ENTRY, "no entry")


def _verdict(before: _Candidate | None, *, is_shadow: bool) -> tuple[Verdict, str]:
    """What becomes of an entry that means the client; `before` is the entry that comes first, if one does."""
    shadow = "shadow: " if is_shadow else ""
    if before is not None:
        return Verdict.OUTRANKED, f"{shadow}a more specific one wins, {before.who}"
    if is_shadow:
        return Verdict.COUNTED, "shadow: counted, not enforced"
    return Verdict.WINS, "wins"


def _candidates(table: QuotaTable, key: QuotaKey, user: str, client_id: str) -> Iterator[_Candidate]:
    """The levels in order; of prefixes all that match, the longest first."""
    prefixes = _prefixes(table, key, client_id)
    for level in LEVELS:
        its_user = _name(level.user, user)
        if level.client_id is not Part.PREFIX:
            yield _candidate(its_user, _name(level.client_id, client_id), has_client_id=bool(client_id))
            continue
        matching = [entity for entity in prefixes if entity.user == its_user]
        if matching and client_id:
            yield from (_Candidate(str(entity), entity) for entity in matching)
        else:
            why_not = "an empty client-id matches no prefix" if matching else ""
            yield _Candidate(_joined(its_user, "client-id prefix"), None, why_not)


def _name(part: Part, name: str) -> Name | None:
    """The name of a part of a level for a client."""
    return None if part is Part.ABSENT else DEFAULT if part is Part.DEFAULT else name


def _candidate(user: Name | None, client_id: Name | None, *, has_client_id: bool) -> _Candidate:
    if client_id == "":
        return _Candidate(_joined(user, "client-id (none)"), None)
    entity = Entity(user, client_id)
    is_meant = has_client_id or client_id is not DEFAULT
    why_not = "" if is_meant else "an empty client-id matches no default"
    return _Candidate(str(entity), entity, why_not)


def _joined(user: Name | None, client_id: str) -> str:
    return client_id if user is None else f"{Entity(user)}, {client_id}"


def _prefixes(table: QuotaTable, key: QuotaKey, client_id: str) -> list[Entity]:
    """The entities with a prefix that matches a client-id, of an empty one all; the longest prefix first."""
    found: dict[Entity, int] = {}
    for entity, its_key in chain(table.values, table.shadow):
        prefix = entity.client_id
        if (
            its_key is key
            and isinstance(prefix, Prefix)
            and (client_id or prefix.start).startswith(prefix.start)
        ):
            found[entity] = len(prefix.start)
    return sorted(found, key=lambda entity: -found[entity])


def _client_words(tags: Tags) -> str:
    """Who shares a client's budget."""
    whose = f"of user {tags.user} " if tags.user else ""
    if tags.client_id_prefix:
        which = f"whose client-id begins with {tags.client_id_prefix}, together"
    elif tags.client_id:
        which = f"with client-id {tags.client_id}"
    else:
        return f"all connections {whose.rstrip()}, whatever the client-id"
    return f"all connections {whose}{which}" + ("" if tags.user else ", whoever the user is")
