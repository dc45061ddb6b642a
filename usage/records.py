"""Usage records: one per interval, broker, user, client-id and API group; traces: one per request of sampled
entities.

Records are JSON, one object per line or Kafka message. Fields with default values are omitted. A reader takes
records of the `VERSION`s it knows, ignores unknown fields, and sets other records aside.
"""

from __future__ import annotations

from typing import Final

import msgspec

VERSION: Final = 1
"""Version of both kinds of records. Increment it when a field is removed or changes its meaning, not when a
field is added.
"""


class ByQuota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number for each quota that throttles clients, such as a throttle time. Fields have Kafka's names of
    the quotas.
    """

    producer_byte_rate: int = 0
    consumer_byte_rate: int = 0
    request_percentage: int = 0
    controller_mutation_rate: int = 0
    topic_byte_rate: int = 0
    """Number for the rates of topics, produce and fetch together (Weir's own quotas)."""
    old_read_byte_rate: int = 0


NOTHING: Final = ByQuota()


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Usage of one client (user and client-id) at one broker in one interval, by requests of one API group.

    Fields of several records can be added up, except `sessions`, because several records may count the same
    connection. Bytes are those on the wire between client and Weir, length prefixes included. A request is
    counted when it is complete, a response when it begins.
    """

    version: int
    time_ms: int
    """Unix time (ms) of the interval's beginning."""
    interval_ms: int
    """Length (ms) of the interval."""
    instance: str
    """Name of the process that wrote the record; no two processes ever have the same name."""
    broker: int
    """Node id of the broker; -1 if unknown (the bootstrap address of an old cluster)."""
    user: str
    """Name of the client's principal, without type."""
    client_id: str
    group: str = ""
    """Group of clients whose quotas limited the client at the end of the interval; empty for none. Its
    parents, and the group of all clients, are not named.
    """
    api: str
    """Name of the API group that the counted requests belong to, a `usage.groups.ApiGroup`."""
    requests: int = 0
    bytes_in: int = 0
    """Number of bytes of requests, from the client."""
    bytes_out: int = 0
    """Number of bytes of responses, to the client."""
    sessions: int = 0
    """Number of connections that sent requests of this group in this interval. Records must not be added up
    by this number: one connection counts in several intervals and groups.
    """
    charged_bytes: int = 0
    """Number of bytes charged to byte rates, whether or not such a quota exists: produce requests, and fetch
    responses except those sent without records.
    """
    request_time_us: float = 0.0
    """Estimated request time (µs of one thread) at the broker; requests exempt from request quotas add 0."""
    response_time_us: int = 0
    """Sum of the response times (µs) of the counted responses: from the end of the request at the broker's
    connection to the beginning of the response there. Weir's throttles count only where Weir removes
    the response's records. Responses of Weir's own add 0. Instances of Weir that do not measure it yet omit
    the field.
    """
    old_bytes: int = 0
    """Number of fetched bytes of old record batches, of clients with a rate of old reads, also in shadow;
    they count when the response has passed.
    """
    mutations: int = 0
    """Number of partitions created, added or deleted."""
    throttle_ms: ByQuota = NOTHING
    """Sum of the throttle times that clients were told; with parallel connections it may exceed the time that
    has passed.
    """
    violations: ByQuota = NOTHING
    """Number of requests answered with a throttle time, or error 89."""
    errors: int = 0
    """Number of connections closed because this client violated the protocol."""


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of an entity that is traced; all requests of such an entity have a record."""

    version: int
    time_ms: int
    """Unix time (ms) at which the request arrived and was charged. Within one instance of Weir, differences
    between these times are those of a monotonic clock: changes of the system clock do not affect them.
    """
    instance: str
    broker: int
    user: str
    client_id: str
    connection: int
    """Number of the connection, unique among the connections of this instance of Weir."""
    api: str
    """Name of the API group that the request belongs to, a `usage.groups.ApiGroup`."""
    api_key: int
    api_version: int
    correlation_id: int = 0
    """Number by which the client tells its requests apart; it may be negative."""
    answered_ms: int = 0
    """Unix time (ms) at which the response began and was charged; 0 without a response."""
    bytes_in: int = 0
    bytes_out: int = 0
    charged_bytes: int = 0
    """Number of bytes charged to byte rates, as in `UsageRecord.charged_bytes`."""
    request_time_us: float = 0.0
    old_bytes: int = 0
    """Number of fetched bytes of old record batches, as in `UsageRecord.old_bytes`."""
    mutations: int = 0
    throttle_ms: ByQuota = NOTHING
    """Throttle time (ms) that the client was told, separately for each quota that caused one."""
