"""The rules of one client's session: which bytes go on, when, and changed how. No sockets, no clock.

`Session` is what both halves share. The halves, `Requests` and `Responses`, are fed what was read from either
side, and the time. They judge every frame in the bytes, patch them in place or splice in others, and leave
what is to be sent in `to_broker` and `to_client`: memoryviews of the very buffer they were given, so they
must be sent, or copied, before the buffer is used again. Bytes that cannot be judged yet (the head of a frame
that is cut, or a frame that must wait out a throttle) stay unconsumed; the caller keeps them and presents
them again, with more bytes behind them. A frame whose head is known goes on before its end is here.

Invariants: responses go out in the order of their requests; no byte is dropped or reordered; at most one
tuple is made per request that needs nothing.

When a request may not be taken is one question with one answer, `blocked`: after a throttle (KIP-219), while
a request is away whose cost only its response tells, or that may change who the client is, when too many
requests are in flight, while draining, after a violation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from protocol.heads import INCOMPLETE, LENGTH_BYTES, REQUEST_HEAD_BYTES, client_id_end
from proxy.reasons import BY_CLIENTS, CloseReason  # a field's type: mypyc wants it at run time
from proxy.rules.deferred import Deferred
from proxy.rules.errand import Run
from proxy.rules.exchange import Exchange
from proxy.rules.fetch_sessions import FetchSession
from proxy.rules.identity import ANONYMOUS as ANONYMOUS
from proxy.rules.management import Management, Unmanaged
from proxy.rules.plan import ERRAND, LOCAL, Admission, Meter, Plan
from proxy.session.clock import Clock
from proxy.session.receipts import MUTATION
from proxy.session.tolls import Tab, Toll, leave, pay, sent
from proxy.session.usage import SessionUsage
from quotas import Payers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.versions import VersionRange
    from proxy.addresses import AdvertisedAddresses
    from proxy.counters import Counters
    from proxy.rules.cluster_state import ClusterState
    from proxy.rules.identity import Identities
    from proxy.rules.plans import Plans
    from quotas import BrokerQuotas, Budget

NOBODY: Final = Payers(None, None)

UNDER_WAY_MAX: Final = 32
"""Requests that a client with a limit on its time may have under way on a connection, however far from the
limit it is: all of them may be forwarded before the first is charged.
"""
REMEMBERED_BYTES_MAX: Final = 1024
"""Names are rarely longer, and each session keeps them: a client-id may have 32 KB."""

InFlight: TypeAlias = tuple[int, Plan, Payers | bytes | Deferred | Run | None, int, Toll | None]
"""(correlation id; plan; payers of what its response costs, for a LOCAL plan the reply, for ERRAND its run;
end of the throttle in ms or 0; what its time is charged, and where it is counted, until that is done).
"""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds that all sessions share."""

    frame_bytes_max: int = 100 * 1024 * 1024
    """Kafka's socket.request.max.bytes."""
    response_bytes_max: int = 2**31 - 1
    in_flight_max: int = 1000
    """Requests of one session that may wait for their responses."""
    stream_above_bytes: int = 256 * 1024
    """Frames longer than this never lie in the buffer as a whole."""
    held_bytes_max: int = 1024 * 1024
    """The longest request that is kept until it is whole, for those few APIs that need it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A peer broke the protocol: why the session must close."""

    reason: CloseReason
    detail: str


@dataclass(slots=True)
class Precedent:
    """What was decided about a request that began like this.

    Clients repeat themselves: while the next request of the plan has the same first bytes, it need not be
    looked at again.
    """

    plan: Plan
    head: bytes
    """From the client-id on, as far as the decision depends on."""
    admission: Admission
    generation: int
    """Of the quotas at the time."""
    budget: Budget | None
    """While it is throttled, requests wait."""


