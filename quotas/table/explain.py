"""Explains a client's limits: all levels (kinds of entities, such as a user with a client-id) in order of
precedence, the winning entry, the reasons why other entries do not win, and the clients that share the
budget.

>>> table = QuotaTable({(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
>>> produce = explain(table, "alice", "app").charges[0]
>>> produce.limit.value, produce.shared_by
(1000.0, 'all connections of user alice, whatever the client-id, at each broker')
>>> [(step.who, step.reason) for step in produce.steps][2:4]
[('user alice, client-id <default>', 'no entry'), ('user alice', 'wins')]
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from weir.quotas.table.ends import in_force_at
from weir.quotas.table.entities import DEFAULT, LEVELS, Entity, Name, Part, Prefix, Tags
from weir.quotas.table.groups import ALL
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_kind import IN_BYTES_PER_S, KINDS, OF_GROUPS, OF_IPS, OF_TOPICS, PACED
from weir.quotas.table.quota_table import QuotaKey, QuotaTable, keys_of
from weir.quotas.table.times import now_utc, written_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from weir.quotas.table.groups import Member
    from weir.quotas.table.limits import Limit, Limits


class Verdict(Enum):
    """Effect that a quota entry has on a client; or, for a level (kind of entity) without an entry for the
    client, that fact.
    """

    WINS = "wins"
    """The entry applies, and is enforced."""
    COUNTED = "counted"
    """The entry is a shadow entry that would win if it were enforced."""
    OUTRANKED = "outranked"
    """An entry of higher precedence wins."""
    NOT_MEANT = "not meant"
    """The entry does not apply, because the client has no client-id."""
    ENDED = "ended"
    """The end of the entry has come, so it does not apply."""
    NO_ENTRY = "no entry"
    """The table has no entry for the client at this level (kind of entity, such as a user with a client-id).
    """


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the explanation: an entry that could apply to the client, or a level (a kind of entity,
    such as a user with a client-id) that has no such entry.
    """

    who: str
    """Entity of the entry, as text, such as `user alice, client-id <default>`. For a level without an entry,
    the entity that an entry would have.
    """
    entity: Entity | None
    """Entity of the entry; None if this line is about a level (kind of entity) that has no entry for the
    client.
    """
    value: float | None
    """Value of the entry (units per second, or percent of one thread); None if this line is about a level
    (kind of entity) that has no entry for the client.
    """
    is_shadow: bool
    """True if the entry is a shadow entry."""
    verdict: Verdict
    reason: str
    """Reason for the verdict, for operators."""


