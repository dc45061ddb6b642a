"""The records: one per interval, broker, user, client-id and API group; of some entities one per request.

Written as JSON, one object a line or a Kafka message. A field at its default is left out. A reader takes
records of the `VERSION`s it knows, ignores fields it does not know, and puts the rest aside.
"""

from __future__ import annotations

from typing import Final

import msgspec

VERSION: Final = 1
"""Of both kinds of records. Grows when a field changes its meaning or goes; a field more does not need it."""


class ByQuota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A count for each quota that makes clients wait, under Kafka's names."""

    producer_byte_rate: int = 0
    consumer_byte_rate: int = 0
    request_percentage: int = 0
    controller_mutation_rate: int = 0
    topic_byte_rate: int = 0
    """Of rates of topics (Weir's own), in either direction."""


NOTHING: Final = ByQuota()


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one client (user and client-id) has used at one broker in one interval, by requests of one group.

    Records add up: nothing is counted in two of them, but `sessions`. Bytes are those on the wire between
    client and Weir, length prefixes included; a request counts once all of it is here, a response once it
    begins.
    """

    version: int
    time_ms: int
    """When the interval began, in ms since 1970."""
    interval_ms: int
    instance: str
    """Which Weir wrote it: different for each process that ever ran."""
    broker: int
    """The broker's node id; -1 while it is not known (the bootstrap address of an old cluster)."""
    user: str
    """The principal's name, without type."""
    client_id: str
    api: str
    """A `usage.groups.Group`."""
    requests: int = 0
    bytes_in: int = 0
    """Of requests, from the client."""
    bytes_out: int = 0
    """Of responses, to the client."""
    sessions: int = 0
    """Connections that sent such requests in this interval. Not to be added up over time or groups."""
    charged_bytes: int = 0
    """What byte rates are charged with, whether or not there is such a quota: of produce requests, and of
    fetch responses but those that were sent without records; of nothing else.
    """
    request_time_us: float = 0.0
    """What the requests are estimated to have cost the broker, in µs of one thread; exempt ones nothing."""
    mutations: int = 0
    """Partitions created, added or deleted."""
    throttle_ms: ByQuota = NOTHING
    """The throttle times that clients were told, summed: of parallel connections it may be more
    than the time that has passed.
    """
    violations: ByQuota = NOTHING
    """Number of requests that were answered with a throttle time, or an error 89."""
    errors: int = 0
    """Sessions closed because this client broke the protocol."""


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, of an entity that is sampled: then all of its requests are traced."""

    version: int
    time_ms: int
    """When the request was charged for having arrived, in ms since 1970. Differences between the times of one
    instance are those of a monotonic clock.
    """
    instance: str
    broker: int
    user: str
    client_id: str
    connection: int
    """Different for each connection of an instance."""
    api: str
    """A `usage.groups.Group`."""
    api_key: int
    api_version: int
    answered_ms: int = 0
    """When its response began and was charged; 0 if there was none."""
    bytes_in: int = 0
    bytes_out: int = 0
    charged_bytes: int = 0
    """As in `UsageRecord`."""
    request_time_us: float = 0.0
    mutations: int = 0
    throttle_ms: ByQuota = NOTHING
    """The throttle time that the client was told because of each quota."""
