"""A connection between two streams of bytes: what a relay does, without sockets and without a clock.

Bytes that nobody may read yet wait as they would in the kernel; what the connection leaves is kept and
presented again. The buffer holds rubbish where nothing was read, so that whoever looks there is found out.
"""

from __future__ import annotations

from collections.abc import Callable

from weir.proxy.addresses import AddressBook, AdvertisedAddresses, PortRange, UnchangedAddresses
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection, ConnectionLimits
from weir.proxy.connection.effects import ENDED, LEAVING, Effects, End
from weir.proxy.connection.state import State
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.limiters.throttle import INT32_MAX

APP = Entity(client_id="app")
BUFFER_BYTES = 256 * 1024
FIRST_HOLD_MS = 5000
"""For how long the first request of a connection may be held for what others of its client have caused."""
PORTS = PortRange(19093, 19192)


def no_listener(_node_id: int, _port: int) -> None:
    """Pretend that the port listens."""


def quota_table(produce: float | None = None, fetch: float | None = None, entity: Entity = APP) -> QuotaTable:
    """Quotas of one client-id, in bytes/s."""
    values = {(entity, QuotaKey.PRODUCER_BYTE_RATE): produce, (entity, QuotaKey.CONSUMER_BYTE_RATE): fetch}
    return QuotaTable({key: value for key, value in values.items() if value is not None})


def new_connection(
    table: QuotaTable | None = None,
    *,
    buffer_bytes: int = BUFFER_BYTES,
    in_flight_max: int = 1000,
    frame_bytes_max: int = 100 * 1024 * 1024,
    response_bytes_max: int = 2**31 - 1,
    kept_response_bytes_max: int = 100 * 1024 * 1024,
    ports: PortRange = PORTS,
    quotas: BrokerQuotas | None = None,
    plans: Plans | None = None,
    node_id: int | None = None,
    held_bytes_max: int = 1024 * 1024,
    first_hold_ms_max: int = FIRST_HOLD_MS,
    throttle_ms_max: int = INT32_MAX,
    brokers: frozenset[str] | None = None,
) -> Connection:
    """A connection with everything of its own, but for `quotas` and `plans` if given."""
    addresses = AdvertisedAddresses if brokers is None else UnchangedAddresses
    plans = Plans(Counters(), replication=brokers is not None) if plans is None else plans
    plans.identities.brokers = brokers
    quotas = quotas or BrokerQuotas.create(table or QuotaTable())
    quotas.node_id = quotas.node_id if node_id is None else node_id
    return Connection(
        plans=plans,
        quotas=quotas,
        addresses=addresses("weir", AddressBook(ports, no_listener)),
        limits=ConnectionLimits(
            frame_bytes_max=frame_bytes_max,
            response_bytes_max=response_bytes_max,
            kept_response_bytes_max=kept_response_bytes_max,
            in_flight_max=in_flight_max,
            stream_above_bytes=buffer_bytes,
            held_bytes_max=held_bytes_max,
            first_hold_ms_max=first_hold_ms_max,
            throttle_ms_max=throttle_ms_max,
        ),
    )


class _Side:
    def __init__(self) -> None:
        self.end = End()  # not a base class: compiled classes have no interpreted subclasses
        self.unread = b""

    def read(self, most: int) -> bytes:
        """Take at most this many bytes that were sent; the end is seen behind the last one."""
        read, self.unread = self.unread[:most], self.unread[most:]
        self.end.received_bytes += len(read)
        if self.end.half == LEAVING and not self.unread:
            self.end.half = ENDED
        return read


