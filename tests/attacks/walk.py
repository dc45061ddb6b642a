"""Frames of every API through one relay in this process, and the CPU that each turn of the reactor takes.

CPU of the thread, because other processes lengthen a turn on the clock. Nothing else runs here: a large heap
makes the collector's pauses long, so it is off meanwhile.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from tests.attacks.frames import bigs, every_api, messages
from tests.proxy.rigs import tcp_pair
from tests.proxy.wire import new_connection
from tests.wire.frames import head_of, request_frame, response_frame
from tests.wire.smallest import minimal
from weir.protocol.api import ApiKey, versions
from weir.protocol.framing import LENGTH, LENGTH_BYTES
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.relay import Relay
from weir.quotas import DEFAULT, BrokerQuotas, Entity, QuotaKey, QuotaTable

ENOUGH: Final = 1e12
"""A rate that nobody exceeds: every charge is made, nobody waits."""
QUOTAS: Final = QuotaTable(
    {
        (Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): ENOUGH,
        (Entity(client_id=DEFAULT), QuotaKey.CONSUMER_BYTE_RATE): ENOUGH,
        (Entity(client_id=DEFAULT), QuotaKey.REQUEST_PERCENTAGE): ENOUGH,
        (Entity(client_id=DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): ENOUGH,
        (Entity(topic="t"), QuotaKey.PRODUCER_BYTE_RATE): ENOUGH,
        (Entity(topic="t"), QuotaKey.CONSUMER_BYTE_RATE): ENOUGH,
    }
)
EVERYTHING: Final = {
    int(key): VersionRange(known.min, known.max) for key in ApiKey if (known := versions(key)) is not None
}
TURN_US: Final = 5_000
"""CPU of a turn at most."""
BUSY: Final = 2
"""Other processes on the same core make the same work take more CPU, by so much at most."""
IDLE_TURNS: Final = 3
"""Turns without any byte after which nothing more happens."""
IN_FLIGHT_MAX: Final = 1000
"""As `weir run` has it by default."""


class Longest(NamedTuple):
    us: int
    case: str


class Walk:
    """A relay with every quota on, a client that sends, a broker that answers; a context manager."""

    def __init__(self, table: QuotaTable = QUOTAS) -> None:
        self._reactor = Reactor(cpu_us)
        self._client, relay_client = tcp_pair()
        self._broker, relay_broker = tcp_pair()
        self.connection = connection(table)
        self.connection.clock = self._reactor.clock
        self._relay = Relay(self._reactor, relay_client, relay_broker, self.connection, self._ended)
        self._received = bytearray()
        self._is_open = True
        self.longest_us = 0
        """CPU (µs) of the longest turn so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self._relay.close(CloseReason.STOPPED)
        self._reactor.close()
        self._client.close()
        self._broker.close()

    def run(self, asked: bytes, answer: Callable[[int, int], bytes]) -> None:
        """Send these requests; answer each that arrives with `answer(api key, version)`, a body."""
        to_client, to_broker, idle = memoryview(asked), memoryview(b""), 0
        while idle < IDLE_TURNS and self._is_open:
            before = len(to_client) + len(to_broker)
            to_client = _send(self._client, to_client)
            to_broker = _send(self._broker, to_broker)
            began = cpu_us()
            self._reactor.turn(0)
            self.longest_us = max(self.longest_us, cpu_us() - began)
            moved = _take(self._client)
            self._received += (arrived := _take(self._broker))
            if not to_broker:
                to_broker = memoryview(b"".join(self._answers(answer)))
            is_idle = not (moved or arrived or self._reactor.timeout_s() == 0)
            idle = idle + 1 if is_idle and before == len(to_client) + len(to_broker) else 0

    def _answers(self, answer: Callable[[int, int], bytes]) -> Iterator[bytes]:
        received = self._received
        while len(received) >= LENGTH_BYTES:
            stop = LENGTH_BYTES + LENGTH.unpack_from(received)[0]
            if len(received) < stop:
                return
            head = head_of(bytes(received[:12]))
            del received[:stop]
            frame = bytearray(response_frame(head.api_key, head.version, answer(head.api_key, head.version)))
            frame[4:8] = head.correlation_id.to_bytes(4, "big", signed=True)
            yield bytes(frame)

    def _ended(self, *_: object) -> None:
        self._is_open = False


def connection(table: QuotaTable) -> Connection:
    """Return a new connection to a broker that speaks all versions, under this table, its usage recorded."""
    plans = Plans(Counters()).for_broker(EVERYTHING)
    made = new_connection(plans=plans, quotas=BrokerQuotas.create(table), in_flight_max=IN_FLIGHT_MAX)
    made.client.usage = UsageRegistries().of(1)
    return made


@dataclass(frozen=True)
class Case:
    name: str
    asked: bytes
    api_key: int
    answered: bytes

    def longest_us(self) -> int:
        """Return the CPU (µs) of the longest turn."""

        def answer(api_key: int, version: int) -> bytes:
            return self.answered if api_key == self.api_key else minimal(messages(api_key)[1], version)

        with quiet(), Walk() as walk:
            walk.run(self.asked, answer)
            return walk.longest_us


def cases(sizes: tuple[int, ...], pipelined_bytes: int, *, all_versions: bool) -> Iterator[Case]:
    """Yield floods of every API: small requests, requests with one long array, responses with one."""
    for api_key, version in every_api(all_versions=all_versions):
        name = f"{api_key.name} v{version}"
        request, response = messages(api_key)
        small = request_frame(api_key, version, minimal(request, version))
        answer = minimal(response, version)
        yield Case(f"{name}, small requests", small * (pipelined_bytes // len(small)), api_key, answer)
        for size in sizes:
            for big in bigs(request, version):
                asked = request_frame(api_key, version, big.body(size))
                yield Case(f"{name}, {size} B of {big.path}", asked, api_key, answer)
            for big in bigs(response, version):
                yield Case(f"{name}, answer with {size} B of {big.path}", small, api_key, big.body(size))


@contextmanager
def quiet() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cpu_us() -> int:
    return time.thread_time_ns() // 1000


def _send(sock: socket.socket, data: memoryview) -> memoryview:
    with suppress(BlockingIOError, ConnectionError):
        while data:
            data = data[sock.send(data) :]
    return data


def _take(sock: socket.socket) -> bytes:
    taken = bytearray()
    with suppress(BlockingIOError, ConnectionError):
        while part := sock.recv(1 << 20):
            taken += part
    return bytes(taken)
