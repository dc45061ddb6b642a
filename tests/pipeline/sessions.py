"""Clients, Weir's real connections, and a broker, in simulated time; the result is traces.

The throttle times come from Weir's own connections (`proxy.connection`), not from the replay under test.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from tests.proxy.request_costs import costs
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import padded, request, response, split
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.old_reads.old_reads import OldReadAge
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, QuotaTable
from weir.quotas.limiters.throttle import INT32_MAX
from weir.usage.records import TraceRecord, UsageRecord

OFFSET_MS = 1_763_686_800_000
"""Offset (ms) from simulated time to Unix time: simulated 0 is 2025-11-21 01:00 UTC."""
FROM_MS = 3_500_000
"""Simulated time (ms) of the beginning; an hour ends 100 s later."""
INTERVAL_MS = 1000


@dataclass
class Habits:
    """The behaviour of one kind of clients; numbers are drawn evenly from these ranges."""

    client_id: bytes
    what: str
    """Kind of requests: produce, fetch, ping, or all in turn."""
    size: tuple[int, int] = (100, 3000)
    think_ms: tuple[int, int] = (0, 200)
    service_ms: tuple[int, int] = (0, 20)
    under_way: int = 1
    """Number of requests in flight."""
    connections: int = 1
    from_ms: int = 0


@dataclass
class Connected:
    habits: Habits
    wire: Wire
    number: int = 0
    """Correlation id of the last request."""
    answered_ms: int = 0
    """Time (ms) at which the broker will have sent all its responses."""
    to_broker: int = 0
    to_client: int = 0
    """Number of forwarded bytes that were processed."""


class World:
    def __init__(
        self,
        table: QuotaTable,
        seed: int = 1,
        instance: str = "weir-1",
        *,
        throttle_ms_max: int = INT32_MAX,
    ) -> None:
        self._instance = instance
        self._throttle_ms_max = throttle_ms_max
        self._random = random.Random(seed)
        self._quotas = BrokerQuotas.create(table)
        age = OldReadAge(0, lambda: OFFSET_MS + 1)
        self._plans = Plans(Counters(), costs=costs(), cluster=ClusterState(old_read_age=age))
        self._registries = UsageRegistries(trace_share=1.0)
        self._connections: list[Connected] = []
        self._events: list[tuple[int, int, Connected, bytes, bytes]] = []
        """Events: (time, number, connection, bytes of the client, bytes of the broker). Without bytes,
        only time passes.
        """
        self._count = 0
        self.traces: list[TraceRecord] = []
        self.usage: list[UsageRecord] = []

    def join(self, habits: Habits) -> World:
        for _ in range(habits.connections):
            session = new_connection(
                quotas=self._quotas,
                plans=self._plans,
                node_id=0,
                buffer_bytes=16 * 1024,
                throttle_ms_max=self._throttle_ms_max,
            )
            session.client.usage = self._registries.of(0)
            self._connections.append(Connected(habits, Wire(session)))
            for _ in range(habits.under_way):
                self._ask(self._connections[-1], FROM_MS + habits.from_ms)
        return self

    def run(self, until_ms: int) -> World:
        """Run until all events are handled; clients send no new requests after `until_ms`."""
        now_ms = drained_ms = FROM_MS
        until_ms += FROM_MS
        while self._events:
            now_ms, _number, one, sent, said = heappop(self._events)
            while drained_ms + INTERVAL_MS <= now_ms:
                self._drain(drained_ms)
                drained_ms += INTERVAL_MS
            self._happen(one, sent, said, now_ms, until_ms)
        for one in self._connections:
            assert one.wire.connection.idle
            one.wire.connection.end(now_ms)
        for later_ms in (0, INTERVAL_MS, 2 * INTERVAL_MS):
            self._drain(drained_ms + later_ms)
        return self

    def _drain(self, from_ms: int) -> None:
        self.usage += self._registries.drain(OFFSET_MS + from_ms, INTERVAL_MS, self._instance)
        self.traces += self._registries.take_traces(OFFSET_MS, self._instance)

    def _happen(self, one: Connected, sent: bytes, said: bytes, now_ms: int, until_ms: int) -> None:
        wire, session = one.wire, one.wire.connection
        session.clock.now_us = 1000 * now_ms
        wire.feed(now_ms, client=sent, broker=said)
        assert session.effects.close_reason is None, session.effects.close_reason
        for frame in split(bytes(wire.to_broker[one.to_broker :])):
            self._answer(one, frame, now_ms)
        for _frame in split(bytes(wire.to_client[one.to_client :])):
            if now_ms < until_ms:
                self._ask(one, now_ms + self._draw(one.habits.think_ms))
        one.to_broker, one.to_client = len(wire.to_broker), len(wire.to_client)
        if session.throttled_until_ms > now_ms and (
            wire.waiting_bytes or session.broker_end.held_until_ms > now_ms
        ):
            self._plan(session.throttled_until_ms, one)

    def _ask(self, one: Connected, when_ms: int) -> None:
        one.number += 1
        size = self._draw(one.habits.size)
        self._plan(when_ms, one, sent=_ASKED[one.habits.what](one.number, size, one.habits.client_id))

    def _answer(self, one: Connected, frame: bytes, now_ms: int) -> None:
        api_key, _version, number = struct.unpack_from(">hhi", frame, 4)
        one.answered_ms = max(one.answered_ms, now_ms + self._draw(one.habits.service_ms))
        self._plan(one.answered_ms, one, said=_SAID[api_key](number, self._draw(one.habits.size)))

    def _plan(self, when_ms: int, one: Connected, *, sent: bytes = b"", said: bytes = b"") -> None:
        self._count += 1
        heappush(self._events, (when_ms, self._count, one, sent, said))

    def _draw(self, between: tuple[int, int]) -> int:
        return self._random.randint(*between)


def _produce(number: int, size: int, client_id: bytes) -> bytes:
    return padded(request(ProduceRequest(acks=1), 7, number, client_id), size)


def _fetch(number: int, _size: int, client_id: bytes) -> bytes:
    return request(FetchRequest(max_bytes=1000, max_wait_ms=500), 11, number, client_id)


def _ping(number: int, _size: int, client_id: bytes) -> bytes:
    return request(HeartbeatRequest(), 4, number, client_id)


def _fetched(number: int, size: int) -> bytes:
    old_batch = bytearray(size)
    struct.pack_into(">iib", old_batch, 8, size - 12, 0, 2)
    struct.pack_into(">q", old_batch, 35, OFFSET_MS)
    records = FetchResponse.PartitionData(records=bytes(old_batch))
    topic = FetchResponse.FetchableTopicResponse(partitions=[records])
    return response(FetchResponse(responses=[topic]), 11, number)


def _in_turn(number: int, size: int, client_id: bytes) -> bytes:
    return (_produce, _fetch, _ping)[number % 3](number, size, client_id)


_ASKED: Final[dict[str, Callable[[int, int, bytes], bytes]]] = {
    "produce": _produce,
    "fetch": _fetch,
    "ping": _ping,
    "all in turn": _in_turn,
}
_SAID: Final[dict[int, Callable[[int, int], bytes]]] = {
    ApiKey.PRODUCE: lambda number, _size: response(ProduceResponse(), 7, number),
    ApiKey.FETCH: _fetched,
    ApiKey.HEARTBEAT: lambda number, _size: response(HeartbeatResponse(), 4, number),
}
