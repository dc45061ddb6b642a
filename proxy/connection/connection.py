"""One client connection and the broker connection behind it, as a machine: bytes, events and a time in,
effects out. No sockets, no clock.

`Connection` has the state (`state`: the transitions are one table there), what handlers see of it, and the
decisions that are not about one frame's bytes: may a request be taken, must the connection close. Its halves,
`Inbound` and `Outbound`, are fed the bytes that were read from either side. They judge every frame, patch it
in place or splice in other bytes, and put what is to be sent into the effects: memoryviews of the very buffer
they were given, so they must be sent, or copied, before the buffer is used again. Bytes that cannot be judged
yet (the head of a frame that is cut, or a frame that must wait) stay unconsumed; the transport keeps them
(`End.kept`) and presents them again, with more bytes behind them. A frame whose head is known goes on before
its end is here.

Invariants: responses go out in the order of their requests; no byte is dropped or reordered; each request is
charged once; nobody waits without an end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.close_reasons import BY_CLIENTS, CloseReason
from proxy.connection import replies
from proxy.connection.charges import charge_request_time
from proxy.connection.client import Client  # fields' types: mypyc wants them at run time
from proxy.connection.clock import Clock
from proxy.connection.effects import Effects, End
from proxy.connection.ending import find_end
from proxy.connection.in_flight import CHARGED, DEFERRED, LOCAL, RequestInFlight
from proxy.connection.state import ANSWERED, DRAINING, NEXT, OPEN, RELEASE, THROTTLE, THROTTLED, WHY, Event
from proxy.connection.usage import ConnectionUsage
from proxy.connection.usage_counters import MUTATION
from proxy.handlers.plan import ByteCounter, Plan
from proxy.handlers.quota_api.quota_admin import NoQuotaAdmin, QuotaAdmin
from proxy.handlers.sasl.identity import ANONYMOUS as ANONYMOUS
from proxy.handlers.topics.fetch_sessions import FetchSession
from quotas.limiters.throttle import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.versions import VersionRange
    from proxy.addresses import AdvertisedAddresses
    from proxy.counters import Counters
    from proxy.handlers.mutations.cluster_state import ClusterState
    from proxy.handlers.plans import Plans
    from proxy.handlers.sasl.identity import Identities
    from quotas import BrokerQuotas


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that all connections share."""

    frame_bytes_max: int = 100 * 1024 * 1024
    """Kafka's socket.request.max.bytes."""
    response_bytes_max: int = 2**31 - 1
    in_flight_max: int = 1000
    """Requests of one connection that may wait for their responses."""
    stream_above_bytes: int = 256 * 1024
    """Frames longer than this never lie in the buffer as a whole."""
    held_bytes_max: int = 1024 * 1024
    """The longest request that is kept until it is whole, for those few APIs that need it."""
    first_hold_ms_max: int = 5_000
    """The longest time that a new connection's first request is held for throttles that other connections of
    its client have caused; 0: it is not held, as at a broker.
    """
    throttle_ms_max: int = INT32_MAX
    """The longest throttle time that a client is told; the rest stays charged."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A peer broke the protocol: why the connection must close."""

    reason: CloseReason
    detail: str


