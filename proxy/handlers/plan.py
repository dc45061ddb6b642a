"""A plan: the functions that a connection calls for requests and responses of one (API key, version).

Most plans are empty: their frames are forwarded unchanged. A capability (bandwidth, addresses, mutation
quotas, request time, SASL) is a module that fills slots of some plans; the connection's loops do not know
which module filled a slot. A capability that needs more than one frame starts a query
(`proxy.handlers.broker_query`) from `admit`. The slots, in the order of a request's life:

1. `admit` reads the request's first fields, may change them in place, identifies the client's ledger, and
   says whether the broker will send a response.
2. `on_arrival` charges costs that are known when the whole request has arrived.
3. `on_response` charges costs that are known when the response begins to arrive.
4. `throttle` is the offset of throttle_time_ms in the response.
5. `cost` estimates the broker's request time (KIP-124) from frame lengths; `extra_us` adds to it by reading
   the request. Request time is charged only while the broker has such quotas.
6. `rewrite` replaces one stretch of the response by other bytes; `rewrite_stream` does so for a response
   larger than the buffer, where the length must stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from proxy.handlers.decisions import Decision, Forward, Wait

if TYPE_CHECKING:
    from protocol.messages import Message
    from protocol.scanning.field_offsets import FieldOffset
    from protocol.versions import VersionRange
    from proxy.addresses import AdvertisedAddresses
    from proxy.close_reasons import CloseReason
    from proxy.counters import Counters
    from proxy.handlers.mutations.cluster_state import ClusterState
    from proxy.handlers.quota_api.quota_admin import QuotaAdmin
    from proxy.handlers.sasl.exchange import Exchange
    from proxy.handlers.sasl.identity import Identities
    from proxy.handlers.topics.fetch_sessions import FetchSession
    from quotas import BrokerQuotas, Budget, ClientLedger, Cost


class BrokerVersions(Protocol):
    """The versions that a broker speaks, and the versions offered to its clients."""

    broker: Mapping[int, VersionRange] | None
    """Version ranges by API key; None if unknown."""

    def offered(self, *, added: bool = True) -> dict[int, VersionRange]:
        """Return the versions offered to clients; `added`: with the APIs that Weir answers itself."""


class Client(Protocol):
    """The client of a connection, as capabilities see it."""

    first_produce_seen: bool
    """True once this connection's first produce request was admitted. Until then the request may be held for
    throttles that other connections of its client have caused.
    """
    topics_produced: set[bytes]
    """Topics with a rate, in UTF-8, to which this connection has begun to produce."""
    first_fetch_seen: bool
    """True once this connection's first share fetch was admitted; see `first_produce_seen`."""

    @property
    def user(self) -> str:
        """The principal's name, authenticated by the broker (SASL) or by a certificate."""

    @property
    def peer(self) -> str:
        """The client's address, for logs."""

    @property
    def ledger(self) -> ClientLedger:
        """The ledger of the latest request's client; see `identify`."""

    @property
    def is_broker(self) -> bool:
        """True if the principal belongs to a broker, on a listener that brokers use."""

    @property
    def recorded(self) -> bool:
        """True if usage is recorded."""

    @property
    def exchange(self) -> Exchange | None:
        """The SASL exchange in progress; `user` changes only when it succeeds."""

    def follow(self, exchange: Exchange | None) -> None:
        """Set the SASL exchange in progress, None for none. Call this also after changing the exchange."""

    def become(self, user: str) -> None:
        """Switch to another principal; forget everything looked up for the old one."""

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of a request; None if more bytes are needed. Raises ProtocolError."""

    def identify(self, data: bytearray, frame: int, end: int, now_ms: int) -> ClientLedger | None:
        """Return the ledger of a request's client; None if more bytes are needed. Raises ProtocolError."""

    def cache_parse(
        self,
        plan: Plan,
        data: bytearray,
        frame: int,
        stop: int,
        forward: Forward,
        *,
        budget: Budget | None = None,
    ) -> None:
        """Reuse this decision for requests that begin with the same `data[frame:stop]`, while `budget` is not
        throttled.

        Only for decisions that depend on nothing but these bytes and the quotas in force. Requests of brokers
        are not cached: their replica id may be at the end.
        """

    def cache_unless(self, plan: Plan, needs_look: NeedsLook) -> None:
        """Reuse the decision that is cached for the plan, if any, only for requests that need no other
        look.
        """


