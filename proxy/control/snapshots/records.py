"""The records of the state of Weir: types only. Their JSON (msgspec) is the JSON of the admin endpoint, and
its description in OpenAPI is generated from them.

Fields with the end `_ms` are times in milliseconds: Unix time where the field is a moment. Rates of bytes are
in bytes/s. None stands for a value that does not exist, or that Weir does not know.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec

from weir.quotas.table.options import Pacing, Scope
from weir.quotas.table.quota_entry import most
from weir.quotas.table.quota_kind import (
    UNLIMITED,
    QuotaKey,
    RateUnit,  # a field's type: msgspec wants it at run time
)

Where: TypeAlias = int | Literal["cluster"] | None
"""Node id of the broker; `cluster` for a quota of all brokers together; None for a broker with unknown id."""
Rates: TypeAlias = tuple[float | None, ...]
"""Rates, the oldest first; None for a time at which the entity was not known, or not among the most used."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record: it does not change after it was made."""


# Status


class Problem(Record, frozen=True):
    """A condition of Weir that needs an operator."""

    what: str
    """Description of the condition, as one sentence."""
    since_ms: int | None
    remedy: str
    """Advice for the operator, as one sentence."""


class Store(Record, frozen=True):
    """The place from which Weir reads quotas."""

    name: str
    """`file`, `topic` or `broker`."""
    quotas: int
    """Number of quota values in force."""
    updated_ms: int | None
    """Time of the latest successful read or change."""
    failing_since_ms: int | None
    """Time since which the store cannot be read; None while it can."""
    error: str | None


class WorkerRecord(Record, frozen=True):
    """A process that moves bytes."""

    id: int
    pid: int
    connections: int
    beat_ms: int
    """Time of the latest sign of life."""


class Usage(Record, frozen=True):
    """The state of usage records."""

    enabled: bool
    dropped: int
    """Number of records that were not written."""
    error: str | None
    """Reason why records cannot be written now; None while they can."""


class Certificate(Record, frozen=True):
    """A certificate that Weir uses."""

    name: str
    expires_ms: int


class Totals(Record, frozen=True):
    """Sums over all connections and entities. Connections were counted at most a second ago; rates are of the
    latest complete second or two.
    """

    connections: int
    requests_per_s: float
    in_bytes_per_s: float
    """Rate of bytes from clients."""
    out_bytes_per_s: float
    """Rate of bytes from brokers."""
    throttled_entities: int
    """Number of entities that an enforced quota throttles now, at whichever brokers."""
    throttled_connections: int
    """Number of connections that wait for the end of a throttle time."""


class Status(Record, frozen=True):
    """The state of this Weir."""

    name: str
    """Name of this Weir: the host's name, and the port of `listen`."""
    upstream: str
    """Bootstrap brokers of its cluster, as configured."""
    weirs: int
    """Number of Weirs heard within ten seconds, this one included; 0 if usage is not shared."""
    others: tuple[str, ...]
    """Names of the other Weirs among them."""
    version: str
    compiled: bool
    """True if modules of the data path are compiled."""
    python: str
    started_ms: int
    now_ms: int
    ready: bool
    """True if /readyz answers 200."""
    all_in_shadow: bool
    """True if there are quotas, and all are in shadow: they throttle nobody."""
    problems: tuple[Problem, ...]
    stores: tuple[Store, ...]
    workers: tuple[WorkerRecord, ...]
    usage: Usage
    certificates: tuple[Certificate, ...]
    totals: Totals


# Entities