class Connection:
    """One client connection and the broker connection behind it: what the two halves have in common."""

    __slots__ = (
        "addresses",
        "authorized_again",
        "broker_end",
        "broker_turn_over",
        "byte_counter",
        "client",
        "client_end",
        "client_turn_over",
        "clock",
        "counters",
        "effects",
        "fetch_length",
        "fetch_session",
        "held_until_ms",
        "hold",
        "in_flight",
        "left",
        "limits",
        "linger_until_ms",
        "node_id",
        "now_ms",
        "on_wake",
        "plans",
        "produce_shape",
        "quota_admin",
        "quotas",
        "report_ms",
        "request_rest_bytes",
        "response_rest_bytes",
        "spare",
        "speaks_api_versions_3",
        "state",
        "throttled_until_ms",
        "violation",
    )

    def __init__(
        self,
        *,
        plans: Plans,
        quotas: BrokerQuotas,
        addresses: AdvertisedAddresses,
        counters: Counters,
        limits: ConnectionLimits,
        hold: bool = False,
        node_id: int | None = None,
        user: str = ANONYMOUS,
        peer: str = "",
        quota_admin: QuotaAdmin | None = None,
        brokers: frozenset[str] = frozenset(),
        clock: Clock | None = None,
        usage: ConnectionUsage | None = None,
    ) -> None:
        """Begin a new connection.

        `quotas` are those of the broker behind it, `node_id` its id if known, `addresses` the brokers'
        addresses that this client is told, `hold` delays throttled responses instead of muting after them (as
        brokers did before KIP-219), `user` is the principal of the client's certificate, `peer` its address,
        `brokers` the principals that fetch as replicas, `clock` the transport's, `usage` counts what the
        client uses, if usage is recorded.
        """
        # The transport
        self.effects = Effects()
        self.client_end = End()
        self.broker_end = End()
        self.clock = clock or Clock()
        self.now_ms = 0
        self.on_wake: Callable[[], None] | None = None
        """Called when there is something to send though nothing was read."""
        # The state
        self.state = OPEN
        self.throttled_until_ms = 0
        """Time (ms) before which no request is taken from the client (KIP-219)."""
        self.held_until_ms = 0
        """Time (ms) before which no response is given to the client (hold mode only)."""
        self.left: tuple[int, ...] | None = None
        """What was left to do when a client that has closed its half was last looked at."""
        self.linger_until_ms = 0
        """Time (ms) until which such a client is kept unless something of that gets done."""
        self.violation: Violation | None = None
        self.in_flight: deque[RequestInFlight] = deque()
        """Requests that wait for their responses, oldest first."""
        self.spare: list[RequestInFlight] = []
        """Records to be used again."""
        self.client_turn_over = self.broker_turn_over = False
        """True if frames from that side are here that wait only for the transport's next turn."""
        self.request_rest_bytes = 0
        """Number of bytes to come of a request that has gone on; they are taken whatever the state."""
        self.response_rest_bytes = 0
        """Number of bytes to come of a response whose head was judged."""
        self.byte_counter: ByteCounter | None = None
        """Measures that response, if anything does."""
        self.client = Client(
            quotas,
            plans.identities,
            user=user,
            peer=peer,
            node_id=node_id,
            brokers=brokers,
            usage=usage,
            in_flight_max=limits.in_flight_max,
        )
        # What handlers keep
        self.authorized_again = False
        """True if the broker has just answered this client, for a reply of Weir's own that depends on that.
        """
        self.speaks_api_versions_3 = False
        """True if the client has asked ApiVersions in v3 or newer."""
        self.fetch_session: FetchSession | None = None
        """Followed while topics have rates."""
        self.fetch_length = 0
        self.produce_shape: tuple[Plan, bytes, int, float] | None = None
        self.report_ms = 0
        """Throttle time (ms) to report in the response that is being rewritten."""
        # The process
        self.plans = plans
        """The plans for the broker's versions, once these are known."""
        self.quotas = quotas
        self.counters = counters
        self.limits = limits
        self.quota_admin = quota_admin or NoQuotaAdmin()
        self.addresses = addresses
        self.node_id = node_id
        self.hold = hold

    # What the transport asks, and tells

    def may_take(self, now_ms: int) -> bool:
        """Return whether the client's next request may be taken now."""
        if self.state != OPEN:
            if self.state != THROTTLED or self.throttled_until_ms > now_ms:
                return False
            self.state = NEXT[THROTTLED][RELEASE]
        return len(self.in_flight) < self.client.in_flight_max

    def takes_client(self, now_ms: int) -> bool:
        """Return whether bytes from the client are of use now. Those of a request that has begun always are,
        unless a peer is slow to take what it was sent.
        """
        if self.client_end.unsent or self.broker_end.unsent or self.client_turn_over:
            return False
        return self.request_rest_bytes > 0 or self.may_take(now_ms)

    def takes_broker(self, now_ms: int) -> bool:
        """Return whether bytes from the broker are of use now."""
        return not (self.client_end.unsent or self.broker_turn_over) and self.held_until_ms <= now_ms

    def client_room_bytes(self, now_ms: int) -> int:
        """Return how many bytes may be read from the client; 0 for any number."""
        return 0 if self.may_take(now_ms) else self.request_rest_bytes

    def client_left(self) -> None:
        """The client has closed its half: it still gets its responses, for a while."""
        self.effects.change()

    def drain(self) -> None:
        """Take no further request; close once all requests under way are answered."""
        self.happen(Event.DRAIN)
        self.effects.change()

    def settle(self, now_ms: int) -> Effects:
        """Bring the effects up to date: whom to read, the next deadline, and whether to close."""
        effects = self.effects
        effects.changed = False
        find_end(self, now_ms)
        effects.read_client = self.takes_client(now_ms)
        effects.read_broker = self.takes_broker(now_ms)
        times = (self.throttled_until_ms, self.held_until_ms, self.linger_until_ms)
        effects.deadline_ms = min((time_ms for time_ms in times if time_ms > now_ms), default=0)
        effects.again = self.client_turn_over or self.broker_turn_over
        return effects

    def begin_turn(self) -> None:
        """Go on with the frames that were left for another turn."""
        self.client_turn_over = self.broker_turn_over = False

    @property
    def idle(self) -> bool:
        """True if nothing is under way: no request half sent, none unanswered, no response half received."""
        return not (self.in_flight or self.request_rest_bytes or self.response_rest_bytes)

    @property
    def waits_because(self) -> str:
        """Why no request is taken from the client; "" if one may be."""
        return WHY[self.state]

    # Transitions

    def happen(self, event: Event) -> None:
        """Go on to the next state."""
        self.state = NEXT[self.state][event]

    def mute(self, throttle_ms: int) -> int:
        """Take no request for this long, or for the longest time that is told; say until when (KIP-219)."""
        if throttle_ms > self.limits.throttle_ms_max:
            throttle_ms = self.limits.throttle_ms_max
        until_ms = self.now_ms + throttle_ms
        self.counters.throttles += 1
        if until_ms > self.throttled_until_ms:
            self.throttled_until_ms = until_ms
        self.state = NEXT[self.state][THROTTLE]
        self.effects.changed = True
        return until_ms

    def first_hold_ms(self, until_ms: int) -> int:
        """Return for how long (ms) the first request of a kind is held for a throttle that other connections
        of its client have caused and that lasts until `until_ms`. All such holds end by the same time.
        """
        end_ms = self.client.first_hold_end_ms
        if end_ms is None:
            end_ms = self.now_ms + self.limits.first_hold_ms_max
        return max(min(until_ms, end_ms) - self.now_ms, 0)

    def hold_first(self, hold_ms: int) -> None:
        """Hold the first request of a kind."""
        if self.client.first_hold_end_ms is None:
            self.client.first_hold_end_ms = self.now_ms + self.limits.first_hold_ms_max
        self.mute(hold_ms)

    def tell_next(self, until_ms: int) -> None:
        """Have the next response that can do so tell a throttle that its own response cannot tell: there is
        none, its version lacks the field, or its head has gone on. Hold mode delays a response that tells
        one.
        """
        if self.hold:
            return
        for record in self.in_flight:
            if record.kind <= CHARGED and record.plan.throttle is not None:
                record.tell(until_ms)
                return

    def answered(self) -> None:
        """Go on: the bytes from the broker end with a whole frame, or a reply of Weir's own is ready."""
        in_flight = self.in_flight
        if in_flight and LOCAL <= in_flight[0].kind <= DEFERRED:
            replies.send_local(self)
        if not in_flight and self.state != OPEN:
            self.state = NEXT[self.state][ANSWERED]
            if self.state == THROTTLED and self.throttled_until_ms <= self.now_ms:
                self.state = NEXT[THROTTLED][RELEASE]
            elif self.state == DRAINING:
                self.effects.change()

    def violate(self, reason: CloseReason, detail: str) -> None:
        """Close the connection, because a peer broke the protocol. The first violation counts."""
        if self.violation is None:
            self.violation = Violation(reason, detail)
            self.happen(Event.CLOSE)
            client = self.client
            if client.usage is not None and reason in BY_CLIENTS:
                client.usage.failed(client.user)
        self.effects.change()

    def end(self, now_ms: int) -> None:
        """Both sockets are closed: charge the part of a response that the client has had, and the time of the
        requests that nobody waits for any more.
        """
        self.now_ms = now_ms
        self.happen(Event.CLOSE)
        self.on_wake = None
        if self.byte_counter is not None:
            self.byte_counter.cut(now_ms)
            self.byte_counter = None
        for record in self.in_flight:
            if record.query is not None:
                replies.abandon(record)
            else:
                record.leave(self)
        self.in_flight.clear()
        if self.client.usage is not None:
            self.client.usage.end()

    def wake(self) -> None:
        """Send a response that was prepared elsewhere, and go on."""
        self.now_ms = max(self.now_ms, self.clock.now_us // 1000)
        self.answered()
        self.effects.change()
        if self.on_wake is not None:
            self.on_wake()

    # What handlers see

    @property
    def broker_versions(self) -> Plans:
        """The broker's versions, and their plans."""
        return self.plans

    @property
    def cluster(self) -> ClusterState:
        """The cluster's topics, as far as all connections have learnt of them."""
        return self.plans.cluster

    @property
    def buffer_bytes(self) -> int:
        """A frame longer than this is never in the buffer as a whole."""
        return self.limits.stream_above_bytes

    @property
    def identities(self) -> Identities:
        """Principals, as far as all connections share what is known of them."""
        return self.plans.identities

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """From now on use the plans for a broker that speaks these versions."""
        self.plans = self.plans.for_broker(broker)

    # Charges that handlers make

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge the latest request with its time, though it was exempt."""
        usage, ledger = self.client.usage, self.client.time_ledger
        usage_counters = None if usage is None else usage.at_hand
        timed = self.quotas.timed or usage_counters is not None
        if ledger is not None and plan.cost is not None and timed:
            charge_request_time(self, plan, plan.cost.us, ledger, usage_counters, length)

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Count the results of the request that a query is made for."""
        usage = self.client.usage
        if usage is None or usage.queried is None:
            return
        usage_counters = usage.queried
        if partitions:
            usage_counters.mutated(partitions)
        if refused or throttle_ms:
            usage_counters.throttled(MUTATION, throttle_ms, refused or 1)