@dataclass(frozen=True, slots=True)
class QuotaExplanation:
    """Explanation of one quota for a client, a topic, or an address: the limit, and the entries that were
    looked at to find it.
    """

    key: QuotaKey
    subject: str
    """Kind of subject: `client`, `topic`, `ip`, a group such as `group payments`, or a prefix such as
    `topic prefix pay.`. Quotas of a topic and of groups apply in addition to the client's, and the longest
    wait counts.
    """
    steps: tuple[Step, ...]
    """Entries that could apply to the subject, and levels (kinds of entities) without such an entry, in order
    of precedence.
    """
    limit: Limit | None
    """Limit that is enforced; None if the subject has no enforced limit."""
    shared_by: str
    """Description of the clients that share the enforced limit; "" for no limit."""
    shadow: Limit | None
    """Limit of a shadow entry, which is counted but not enforced; None if the subject has no such limit."""
    shadow_shared_by: str
    """Description of the clients that share the shadow limit; "" for no limit."""
    decides: str = ""
    """Reason why this limit is the first of the subject's limits to make the client wait, if it has several
    under this key; "" for the other limits.
    """

    @property
    def is_paced(self) -> bool:
        """True if the quota has a pacing (byte rates)."""
        return self.key in PACED

    @property
    def is_scoped(self) -> bool:
        """True if the quota has a scope (byte rates and request time)."""
        return self.key in IN_BYTES_PER_S or KINDS[self.key].unit == "percent"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Limits of a client under all quotas, with the entries that lead to each limit."""

    user: str
    client_id: str
    """Client-id that the client sends."""
    taken_as: str
    """Client-id that is looked up in the table: `client_id`, or the configured name that stands for an empty
    client-id.
    """
    ip: str | None
    topic: str | None
    charges: tuple[QuotaExplanation, ...]


def explain(
    table: QuotaTable,
    user: str,
    client_id: str,
    *,
    ip: str | None = None,
    topic: str | None = None,
    unnamed: str = "",
    now: datetime | None = None,
) -> Explanation:
    """Explain the limits of a client, of connections from the address `ip`, and of the topic `topic`.

    `user` is the name of the principal, without type. `client_id` is "" for no client-id; `unnamed` is the
    client-id that then stands for it. `ip` has its canonical form (`canonical_ip`). In global shadow mode,
    pass `table.in_shadow()`. `now` decides which entries have ended; None for the present time. Raises
    ValueError if `user` is empty: without authentication it is ANONYMOUS.
    """
    if not user:
        raise ValueError("a client has a user; without authentication it is ANONYMOUS")
    taken_as = client_id or unnamed
    tables = _Tables(table, in_force_at(table, now or now_utc()))
    charges = [
        _client_charge(tables, key, user, taken_as)
        for key in keys_of(Entity(user))
        if KINDS[key].recorded or table.has(key)
    ]
    for group in table.groups.chain(user, taken_as):
        charges += [
            _group_charge(tables, key, group, table.groups.member(user, taken_as))
            for key in OF_GROUPS
            if group in table.limits(key).groups | table.shadow_limits(key).groups
        ]
    if topic is not None:
        its = Entity(topic=topic)
        charges += [
            _topic_charge(tables, key, topic)
            for key in OF_TOPICS
            if KINDS[key].charged or (its, key) in table.values or (its, key) in table.shadow
        ]
        charges += [_prefix_charge(tables, key, prefix) for prefix, key in _prefixes_of(table, topic)]
    if ip is not None:
        charges.append(_ip_charge(tables, ip))
    return Explanation(user, client_id, taken_as, ip, topic, tuple(_decided(charges)))


def _decided(charges: Sequence[QuotaExplanation]) -> Iterator[QuotaExplanation]:
    """Yield the explanations; those of the limits that decide have the reason."""
    for charge in charges:
        limits = [its.limit.value for its in charges if its.key is charge.key and its.limit is not None]
        is_count = KINDS[charge.key].is_of_prefixes
        if is_count or charge.limit is None or charge.limit.value > min(limits):
            yield charge
            continue
        reasons, is_of_group = [], bool(charge.limit.tags.group)
        if len(limits) > 1:
            others = "; other members use it, too" if is_of_group else ""
            reasons.append(f"the least of {len(limits)} limits, and the longest wait counts{others}")
        floor = next((its.limit for its in charges if KINDS[its.key].floor_of is charge.key), None)
        if is_of_group and floor is not None:
            reasons.append(f"At or below the floor of {floor.value:.0f} bytes/s no group decides")
        yield replace(charge, decides=". ".join(reasons))


def _reach(key: QuotaKey, limit: Limit) -> str:
    if key is QuotaKey.STORED_BYTES_MAX and not limit.tags.group:
        return "in the whole cluster"
    return KINDS[key].where or (
        "at all brokers together" if limit.scope is Scope.CLUSTER else "at each broker"
    )


class _Tables(NamedTuple):
    whole: QuotaTable
    in_force: QuotaTable
    """The table without the entries that have ended."""


class _Candidate(NamedTuple):
    """An entity whose entry, if the table has one, could apply to the client. Each level (kind of entity,
    such as a user with a client-id) has one such entity; a level of prefixes has one per matching prefix.
    """

    who: str
    """Text for operators that describes the entity, such as `user alice, client-id <default>`."""
    entity: Entity | None
    """Entity to look up in the table; None if no entry of its level (kind of entity) can apply to the client.
    """
    why_not: str = ""
    """Reason why an entry of this entity does not apply to the client; "" if it applies."""


def _client_charge(tables: _Tables, key: QuotaKey, user: str, client_id: str) -> QuotaExplanation:
    candidates = list(_candidates(tables.whole, key, user, client_id))
    return _charge(
        tables, key, "client", candidates, lambda limits: limits.resolve(user, client_id), _client_words
    )


def _topic_charge(tables: _Tables, key: QuotaKey, topic: str) -> QuotaExplanation:
    entity = Entity(topic=topic)
    return _charge(
        tables,
        key,
        "topic",
        [_Candidate(str(entity), entity)],
        lambda limits: limits.resolve_topic(topic),
        lambda tags: f"all clients that {KINDS[key].with_topic} topic {tags.topic}",
    )


def _prefixes_of(table: QuotaTable, topic: str) -> list[tuple[str, QuotaKey]]:
    """Return the prefixes of a topic that have a limit, the longest first, with the kind of quota."""
    found = {
        (entity.topic_prefix, key)
        for entity, key in chain(table.values, table.shadow)
        if entity.topic_prefix is not None and topic.startswith(entity.topic_prefix)
    }
    return sorted(found, key=lambda each: (-len(each[0]), each[0], each[1].value))


def _prefix_charge(tables: _Tables, key: QuotaKey, prefix: str) -> QuotaExplanation:
    entity = Entity(topic_prefix=prefix)
    what = "each topic that begins" if key is QuotaKey.OVER_BYTE_RATE else "all topics that begin"
    return _charge(
        tables,
        key,
        str(entity),
        [_Candidate(str(entity), entity)],
        lambda limits: limits.resolve_prefix(prefix),
        lambda _tags: f"{what} with {prefix}",
    )


def _group_charge(tables: _Tables, key: QuotaKey, group: str, member: Member | None) -> QuotaExplanation:
    entity = Entity(group=group)
    return _charge(
        tables,
        key,
        str(entity),
        [_Candidate(str(entity), entity)],
        lambda limits: limits.resolve_group(group),
        lambda _tags: (
            "all clients together" if group == ALL else f"all members together, this one by {member}"
        ),
    )


def _ip_charge(tables: _Tables, ip: str) -> QuotaExplanation:
    return _charge(
        tables,
        OF_IPS[0],
        "ip",
        [_Candidate(str(entity), entity) for entity in (Entity(ip=ip), Entity(ip=DEFAULT))],
        lambda limits: limits.resolve_ip(ip),
        lambda tags: f"all connections from {tags.ip}",
    )


def _charge(
    tables: _Tables,
    key: QuotaKey,
    subject: str,
    candidates: Sequence[_Candidate],
    resolve: Callable[[Limits], Limit | None],
    words: Callable[[Tags], str],
) -> QuotaExplanation:
    limit = resolve(tables.in_force.limits(key))
    shadow = resolve(tables.in_force.shadow_limits(key))
    if shadow is not None and not shadow.is_shadow:
        shadow = None

    def shared_by(limit: Limit | None) -> str:
        return "" if limit is None else f"{words(limit.tags)}, {_reach(key, limit)}"

    steps = tuple(_steps(tables, key, candidates))
    return QuotaExplanation(key, subject, steps, limit, shared_by(limit), shadow, shared_by(shadow))


def _steps(tables: _Tables, key: QuotaKey, candidates: Sequence[_Candidate]) -> Iterator[Step]:
    """Yield one line of the explanation (`Step`) for each entry that these entities have, an entity's shadow
    entry before its enforced entry. Yield one line for an entity without an entry.
    """
    enforced: _Candidate | None = None
    """First entity (candidate) with an enforced entry that applies to the client; None if none was found so
    far.
    """
    first: _Candidate | None = None
    """First entity (candidate) with an entry that applies to the client, enforced or shadow; None if none was
    found so far. Shadow entries of later candidates are outranked.
    """
    for candidate in candidates:
        who, entity, why_not = candidate
        entries = 0
        for is_shadow in (True, False):
            found = None if entity is None else tables.whole.get((entity, key), shadow=is_shadow)
            if entity is None or found is None:
                continue
            entries += 1
            until = found.options.until
            if tables.in_force.get((entity, key), shadow=is_shadow) is None:
                verdict, reason = Verdict.ENDED, "ended"
            elif why_not:
                verdict, reason = Verdict.NOT_MEANT, why_not
            else:
                verdict, reason = _verdict(first if is_shadow else enforced, is_shadow=is_shadow)
                first = first or candidate
                enforced = enforced if is_shadow else enforced or candidate
            if until is not None:
                reason += f"{'' if verdict is Verdict.ENDED else ', until'} {written_time(until)}"
            yield Step(who, entity, found.value, is_shadow, verdict, reason)
        if not entries:
            if entity is None and why_not:
                yield Step(who, None, None, False, Verdict.NOT_MEANT, why_not)
            else:
                yield Step(who, None, None, False, Verdict.NO_ENTRY, "no entry")


def _verdict(before: _Candidate | None, *, is_shadow: bool) -> tuple[Verdict, str]:
    """Return (verdict, reason) for an entry that applies to the client. `before`: entity of higher precedence
    whose entry wins over this one; None if this entry wins.
    """
    shadow = "shadow: " if is_shadow else ""
    if before is not None:
        return Verdict.OUTRANKED, f"{shadow}a more specific one wins, {before.who}"
    if is_shadow:
        return Verdict.COUNTED, "shadow: counted, not enforced"
    return Verdict.WINS, "wins"


def _candidates(table: QuotaTable, key: QuotaKey, user: str, client_id: str) -> Iterator[_Candidate]:
    """Yield the entities whose entries could apply to a client, in order of precedence: one per level (form
    of user and client-id), and for a level of prefixes one per matching prefix, the longest first.
    """
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
    """Return the user, or the client-id, of the entity that stands for a client in the form `part`: the
    client's own `name`, the default, or None if the entity lacks this part.
    """
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
    """Return the entities whose prefix matches a client-id (all prefixes match the empty client-id), the
    longest prefix first.
    """
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
    """Return a description, for operators, of the clients that share the budget with these tags."""
    whose = f"of user {tags.user} " if tags.user else ""
    if tags.client_id_prefix:
        which = f"whose client-id begins with {tags.client_id_prefix}, together"
    elif tags.client_id:
        which = f"with client-id {tags.client_id}"
    else:
        return f"all connections {whose.rstrip()}, whatever the client-id"
    return f"all connections {whose}{which}" + ("" if tags.user else ", of any user")