class EntityRecord(Record, frozen=True):
    """One quota of one entity (the clients that share a limit) at one broker."""

    id: str
    """Name of this record: the same in all snapshots, and different for each quota, entity and broker."""
    user: str | None
    client_id: str | None
    client_id_prefix: str | None
    topic: str | None
    ip: str | None
    group: str | None
    topic_prefix: str | None
    """Prefix of topics whose number is limited: `rate` is the number that exists, `throttles` of refusals."""
    quota: str
    """Kafka's name of the quota, a `QuotaKey`."""
    unit: RateUnit
    broker: Where
    shadow: bool
    """True for a shadow quota, which throttles no client: throttles are those it would have caused."""
    entry: str
    """Quota entry that sets the limit; empty if the entry was removed."""
    limit: float | None
    """Limit in `unit`; None if the entry was removed."""
    rate: float
    usage: float | None
    """The rate divided by the limit, at most 1,000,000; None without a limit."""
    throttled: bool
    """True while a throttle time is not over."""
    throttled_since_ms: int | None
    """Time at which throttling began; None if the entity is not throttled. It is about a second exact."""
    throttle_ms: int
    """Rest of the throttle time."""
    throttles: int
    """Number of throttles since this process started."""
    throttled_ms: int
    """Sum of the throttle times since this process started."""
    connections: int
    peers: tuple[str, ...]
    """IP addresses of these connections, at most 5."""
    software: tuple[str, ...]
    """Client libraries of these connections, such as `librdkafka 2.5.0`, at most 5."""
    client_ids: tuple[str, ...]
    """Client-ids of these connections, at most 5."""
    history: Rates
    """Rates of the last 10 minutes, one per 10 s, the oldest first: at most 60."""
    sentence: str
    """This record as a sentence."""


class Entities(Record, frozen=True):
    """A list of entities."""

    now_ms: int
    hidden: int
    """Number of entities that match, and are not listed because of `limit`, or of the bound of snapshots."""
    entities: tuple[EntityRecord, ...]


# Connections


class ConnectionRecord(Record, frozen=True):
    """One connection of a client."""

    id: int
    peer: str
    """The client's address, IP:PORT."""
    listener: str
    """Name of the listener: `bootstrap`, `broker 2`, `replication 2`."""
    broker: int | None
    """Node id of the broker; None for the bootstrap listener."""
    user: str | None
    client_id: str | None
    """Client-id of the latest request; None if that request had none, or had one over 1,024 bytes."""
    software: str | None
    """Client library in the client's ApiVersions request (v3, KIP-511), such as `librdkafka 2.5.0`."""
    mechanism: str | None
    """Mechanism of the accepted SASL exchange, or of the exchange in progress."""
    tls: bool
    """True if the client's side uses TLS."""
    state: str
    """State of the connection, such as `OPEN` or `THROTTLED`."""
    waits_for: str | None
    """Reason why the next request is not taken; None if it is."""
    waits_until_ms: int | None
    """Time at which the throttle time ends; None without one."""
    opened_ms: int
    in_bytes: int
    """Number of bytes received from the client."""
    out_bytes: int
    """Number of bytes received from the broker."""
    in_bytes_per_s: float
    """Rate of bytes from the client, over one to six seconds; 0 in the first second."""
    out_bytes_per_s: float
    """Rate of bytes from the broker, likewise."""
    in_flight: int
    """Number of requests that are not answered yet."""


class Connections(Record, frozen=True):
    """A list of connections."""

    now_ms: int
    hidden: int
    """Number of connections that match, and are not listed because of `limit`. With several workers, also
    the connections of a worker that does not answer.
    """
    connections: tuple[ConnectionRecord, ...]


class Release(Record, frozen=True, forbid_unknown_fields=True):
    """The connections whose waits are to end: those of a user, a client-id, and a group. A text that is empty
    or left out restricts nothing; one must be given.
    """

    user: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    client_id: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    group: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Released(Record, frozen=True):
    """The result of a release."""

    connections: int
    """Number of connections whose waits ended, or end earlier."""
    waiting: int
    """Number of connections that wait now, because their use is above the present quotas."""
    wait_ms: int
    """Longest rest of their throttle times; 0 if none waits."""


# Brokers


class Broker(Record, frozen=True):
    """One broker that Weir knows."""

    node_id: int
    address: str
    """The broker's own address, HOST:PORT."""
    port: int | None
    """Weir's port for this broker; None if no listener is left for it."""
    up: bool
    since_ms: int | None
    """Time since which the broker is up, or down; None if that has not changed since the start."""
    error: str | None
    """Reason why the broker is down."""
    connections: int
    throttled_entities: int
    in_bytes_per_s: float
    out_bytes_per_s: float
    rack: str | None


class Brokers(Record, frozen=True):
    """The brokers that Weir knows."""

    now_ms: int
    hidden: int
    brokers: tuple[Broker, ...]
    outside: tuple[int, ...]
    """Node ids of brokers that have no listener."""


# Quotas


