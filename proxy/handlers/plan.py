"""A plan: the functions that a connection calls for requests and responses of one (API key, version).

Most plans are empty: their frames are forwarded unchanged. A capability (bandwidth, addresses, mutation
quotas, request time, SASL) is a module that fills slots of some plans; the connection's loops do not know
which module filled a slot. A capability that needs more than one frame starts a query
(`proxy.handlers.broker_query`) from `admit`. The slots, in the order of a request's life:

1. `admit` reads the request's first fields, may change them in place, identifies the client's ledger, and
says whether the broker will send a response. 2. `on_arrival` charges costs that are known when the whole
request has arrived. 3. `on_response` charges costs that are known when the response begins to arrive. 4.
`throttle` is the offset of throttle_time_ms in the response. 5. `cost` estimates the broker's request time
(KIP-124) from frame lengths; `extra_us` reads fields of the request and adds their cost. Request time is
charged only if a quota for request time is in force. 6. `rewrite` replaces one stretch of the response by
other bytes; `rewrite_stream` changes bytes of a response that is forwarded in parts, whose length must stay
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from weir.proxy.handlers.decisions import FORWARD, Decision, Forward, Wait
from weir.quotas.table.quota_kind import BYTE_RATES

if TYPE_CHECKING:
    from weir.protocol.messages import Message
    from weir.protocol.scanning.field_offsets import FieldOffset
    from weir.protocol.versions import VersionRange
    from weir.proxy.addresses import AdvertisedAddresses
    from weir.proxy.close_reasons import CloseReason
    from weir.proxy.counters import Counters
    from weir.proxy.handlers.mutations.cluster_state import ClusterState
    from weir.proxy.handlers.quota_api.quota_admin import QuotaAdmin
    from weir.proxy.handlers.sasl.exchange import SaslExchange
    from weir.proxy.handlers.sasl.identity import Identities
    from weir.quotas import BrokerQuotas, ClientLedger, Cost, QuotaKey

ARRIVAL_QUOTA: Final = BYTE_RATES[0]
"""Quota that `Plan.on_arrival` charges."""
RESPONSE_QUOTA: Final = BYTE_RATES[1]
"""Quota that `Plan.on_response` charges."""
S = TypeVar("S")


class BrokerVersions(Protocol):
    """The versions that a broker has, and the versions offered to its clients."""

    broker: Mapping[int, VersionRange] | None
    """Version ranges of the broker, by API key; None if unknown."""

    @property
    def expected(self) -> Mapping[int, VersionRange]:
        """Version ranges of the broker or, if these are unknown, of the broker that has sent its versions
        latest, on any connection; empty if no broker has.
        """

    def offered(self, *, added: bool = True) -> dict[int, VersionRange]:
        """Return the API versions that clients may use, by API key. With `added`, the APIs that Weir answers
        itself are included.
        """


class RequestClient(Protocol):
    """The client of a connection: the part that capabilities use."""

    @property
    def user(self) -> str:
        """Name of the principal, which a broker (SASL) or a certificate has authenticated."""

    @property
    def peer(self) -> str:
        """Address of the client, for logs."""

    @property
    def ledger(self) -> ClientLedger:
        """Ledger (quotas and charges) of the client that has sent the latest request; `identify` sets it."""

    @property
    def quotas(self) -> BrokerQuotas:
        """Quotas of the clients of the broker behind the connection."""

    software: str
    """Name and version of the client's library, such as `librdkafka 2.5.0` (KIP-511); empty if unknown."""

    @property
    def is_broker(self) -> bool:
        """True if the principal belongs to a broker, and the connection is at a replication listener."""

    @property
    def before_login(self) -> bool:
        """True if the client must log in by SASL and has not done so yet."""

    @property
    def recorded(self) -> bool:
        """True if the client's usage is recorded."""

    @property
    def exchange(self) -> SaslExchange | None:
        """The SASL exchange in progress; None if there is no exchange. `user` changes only when the exchange
        succeeds.
        """

    def follow(self, exchange: SaslExchange | None) -> None:
        """Set the SASL exchange in progress; None for no exchange."""

    def become(self, user: str) -> None:
        """Change the client's principal, and clear everything looked up for the former principal."""

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of the request `data[frame:end]`; None if more bytes are needed. Raises
        ProtocolError if the client-id is malformed.
        """

    def identify(self, data: bytearray, frame: int, end: int, now_ms: int) -> ClientLedger | None:
        """Return the ledger of the client of the request `data[frame:end]`; None if more bytes are needed.
        Raises ProtocolError if the client-id is malformed.
        """

    def cache_parse(self, plan: Plan, data: bytearray, frame: int, stop: int, parsed: int = 0) -> None:
        """Remember `parsed`, the value of a field, for requests that begin with the same `data[frame:stop]`:
        `Plan.decide` decides about them. Call this only if the decision depends on nothing but that value and
        the quotas in force. Requests of brokers are not remembered: their replica id may be at the end.
        """

    def forget_parse(self, plan: Plan) -> None:
        """Have the next request of this plan parsed, whatever its first bytes are."""


class TurnClock(Protocol):
    """Limit of the array elements that are scanned in a turn of the reactor."""

    scanned: int
    """Number of elements that scans have visited in the present turn."""

    def elements_left(self) -> int:
        """Return the number of elements that a scan may visit in the present turn."""

    def feed(self, scan: LimitedScan, data: bytearray, start: int, stop: int) -> int:
        """Feed the scan the next bytes, `data[start:stop]`, as many elements as the turn allows. Return the
        position behind the scanned bytes. Raises what the scan raises.
        """


class LimitedScan(Protocol):
    """A scan of one message's body that arrives in parts, such as a `PausingScanner`."""

    @property
    def elements_left(self) -> int:
        """Number of elements that the latest call of `feed` might still have visited."""

    def feed(self, data: bytearray, start: int, stop: int, elements_max: int) -> int:
        """Scan the body's next bytes, `data[start:stop]`, up to `elements_max` elements. Return the position
        behind the scanned bytes.
        """


