"""A plan: what a session does with the requests and responses of one (API key, version).

Nearly all APIs have a plan with nothing in it: their frames are passed on as they came. A capability
(bandwidth, addresses, mutation quotas, request time, SASL) is a module that fills slots of the plans it
cares for; the session's loops do not know which. What takes more than one look at one frame is a query
(`proxy.handlers.broker_query`), which `admit` starts. The slots, in the order of a request's life:

1. `admit` looks at the request's first fields, may patch them in place, says who pays and whether there will
   be a response.
2. `on_arrival` charges what is known when the whole request has arrived.
3. `on_response` charges what is known when its response begins to arrive.
4. `throttle` is the place of throttle_time_ms in the response.
5. `cost` is what the request costs the broker in time (KIP-124), as far as its lengths tell; `extra_us` is
   what a look into it adds. That is charged while the broker has quotas on request time, beside the rest.
6. `rewrite` replaces one stretch of the response by other bytes; `rewrite_stream` is its substitute for a
   response that is larger than the buffer, where only changes that keep the length are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from proxy.handlers.decisions import Decision, Forward, Wait

if TYPE_CHECKING:
    from protocol.field_offsets import FieldOffset
    from protocol.messages import Message
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
    """Which versions a broker speaks, and what goes with that."""

    broker: Mapping[int, VersionRange] | None
    """Its versions by API key; None if they are not known."""

    def offered(self, *, added: bool = True) -> dict[int, VersionRange]:
        """What clients of this broker are told that it speaks; with what Weir adds of its own, or without."""


class Client(Protocol):
    """What a capability sees of the client of a connection."""

    first_produce_seen: bool
    """True once this connection's first produce request was admitted: it may be held for throttles that other
    connections of its client have caused.
    """
    first_fetch_seen: bool
    """The same of share fetches."""

    @property
    def user(self) -> str:
        """The name of its principal, which the broker, or the check of a certificate, has accepted."""

    @property
    def peer(self) -> str:
        """Its address, for people."""

    @property
    def ledger(self) -> ClientLedger:
        """The budgets of the latest request's client; see `identify`."""

    @property
    def is_broker(self) -> bool:
        """True if its principal is one of the brokers' own, on a listener that brokers use."""

    @property
    def recorded(self) -> bool:
        """True if its usage is recorded."""

    @property
    def exchange(self) -> Exchange | None:
        """The SASL exchange under way, which does not show in `user` before it has succeeded."""

    def follow(self, exchange: Exchange | None) -> None:
        """From now on this exchange is under way, or none; also to be called when it has changed."""

    def become(self, user: str) -> None:
        """Go on as another principal; what was looked up for the old one is forgotten."""

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of a request; None if more bytes are needed. Raises ProtocolError."""

    def identify(self, data: bytearray, frame: int, end: int, now_ms: int) -> ClientLedger | None:
        """Return the budgets that the client of a request draws on; None if more bytes are needed.

        Raises ProtocolError.
        """

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
        """Take requests that begin with the same `data[frame:stop]` for the same, while `budget` is not
        throttled.

        Only for answers that depend on nothing else but the quotas in force. Requests of brokers are not
        cached: whether they are replicas' stands at their end.
        """


class Context(Protocol):
    """What a capability sees of the session whose frame it is asked about."""

    @property
    def client(self) -> Client:
        """The client."""

    @property
    def broker_versions(self) -> BrokerVersions:
        """What its broker speaks: another one once that is known."""

    @property
    def cluster(self) -> ClusterState:
        """What all sessions have learnt of the cluster's topics."""

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """Learn which versions its broker speaks, by API key."""

    @property
    def addresses(self) -> AdvertisedAddresses:
        """What this client is told about brokers."""

    @property
    def node_id(self) -> int | None:
        """The broker behind the session, if its id is known."""

    speaks_api_versions_3: bool
    """It has asked for versions as clients do that say what they are (ApiVersions v3, KIP-511)."""

    @property
    def identities(self) -> Identities:
        """The rules for names that cannot be seen, and what all sessions have learnt."""

    @property
    def counters(self) -> Counters:
        """What the process has done."""

    authorized_again: bool
    """The broker has just answered this client; set by a query for the request that is judged again."""

    @property
    def buffer_bytes(self) -> int:
        """A frame longer than this is never in the buffer as a whole."""

    fetch_session: FetchSession | None
    """The latest one, followed while topics have rates."""
    fetch_length: int
    """Of the longest fetch of the latest session, while request time is charged; 0: none was seen."""
    produce_shape: tuple[Plan, bytes, int, float] | None
    """How the latest produce request with one partition began, while request time is charged: (plan; bytes
    from the client-id on; where the length of its records is in the frame, its last byte if it is an int32;
    what all that costs in µs).
    """

    @property
    def quota_admin(self) -> QuotaAdmin:
        """Who may see and change the quotas, and how that is done."""

    @property
    def quotas(self) -> BrokerQuotas:
        """What the broker's clients may use."""

    @property
    def report_ms(self) -> int:
        """The throttle time that the response at hand is to tell; for `rewrite`."""

    @property
    def now_ms(self) -> int:
        """The time."""

    def first_hold_ms(self, until_ms: int) -> int:
        """Return for how long (ms) the first request of a kind is held for a throttle that other connections
        of its client have caused and that lasts until `until_ms`.
        """

    @property
    def hold(self) -> bool:
        """True if throttled responses are delayed, as before KIP-219."""

    def mute(self, throttle_ms: int) -> int:
        """Take no request for this long; return when that ends (KIP-219)."""

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Tell whoever records usage what became of the request that a query is run for: partitions
        created or deleted, topics refused, the throttle time.
        """

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge the latest request with its time, though it was exempt: its response, of about this length,
        says that it is not.
        """

    def violate(self, reason: CloseReason, detail: str) -> None:
        """Have the session closed."""


