"""Usage records: one per interval, broker, user, client-id and API group; traces: one per request of sampled
entities.

Records are JSON, one object per line or Kafka message. Fields with default values are omitted. A reader takes
records of the `VERSION`s it knows, ignores unknown fields, and sets other records aside.
"""

from __future__ import annotations

from typing import Final

import msgspec

VERSION: Final = 1
"""The version of both kinds of records. Incremented when a field is removed or changes its meaning, not when
one is added.
"""


class ByQuota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A count per quota that throttles clients, under Kafka's names."""

    producer_byte_rate: int = 0
    consumer_byte_rate: int = 0
    request_percentage: int = 0
    controller_mutation_rate: int = 0
    topic_byte_rate: int = 0
    """Rates of topics (Weir's own), in both directions."""


NOTHING: Final = ByQuota()


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Usage of one client (user and client-id) at one broker in one interval, by requests of one group.

    Records add up: nothing except `sessions` is counted twice. Bytes are those on the wire between client and
    Weir, length prefixes included. A request is counted when it is complete, a response when it begins.
    """

    version: int
    time_ms: int
    """Unix time (ms) of the interval's beginning."""
    interval_ms: int
    instance: str
    """The process that wrote the record: a different name for each process that ever ran."""
    broker: int
    """The broker's node id; -1 if unknown (the bootstrap address of an old cluster)."""
    user: str
    """The principal's name, without type."""
    client_id: str
    api: str
    """The API group, a `usage.groups.Group`."""
    requests: int = 0
    bytes_in: int = 0
    """Bytes of requests, from the client."""
    bytes_out: int = 0
    """Bytes of responses, to the client."""
    sessions: int = 0
    """Number of connections that sent such requests in this interval. Not additive over time or groups."""
    charged_bytes: int = 0
    """Bytes charged to byte rates, whether or not such a quota exists: produce requests, and fetch responses
    except those sent without records.
    """
    request_time_us: float = 0.0
    """Estimated request time at the broker, in µs of one thread; exempt requests add nothing."""
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
    """One request of a sampled entity; all requests of such an entity are traced."""

    version: int
    time_ms: int
    """Unix time (ms) at which the request was charged on arrival. Differences within one instance are those
    of a monotonic clock.
    """
    instance: str
    broker: int
    user: str
    client_id: str
    connection: int
    """A number that is unique among the instance's connections."""
    api: str
    """The API group, a `usage.groups.Group`."""
    api_key: int
    api_version: int
    answered_ms: int = 0
    """Unix time (ms) at which the response began and was charged; 0 without a response."""
    bytes_in: int = 0
    bytes_out: int = 0
    charged_bytes: int = 0
    """As in `UsageRecord`."""
    request_time_us: float = 0.0
    mutations: int = 0
    throttle_ms: ByQuota = NOTHING
    """The throttle time that the client was told because of each quota."""