class Context(Protocol):
    """The interface of a connection that capabilities (functions of a plan) use while they process a request
    or a response.
    """

    @property
    def client(self) -> RequestClient:
        """Client of the connection."""

    @property
    def broker_versions(self) -> BrokerVersions:
        """Versions of the broker, and versions offered to clients. `meet_broker` replaces the object."""

    @property
    def cluster(self) -> ClusterState:
        """Facts about the cluster's topics; all connections share the object."""

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """Set the broker's versions (API key → range)."""

    @property
    def addresses(self) -> AdvertisedAddresses:
        """Weir's addresses that replace the brokers' addresses in responses to this client."""

    @property
    def node_id(self) -> int | None:
        """Node id of the broker; None if unknown."""

    @property
    def identities(self) -> Identities:
        """Rules for principals that SASL exchanges do not show, and principals learnt from brokers; shared by
        all connections.
        """

    @property
    def counters(self) -> Counters:
        """Counters of the process."""

    def state_of(self, kind: type[S]) -> S:
        """Return the state that a capability keeps for the connection: an object of the class `kind`, made
        at the first use unless the connection began with one.
        """

    decoded: object
    """Request that a query has decoded, so that Weir can decide about the request again; or the error of
    decoding it. None if no query has decoded the present request.
    """

    @property
    def buffer_bytes(self) -> int:
        """Maximum size (bytes) of a frame that Weir buffers until all of it has arrived. A longer frame is
        processed in parts.
        """

    @property
    def quota_admin(self) -> QuotaAdmin:
        """Object that decides which clients may describe and alter quotas, and that stores altered quotas."""

    @property
    def report_ms(self) -> int:
        """Throttle time (ms) that `rewrite` must write into the response that is being processed."""

    @property
    def now_ms(self) -> int:
        """Current time (ms)."""

    @property
    def clock(self) -> TurnClock:
        """Limit of the elements that are scanned in a turn."""

    def first_hold_ms(self, until_ms: int) -> int:
        """Return the time (ms) for which to hold the connection's first request of a kind, because other
        connections of its client have caused a throttle until `until_ms`.
        """

    def hold_response(self, hold_ms: int) -> None:
        """Look at the response again that is being processed, after `hold_ms`; its rewriter returns WAIT."""

    def mute(self, throttle_ms: int, quota: QuotaKey) -> int:
        """Take no request from the client for `throttle_ms` because of this quota. Return the time (ms) at
        which the throttle ends (KIP-219).
        """

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Count as usage the results of a request that a query has processed: the number of partitions
        created or deleted, the number of topics refused, and the throttle time (ms).
        """

    def note_old_read(self, size: int) -> None:
        """Count as usage `size` bytes of old record batches in the latest response."""

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge request time for a request that was forwarded as exempt, because the broker's response
        (about `length` bytes) shows that the request was not exempt.
        """

    def violate(self, reason: CloseReason, detail: str) -> None:
        """Close the connection because a peer violated the protocol."""