class ResponseEdit(NamedTuple):
    """Replace `data[start:stop]`, a stretch within a frame, by `replacement`."""

    start: int
    stop: int
    replacement: bytes


class ByteCounter(Protocol):
    """Measures one frame as it streams by; what it has found is charged at the end."""

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Look at the body's next bytes, `data[start:stop]`. Raises ProtocolError."""

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge what was found; return how long the client must wait, in ms: 0 unless `told`, for then the
        next request is told.
        """

    def cut(self, now_ms: int) -> None:
        """The frame will not come to its end: charge what has gone on."""


class StreamRewrite(Protocol):
    """Changes bytes of one response body in place while it streams by."""

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Look at, and perhaps change, the body's next bytes: `data[start:stop]`."""


Admit: TypeAlias = "Callable[[Context, bytearray, int, int, bool], Decision | Wait]"
"""(caller, data, frame, end, complete): the frame is `data[frame:end]`, all of it if complete."""
FirstHold: TypeAlias = "Callable[[Context, bytearray, int, int, bool], int]"
"""(caller, data, frame, end, complete) -> ms; INCOMPLETE if more bytes are needed."""
Charge: TypeAlias = "Callable[[ClientLedger, int, int], int]"
"""(ledger, frame length in bytes, now_ms) -> throttle_ms. The length is the value of the frame's length
prefix.
"""
Tell: TypeAlias = "Callable[[Context, ClientLedger], tuple[int, int]]"
"""Count a response without records; return the throttle times (ms) that it tells: by the client's quota, and
by rates of topics.
"""
Extra: TypeAlias = "Callable[[Context, bytearray, int, int], float]"
"""(caller, data, frame, end) -> µs: what the request `data[frame:end]`, perhaps cut, costs beyond what its
length tells. What it cannot read costs nothing extra: it refuses nothing, and raises nothing.
"""
Rewrite: TypeAlias = "Callable[[Context, bytearray, int, int, bool], ResponseEdit | Wait | None]"
"""(caller, data, body, end, complete): the body is `data[body:end]`, all of it if complete. None leaves the
frame as it is. Raises ProtocolError.
"""


@dataclass(slots=True)
class Plan:
    """What to do with one (API key, version); shared by all sessions of a process."""

    api_key: int
    version: int
    flexible_request: bool = False
    flexible_response: bool = False
    """Whether the response's *header* has tagged fields (never for ApiVersions)."""
    broker_version: int = -1
    """The version that the broker is asked in: another one than the client's under uplift."""
    broker_waits: bool = False
    """The broker's own throttle time is over when its response arrives, and the client is not to wait again
    (under uplift only).
    """
    whole: bool = False
    """Whether `admit` may need the whole request, even one that is larger than the buffer."""
    admit: Admit | None = None
    first_holds: tuple[FirstHold, ...] = ()
    """For how long the first produce request of a new connection is held; the longest counts."""
    on_arrival: tuple[Charge, ...] = ()
    on_response: tuple[Charge, ...] = ()
    """Of several charges the longest throttle counts, never the sum (Kafka 2.0 and later)."""
    over: Callable[[Context, ClientLedger], int] | None = None
    """Time (ms) until which the client of a charged response is over its quota, by charges made meanwhile; 0
    if it is not. Until then it gets no records (KIP-219). None: the response is delivered whatever was
    charged.
    """
    tell: Tell | None = None
    """Counts a response without records. Goes with `over`."""
    byte_counter: Callable[[Context], ByteCounter | None] | None = None
    """What measures a charged response, if anything is to; asked while topics have rates."""
    cost: Cost | None = None
    """None: nobody is charged with its request time."""
    extra_us: Extra | None = None
    has_client_id: bool = True
    """Whether its requests' header has one: nearly all (not ControlledShutdown v0's)."""
    group: int = 0
    """What kind of request it is, for usage: an index into `usage.groups.GROUPS`."""
    between_brokers: bool = False
    """Brokers ask it of each other: their own principals are not charged with its time."""
    throttle: FieldOffset | None = None
    rewrite: Rewrite | None = None
    rewrite_stream: Callable[[], StreamRewrite] | None = None
    edit: Callable[[Message, AdvertisedAddresses], None] | None = None
    """What `rewrite` does to the addresses in a decoded response, for queries."""
    requests: int = 0
    """How many requests this plan has seen."""

    def __post_init__(self) -> None:
        """Speak to the broker as the client does, unless told otherwise."""
        if self.broker_version < 0:
            self.broker_version = self.version


LOCAL: Final = Plan(api_key=-1, version=-1)
"""The plan of a reply of Weir's own."""
TOKEN: Final = Plan(api_key=-1, version=-1)
"""The plan of a bare SASL token."""
QUERY: Final = Plan(api_key=-1, version=-1)
"""The plan of a question that a query asks the broker."""