class Context(Protocol):
    """The connection of the frame at hand, as capabilities see it."""

    @property
    def client(self) -> Client:
        """The client."""

    @property
    def broker_versions(self) -> BrokerVersions:
        """The broker's versions; replaced once the broker has told them."""

    @property
    def cluster(self) -> ClusterState:
        """Topics of the cluster, shared by all connections."""

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """Set the broker's versions, by API key."""

    @property
    def addresses(self) -> AdvertisedAddresses:
        """The addresses of brokers that this client is told."""

    @property
    def node_id(self) -> int | None:
        """The broker's node id; None if unknown."""

    speaks_api_versions_3: bool
    """True if the client has sent ApiVersions v3 or later (KIP-511)."""

    @property
    def identities(self) -> Identities:
        """Rules for identities that the wire does not show, and identities learnt by all connections."""

    @property
    def counters(self) -> Counters:
        """Counters of the process."""

    authorized_again: bool
    """True if the broker has just authorized this client; set by a query for the request that is decided
    about again.
    """

    decoded: object
    """Result of a query for the request at hand, which is decided about again: the decoded request, or the
    error of decoding it; None if no query has run.
    """

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer. A longer frame is never in the buffer as a whole."""

    fetch_session: FetchSession | None
    """The latest fetch session; tracked while topics have rates."""
    fetch_length: int
    """Length of the longest fetch request of the latest fetch session, while request time is charged; 0 if
    none was seen.
    """
    unconfirmed_us: float
    """Request time (µs) by which the latest produce request may cost more than its estimate; 0 if that is too
    little for `confirmed_us` to find out. Set by `extra_us`.
    """
    produce_shape: tuple[Plan, bytes, int, float] | None
    """The beginning of the latest produce request with one partition, while request time is charged: (plan;
    bytes from the client-id on; offset in the frame of the records' length, of its last byte if it is an
    int32; cost in µs of these bytes).
    """

    @property
    def quota_admin(self) -> QuotaAdmin:
        """Reads and changes quotas for admins."""

    @property
    def quotas(self) -> BrokerQuotas:
        """The quotas of the broker's clients."""

    @property
    def report_ms(self) -> int:
        """The throttle time (ms) to report in the response at hand; for `rewrite`."""

    @property
    def now_ms(self) -> int:
        """The current time (ms)."""

    def first_hold_ms(self, until_ms: int) -> int:
        """Return how long (ms) to hold the first request of a kind for a throttle that other connections of
        its client have caused and that lasts until `until_ms`.
        """

    @property
    def hold(self) -> bool:
        """True if throttled responses are delayed, as before KIP-219."""

    def mute(self, throttle_ms: int) -> int:
        """Take no request from the client for this long; return the time (ms) when that ends (KIP-219)."""

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Record the outcome of the request that a query runs for: partitions created or deleted, topics
        refused, the throttle time.
        """

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge request time for a request that was exempt until its response, of about this length, showed
        otherwise.
        """

    def violate(self, reason: CloseReason, detail: str) -> None:
        """Close the connection."""


class ResponseEdit(NamedTuple):
    """A request to replace `data[start:stop]`, within a frame, by `replacement`."""

    start: int
    stop: int
    replacement: bytes


class ByteCounter(Protocol):
    """Counts bytes of one frame while the frame streams by; charges them at its end."""

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Count the body's next bytes, `data[start:stop]`. Raises ProtocolError."""

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge the bytes counted; return the throttle time (ms). `told`: False if no response can tell the
        throttle time any more; then return 0, and the next request's response tells the throttle time.
        """

    def first_hold_ms(self, context: Context) -> int:
        """Return how long (ms) to hold the bytes of a request behind those counted; 0 for not at all."""

    def cut(self, now_ms: int) -> None:
        """Charge the bytes forwarded so far of a frame that was cut off."""


class StreamRewrite(Protocol):
    """Changes bytes of one response body in place while it streams by."""

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Read the body's next bytes, `data[start:stop]`, and change them if needed."""