class EstimatedRequest(Protocol):
    """A request whose cost is being estimated."""

    unconfirmed_us: float
    """Request time (µs) by which the request may cost more than its estimate; `extra_us` sets this field. 0
    if the difference is too small to be found by the broker's response time (`confirmed_us`).
    """


class ResponseEdit(NamedTuple):
    """A change of a response frame: replace the bytes `data[start:stop]` by `replacement`."""

    start: int
    stop: int
    replacement: bytes


class ByteCounter(Protocol):
    """Counts bytes of one frame, part by part as the parts are forwarded, and charges the counted bytes at
    the frame's end.
    """

    @property
    def quota(self) -> QuotaKey:
        """Quota that causes the throttle time of the latest charge."""

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Count the next bytes of the frame's body, `data[start:stop]`. Return the position behind the
        counted bytes: `stop`, or less if the others must wait for the next turn of the reactor. Raises
        ProtocolError if the bytes are malformed, OversizedError if a request has too much to count.
        """

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge the counted bytes, and return the throttle time (ms).

        `told` is False if the frame's own response was forwarded already and cannot tell the throttle time.
        Then return 0, and have the response to the next request tell the throttle time.
        """

    def cut(self, now_ms: int) -> None:
        """Charge the bytes that were already forwarded of a frame whose other bytes will not come, because
        the connection has closed.
        """


class RequestByteCounter(ByteCounter, Protocol):
    """Counts bytes of a request."""

    def first_hold_ms(self, context: Context) -> int:
        """Return the time (ms) for which to hold the bytes of a request that were not counted yet; 0 for no
        hold.
        """


class StreamRewrite(LimitedScan, Protocol):
    """Changes bytes of one response body in place while its parts are forwarded."""

    @property
    def skippable_bytes(self) -> int:
        """Number of bytes that come next, need no change, and need not be fed."""

    def skip(self, count: int) -> None:
        """Go on behind the next `count` bytes, at most `skippable_bytes`."""

    def feed(self, data: bytearray, start: int, stop: int, elements_max: int) -> int:
        """Process the body's next bytes, `data[start:stop]`, up to `elements_max` elements: change them in
        place, or leave them if they need no change. Return the position behind the processed bytes. Raises
        ProtocolError for malformed bytes, which must not be forwarded.
        """


IN_PARTS: Final = Wait()
"""Result of a `Rewrite` for a complete response with too many elements for one turn of the reactor.
`rewrite_stream` then changes the response in parts.
"""
Admit: TypeAlias = "Callable[[Context, bytearray, int, int, bool], Decision | Wait]"
"""Function (context, data, frame, end, complete) that returns the decision about the request
`data[frame:end]`, or WAIT. `complete` is True if the whole frame has arrived.
"""


def forward_unchanged(
    _context: Context, _data: bytearray, _frame: int, _end: int, _complete: bool
) -> Decision | Wait:
    """Forward the request: the decision of a plan without `admit`, for handlers that add to an `admit`."""
    return FORWARD


NeedsLook: TypeAlias = "Callable[[Context, bytearray, int, int, bool], bool]"
"""Function (context, data, position, end, complete) that returns True if a request must be parsed although
one with the same bytes before `position` was; this function reads the bytes from there to `end`. `complete`
is True if the whole frame has arrived. Raises nothing.
"""
Decide: TypeAlias = "Callable[[Context, int, bytearray, int], Forward | None]"
"""Function (context, parsed, data, stop) that returns the decision to forward a request that was recognized
by its first bytes, from what was parsed of an earlier one; None if the request must be parsed itself. The
recognized bytes end at `data[stop]`. The function may change fields among them, but then it must return a
decision.
"""
Charge: TypeAlias = "Callable[[ClientLedger, int, int], int]"
"""Function (ledger, length, now_ms) that charges a frame and returns the throttle time (ms). The length
(bytes) is the value of the frame's length prefix.
"""
Tell: TypeAlias = "Callable[[Context, ClientLedger], tuple[int, int, int]]"
"""Function that counts a throttled response from which Weir has removed the records. It returns the throttle
times (ms) to report: that of the client's quota, of topic rates, and of old reads.
"""
Extra: TypeAlias = "Callable[[Context, EstimatedRequest, bytearray, int, int], float]"
"""Function (context, request, data, frame, end) that returns the cost (µs) of the request `data[frame:end]`
in addition to the cost of its length. The frame may be incomplete. Returns 0 for bytes that it cannot read;
raises nothing.
"""
Rewrite: TypeAlias = "Callable[[Context, bytearray, int, int, bool], ResponseEdit | Wait | None]"
"""Function (context, data, body, end, complete) that returns the edit of the response with body
`data[body:end]`; None to leave the frame unchanged; WAIT for more bytes; IN_PARTS. `complete` is True if the
whole frame has arrived. Raises ProtocolError if the body is malformed.
"""


