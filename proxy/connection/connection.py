"""One client connection and the broker connection behind it, as a machine: bytes, events and a time in,
effects out. No sockets, no clock.

`Connection` has the state (`state.NEXT` is the table of transitions), the fields that handlers use, and the
decisions that do not depend on the bytes of a frame: may a request be taken, must the connection close. The
modules `inbound` and `outbound` process the bytes that were read from the client and from the broker. They
decide about every frame, patch the frame in place or replace parts of the frame, and put the bytes to send
into the effects. Those are memoryviews of the buffer that was passed in: the transport must send or copy them
before it uses the buffer again. Bytes stay unconsumed while the head of a frame is incomplete or the frame
must wait. The transport keeps these bytes (`End.kept`) and presents them again, with newer bytes behind
them. A frame is forwarded as soon as its head has arrived; its other bytes follow as they arrive.

Invariants: responses go out in the order of their requests; no byte is dropped or reordered; each request is
charged once; every wait ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from weir.protocol.errors import ProtocolError
from weir.protocol.framing import missing_bytes
from weir.proxy.close_reasons import BY_CLIENTS, CloseReason
from weir.proxy.connection import arriving, in_parts, inbound, outbound, replies
from weir.proxy.connection.arriving import RequestInParts
from weir.proxy.connection.charges import charge_request_time
from weir.proxy.connection.client import Client  # fields' types: mypyc wants them at run time
from weir.proxy.connection.effects import LEAVING, SENDING, UNLIMITED, Clock, Effects, End
from weir.proxy.connection.ending import HalfClosed, find_end
from weir.proxy.connection.in_flight import CHARGED, LOCAL, PAUSED, RequestInFlight
from weir.proxy.connection.response_in_progress import ResponseInProgress
from weir.proxy.connection.state import (
    ANSWERED,
    CLOSED,
    DRAINING,
    NEXT,
    OPEN,
    RELEASE,
    THROTTLE,
    THROTTLED,
    Trigger,
)
from weir.proxy.connection.usage import ConnectionUsage
from weir.proxy.connection.usage_counters import MUTATION
from weir.proxy.connection.waits import NONE, broker_wait, client_wait, request_wait
from weir.proxy.handlers.plan import Plan
from weir.proxy.handlers.sasl.identity import ANONYMOUS as ANONYMOUS
from weir.quotas.limiters.throttle import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weir.protocol.versions import VersionRange
    from weir.proxy.addresses import AdvertisedAddresses
    from weir.proxy.counters import Counters
    from weir.proxy.handlers.mutations.cluster_state import ClusterState
    from weir.proxy.handlers.plans import Plans
    from weir.proxy.handlers.quota_api.quota_admin import QuotaAdmin
    from weir.proxy.handlers.sasl.identity import Identities
    from weir.quotas import BrokerQuotas, QuotaKey

S = TypeVar("S")


def _nobody() -> None:
    """Takes the place of a transport that has not started, or has ended."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection; all connections share one object."""

    frame_bytes_max: int = 100 * 1024 * 1024
    """Maximum length (bytes) of a request frame. The default is that of Kafka's `socket.request.max.bytes`.
    """
    response_bytes_max: int = 2**31 - 1
    """Maximum length (bytes) of a response frame."""
    kept_response_bytes_max: int = 100 * 1024 * 1024
    """Maximum length (bytes) of a response that is kept until all of it has arrived, such as the response to
    a query. The default is the default maximum length of a request.
    """
    in_flight_max: int = 1000
    """Maximum number of requests in flight per connection."""
    stream_above_bytes: int = 256 * 1024
    """Maximum size (bytes) of a frame that may be buffered whole. Larger frames are forwarded in parts."""
    held_bytes_max: int = 1024 * 1024
    """Maximum length (bytes) of a request that is kept until all of it has arrived, because Weir must read it
    as a whole.
    """
    first_hold_ms_max: int = 5_000
    """Maximum time (ms) for which a new connection's first request is held for throttles that other
    connections of its client have caused; 0 for no hold, as at a broker. Clients' timeouts are longer.
    """
    throttle_ms_max: int = INT32_MAX
    """Maximum throttle time (ms) in a response. A longer throttle is cut to this time, but the usage
    that caused it stays charged.
    """