Admit: TypeAlias = "Callable[[Context, bytearray, int, int, bool], Decision | Wait]"
"""(context, data, frame, end, complete): the frame is `data[frame:end]`; `complete` if all of it is there."""
NeedsLook: TypeAlias = "Callable[[bytearray, int, int, bool], bool]"
"""(data, position, end, complete) -> True if `admit` must decide about a request though its bytes before
`position` are cached; `end` and `complete` as in `Admit`. Raises nothing.
"""
FirstHold: TypeAlias = "Callable[[Context, bytearray, int, int, bool], int]"
"""(context, data, frame, end, complete) -> time (ms) for which to hold the request `data[frame:end]`;
INCOMPLETE if more bytes are needed. Arguments as of `Admit`.
"""
Charge: TypeAlias = "Callable[[ClientLedger, int, int], int]"
"""(ledger, length, now_ms) -> throttle_ms. The length (bytes) is the value of the frame's length prefix."""
Tell: TypeAlias = "Callable[[Context, ClientLedger], tuple[int, int]]"
"""Count a response without records; return the throttle times (ms) to report: by the client's quota, and by
topic rates.
"""
Extra: TypeAlias = "Callable[[Context, bytearray, int, int], float]"
"""(context, data, frame, end) -> µs that the request `data[frame:end]`, perhaps cut, costs in addition to its
length. Returns 0 for bytes that it cannot read; raises nothing.
"""
Rewrite: TypeAlias = "Callable[[Context, bytearray, int, int, bool], ResponseEdit | Wait | None]"
"""(context, data, body, end, complete): the body is `data[body:end]`; `complete` if all of it is there.
Returns None to leave the frame unchanged. Raises ProtocolError.
"""


@dataclass(slots=True)
class Plan:
    """The functions for one (API key, version); all connections of a process share the plan."""

    api_key: int
    version: int
    flexible_request: bool = False
    flexible_response: bool = False
    """True if the response's *header* has tagged fields (never for ApiVersions)."""
    broker_version: int = -1
    """The version used towards the broker; differs from the client's under uplift."""
    broker_waits: bool = False
    """True if the broker itself waits out throttle times before it responds, so the client must not wait
    again (under uplift only).
    """
    whole: bool = False
    """True if `admit` may need the whole request, even one larger than the buffer."""
    admit: Admit | None = None
    first_holds: tuple[FirstHold, ...] = ()
    """Functions that say how long to hold the first produce request of a connection; the longest hold counts.
    """
    on_arrival: tuple[Charge, ...] = ()
    on_response: tuple[Charge, ...] = ()
    """If several charges throttle, the longest throttle counts, never the sum (Kafka 2.0 and later)."""
    over: Callable[[Context, ClientLedger], int] | None = None
    """Returns the time (ms) until which the client of a charged response is over its quota because of charges
    made since the request; 0 if it is not. Until then the client gets no records (KIP-219). None:
    responses are always delivered.
    """
    tell: Tell | None = None
    """Counts a response without records. Set if `over` is."""
    byte_counter: Callable[[Context, ClientLedger], ByteCounter | None] | None = None
    """Returns the byte counter for a charged response, None if nothing is to be counted; called if the ledger
    has topic rates.
    """
    cost: Cost | None = None
    """Cost of requests (KIP-124); None if request time is not charged."""
    extra_us: Extra | None = None
    has_client_id: bool = True
    """True if the request header has a client-id (all but ControlledShutdown v0)."""
    group: int = 0
    """The kind of request in usage records: an index into `usage.groups.GROUPS`."""
    between_brokers: bool = False
    """True if brokers send this API to each other: their own principals are not charged request time."""
    throttle: FieldOffset | None = None
    rewrite: Rewrite | None = None
    rewrite_stream: Callable[[], StreamRewrite] | None = None
    edit: Callable[[Message, AdvertisedAddresses], None] | None = None
    """Replaces the addresses in a decoded response, for queries."""
    requests: int = 0
    """Number of requests."""

    def __post_init__(self) -> None:
        """Use the client's version towards the broker if no other version is given."""
        if self.broker_version < 0:
            self.broker_version = self.version


LOCAL: Final = Plan(api_key=-1, version=-1)
"""The plan of Weir's own replies."""
TOKEN: Final = Plan(api_key=-1, version=-1)
"""The plan of a SASL token without a Kafka header."""
QUERY: Final = Plan(api_key=-1, version=-1)
"""The plan of a query's request to the broker."""
