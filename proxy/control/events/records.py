"""The events, as records. Their JSON is the JSON of `/api/events` and of the topic; the field `kind` is the
tag of the class.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias, TypedDict, get_args

import msgspec

from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import Where
from weir.quotas import Tags
from weir.quotas.limiters.limiter import UNLIMITED


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that has happened. The hub sets `id` and `at_ms`."""

    id: int = 0
    """Number of the event; later events have larger numbers, also those of a later process."""
    at_ms: int = 0
    """Unix time (ms) at which Weir has found it."""

    @property
    def kind(self) -> str:
        """The value of the field `kind`."""
        return str(self.__struct_config__.tag)

    @property
    def key(self) -> bytes:
        """Key of the event's record in a topic: events about one thing have the same key."""
        return self.kind.encode()


Publish: TypeAlias = Callable[[Event], object]
"""Function that takes an event without `id` and `at_ms`, such as `Hub.publish`."""


class OfEntity(Event, frozen=True, kw_only=True):
    """Something that has happened to one entity under one quota."""

    quota: str
    """Kafka's name of the quota, a `QuotaKey`."""
    user: str | None = None
    client_id: str | None = None
    client_id_prefix: str | None = None
    topic: str | None = None
    ip: str | None = None
    group: str | None = None
    entry: str | None
    """Quota entry that sets the limit; None if the entry was removed."""
    shadow: bool
    """True for a shadow quota, which throttles no client."""
    limit: float | None
    """Limit in the unit of the quota; None if the entry was removed."""

    @property
    def key(self) -> bytes:
        """Key of the event's record in a topic: the entity's names."""
        names = (self.user, self.client_id, self.client_id_prefix, self.topic, self.ip, self.group)
        return "/".join(name or "" for name in names).encode()


class Throttling(OfEntity, frozen=True, kw_only=True, tag="throttling"):
    """An entity is throttled for the first time after a pause."""

    rate: float | None
    """Rate of the entity at the broker with its highest rate; None for partition mutations."""
    count: int
    """Number of throttles that Weir has found at once."""
    throttled_ms: int
    """Sum of their throttle times."""
    refused: int
    """Number of topics refused because of a mutation quota."""
    connections: int | None
    """Number of the entity's open connections; None for a topic or an IP address."""
    addresses: tuple[str, ...]
    """IP addresses of these connections, at most 5."""


class ThrottlingEnded(OfEntity, frozen=True, kw_only=True, tag="throttling_ended"):
    """An entity was not throttled for the time that ends an episode."""

    count: int
    """Number of throttles of the whole episode."""
    throttled_ms: int
    """Sum of their throttle times."""
    refused: int
    lasted_ms: int
    """Time from the first throttle of the episode to the end of the last one."""


class UsageLevel(OfEntity, frozen=True, kw_only=True, tag="usage"):
    """The rate of an entity has reached a share of its limit."""

    level: int
    """The share: 50, 80 or 100 (percent)."""
    rate: float
    broker: Where
    """Broker at which the entity uses the largest share of its limit."""
    others: int
    """Number of such events since the previous one that were counted only, because there were too many."""


class BrokerDown(Event, frozen=True, kw_only=True, tag="broker_down"):
    """A broker cannot be reached, or has left its cluster."""

    node_id: int
    reason: str | None


class BrokerUp(Event, frozen=True, kw_only=True, tag="broker_up"):
    """A broker that was down has been up for some seconds."""

    node_id: int
    lasted_ms: int
    """Time for which the broker was down."""


class StoreFailing(Event, frozen=True, kw_only=True, tag="store_failing"):
    """The quota store cannot be read; the last known quotas stay in force."""

    store: str
    reason: str | None


class StoreRecovered(Event, frozen=True, kw_only=True, tag="store_recovered"):
    """The quota store can be read again."""

    store: str
    lasted_ms: int


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed value of the quota table; None stands for no value."""

    entity: str
    quota: str
    shadow: bool
    before: float | None
    after: float | None
    until_ms: int | None = None
    """Unix time (ms) at which the entry ends, or has ended; None for an entry without end."""


class QuotaChanged(Event, frozen=True, kw_only=True, tag="quota_changed"):
    """Another quota table is in force."""

    quotas: int
    """Number of values in force now."""
    changed: int
    """Number of values that differ from the table before."""
    changes: tuple[ValueChange, ...]
    """Some of these values."""


class ProblemBegun(Event, frozen=True, kw_only=True, tag="problem"):
    """A condition of Weir has begun that needs an operator."""

    name: str
    """Name of the condition, such as `usage_not_written`."""
    what: str
    """Description of the condition."""
    remedy: str
    """Advice for the operator."""


class ProblemOver(Event, frozen=True, kw_only=True, tag="problem_over"):
    """A condition that needed an operator is over."""

    name: str
    what: str
    lasted_ms: int


AnyEvent: TypeAlias = (
    Throttling
    | ThrottlingEnded
    | UsageLevel
    | BrokerDown
    | BrokerUp
    | StoreFailing
    | StoreRecovered
    | QuotaChanged
    | ProblemBegun
    | ProblemOver
)
KINDS: Final = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent))
"""The values of the field `kind`."""


class EntityNames(TypedDict):
    """The names of an entity, as fields of an event."""

    user: str | None
    client_id: str | None
    client_id_prefix: str | None
    topic: str | None
    ip: str | None
    group: str | None


def names(tags: Tags) -> EntityNames:
    """Return the names of an entity, shortened, as valid Unicode; None for a name that does not matter to the
    quota.
    """
    user, client_id, prefix, topic, ip, group = (shortened(name) if name else None for name in tags)
    return EntityNames(
        user=user, client_id=client_id, client_id_prefix=prefix, topic=topic, ip=ip, group=group
    )


def to_json(event: Event) -> bytes:
    """Return an event as one JSON object. Halves of surrogate pairs, which UTF-8 cannot encode, are escaped:
    reasons may name files in other encodings.
    """
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(event)).encode()


def finite(limit: float) -> float | None:
    """Return a limit as a number of JSON; None for no limit."""
    return None if limit == UNLIMITED else limit
