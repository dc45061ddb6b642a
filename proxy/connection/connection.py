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
from typing import TYPE_CHECKING, Final

from protocol.heads import INCOMPLETE, LENGTH_BYTES, REQUEST_HEAD_BYTES, client_id_end
from proxy.connection.charges import LocalResponse, charge_request_time, leave, sent
from proxy.connection.clock import Clock
from proxy.connection.effects import Effects, End
from proxy.connection.in_flight import Kind, RequestInFlight
from proxy.connection.parse_cache import ParseCache
from proxy.connection.receipts import MUTATION
from proxy.connection.state import NEXT, WHY, Event, State
from proxy.connection.usage import SessionUsage
from proxy.reasons import BY_CLIENTS, CloseReason  # a field's type: mypyc wants it at run time
from proxy.rules.deferred import Deferred
from proxy.rules.errand import Run
from proxy.rules.exchange import Exchange
from proxy.rules.fetch_sessions import FetchSession
from proxy.rules.identity import ANONYMOUS as ANONYMOUS
from proxy.rules.management import Management, Unmanaged
from proxy.rules.plan import LOCAL, QUERY, TOKEN, Meter, Plan
from quotas import Payers
from quotas.throttle import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.versions import VersionRange
    from proxy.addresses import AdvertisedAddresses
    from proxy.counters import Counters
    from proxy.rules.cluster_state import ClusterState
    from proxy.rules.decisions import Forward
    from proxy.rules.identity import Identities
    from proxy.rules.plans import Plans
    from quotas import BrokerQuotas, Budget

NOBODY: Final = Payers(None, None)