@dataclass(frozen=True, slots=True)
class Removal:
    """Functions that remove the records from responses to clients over a quota (KIP-219)."""

    over: Callable[[Context, ClientLedger], int]
    """Function that returns the time (ms) until which the client of a response is over its quota; 0 if it is
    not. Charges after the request was forwarded count. Until that time, Weir removes the records.
    """
    tell: Tell
    """Function that counts a throttled response from which Weir has removed the records."""
    on_emptied: Callable[[Context, bytearray, int, int], None] | None = None
    """Function (context, data, body, end) that learns from a response without records, whose body is
    `data[body:end]`; None for no call.
    """


@dataclass(slots=True)
class Plan:
    """Functions that connections call for requests and responses of one (API key, version). All connections
    of a process share the plan.
    """

    api_key: int
    version: int
    flexible_request: bool = False
    flexible_response: bool = False
    """True if the response's *header* has tagged fields (never for ApiVersions)."""
    broker_version: int = -1
    """API version of the requests that Weir sends to the broker. It differs from the client's version if the
    broker lacks that version and Weir translates it (uplift).
    """
    broker_waits: bool = False
    """True if the broker waits out its own throttle time before it responds, so the client must not wait for
    that time again. Set only by uplift (client and broker use different versions).
    """
    whole: bool = False
    """True if a request of this plan may have to be kept until all of it has arrived, because `admit` reads
    it as a whole, even if the request is larger than the buffer.
    """
    admit: Admit | None = None
    decide: Decide | None = None
    """Function that decides about requests whose parsing `admit` has saved by `RequestClient.cache_parse`."""
    needs_look: NeedsLook | None = None
    """Function that finds requests that `admit` must decide about; None if `decide` may decide about each."""
    on_arrival: tuple[Charge, ...] = ()
    on_response: tuple[Charge, ...] = ()
    """Functions that charge a response. If several charges throttle, the longest throttle counts, never the
    sum (Kafka 2.0 and later).
    """
    on_leave: Callable[[ClientLedger], None] | None = None
    """Function to call for a request whose response was not charged, because the connection has ended before;
    None for no call.
    """
    removal: Removal | None = None
    """Functions for responses to clients over their quota; None if Weir never removes records."""
    counted_removal: Removal | None = None
    """The same for clients whose fetched records are counted (`ClientLedger.counts_records`)."""
    byte_counter: Callable[[Context, ClientLedger], ByteCounter | None] | None = None
    """Function that returns the byte counter for a charged response; None if no bytes are to be counted.
    Called only for clients whose fetched records are counted.
    """
    cost: Cost | None = None
    """Cost of requests in request time (KIP-124); None if request time is not charged."""
    extra_us: Extra | None = None
    has_client_id: bool = True
    """True if the request header has a client-id (all but ControlledShutdown v0)."""
    group: int = 0
    """Group of the requests in usage records: an index of `usage.groups.GROUPS`."""
    between_brokers: bool = False
    """True if brokers send this API to each other. Request time is not charged for such requests with a
    broker's principal.
    """
    throttle: FieldOffset | None = None
    rewrite: Rewrite | None = None
    rewrite_stream: Callable[[int], StreamRewrite] | None = None
    """Function (length of the response's body in bytes) that returns a rewriter which changes the body part
    by part, for a response larger than the buffer or with many elements.
    """
    edit: Callable[[Message, AdvertisedAddresses], None] | None = None
    """Function that replaces the brokers' addresses in a decoded response which a query has received from the
    broker; None if such responses contain no addresses.
    """
    requests: int = 0
    """Number of requests with this API key and version that clients have sent."""

    def __post_init__(self) -> None:
        """Set the version used towards the broker to the client's version, unless another was given."""
        if self.broker_version < 0:
            self.broker_version = self.version


TOKEN: Final = Plan(api_key=-1, version=-1)
"""Plan for SASL tokens, which have no Kafka header."""