class QuotaOptions(Record, frozen=True):
    """Weir's own options of a quota entry."""

    mode: Literal["enforce", "shadow"]
    pacing: Pacing | None
    """None for the configured pacing."""
    scope: Scope
    until: str | None = None
    """Time (RFC 3339, UTC) from which on the entry is as if deleted; None for no end."""


class Quota(Record, frozen=True):
    """The quotas of one entity, as configured."""

    entity: dict[str, str | None]
    """Names by entity type (`user`, `client-id`, …); null for the type's default entity."""
    quotas: dict[str, float]
    """Values by Kafka's name of the quota."""
    options: QuotaOptions


class Quotas(Record, frozen=True):
    """The quota table."""

    now_ms: int
    hidden: int
    quotas: tuple[Quota, ...]
    store: str
    writable: bool
    """True if `POST /api/quotas` can change quotas, with the token."""


class ClientGroup(Record, frozen=True):
    """A group of clients, as configured. The name of a member ends with a star if it is a prefix."""

    name: str
    users: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    parent: str = ""
    """Name of the group that contains this one; empty for none."""


class ClientGroups(Record, frozen=True):
    """The groups of the quota table."""

    now_ms: int
    hidden: int
    groups: tuple[ClientGroup, ...]


EntityType: TypeAlias = Literal[
    "user", "client-id", "client-id-prefix", "ip", "topic", "topic-prefix", "group"
]
_ENTITY: Final = msgspec.Meta(
    min_length=1, extra_json_schema={"propertyNames": {"enum": list(get_args(EntityType))}}
)
_OPS: Final = msgspec.Meta(
    min_length=1, extra_json_schema={"propertyNames": {"enum": [key.value for key in QuotaKey]}}
)
"""Not empty; msgspec leaves the keys out of its descriptions of dictionaries."""
EntityName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=32_767)]


class QuotaOps(Record, frozen=True, forbid_unknown_fields=True):
    """New quotas of one entity."""

    entity: Annotated[dict[EntityType, EntityName | None], _ENTITY]
    """Names by entity type; null for the type's default entity."""
    ops: Annotated[dict[QuotaKey, float | Literal["unlimited"] | None], _OPS]
    """New values by Kafka's name of the quota. `unlimited` exempts from less specific entries; null
    removes the quota.
    """
    mode: Literal["enforce", "shadow"] = "enforce"
    """Entry of the entity that changes: the enforced one, or the one in shadow."""
    pacing: Literal["kafka", "smooth", "default"] | None = None
    """New pacing of the entry; null keeps its pacing."""
    scope: Literal["broker", "cluster"] | None = None
    """New scope of the entry; null keeps its scope."""
    until: str | None = None
    """New end of the entry, such as 2026-12-01T06:00:00Z; `never` for none; null keeps its end."""

    @property
    def rates(self) -> dict[QuotaKey, float | None]:
        """New values by quota, `unlimited` as the largest value."""
        return {key: float(most(key)) if value == UNLIMITED else value for key, value in self.ops.items()}


class QuotaChange(QuotaOps, frozen=True, forbid_unknown_fields=True):
    """A requested change of the quotas of one entity."""

    dry_run: bool = False
    """True to check the change without making it."""


class ChangedQuota(Record, frozen=True):
    """The quotas of an entity after a change (with `dry_run`: after it would have been made)."""

    quota: Quota
    dry_run: bool


class PreviewedEntity(Record, frozen=True):
    """The effect that a changed limit would have had on one entity at one broker in the last ten minutes."""

    id: str
    limit: float | None
    """The limit after the change; None for no limit."""
    throttled_s_lower: float
    """The least time (s) for which the entity would have been throttled."""
    throttled_s_upper: float | None
    """The most time (s); None if it is unknown: `sentence` has the reason."""
    share_over: float
    """Share of the recorded seconds in which the rate was above the limit."""
    history: Rates
    """Rates of the last 10 minutes, one per 10 s, the oldest first."""
    sentence: str


class Preview(Record, frozen=True):
    """The effect that a change of quotas would have had on the last ten minutes."""

    now_ms: int
    hidden: int
    entities: tuple[PreviewedEntity, ...]


class ErrorDetails(Record, frozen=True, rename={"kind": "type"}):
    """An error (RFC 9457, `application/problem+json`)."""

    title: str
    status: int
    detail: str
    kind: str = "about:blank"