class Connection:
    """One client connection and the broker connection behind it."""

    __slots__ = (
        "_on_ready",
        "_states",
        "addresses",
        "arriving",
        "broker_end",
        "client",
        "client_end",
        "clock",
        "decoded",
        "drain_reason",
        "effects",
        "in_flight",
        "limits",
        "lingering",
        "now_ms",
        "plans",
        "response",
        "state",
        "throttled_by",
        "throttled_until_ms",
    )

    def __init__(
        self,
        *,
        plans: Plans,
        quotas: BrokerQuotas,
        addresses: AdvertisedAddresses,
        limits: ConnectionLimits,
        user: str = ANONYMOUS,
        peer: str = "",
        states: Iterable[object] = (),
        clock: Clock | None = None,
        usage: ConnectionUsage | None = None,
    ) -> None:
        """Begin a new connection.

        `quotas` are the quotas of the broker behind the connection, `addresses` maps brokers to the addresses
        that the client is told. `user` is the principal of the client's certificate, `peer` the client's
        address. `states` are those states of capabilities that are not made by their first use (`state_of`).
        `clock` belongs to the transport. `usage` counts the client's usage; None if usage is not recorded.
        """
        # The transport
        self.effects = Effects()
        self.client_end = End()
        self.broker_end = End()
        self.clock = clock or Clock()
        self.now_ms = 0
        self._on_ready: Callable[[], None] = _nobody
        # The state
        self.state = OPEN
        self.drain_reason: CloseReason | None = None
        """Reason with which the connection closes after it was drained; None before a drain."""
        self.throttled_until_ms = 0
        """Time (ms) until which no request is taken from the client (KIP-219)."""
        self.throttled_by: QuotaKey | None = None
        """Quota whose throttle ends at `throttled_until_ms`; None for a replication throttle."""
        self.lingering: HalfClosed | None = None
        """Progress of a client that has closed its half; None for other clients."""
        self.in_flight: deque[RequestInFlight] = deque()
        """Requests that wait for their responses, oldest first."""
        self.arriving = RequestInParts()
        self.response = ResponseInProgress()
        self.client = Client(quotas, plans.identities, user=user, peer=peer, usage=usage)
        # For handlers
        self._states: dict[type, Any] = {type(state): state for state in states}
        """States of capabilities, by their class."""
        self.decoded: object = None
        """Request that a query has decoded, so that Weir can decide about the request again; or the error of
        decoding it. None if no query has decoded the present request.
        """
        # Shared with other connections
        self.plans = plans
        """Plans for the versions that the broker speaks, once ApiVersions has shown these; until then, plans
        for an unknown broker.
        """
        self.limits = limits
        self.addresses = addresses

    # The door: called by the transport

    def start(self, client: End, broker: End, on_ready: Callable[[], None]) -> None:
        """Begin with these two sockets. The connection calls `on_ready` when it has bytes to send although
        none were read.
        """
        self.client_end, self.broker_end, self._on_ready = client, broker, on_ready

    def receive(self, end: End, data: bytearray, view: memoryview, size: int, now_ms: int) -> int:
        """Process `data[:size]`, which the peer at `end` has sent: kept bytes, and new ones behind them.
        Return the number of bytes that were consumed. The transport keeps the others (`End.kept`), and
        presents them again with newer bytes behind them. `view` is a memoryview of `data`; the effects have
        slices of it.
        """
        if end is self.client_end:
            return inbound.receive(self, data, view, size, now_ms)
        return outbound.receive(self, data, view, size, now_ms)

    def passable_bytes(self, end: End) -> int:
        """Return the number of bytes that come next from this peer and that nobody needs to see."""
        if end is self.client_end:
            return arriving.passable_bytes(self)
        return in_parts.passable_bytes(self)

    def passed(self, end: End, count: int, now_ms: int) -> None:
        """Note that the next `count` bytes of this peer, at most `passable_bytes`, were forwarded unseen."""
        if end is self.client_end:
            arriving.passed(self, count, now_ms)
        else:
            in_parts.passed(self, count, now_ms)

    def wake(self, now_ms: int) -> Effects:
        """Go on with what has waited for this time or turn, and say which sides may be read now. Kept bytes
        of such a side are to be received again.
        """
        if self.state == THROTTLED and self.throttled_until_ms <= now_ms:
            self.state = NEXT[THROTTLED][RELEASE]
        if self.paused is not None and not self.client_turn_over:
            self._go_on()
        return self._say_what_to_read(now_ms)

    def settle(self, now_ms: int) -> Effects:
        """Say what is to be done after all bytes were received and sent: the sides to read, the next
        deadline, and the close reason.
        """
        find_end(self, now_ms)
        effects = self._say_what_to_read(now_ms)
        effects.changed = False
        times = (
            self.throttled_until_ms,
            self.client_end.held_until_ms,
            self.broker_end.held_until_ms,
            0 if self.lingering is None else self.lingering.until_ms,
        )
        effects.deadline_ms = min((time_ms for time_ms in times if time_ms > now_ms), default=0)
        effects.again = self.waits_for_turn
        return effects

    def _say_what_to_read(self, now_ms: int) -> Effects:
        effects = self.effects
        effects.read_client = client_wait(self, now_ms) == NONE
        effects.read_broker = broker_wait(self, now_ms) == NONE
        effects.room_bytes = self.client_room_bytes(now_ms) if effects.read_client else 0
        return effects

    def leave(self, end: End) -> None:
        """Note that a peer has closed its half. After its client's, the connection closes when the requests
        in flight are answered.
        """
        if end.half == SENDING:
            end.half = LEAVING
            if end is self.client_end:
                self.effects.change()

    def drain(self, reason: CloseReason = CloseReason.DRAINED) -> None:
        """Take no request whose first byte was not read; close for this reason once all others are answered.

        If the process ends (`CloseReason.DRAINED`), there is no time to wait for throttles. A client gains
        little by that: no more than was read goes on early, once, and all of it is charged.
        """
        if self.drain_reason is None or reason is CloseReason.DRAINED:
            self.drain_reason = reason
        if reason is CloseReason.DRAINED:
            self.throttled_until_ms = self.client_end.held_until_ms = self.broker_end.held_until_ms = 0
        self.transition(Trigger.DRAIN)
        self.effects.change()

    def end_wait(self, until_ms: int) -> bool:
        """Take requests again at `until_ms` (ms) if the throttle of a quota would end later. Return True if
        so. Responses that are to come tell no longer throttle time either; the client obeys those that it was
        told.
        """
        if self.throttled_by is None or self.throttled_until_ms <= until_ms:
            return False
        self.throttled_until_ms = until_ms
        for record in self.in_flight:
            record.tell_no_later(until_ms)
        self.effects.change()
        return True

    # What waits, and for what. These change nothing

    def may_take(self, now_ms: int) -> bool:
        """Return True if the client's next request may be taken now."""
        return request_wait(self, now_ms) == NONE

    def client_room_bytes(self, now_ms: int) -> int:
        """Return the maximum number of bytes to read from the client now; `UNLIMITED` if a new request may be
        taken.
        """
        if self.state == DRAINING:  # the rest of the last request that has begun to arrive
            return missing_bytes(self.client_end.kept, self.client_end.rest_bytes)
        return UNLIMITED if self.may_take(now_ms) else self.client_end.rest_bytes

    @property
    def client_turn_over(self) -> bool:
        """True if the client's other complete frames, or a paused query, wait for the next turn."""
        return self.client_end.turn == self.clock.turn

    @property
    def broker_turn_over(self) -> bool:
        """True if the broker's other complete frames wait for the next turn."""
        return self.broker_end.turn == self.clock.turn

    @property
    def waits_for_turn(self) -> bool:
        """True if frames that have arrived, or a paused query, wait only for the next turn."""
        return self.client_turn_over or self.broker_turn_over or self.paused is not None

    @property
    def asked_api_key(self) -> int:
        """API key of the request in flight that the broker answers, if it is the only one; else -1."""
        in_flight = self.in_flight
        return in_flight[0].plan.api_key if len(in_flight) == 1 and in_flight[0].state <= CHARGED else -1

    @property
    def idle(self) -> bool:
        """True if no request is in flight, and no request or response is partly forwarded."""
        return not (self.in_flight or self.client_end.rest_bytes or self.broker_end.rest_bytes)

    # Transitions

    def transition(self, trigger: Trigger) -> None:
        """Set the state that follows the present one; the table `NEXT` has the states."""
        self.state = NEXT[self.state][trigger]

    def mute(self, throttle_ms: int, quota: QuotaKey) -> int:
        """Take no request for this throttle time of a quota, capped at `ConnectionLimits.throttle_ms_max`.
        Return the time (ms) at which the throttle ends (KIP-219). If the process ends, the throttle is told
        and counted, but delays nothing.
        """
        if throttle_ms > self.limits.throttle_ms_max:
            throttle_ms = self.limits.throttle_ms_max
        until_ms = self.now_ms + throttle_ms
        self.plans.counters.throttles += 1
        if until_ms > self.throttled_until_ms and self.drain_reason is not CloseReason.DRAINED:
            self.throttled_until_ms, self.throttled_by = until_ms, quota
        self.state = NEXT[self.state][THROTTLE]
        self.effects.changed = True
        return until_ms

    def first_hold_ms(self, until_ms: int) -> int:
        """Return the time (ms) for which to hold the connection's first request of a kind (any request,
        produce) because other connections of the client have caused a throttle until `until_ms`.

        All first requests of a connection share one `first_hold_ms_max`.
        """
        if self.drain_reason is CloseReason.DRAINED:  # the process ends
            return 0
        return max(min(until_ms, self._first_hold_end_ms()) - self.now_ms, 0)

    def hold_first(self, hold_ms: int, quota: QuotaKey) -> None:
        """Hold the first request of a kind for `hold_ms`, the result of `first_hold_ms` for this quota."""
        self.client.first_hold_end_ms = self._first_hold_end_ms()
        self.mute(hold_ms, quota)

    def pause(self, pause_ms: int) -> None:
        """Take no request of a follower for `pause_ms`, without counting a throttle."""
        until_ms = self.now_ms + pause_ms
        if until_ms > self.throttled_until_ms:
            self.throttled_until_ms, self.throttled_by = until_ms, None
        self.state = NEXT[self.state][THROTTLE]
        self.effects.changed = True

    def hold_response(self, hold_ms: int) -> None:
        """Look at the response that is being processed again after `hold_ms`."""
        self.broker_end.held_until_ms = self.now_ms + hold_ms
        self.effects.change()

    def hold_rest(self, hold_ms: int) -> None:
        """Hold the remaining bytes of the request that is being forwarded for `hold_ms`."""
        self.client.first_hold_end_ms = self._first_hold_end_ms()
        self.client_end.held_until_ms = self.now_ms + hold_ms
        self.effects.change()

    def _first_hold_end_ms(self) -> int:
        """Return the time (ms) at which all holds of the connection's first requests end. The connection's
        first hold fixes this time: later holds do not extend it.
        """
        end_ms = self.client.first_hold_end_ms
        return self.now_ms + self.limits.first_hold_ms_max if end_ms is None else end_ms

    def tell_next(self, until_ms: int, *, after: RequestInFlight | None = None) -> None:
        """Have the next response with the field `throttle_time_ms` tell a throttle that ends at `until_ms`.
        Call this if the throttled request's own response cannot tell the throttle: acks=0, a version without
        the field, or a response whose head was already forwarded. `after` is a request whose response is not
        to tell the throttle either.
        """
        for record in self.in_flight:
            if record.state <= CHARGED and record.plan.throttle is not None and record is not after:
                record.tell(until_ms)
                return

    def answered(self) -> None:
        """Send Weir's own replies that are next in order. Call this after the end of a response. If no
        request is in flight any more, also let the client's next requests be taken, unless a throttle still
        lasts.
        """
        in_flight = self.in_flight
        if in_flight and in_flight[0].state == LOCAL:
            replies.send_local(self)
        if not in_flight and self.state != OPEN:
            self.state = NEXT[self.state][ANSWERED]
            if self.state == THROTTLED and self.throttled_until_ms <= self.now_ms:
                self.state = NEXT[THROTTLED][RELEASE]
            elif self.state == DRAINING:
                self.effects.change()
            if self.state == OPEN and not self.client_end.rest_bytes:
                self.effects.room_bytes = UNLIMITED  # what else stops the client stops fast reading, too

    def violate(self, reason: CloseReason, detail: str) -> None:
        """Close the connection because a peer violated the protocol. Only the first violation is recorded."""
        effects = self.effects
        if effects.close_reason is None:
            effects.close_reason, effects.close_detail = reason, detail
            self.transition(Trigger.CLOSE)
            client = self.client
            if client.usage is not None and reason in BY_CLIENTS:
                client.usage.failed(client.user)
        effects.change()

    def end(self, now_ms: int) -> None:
        """Finish the accounting of a connection whose sockets are closed: charge the part of a response that
        was sent, and the time of all requests in flight.
        """
        self.now_ms = now_ms
        self.transition(Trigger.CLOSE)
        self._on_ready = _nobody
        self.response.cut(now_ms)
        self.arriving.end()
        for record in self.in_flight:
            if record.query is not None:
                record.abandon_query(self)
            else:
                record.leave(self)
        self.in_flight.clear()
        if self.client.usage is not None:
            self.client.usage.end()

    def resume(self) -> None:
        """Go on with a query whose work elsewhere is done. Call this on the reactor's thread."""
        self.now_ms = max(self.now_ms, self.clock.now_us // 1000)
        self.answered()
        self.effects.change()
        self._on_ready()

    def end_turn(self, end: End) -> None:
        """Leave the other bytes of this peer, or a paused query, to the reactor's next turn."""
        end.turn = self.clock.turn
        self.effects.change()

    @property
    def paused(self) -> RequestInFlight | None:
        """Request whose query has paused, and continues in the next turn of the reactor; None if no query
        has.
        """
        if not self.in_flight or self.in_flight[-1].state != PAUSED or self.state == CLOSED:
            return None
        record = self.in_flight[-1]
        assert record.query is not None
        pending = record.query.pending
        return record if pending is None or pending.is_done else None

    @property
    def report_ms(self) -> int:
        """Throttle time (ms) to write into the response that is being rewritten."""
        return self.response.report_ms

    def _go_on(self) -> None:
        """Continue the paused query."""
        record = self.paused
        assert record is not None
        self.now_ms = max(self.now_ms, self.clock.now_us // 1000)
        try:
            replies.go_on(self, record)
        except ProtocolError as error:
            self.violate(CloseReason.RESPONSE_MALFORMED, str(error))

    # Called by handlers

    def state_of(self, kind: type[S]) -> S:
        """Return the state that a capability keeps for this connection: an object of its own class."""
        found: S | None = self._states.get(kind)
        if found is None:
            found = self._states[kind] = kind()
        return found

    @property
    def broker_versions(self) -> Plans:
        """Plans for the API versions that the broker speaks; a plan says how to process one version."""
        return self.plans

    @property
    def quotas(self) -> BrokerQuotas:
        """Quotas of the clients at the broker that this connection leads to."""
        return self.client.quotas

    @property
    def cluster(self) -> ClusterState:
        """Facts about the cluster's topics. All connections to the cluster share the object."""
        return self.plans.cluster

    @property
    def counters(self) -> Counters:
        """Counters of the process."""
        return self.plans.counters

    @property
    def quota_admin(self) -> QuotaAdmin:
        """Access to the quota table and its store."""
        return self.plans.quota_admin

    @property
    def node_id(self) -> int | None:
        """Node id of the broker; None if unknown."""
        return self.client.quotas.node_id

    @property
    def buffer_bytes(self) -> int:
        """Maximum size (bytes) of a frame that may be buffered until all of it has arrived."""
        return self.limits.stream_above_bytes

    @property
    def identities(self) -> Identities:
        """Rules that give a principal to clients whose bytes do not show one, and the principals learnt so
        far. All connections share the object.
        """
        return self.plans.identities

    def meet_broker(self, broker: Mapping[int, VersionRange]) -> None:
        """Use from now on the plans for a broker that speaks these versions (API key → range of versions)."""
        self.plans = self.plans.for_broker(broker)

    def charge_time(self, plan: Plan, length: int) -> None:
        """Charge the request time of the request whose response has just arrived, with `length` bytes. Call
        this for a request that was forwarded as exempt and whose response shows that it is not exempt.
        """
        usage, ledger = self.client.usage, self.client.time_ledger
        usage_counters = None if usage is None else usage.at_hand
        timed = self.quotas.timed or usage_counters is not None
        if ledger is not None and plan.cost is not None and timed:
            charge_request_time(self, plan, plan.cost.us, ledger, usage_counters, length)

    def note_old_read(self, size: int) -> None:
        """Count as usage `size` bytes of old record batches in the latest response."""
        if self.client.usage is not None:
            self.client.usage.read_old(size)

    def note_mutations(self, partitions: int, refused: int, throttle_ms: int) -> None:
        """Count as usage the results of a request to create, grow or delete topics that Weir answers after a
        query: the number of changed partitions, the number of refused topics, and the throttle time (ms).
        """
        usage_counters = self.in_flight[-1].usage_counters  # of the request that the query belongs to
        if usage_counters is None:
            return
        if partitions:
            usage_counters.mutated(partitions)
        if refused or throttle_ms:
            usage_counters.throttled(MUTATION, throttle_ms, refused or 1)