UNDER_WAY_MAX: Final = 32
"""Requests that a client with a limit on its time may have under way on a connection, however far from the
limit it is: all of them may be forwarded before the first is charged.
"""
NAME_BYTES_MAX: Final = 1024
"""Longer client-ids are looked up for each request: each connection keeps its own, and one may have 32 KB."""
LINGER_MS: Final = 30_000
"""Time (ms) that a client which has closed its half is kept after the latest progress with its requests: a
broker that hangs makes none.
"""
_OPEN: Final = State.OPEN.value
_THROTTLED: Final = State.THROTTLED.value
_DRAINING: Final = State.DRAINING.value
_ANSWERED: Final = Event.ANSWERED.value
_RELEASE: Final = Event.RELEASE.value
_THROTTLE: Final = Event.THROTTLE.value
_LOCAL: Final = Kind.LOCAL.value
_DEFERRED: Final = Kind.DEFERRED.value


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
        "_generation",
        "_left",
        "_linger_until_ms",
        "_named",
        "_serial_local",
        "addresses",
        "authenticated",
        "broker",
        "brokers",
        "client",
        "clock",
        "counters",
        "effects",
        "exchange",
        "fetch_length",
        "fetch_session",
        "first_fetch_seen",
        "first_produce_seen",
        "first_request_seen",
        "following",
        "held_until_ms",
        "hold",
        "in_flight",
        "in_flight_max",
        "is_broker",
        "limits",
        "management",
        "meter",
        "newest",
        "node_id",
        "now_ms",
        "on_wake",
        "parse_cache",
        "payers",
        "peer",
        "plans",
        "produce_shape",
        "quotas",
        "raw",
        "report_ms",
        "request_rest_bytes",
        "response_rest_bytes",
        "spare",
        "state",
        "throttled_until_ms",
        "time_payers",
        "usage",
        "user",
        "violation",
        "vouched",
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
        management: Management | None = None,
        brokers: frozenset[str] = frozenset(),
        clock: Clock | None = None,
        usage: SessionUsage | None = None,
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
        self.client = End()
        self.broker = End()
        self.clock = clock or Clock()
        self.now_ms = 0
        self.on_wake: Callable[[], None] | None = None
        """Called when there is something to send though nothing was read."""
        # The state
        self.state = State.OPEN.value
        self.throttled_until_ms = 0
        """Time (ms) before which no request is taken from the client (KIP-219)."""
        self.held_until_ms = 0
        """Time (ms) before which no response is given to the client (hold mode only)."""
        self._left: tuple[int, ...] | None = None
        """What was left to do when a client that has closed its half was last looked at."""
        self._linger_until_ms = 0
        """Time (ms) until which such a client is kept unless something of that gets done."""
        self.violation: Violation | None = None
        self.in_flight: deque[RequestInFlight] = deque()
        """Requests that wait for their responses, oldest first."""
        self.spare: list[RequestInFlight] = []
        """Records to be used again."""
        self.in_flight_max = limits.in_flight_max
        """Number of requests that may be in flight."""
        self.request_rest_bytes = 0
        """Number of bytes to come of a request that has gone on; they are taken whatever the state."""
        self.response_rest_bytes = 0
        """Number of bytes to come of a response whose head was judged."""
        self.meter: Meter | None = None
        """Measures that response, if anything does."""
        self._serial_local: LocalResponse | None = None
        """The accounting of the request that a query is made for, or whose response is being prepared."""
        # The client
        self.user = user
        self.peer = peer
        self.brokers = brokers
        self.is_broker = user in brokers
        """True if the principal is one of the brokers' own: it may be exempt as a replica."""
        self.authenticated = False
        """True if the broker has accepted the client by SASL."""
        self.exchange: Exchange | None = None
        """The SASL exchange under way; see `follow`."""
        self.following = False
        """True if `tokens` looks first at the client's next bytes."""
        self.raw = False
        """True if both sides send bare SASL tokens now."""
        self._named = b""
        """Bytes of the client-id that `payers` were looked up for, its length included."""
        self._generation = -1
        """Generation of the quotas that they were looked up in."""
        self.payers = NOBODY
        """The budgets of the latest request's client; see `identify`."""
        self.time_payers: Payers | None = None
        """The same, if its request time is charged or its usage recorded."""
        self.first_request_seen = False
        """True once this connection's first request was admitted. Until then it may also wait for request
        time that other connections of its client have used.
        """
        self.first_produce_seen = False
        """The same of produce requests and byte rates."""
        self.first_fetch_seen = False
        """The same of share fetches: all other fetches are answered without records instead."""
        self.parse_cache = ParseCache()
        # What handlers keep
        self.vouched = False
        """True if the broker has just answered this client, for a reply of Weir's own that depends on that.
        """
        self.newest = False
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
        self.management = management or Unmanaged()
        self.addresses = addresses
        self.node_id = node_id
        self.hold = hold
        self.usage = usage

    # What the transport asks, and tells

    def may_take(self, now_ms: int) -> bool:
        """Return whether the client's next request may be taken now."""
        if self.state != _OPEN:
            if self.state != _THROTTLED or self.throttled_until_ms > now_ms:
                return False
            self.state = NEXT[_THROTTLED][_RELEASE]
        return len(self.in_flight) < self.in_flight_max

    def takes_client(self, now_ms: int) -> bool:
        """Return whether bytes from the client are of use now. Those of a request that has begun always are,
        unless a peer is slow to take what it was sent.
        """
        if self.client.unsent or self.broker.unsent:
            return False
        return self.request_rest_bytes > 0 or self.may_take(now_ms)

    def takes_broker(self, now_ms: int) -> bool:
        """Return whether bytes from the broker are of use now."""
        return not self.client.unsent and self.held_until_ms <= now_ms

    def client_room_bytes(self, now_ms: int) -> int:
        """Return how many bytes may be read from the client; 0 for any number."""
        return 0 if self.may_take(now_ms) else self.request_rest_bytes

    def client_left(self) -> None:
        """The client has closed its half: it still gets its responses, for a while."""
        self.effects.changed = True

    def drain(self) -> None:
        """Take no further request; close once all requests under way are answered."""
        self.happen(Event.DRAIN)
        self.effects.changed = True

    def settle(self, now_ms: int) -> Effects:
        """Bring the effects up to date: whom to read, the next deadline, and whether to close."""
        effects = self.effects
        effects.changed = False
        self._find_end(now_ms)
        effects.read_client = self.takes_client(now_ms)
        effects.read_broker = self.takes_broker(now_ms)
        times = (self.throttled_until_ms, self.held_until_ms, self._linger_until_ms)
        effects.deadline_ms = min((time_ms for time_ms in times if time_ms > now_ms), default=0)
        return effects

    def _find_end(self, now_ms: int) -> None:
        """Find out whether the connection is over, and why."""
        client, broker = self.client, self.broker
        if self.violation is not None:
            self._over(self.violation.reason, self.violation.detail)
        elif (client.eof or client.left) and self._nothing_left(now_ms):
            unanswered = len(self.in_flight)
            self._over(CloseReason.CLIENT_CLOSED, f"{unanswered} requests unanswered" if unanswered else "")
        elif client.unsent or broker.unsent:
            return
        elif broker.eof and not (broker.kept and not self.takes_broker(now_ms)):
            self._over(CloseReason.BROKER_CLOSED)
        elif self.state == _DRAINING and self.idle:
            self._over(CloseReason.DRAINED)

    def _over(self, reason: CloseReason, detail: str = "") -> None:
        self.happen(Event.CLOSE)
        self.effects.close_reason, self.effects.close_detail = reason, detail

    def _nothing_left(self, now_ms: int) -> bool:
        """Return whether a client that sends no more has had everything, or has waited for long enough.

        Its requests that wait for a throttle are taken when that is over: acks=0 data must not be lost
        because its sender has left.
        """
        unsent_bytes = len(self.client.unsent) + len(self.broker.unsent)
        left = (len(self.in_flight), self.response_rest_bytes, len(self.client.kept), unsent_bytes)
        if left != self._left:
            self._left, self._linger_until_ms = left, now_ms + LINGER_MS
        if not (self.in_flight or self.response_rest_bytes or unsent_bytes):
            return self.client.eof and (not self.client.kept or self.takes_client(now_ms))
        more = bool(self.client.kept) or not self.client.eof
        waits = self.held_until_ms > now_ms or (more and self.throttled_until_ms > now_ms)
        return self._linger_until_ms <= now_ms and not waits

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
        until_ms = self.now_ms + min(throttle_ms, self.limits.throttle_ms_max)
        self.counters.throttles += 1
        self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        self.state = NEXT[self.state][_THROTTLE]
        self.effects.changed = True
        return until_ms

    def first_hold_ms(self, until_ms: int) -> int:
        """Return for how long (ms) the first request of a kind is held for a throttle that other connections
        of its client have caused and that lasts until `until_ms`.
        """
        return min(until_ms - self.now_ms, self.limits.first_hold_ms_max)

    def tell_next(self, until_ms: int) -> None:
        """Have the next response that can do so tell a throttle that its own response cannot tell: there is
        none, its version lacks the field, or its head has gone on. Hold mode delays a response that tells
        one.
        """
        if self.hold:
            return
        for record in self.in_flight:
            if record.kind <= Kind.CHARGED and record.plan.throttle is not None:
                record.kind, record.until_ms = Kind.CHARGED.value, max(record.until_ms, until_ms)
                return

    def answered(self) -> None:
        """Go on: the bytes from the broker end with a whole frame, or a reply of Weir's own is ready."""
        in_flight = self.in_flight
        if in_flight and _LOCAL <= in_flight[0].kind <= _DEFERRED:
            self.send_local()
        if not in_flight and self.state != _OPEN:
            self.state = NEXT[self.state][_ANSWERED]
            if self.state == _THROTTLED and self.throttled_until_ms <= self.now_ms:
                self.state = NEXT[_THROTTLED][_RELEASE]
            elif self.state == _DRAINING:
                self.effects.changed = True

    def violate(self, reason: CloseReason, detail: str) -> None:
        """Close the connection, because a peer broke the protocol. The first violation counts."""
        if self.violation is None:
            self.violation = Violation(reason, detail)
            self.happen(Event.CLOSE)
            if self.usage is not None and reason in BY_CLIENTS:
                self.usage.failed(self.user)
        self.effects.changed = True

    def end(self, now_ms: int) -> None:
        """Both sockets are closed: charge the part of a response that the client has had, and the time of the
        requests that nobody waits for any more.
        """
        self.now_ms = now_ms
        self.happen(Event.CLOSE)
        self.on_wake = None
        if self.meter is not None:
            self.meter.cut(now_ms)
            self.meter = None
        for record in self.in_flight:
            if record.query is not None:
                if self._serial_local is not None:
                    self._serial_local.charge_question(*record.query.asked, record.query.asked_length, 0)
                record.query.end()
            else:
                leave(self, record)
        self.in_flight.clear()
        self._serial_local = None  # a response may still be prepared, which nobody gets
        if self.usage is not None:
            self.usage.end()

    # Bare SASL tokens, responses that Weir gives by itself, and queries

    def send_token(self, *, serial: bool) -> None:
        """Wait for the answer to a bare SASL token; if `serial`, before any further token is taken."""
        self._next(TOKEN, 0, Kind.TOKEN)
        if serial:
            self.happen(Event.SASL_REQUEST)

    def reply(self, correlation_id: int, frame: bytes, local: LocalResponse | None = None) -> None:
        """Answer a request in the broker's place, when its turn has come."""
        record = self._next(LOCAL, correlation_id, Kind.LOCAL)
        if local is not None:
            local.charge(len(frame))
            frame, record.receipt = local.told(frame), local.receipt
        record.reply = frame
        self.send_local()

    def defer(self, correlation_id: int, deferred: Deferred, local: LocalResponse | None = None) -> None:
        """Answer a request in the broker's place once the answer is ready; take no request meanwhile."""
        deferred.on_arrival(self.wake)
        if local is not None:
            local.charge(0)
        self._serial_local = local
        self._next(LOCAL, correlation_id, Kind.DEFERRED).deferred = deferred
        self.happen(Event.QUERY)

    def begin(self, run: Run, local: LocalResponse | None = None) -> None:
        """Ask a query's first question, behind the bytes for the broker; take no request meanwhile."""
        question = run.begin()
        if question is not None:
            self._serial_local = local
            self._ask(run, question)
            self.happen(Event.QUERY)
        elif run.reply is not None:
            self.reply(run.correlation_id, run.reply, local)

    def go_on(self, run: Run, data: bytearray, frame: int, end: int) -> None:
        """Give a query the answer `data[frame:end]`, and ask its next question, if any.

        That takes the place of the answered one, which is the only request in flight. Raises ProtocolError.
        """
        local, self._serial_local = self._serial_local, None
        if local is not None:
            local.charge_question(*run.asked, run.asked_length, end - frame - LENGTH_BYTES)
        question = run.answer(data, frame, end)
        if question is not None:
            self._serial_local = local
            self._ask(run, question)
        elif local is not None and run.reply is not None:
            run.reply = local.settled(run.reply)
        self.effects.changed = True

    def _ask(self, run: Run, question: bytes) -> None:
        self.effects.to_broker.append(question)
        self._next(QUERY, run.correlation_id, Kind.QUERY).query = run

    def _next(self, plan: Plan, correlation_id: int, kind: Kind) -> RequestInFlight:
        record = RequestInFlight(plan)
        record.kind, record.correlation_id = kind.value, correlation_id
        self.in_flight.append(record)
        return record

    def send_local(self) -> None:
        """Send replies of Weir's own that have become the oldest outstanding response."""
        in_flight = self.in_flight
        while in_flight and not self.response_rest_bytes and _LOCAL <= in_flight[0].kind <= _DEFERRED:
            record = in_flight[0]
            reply = record.reply
            if record.deferred is not None:
                if record.deferred.frame is None:
                    return
                reply = record.deferred.frame
                if self._serial_local is not None:
                    reply, self._serial_local = self._serial_local.settled(reply), None
            in_flight.popleft()
            if record.receipt is not None:
                sent(self, record.receipt, len(reply))
            self.effects.to_client.append(reply)

    def wake(self) -> None:
        """Send a response that was prepared elsewhere, and go on."""
        self.now_ms = max(self.now_ms, self.clock.now_us // 1000)
        self.answered()
        self.effects.changed = True
        if self.on_wake is not None:
            self.on_wake()

    # Who the client is

    @property
    def dialect(self) -> Plans:
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

    @property
    def recorded(self) -> bool:
        """True if usage is recorded."""
        return self.usage is not None

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """From now on use the plans for a broker that speaks these versions."""
        self.plans = self.plans.for_broker(broker)

    def identify(self, data: bytearray, frame: int, end: int) -> Payers | None:
        """Return the budgets of the client of the request `data[frame:end]`; None if more bytes are needed.

        They are looked up once per connection and client-id, and again whenever quotas have changed. Raises
        ProtocolError.
        """
        start = frame + REQUEST_HEAD_BYTES
        known = self._named
        if (
            self._generation == self.quotas.generation
            and data.startswith(known, start)
            and start + len(known) <= end
        ):
            return self.payers
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        named = bytes(data[start:stop])
        self._look_up(named[2:].decode("utf-8", "replace"))  # as Java does
        short = len(named) <= NAME_BYTES_MAX
        self._named, self._generation = (named, self.quotas.generation) if short else (b"", -1)
        return self.payers

    def identify_nameless(self) -> Payers:
        """Return the budgets of the client of a request whose head has no client-id."""
        self._look_up("")
        self._named, self._generation = b"", -1
        return self.payers

    def _look_up(self, client_id: str) -> None:
        self.parse_cache.clear()
        payers = self.payers = self.quotas.payers(self.user, client_id, self.now_ms)
        timed = (
            self.usage is not None
            or payers.request is not None
            or (payers.shadow is not None and payers.shadow.request is not None)
        )
        if self.usage is not None:
            self.usage.become(self.user, client_id)
        # Before SASL succeeds a broker's network layer answers ApiVersions, which has no quota, and nothing
        # else.
        free = not self.authenticated and self.node_id in self.identities.behind_sasl
        self.time_payers = payers if timed and not free else None
        most = self.limits.in_flight_max
        limited = self.time_payers is not None and payers.request is not None
        self.in_flight_max = min(most, UNDER_WAY_MAX) if limited else most

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of the request `data[frame:end]`, empty for null; None if more bytes are
        needed. Raises ProtocolError.
        """
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        start = frame + REQUEST_HEAD_BYTES + 2
        return data[start:stop].decode("utf-8", "replace")

    def become(self, user: str) -> None:
        """Go on as another principal, or as the same one, authenticated again; what was looked up for the old
        one is forgotten.
        """
        if user != self.user or not self.authenticated:
            self.first_request_seen = self.first_produce_seen = self.first_fetch_seen = False
        self.user = user
        self.authenticated = True
        self.is_broker = user in self.brokers
        self.parse_cache.clear()
        self._named, self._generation = b"", -1

    def follow(self, exchange: Exchange | None) -> None:
        """From now on this SASL exchange is under way, or none."""
        self.exchange = exchange
        begun = exchange is not None and exchange.accepted
        self.raw = begun and exchange is not None and exchange.raw
        self.following = begun and exchange is not None and (exchange.raw or exchange.hidden)

    # Charges that handlers make

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge the latest request with its time, though it was exempt."""
        receipt = None if self.usage is None else self.usage.at_hand
        timed = self.quotas.timed or receipt is not None
        if self.time_payers is not None and plan.cost is not None and timed:
            charge_request_time(self, plan, plan.cost.us, self.time_payers, receipt, length)

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Count the results of the request that a query is made for."""
        if self.usage is None or self.usage.errand is None:
            return
        receipt = self.usage.errand
        if partitions:
            receipt.mutated(partitions)
        if refused or throttle_ms:
            receipt.throttled(MUTATION, throttle_ms, refused or 1)

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
        """Take requests that begin with the same `data[frame:stop]` for the same."""
        if self.is_broker or self.quotas.topics is not None:
            return  # then each of its requests is looked at
        self.parse_cache.fill(
            plan, bytes(data[frame + REQUEST_HEAD_BYTES : stop]), forward, self.quotas.generation, budget
        )
