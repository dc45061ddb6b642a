"""A session between two streams of bytes: what a relay does, without sockets and without a clock.

Bytes that nobody may read yet wait as they would in the kernel; what the session leaves is kept and presented
again. The buffer holds rubbish where nothing was read, so that whoever looks there is found out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from proxy.addresses import AddressBook, AdvertisedAddresses, PortRange
from proxy.counters import Counters
from proxy.rules.plans import Plans
from proxy.connection.inbound import Inbound
from proxy.connection.outbound import Outbound
from proxy.connection.connection import Connection, ConnectionLimits
from quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

Feed: TypeAlias = Callable[[bytearray, memoryview, int, int], int]

APP = Entity(client_id="app")
BUFFER_BYTES = 256 * 1024
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
    hold: bool = False,
    in_flight_max: int = 1000,
    frame_bytes_max: int = 100 * 1024 * 1024,
    response_bytes_max: int = 2**31 - 1,
    ports: PortRange = PORTS,
    quotas: BrokerQuotas | None = None,
    plans: Plans | None = None,
    node_id: int | None = None,
    held_bytes_max: int = 1024 * 1024,
) -> Connection:
    """A session with everything of its own, but for `quotas` and `plans` if given."""
    counters = Counters()
    return Connection(
        plans=Plans(counters) if plans is None else plans,
        quotas=quotas or BrokerQuotas.create(table or QuotaTable()),
        addresses=AdvertisedAddresses("weir", AddressBook(ports, no_listener)),
        counters=counters,
        limits=ConnectionLimits(
            frame_bytes_max=frame_bytes_max,
            response_bytes_max=response_bytes_max,
            in_flight_max=in_flight_max,
            stream_above_bytes=buffer_bytes,
            held_bytes_max=held_bytes_max,
        ),
        hold=hold,
        node_id=node_id,
    )


class _Side:
    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.unread = b""
        self.kept = b""


class Wire:
    """Moves bytes through a session; `to_broker` and `to_client` hold what came out of it so far."""

    def __init__(self, session: Connection) -> None:
        self.session = session
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self._client = _Side(Inbound(session).judge)
        self._broker = _Side(Outbound(session).judge)

    def feed(self, now_ms: int, client: bytes = b"", broker: bytes = b"") -> None:
        """More bytes from either side, or none: then only the time is new."""
        self._client.unread += client
        self._broker.unread += broker
        while self.session.violation is None and (self._step_broker(now_ms) or self._step_client(now_ms)):
            pass

    @property
    def waiting_bytes(self) -> int:
        """How much of what the client sent the session has not taken."""
        return len(self._client.unread) + len(self._client.kept)

    def _step_broker(self, now_ms: int) -> bool:
        if self.session.held_until_ms > now_ms:
            return False
        return self._step(self._broker, now_ms, len(self._broker.unread))

    def _step_client(self, now_ms: int) -> bool:
        if self.session.blocked(now_ms):
            rest = self.session.request_rest_bytes
            return rest > 0 and self._step(self._client, now_ms, rest)
        return self._step(self._client, now_ms, len(self._client.unread))

    def _step(self, side: _Side, now_ms: int, most: int) -> bool:
        """Read at most this much and judge it; whether anything has come of it."""
        size = self.session.limits.stream_above_bytes
        if len(side.kept) >= size:
            size = 2 * len(side.kept)
        read = side.unread[: min(most, size - len(side.kept))]
        side.unread = side.unread[len(read) :]
        end = len(side.kept) + len(read)
        if not end:
            return False
        data = bytearray(b"\xa5" * size)
        data[:end] = side.kept + read
        consumed = side.feed(data, memoryview(data), end, now_ms)
        assert 0 <= consumed <= end
        side.kept = bytes(data[consumed:end])
        progress = bool(read or consumed or self.session.to_broker or self.session.to_client)
        for part in self.session.to_broker:
            self.to_broker += part
        for part in self.session.to_client:
            self.to_client += part
        self.session.to_broker, self.session.to_client = [], []
        return progress
