"""The kinds of quotas, each declared once: name, unit, bounds, what it limits and where.

A kind is a row of `KINDS`. File format, quota API, metrics, page, `weir top`, explanations, recommendations,
replay and report are driven by these rows. Besides, a new kind needs a limiter (`quotas.client_quotas`), a
package that charges it (`proxy.handlers`), and a field in usage records (`usage.records.ByQuota`).
"""
# mypyc: skip, because no request reads it.

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping


class QuotaKey(Enum):
    """The kinds of quotas, with Kafka's names; Kafka has no floors."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes per second that a client may produce."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes per second that a client may fetch."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Request time at a broker that a client may use, in percent of one thread."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions per second that a client may create, add or delete."""
    PRODUCER_BYTE_FLOOR = "producer_byte_floor"
    """Bytes per second that a client may produce before its groups make it wait."""
    CONSUMER_BYTE_FLOOR = "consumer_byte_floor"
    """Bytes per second that a client may fetch before its groups make it wait."""
    OLD_READ_BYTE_RATE = "old_read_byte_rate"
    """Bytes per second that a client may fetch of record batches older than a configured age."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """New connections per second that an IP address may open."""
    TOPICS_MAX = "topics_max"
    """Topics that may exist with a prefix."""
    PARTITIONS_MAX = "partitions_max"
    """Partitions that topics with a prefix may have together."""
    STORED_BYTES_MAX = "stored_bytes_max"
    """Bytes that the replicas of topics may have in the cluster, or of a group all replicas at a broker."""
    USABLE_BYTES_MIN = "usable_bytes_min"
    """Bytes that each volume of each broker must have left."""
    OVER_BYTE_RATE = "over_byte_rate"
    """Bytes per second that may be produced while one of the two storage budgets is over."""


RateUnit: TypeAlias = Literal[
    "bytes/s", "percent", "partitions/s", "connections/s", "topics", "partitions", "bytes"
]

RATE_MAX: Final = 2**63 - 1
"""Maximum of byte rates, which Kafka stores as a long. Also the maximum of quotas that are doubles in
Kafka.
"""
UNLIMITED: Final = "unlimited"
"""Word for the largest value of a quota, which exempts an entity from less specific entries."""
CONNECTION_RATE_MAX: Final = 2**31 - 1
"""Maximum of connection rates, which Kafka stores as an int."""
COUNT_MAX: Final = 2**31 - 1
"""Maximum of numbers of topics and partitions, which Kafka counts in ints."""
MUTATION_RATE_MIN: Final = 0.000001
"""Minimum mutation rate, one partition in 12 days. Below 4.7e-7 the throttle time for one missing partition
would exceed the maximum of a throttle time (2^31 - 1 ms).
"""
PERCENTAGE_MIN: Final = 5e-324
"""Minimum of a request-time quota: the smallest double. No larger minimum is needed, because throttle times
for request time are at most one window long.
"""


class QuotaKind(NamedTuple):
    """One kind of quota."""

    unit: RateUnit
    value: str
    """Description of the values, for error messages."""
    limits: str
    """Short word for the use that it limits, such as `fetch`."""
    column: str
    """Name for a narrow column."""
    type: Literal["LONG", "INT", "DOUBLE"]
    """Type in which Kafka stores its values (QuotaConfig). A DOUBLE may have a fraction."""
    least: float = 1
    """Smallest value."""
    most: int = RATE_MAX
    """Largest value."""
    charged: Literal["arrival", "response", "in turn"] | None = None
    """Moment at which a request is charged: its arrival, or its response. `in turn`: its response, which has
    no records while a throttle lasts. None if requests are not charged, or are charged to another kind, too.
    """
    is_of_topics: bool = False
    """True if a topic can have it (Weir's own quotas)."""
    is_of_groups: bool = True
    """True if a group can have it (Weir's own quotas)."""
    floor_of: QuotaKey | None = None
    """Quota of groups that leaves this much to a client; None if it is a limit."""
    is_of_ips: bool = False
    """True if addresses have it, and no client (KIP-612)."""
    is_of_prefixes: bool = False
    """True if topic prefixes have it, and no client: a number that may exist, or storage (Weir's own
    quotas).
    """
    is_minimum: bool = False
    """True if it is exceeded by less, not by more."""
    instead_of: QuotaKey | None = None
    """Quota of topics that it takes the place of while a storage budget is over; None for other kinds."""
    with_topic: str = "produce to"
    """Verb and preposition for clients of a topic that has it."""
    where: str = ""
    """Text about the budget's extent, if that is not each broker."""
    is_of_controller: bool = False
    """True if one budget in the whole cluster limits it, a token bucket that refuses (KIP-599)."""
    limiters: str = ""
    """Last word of the names of its limiters in the registry; empty if Weirs do not share them."""
    recorded: str = ""
    """Field or column with the use that it limits, in usage records and roll-ups; empty without one."""
    recorded_unit: float = 1.0
    """Factor from that use per second to the unit of the quota."""
    least_proposed: float = 0.0
    """Lowest limit that a recommendation proposes by default."""


KINDS: Final[Mapping[QuotaKey, QuotaKind]] = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: QuotaKind(
            "bytes/s",
            "a whole number of bytes/s",
            limits="produce",
            column="produce",
            type="LONG",
            charged="arrival",
            is_of_topics=True,
            limiters="produce",
            recorded="produced_bytes",
            least_proposed=1_000_000.0,
        ),
        QuotaKey.CONSUMER_BYTE_RATE: QuotaKind(
            "bytes/s",
            "a whole number of bytes/s",
            limits="fetch",
            column="consume",
            type="LONG",
            charged="in turn",
            is_of_topics=True,
            with_topic="fetch from",
            limiters="fetch",
            recorded="fetched_bytes",
            least_proposed=1_000_000.0,
        ),
        QuotaKey.REQUEST_PERCENTAGE: QuotaKind(
            "percent",
            "a percentage of one thread's time",
            limits="request time",
            column="request",
            type="DOUBLE",
            charged="response",
            least=PERCENTAGE_MIN,
            limiters="request",
            recorded="request_time_us",
            recorded_unit=1e-4,
            least_proposed=5.0,
        ),
        QuotaKey.CONTROLLER_MUTATION_RATE: QuotaKind(
            "partitions/s",
            "a number of partitions/s",
            limits="mutations",
            column="mutation",
            type="DOUBLE",
            charged="arrival",
            least=MUTATION_RATE_MIN,
            where="in the whole cluster",
            is_of_controller=True,
            limiters="mutations",
            recorded="mutations",
            least_proposed=1.0,
        ),
        QuotaKey.PRODUCER_BYTE_FLOOR: QuotaKind(
            "bytes/s",
            "a whole number of bytes/s",
            limits="produce below the floor",
            column="produce floor",
            type="LONG",
            is_of_groups=False,
            floor_of=QuotaKey.PRODUCER_BYTE_RATE,
            limiters="produce-floor",
        ),
        QuotaKey.CONSUMER_BYTE_FLOOR: QuotaKind(
            "bytes/s",
            "a whole number of bytes/s",
            limits="fetch below the floor",
            column="consume floor",
            type="LONG",
            is_of_groups=False,
            floor_of=QuotaKey.CONSUMER_BYTE_RATE,
            limiters="fetch-floor",
        ),
        QuotaKey.OLD_READ_BYTE_RATE: QuotaKind(
            "bytes/s",
            "a whole number of bytes/s",
            limits="old reads",
            column="old",
            type="LONG",
            charged="response",
            limiters="old-read",
            recorded="old_bytes",
            least_proposed=1_000_000.0,
        ),
        QuotaKey.CONNECTION_CREATION_RATE: QuotaKind(
            "connections/s",
            "a whole number of connections/s",
            limits="connections",
            column="connect",
            type="INT",
            most=CONNECTION_RATE_MAX,
            is_of_groups=False,
            is_of_ips=True,
            where="at each listener",
        ),
        QuotaKey.TOPICS_MAX: QuotaKind(
            "topics",
            "a whole number of topics",
            limits="topics",
            column="topics",
            type="INT",
            most=COUNT_MAX,
            is_of_groups=False,
            is_of_prefixes=True,
            where="in the whole cluster",
        ),
        QuotaKey.PARTITIONS_MAX: QuotaKind(
            "partitions",
            "a whole number of partitions",
            limits="partitions",
            column="parts",
            type="INT",
            most=COUNT_MAX,
            is_of_groups=False,
            is_of_prefixes=True,
            where="in the whole cluster",
        ),
        QuotaKey.STORED_BYTES_MAX: QuotaKind(
            "bytes",
            "a whole number of bytes",
            limits="stored bytes",
            column="stored",
            type="LONG",
            is_of_topics=True,
            is_of_prefixes=True,
        ),
        QuotaKey.USABLE_BYTES_MIN: QuotaKind(
            "bytes",
            "a whole number of bytes",
            limits="usable bytes",
            column="usable",
            type="LONG",
            is_minimum=True,
            is_of_topics=True,
            is_of_prefixes=True,
            where="on each volume",
        ),
        QuotaKey.OVER_BYTE_RATE: QuotaKind(
            "bytes/s",
            "a whole number of bytes/s",
            limits="produce while over",
            column="over",
            type="LONG",
            is_of_topics=True,
            is_of_prefixes=True,
            instead_of=QuotaKey.PRODUCER_BYTE_RATE,
        ),
    }
)
OF_PREFIXES: Final = tuple(key for key, kind in KINDS.items() if kind.is_of_prefixes)
COUNTS: Final = (QuotaKey.TOPICS_MAX, QuotaKey.PARTITIONS_MAX)
OF_CLIENTS: Final = tuple(
    key for key, kind in KINDS.items() if not kind.is_of_ips and not kind.is_of_prefixes
)
"""Kinds that users and client-ids can have (Kafka's QuotaConfig, KIP-546; and floors)."""
OF_GROUPS: Final = tuple(key for key, kind in KINDS.items() if kind.is_of_groups)
FLOORS: Final = {kind.floor_of: key for key, kind in KINDS.items() if kind.floor_of is not None}
"""Quota → its floor."""
STAND_INS: Final = {kind.instead_of: key for key, kind in KINDS.items() if kind.instead_of is not None}
"""Quota of topics → the quota that takes its place while a storage budget is over."""
OF_TOPICS: Final = tuple(key for key, kind in KINDS.items() if kind.is_of_topics)
BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
"""Kafka's own byte rates."""
OF_IPS: Final = tuple(key for key, kind in KINDS.items() if kind.is_of_ips)
STORAGE_MARKS: Final = (QuotaKey.STORED_BYTES_MAX, QuotaKey.USABLE_BYTES_MIN)
"""Kinds that are storage budgets (`quotas.storage`)."""
STORAGE: Final = (*STORAGE_MARKS, QuotaKey.OVER_BYTE_RATE)
IN_BYTES: Final = tuple(key for key, kind in KINDS.items() if kind.unit in ("bytes/s", "bytes"))
"""Kinds whose values may be written as text with a unit of bytes, such as "1MB"."""
IN_BYTES_PER_S: Final = tuple(key for key in IN_BYTES if KINDS[key].unit == "bytes/s")
PACED: Final = tuple(key for key in IN_BYTES_PER_S if KINDS[key].floor_of is None)
RECORDED: Final = {key: kind for key, kind in KINDS.items() if kind.recorded}
"""Kinds of clients that usage records tell about, and that recommendations propose."""