class Session:
    """One client connection and the broker connection behind it: what the two halves have in common."""

    __slots__ = (
        "_tab",
        "addresses",
        "alone",
        "attention",
        "authenticated",
        "brokers",
        "clock",
        "counters",
        "draining",
        "exchange",
        "fetch_length",
        "fetch_session",
        "following",
        "generation",
        "greeted",
        "held_until_ms",
        "hold",
        "in_flight",
        "in_flight_max",
        "is_broker",
        "limits",
        "management",
        "meter",
        "muted_until_ms",
        "named",
        "newest",
        "node_id",
        "now_ms",
        "on_wake",
        "payers",
        "peer",
        "plans",
        "postponed",
        "precedent",
        "produce_shape",
        "quotas",
        "raw",
        "report_ms",
        "request_rest_bytes",
        "response_rest_bytes",
        "to_broker",
        "to_client",
        "tolled",
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
        limits: SessionLimits,
        hold: bool = False,
        node_id: int | None = None,
        user: str = ANONYMOUS,
        peer: str = "",
        management: Management | None = None,
        brokers: frozenset[str] = frozenset(),
        clock: Clock | None = None,
        usage: SessionUsage | None = None,
    ) -> None:
        """Make the session of a new connection.

        `quotas` are those of the broker behind it, `node_id` its id if known, `addresses` what this client is
        told about brokers' addresses, `hold` delays throttled responses instead of muting after them (as
        brokers did before KIP-219), `user` is who the client's certificate says it is, `peer` its address,
        `brokers` the principals that fetch as replicas, `clock` whoever moves the bytes sets, `usage` counts
        what is used, if anybody wants to know.
        """
        self.addresses = addresses
        self.node_id = node_id
        self.clock = clock or Clock()
        self.usage = usage
        self.user = user
        self.brokers = brokers
        self.authenticated = False
        """By SASL: the broker has accepted its client."""
        self.is_broker = user in brokers
        """Whether it may be exempt as a replica."""
        self.peer = peer
        self.management = management or Unmanaged()
        self.fetch_session: FetchSession | None = None
        """Followed while topics have rates."""
        self.fetch_length = 0
        self.produce_shape: tuple[Plan, bytes, int, float] | None = None
        self.vouched = False
        """The broker has just answered this client, for a reply of Weir's own that is to depend on that."""
        self.greeted = False
        """Its first request was let in: no throttle of its client from before is to be waited out."""
        self._tab: Tab | None = None
        """Of the request that is answered by an errand, or later."""
        self.newest = False
        """The client has asked ApiVersions in v3 or newer."""
        self.on_wake: Callable[[], None] | None = None
        """Called when something has come to be sent though nothing was read."""
        self.to_broker: list[memoryview | bytes] = []
        self.to_client: list[memoryview | bytes] = []
        self.muted_until_ms = 0
        """No request is taken from the client before this time."""
        self.held_until_ms = 0
        """No response is given to the client before this time (hold mode only)."""
        self.violation: Violation | None = None
        self.draining = False
        self.attention = False
        """Something happened that may have changed `blocked` or `held_until_ms`: whoever moves the bytes
        looks, and resets it.
        """
        self.now_ms = 0
        self.payers = NOBODY
        """What the client of the latest charged request draws on; see `identify`."""
        self.tolled: Payers | None = None
        """The same, if it has a budget of request time, or its usage is recorded."""
        self.precedent: Precedent | None = None
        self.postponed = False
        """The oldest request not forwarded waits for a throttle that others of its entity have caused."""
        self.report_ms = 0
        """The throttle time to report in the response that is being rewritten."""
        self.plans = plans
        """Those of the broker's dialect, once it is known."""
        self.quotas = quotas
        self.counters = counters
        self.limits = limits
        self.hold = hold
        self.in_flight: deque[InFlight] = deque()
        """Requests that wait for their responses, oldest first."""
        self.in_flight_max = limits.in_flight_max
        """How many there may be."""
        self.alone = False
        """The youngest of them must be answered before the client may go on. That asks for attention only if
        the client does not wait by itself.
        """
        self.request_rest_bytes = 0
        """How much of a request that has been let through is still to come; it is taken even when blocked."""
        self.response_rest_bytes = 0
        """How much of a response whose head has gone on is still to come."""
        self.meter: Meter | None = None
        """What measures it, if anything does."""
        self.exchange: Exchange | None = None
        """The SASL exchange under way; see `follow`."""
        self.following = False
        """What the client sends next is looked at by `tokens` first."""
        self.raw = False
        """Bare SASL tokens are expected, from both sides."""
        self.named = b""
        """The bytes of the client-id that `payers` are for, its length included."""
        self.generation = -1
        """Of the quotas that they were looked up in."""

    @property
    def dialect(self) -> Plans:
        """What the broker speaks, and its plans."""
        return self.plans

    @property
    def cluster(self) -> ClusterState:
        """What all sessions have learnt of the cluster's topics."""
        return self.plans.cluster

    @property
    def buffer_bytes(self) -> int:
        """A frame longer than this is never in the buffer as a whole."""
        return self.limits.stream_above_bytes

    @property
    def identities(self) -> Identities:
        """What all sessions share about principals."""
        return self.plans.identities

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """From now on use the plans for a broker that speaks these versions."""
        self.plans = self.plans.for_broker(broker)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way: no request half sent, none unanswered, no response half received."""
        return not (self.in_flight or self.request_rest_bytes or self.response_rest_bytes)

    def blocked(self, now_ms: int) -> bool:
        """Whether no further request may be taken from the client now."""
        return (
            self.muted_until_ms > now_ms
            or self.alone
            or self.draining
            or len(self.in_flight) >= self.in_flight_max
            or self.violation is not None
        )

    def identify(self, data: bytearray, frame: int, end: int) -> Payers | None:
        """Return what the client of the request `data[frame:end]` draws on; None if more bytes are needed.

        Looked up once per session and client-id, and again whenever quotas have changed. Raises
        ProtocolError.
        """
        start = frame + REQUEST_HEAD_BYTES
        known = self.named
        if (
            self.generation == self.quotas.generation
            and data.startswith(known, start)
            and start + len(known) <= end
        ):
            return self.payers
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        self.precedent = None
        named = bytes(data[start:stop])
        client_id = named[2:].decode("utf-8", "replace")  # as Java does
        self._draw_on(client_id)
        short = len(named) <= REMEMBERED_BYTES_MAX
        self.named, self.generation = (named, self.quotas.generation) if short else (b"", -1)
        return self.payers

    def identify_nameless(self) -> Payers:
        """Return what the client of a request draws on whose head has no client-id."""
        self.precedent = None
        self._draw_on("")
        self.named, self.generation = b"", -1
        return self.payers

    def _draw_on(self, client_id: str) -> None:
        payers = self.payers = self.quotas.payers(self.user, client_id, self.now_ms)
        timed = (
            self.usage is not None
            or payers.request is not None
            or (payers.shadow is not None and payers.shadow.request is not None)
        )
        if self.usage is not None:
            self.usage.become(self.user, client_id)
        # Before that a broker's network layer answers ApiVersions, which has no quota, and nothing else.
        free = not self.authenticated and self.node_id in self.identities.behind_sasl
        self.tolled = payers if timed and not free else None
        most = self.limits.in_flight_max
        limited = self.tolled is not None and payers.request is not None
        self.in_flight_max = min(most, UNDER_WAY_MAX) if limited else most

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge the latest request with its time, though it was exempt."""
        receipt = None if self.usage is None else self.usage.at_hand
        timed = self.quotas.timed or receipt is not None
        if self.tolled is not None and plan.cost is not None and timed:
            pay(self, plan, (plan.cost.us, self.tolled, False, receipt), length)

    @property
    def recorded(self) -> bool:
        """Whether its usage is."""
        return self.usage is not None

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Count what became of the request that an errand is run for."""
        if self.usage is None or self.usage.errand is None:
            return
        receipt = self.usage.errand
        if partitions:
            receipt.mutated(partitions)
        if refused or throttle_ms:
            receipt.throttled(MUTATION, throttle_ms, refused or 1)

    def remember(
        self,
        plan: Plan,
        data: bytearray,
        frame: int,
        stop: int,
        admission: Admission,
        *,
        budget: Budget | None = None,
    ) -> None:
        """Decide likewise while requests begin like `data[frame:stop]`, quotas are the same, and the budget
        is not throttled.
        """
        if self.is_broker or self.quotas.topics is not None:
            return  # then each of its requests is looked at
        head = bytes(data[frame + REQUEST_HEAD_BYTES : stop])
        if len(head) <= REMEMBERED_BYTES_MAX:
            self.precedent = Precedent(plan, head, admission, self.quotas.generation, budget)

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of the request `data[frame:end]`, empty for null; None if more bytes are
        needed. Raises ProtocolError.
        """
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        start = frame + REQUEST_HEAD_BYTES + 2
        return data[start:stop].decode("utf-8", "replace")

    def mute(self, throttle_ms: int) -> int:
        """Take no request for this long; return when that ends (KIP-219)."""
        until_ms = self.now_ms + throttle_ms
        self.counters.throttles += 1
        self.muted_until_ms = max(self.muted_until_ms, until_ms)
        self.attention = True
        return until_ms

    def postpone(self, until_ms: int) -> None:
        """Take no request before this time, the one at hand neither: `admit` returns LATER."""
        self.mute(until_ms - self.now_ms)
        self.postponed = True

    def reply(self, correlation_id: int, frame: bytes, tab: Tab | None = None) -> None:
        """Answer a request in the broker's place, when its turn has come."""
        toll = None
        if tab is not None:
            tab.charge(len(frame))
            frame, toll = tab.told(frame), tab.unsent
        self.in_flight.append((correlation_id, LOCAL, frame, 0, toll))
        self.send_local()

    def defer(self, correlation_id: int, deferred: Deferred, tab: Tab | None = None) -> None:
        """Answer a request in the broker's place, once the answer is there; take no request meanwhile."""
        deferred.on_arrival(self.wake)
        if tab is not None:
            tab.charge(0)
        self._tab = tab
        self.in_flight.append((correlation_id, LOCAL, deferred, 0, None))
        self.alone = True

    def wake(self) -> None:
        """Something that was waited for elsewhere is here: have it sent, and go on."""
        self.now_ms = max(self.now_ms, self.clock.now_us // 1000)
        self.answered()
        self.attention = True
        if self.on_wake is not None:
            self.on_wake()

    def answered(self) -> None:
        """What came from the broker ends with a whole frame: what waited for that may go on."""
        self.send_local()
        if not self.in_flight:
            self.alone = False
            if self.draining:
                self.attention = True

    def become(self, user: str) -> None:
        """Go on as another principal; what was looked up for the old one is forgotten."""
        self.user = user
        self.authenticated = True
        self.is_broker = user in self.brokers
        self.precedent = None
        self.greeted = False
        self.named, self.generation = b"", -1

    def follow(self, exchange: Exchange | None) -> None:
        """From now on this SASL exchange is under way, or none."""
        self.exchange = exchange
        begun = exchange is not None and exchange.accepted
        self.raw = begun and exchange is not None and exchange.raw
        self.following = begun and exchange is not None and (exchange.raw or exchange.hidden)

    def begin(self, run: Run, tab: Tab | None = None) -> None:
        """Ask an errand's first question, behind what `to_broker` holds; no request is taken meanwhile."""
        question = run.begin()
        if question is not None:
            self._tab = tab
            self.to_broker.append(question)
            self.in_flight.append((run.correlation_id, ERRAND, run, 0, None))
            self.alone = True
        elif run.reply is not None:
            self.reply(run.correlation_id, run.reply, tab)

    def go_on(self, run: Run, data: bytearray, frame: int, end: int) -> None:
        """An errand's question is answered by `data[frame:end]`: ask the next one, if any.

        It takes the place of the answered one, which is the only entry in flight. Raises ProtocolError.
        """
        tab, self._tab = self._tab, None
        if tab is not None:
            tab.charge_question(*run.asked, run.asked_length, end - frame - LENGTH_BYTES)
        question = run.answer(data, frame, end)
        if question is not None:
            self._tab = tab
            self.to_broker.append(question)
            self.in_flight.append((run.correlation_id, ERRAND, run, 0, None))
        elif tab is not None and run.reply is not None:
            run.reply = tab.settled(run.reply)
        self.attention = True

    def send_local(self) -> None:
        """Move replies of our own that have become the oldest outstanding response to the client's output."""
        in_flight = self.in_flight
        while in_flight and in_flight[0][1] is LOCAL and not self.response_rest_bytes:
            _id, _plan, reply, _until_ms, toll = in_flight[0]
            if isinstance(reply, Deferred):
                reply = reply.frame
                if reply is None:
                    return
                if self._tab is not None:
                    reply, self._tab = self._tab.settled(reply), None
            assert isinstance(reply, bytes)
            in_flight.popleft()
            if toll is not None and toll[3] is not None:
                sent(self, toll[3], len(reply))
            self.to_client.append(reply)

    def end(self, now_ms: int) -> None:
        """Both connections are closed: what the client has had of a response it has to pay for, and the time
        of what it has asked.
        """
        self.now_ms = now_ms
        meter, self.meter = self.meter, None
        if meter is not None:
            meter.cut(now_ms)
        for _id, plan, what, _until_ms, toll in self.in_flight:
            if toll is not None:
                leave(self, plan, toll)
            elif isinstance(what, Run):
                if self._tab is not None:
                    self._tab.charge_question(*what.asked, what.asked_length, 0)
                what.end()
        self._tab = None  # an answer may still come, which nobody gets
        if self.usage is not None:
            self.usage.end()

    def violate(self, reason: CloseReason, detail: str) -> None:
        """A peer broke the protocol: nothing further is judged, the session is to be closed.

        The first violation counts.
        """
        if self.violation is None:
            self.violation = Violation(reason, detail)
            if self.usage is not None and reason in BY_CLIENTS:
                self.usage.failed(self.user)
        self.attention = True