class Wire:
    """Moves bytes through a connection; `to_broker` and `to_client` hold what came out of it so far."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self._client, self._broker = _Side(), _Side()
        connection.start(self._client.end, self._broker.end, lambda: None)

    def feed(self, now_ms: int, client: bytes = b"", broker: bytes = b"") -> None:
        """More bytes from either side, or none: then only the time is new."""
        self._client.unread += client
        self._broker.unread += broker
        clock = self.connection.clock
        clock.scanned = 0
        while not self._is_closed:
            if not (self._step_broker(now_ms) or self._step_client(now_ms)):
                if not self.connection.waits_for_turn:
                    return
                assert self.obey(now_ms).again, "a transport would not come back"
                clock.turn, clock.scanned = clock.turn + 1, 0
                self.connection.wake(now_ms)
                self._flush()

    def exchange(self, now_ms: int, asked: bytes, answered: bytes) -> None:
        """The client sends; then the broker does."""
        self.feed(now_ms, client=asked)
        self.feed(now_ms, broker=answered)

    def client_ends(self) -> None:
        """The client closes its half, behind all that it has sent."""
        self._leave(self._client)

    def broker_ends(self) -> None:
        """The broker closes its half, behind all that it has sent."""
        self._leave(self._broker)

    def _leave(self, side: _Side) -> None:
        self.connection.leave(side.end)
        side.end.half = LEAVING if side.unread else ENDED

    def wake(self, now_ms: int, event: Callable[[], None]) -> None:
        """Something happens that may wake the connection: an answer of its own is ready."""
        self.connection.clock.now_us = 1000 * now_ms
        event()
        self._flush()
        self.feed(now_ms)

    def obey(self, now_ms: int) -> Effects:
        """Ask the connection for its effects, as a relay does: when they have changed, when their deadline
        has come, and while bytes wait or a side has ended. At all other times they must be up to date.
        """
        effects = self.connection.effects
        if effects.close_reason is not None:
            return effects
        busy = any(side.end.kept or side.unread or side.end.half for side in (self._client, self._broker))
        due = 0 < effects.deadline_ms <= now_ms
        if effects.changed or busy or due:
            return self.connection.settle(now_ms)
        before = effects.deadline_ms, effects.close_reason
        self.connection.settle(now_ms)
        assert (effects.deadline_ms, effects.close_reason) == before, "the effects have changed untold"
        return effects

    def closed(self, now_ms: int) -> CloseReason | None:
        """Why the connection is to be closed now; None while it is not."""
        return self.obey(now_ms).close_reason

    @property
    def _is_closed(self) -> bool:
        return self.connection.state == State.CLOSED

    @property
    def waiting_bytes(self) -> int:
        """How much of what the client sent the connection has not taken."""
        return len(self._client.unread) + len(self._client.end.kept)

    def _step_broker(self, now_ms: int) -> bool:
        takes = self.connection.wake(now_ms).read_broker
        return takes and self._step(self._broker, now_ms, len(self._broker.unread))

    def _step_client(self, now_ms: int) -> bool:
        effects = self.connection.wake(now_ms)
        return effects.read_client and self._step(self._client, now_ms, effects.room_bytes)

    def _step(self, side: _Side, now_ms: int, most: int) -> bool:
        """Read at most this much; whether anything has come of it."""
        effects, size = self.connection.effects, self.connection.limits.stream_above_bytes
        if len(side.end.kept) >= size:
            size = 2 * len(side.end.kept)
        read = side.read(min(most, size - len(side.end.kept)))
        end = len(side.end.kept) + len(read)
        if not end:
            return False
        data = bytearray(b"\xa5" * size)
        data[:end] = bytes(side.end.kept) + read
        consumed = self.connection.receive(side.end, data, memoryview(data), end, now_ms)
        assert 0 <= consumed <= end
        side.end.kept = bytes(data[consumed:end])
        progress = bool(read or consumed or effects.to_broker or effects.to_client)
        self._flush()
        return progress

    def _flush(self) -> None:
        effects = self.connection.effects
        self.to_broker += b"".join(effects.to_broker)
        self.to_client += b"".join(effects.to_client)
        effects.to_broker, effects.to_client = [], []


def fetch_a_minute(wires: list[Wire], asked: bytes, answer: bytes) -> list[int]:
    """Fetch over all connections, in the same order in each ms. Return how many responses with records each
    got in a minute, after 15 s.
    """
    got, now_ms = [0] * len(wires), 0
    while now_ms < 75_000:
        for wire in wires:
            wire.feed(now_ms, client=asked if wire.connection.throttled_until_ms <= now_ms else b"")
        for number, wire in enumerate(wires):
            if wire.to_broker:
                wire.to_broker.clear()
                wire.feed(now_ms, broker=answer)
                got[number] += now_ms > 15_000 and len(wire.to_client) > len(answer) // 2
                wire.to_client.clear()
        now_ms = max(now_ms + 1, min(wire.connection.throttled_until_ms for wire in wires))
    return got


def in_turns(connection: Connection, end: End, sent: bytes) -> list[int]:
    """Present a buffer full of what was sent; in each later turn also the bytes that were left. Return the
    number of bytes that each turn consumed.
    """
    consumed: list[int] = []
    left = sent
    while left and len(consumed) < 100:
        connection.clock.turn, connection.clock.scanned = connection.clock.turn + 1, 0
        data = bytearray(left[: max(BUFFER_BYTES, connection.limits.stream_above_bytes)])
        consumed.append(connection.receive(end, data, memoryview(data), len(data), connection.now_ms))
        assert consumed[-1] == len(data) or connection.waits_for_turn
        left = left[consumed[-1] :]
    return consumed
