"""No byte is wrong: `python -m tests.fuzz.hashing --gigabytes 5`, `… --tls`.

Clients and a fake broker, in a process of its own, send frames of 13 bytes to 100 MB through a real
`weir run`, cut anywhere, under quotas whose file is replaced all the while. Both ends hash all that they send
and receive; at the end of a connection the broker tells its hashes. Weir may change one thing: the throttle
time in responses to produce and fetch requests, which counts as 0.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import socket
import ssl
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from tests.integration.weir import Weir
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST
from tests.proxy.certificates import client_context, write_pair
from tests.wire.frames import head_of, header, request, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import ApiVersionsResponse, FetchRequest, MetadataResponse, ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
LEAST_BYTES, MOST_BYTES = 13, 4 + 100 * 1024 * 1024
"""Length of the shortest response and of the longest frame, length prefixes included."""
REQUEST_BYTES_MIN: Final = 80
"""Length of the shortest request with all fields of its head."""
PRODUCED_BYTES: Final = 16
"""Length of a response to a produce request."""
BLOCK_BYTES: Final = 1 << 20
UNKNOWN: Final = 999
"""An API that no schema has: Weir forwards it unchanged."""
PRODUCE_VERSION, FETCH_VERSION = 7, 11
BATCH_BYTES: Final = 32 * 1024
"""Requests of this length are sent before the first response is read: kernels keep as many."""
PIECE_BYTES: Final = (1, 3, 100, 5000, 70_000, 1 << 20)
"""Lengths of the pieces that are sent at once, at most."""
MB: Final = 1_000_000
RATE: Final = 10**12
"""A rate (bytes/s) that nobody exceeds: fetches over their quota would lose their records."""
SLOW_MB_MAX: Final = 60
"""Size of the throttled client's exchanges: it waits for a few seconds, however long the others take."""
SLOW_S: Final = 12
"""The time that its quota allows for what it produces; the first ten seconds' worth may go at once."""
PATIENCE_S: Final = 120.0
RELOAD_EVERY_S: Final = 0.1
LOADED: Final = '"event": "quotas loaded"'


class Exchange(NamedTuple):
    api_key: int
    asked_bytes: int
    """Length of the request's frame."""
    answer_bytes: int


def exchanges(seed: int, total_bytes: int) -> Iterator[Exchange]:
    """Yield a connection's exchanges: both directions together have at least this number of bytes. Frames of
    100 MB are among them if they are less than a third.
    """
    source = random.Random(seed)
    most = min(MOST_BYTES, total_bytes // 3)
    yield Exchange(UNKNOWN, 40, LEAST_BYTES)
    yield Exchange(ApiKey.PRODUCE, most, PRODUCED_BYTES)
    yield Exchange(ApiKey.FETCH, 100, most)
    left = total_bytes - 2 * most
    while left > 0:
        asked, answer = (int(64 * (most / 64) ** source.random()) for _ in range(2))
        key = source.choice((UNKNOWN, ApiKey.PRODUCE, ApiKey.FETCH))
        if key == UNKNOWN and source.randrange(2):
            answer = LEAST_BYTES + source.randrange(8)
        if key == ApiKey.PRODUCE:
            answer = PRODUCED_BYTES
        yield Exchange(key, max(asked, REQUEST_BYTES_MIN), answer)
        left -= asked + answer


@cache
def block() -> bytes:
    return random.Random(0).randbytes(BLOCK_BYTES)


def body(head: bytes, length: int, number: int) -> Iterator[bytes]:
    """Yield a frame of this length (bytes, prefix included) that begins with `head`, in pieces. `number`
    makes frames differ.
    """
    frame_head = struct.pack(">i", length - 4) + head
    first = (number * 7919) % BLOCK_BYTES
    rest = length - len(frame_head)
    yield frame_head[:length]
    while rest > 0:
        piece = block()[first : first + rest]
        yield piece
        first, rest = 0, rest - len(piece)


def request_head(exchange: Exchange, correlation_id: int, client_id: bytes) -> bytes:
    if exchange.api_key == ApiKey.PRODUCE:
        return request(ProduceRequest(acks=1), PRODUCE_VERSION, correlation_id, client_id)[4:]
    if exchange.api_key == ApiKey.FETCH:
        return request(FetchRequest(max_bytes=1 << 30), FETCH_VERSION, correlation_id, client_id)[4:]
    return header(UNKNOWN, 1, correlation_id, client_id, tags=None)


class Stream:
    """A connection that hashes both directions, and cuts what it sends."""

    def __init__(self, sock: socket.socket, seed: int) -> None:
        self.sent, self.received = hashlib.sha256(), hashlib.sha256()
        self.bytes = 0
        self._sock = sock
        self._cuts = random.Random(seed)
        self._buffer = memoryview(bytearray(BLOCK_BYTES))
        sock.settimeout(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def send(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self.sent.update(piece)
            self.bytes += len(piece)
            for cut in self._cut(memoryview(piece)):
                self._sock.sendall(cut)

    def _cut(self, piece: memoryview) -> Iterator[memoryview]:
        """Cut a few times anywhere, then send the rest at once."""
        for _ in range(3):
            length = self._cuts.randint(1, self._cuts.choice(PIECE_BYTES))
            yield piece[:length]
            piece = piece[length:]
        yield piece

    def head(self, length: int) -> bytes:
        """Receive the beginning of a frame, or all of it; not hashed. Raises EOFError."""
        return bytes(self._read(length))

    def rest(self, length: int) -> None:
        """Receive this number of bytes, hashed. Raises EOFError."""
        while length:
            part = self._read(min(length, BLOCK_BYTES))
            self.hash(part)
            length -= len(part)

    def hash(self, data: bytes | memoryview) -> None:
        self.received.update(data)
        self.bytes += len(data)

    def _read(self, length: int) -> memoryview:
        done = 0
        while done < length:
            count = self._sock.recv_into(self._buffer[done:length])
            if not count:
                raise EOFError(f"the connection ended after {done} of {length} bytes")
            done += count
        return self._buffer[:length]


# The broker


def serve(port: int) -> None:
    listener = socket.create_server((HOST, port), backlog=64)
    while True:
        sock, _peer = listener.accept()
        threading.Thread(target=_serve, args=(sock, port), daemon=True).start()


def _serve(sock: socket.socket, port: int) -> None:
    with suppress(EOFError, OSError):
        first = sock.recv(14, socket.MSG_PEEK | socket.MSG_WAITALL)
        if len(first) == 14 and struct.unpack_from(">h", first, 4)[0] == UNKNOWN:
            with Stream(sock, 1) as stream:
                _answer_client(stream)
        else:
            with sock:
                _answer_weir(sock, port)


def _answer_weir(sock: socket.socket, port: int) -> None:
    broker = MetadataResponse.MetadataResponseBroker
    while True:
        (length,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL).ljust(4, b"\0"))
        if not length:
            return
        head = head_of(struct.pack(">i", length) + sock.recv(length, socket.MSG_WAITALL))
        metadata = MetadataResponse(brokers=[broker(node_id=0, host=HOST, port=port)])
        message = metadata if head.api_key == ApiKey.METADATA else ApiVersionsResponse()
        sock.sendall(response(message, head.version, head.correlation_id))


def _answer_client(stream: Stream) -> None:
    """Answer a connection's exchanges, which its first request chooses; then tell the hashes."""
    first = stream.head(40)
    seed, total_mb = struct.unpack_from(">ii", first, 40 - 8)
    stream.hash(first)
    for number, exchange in enumerate(exchanges(seed, total_mb * MB)):
        if number:
            stream.rest(exchange.asked_bytes)
        stream.send(body(_answer_head(exchange, number), exchange.answer_bytes, number))
    stream.head(4 + 10 + 4)
    digests = stream.received.digest() + stream.sent.digest()
    stream.send(iter([struct.pack(">ii", 4 + len(digests), -1) + digests]))


def _answer_head(exchange: Exchange, number: int) -> bytes:
    """Return a response's beginning: a fetch's throttle time, error and session; a produce response's
    number of topics, 0, and throttle time.
    """
    head = struct.pack(">i", number)
    if exchange.api_key == ApiKey.FETCH:
        return head + bytes(4 + 2 + 4)
    return head + bytes(4 + 4) if exchange.api_key == ApiKey.PRODUCE else head


# A client


@dataclass(frozen=True, slots=True)
class Result:
    bytes: int
    """Number of bytes in both directions."""
    throttled: int
    """Number of responses that told a throttle time."""


def converse(sock: socket.socket, seed: int, total_mb: int, client_id: bytes) -> Result:
    """Go through a connection's exchanges. Raises AssertionError if a byte is wrong."""
    throttled = 0
    waiting: list[Exchange] = []
    with Stream(sock, seed) as stream:
        for number, exchange in enumerate(exchanges(seed, total_mb * MB)):
            if sum(each.asked_bytes for each in waiting) + exchange.asked_bytes > BATCH_BYTES:
                throttled += sum(_receive(stream, each) for each in waiting)
                waiting = []
            if number == 0:
                head = header(UNKNOWN, 1, 0, client_id, tags=None).ljust(40 - 4 - 8, b"-")
                stream.send(iter([struct.pack(">i", 36) + head + struct.pack(">ii", seed, total_mb)]))
            else:
                stream.send(body(request_head(exchange, number, client_id), exchange.asked_bytes, number))
            waiting.append(exchange)
        throttled += sum(_receive(stream, each) for each in waiting)
        _compare(stream)
        return Result(stream.bytes, throttled)


def _receive(stream: Stream, exchange: Exchange) -> bool:
    """Receive a response, its throttle time counted as 0. Return True if it told one."""
    length, at = exchange.answer_bytes, _throttle_at(exchange)
    if at is None:
        stream.rest(length)
        return False
    head = stream.head(at + 4)
    stream.hash(head[:at] + bytes(4))
    stream.rest(length - at - 4)
    return any(head[at:])


def _throttle_at(exchange: Exchange) -> int | None:
    """Return the position of the throttle time in a response; None without."""
    if exchange.api_key == ApiKey.FETCH:
        return 8
    return exchange.answer_bytes - 4 if exchange.api_key == ApiKey.PRODUCE else None


def _compare(stream: Stream) -> None:
    mine = stream.sent.digest() + stream.received.digest()
    stream.send(iter([struct.pack(">i", 14) + header(UNKNOWN, 1, -1, None, tags=None) + b"last"]))
    theirs = stream.head(8 + len(mine))[8:]
    assert theirs[:32] == mine[:32], "Weir changed a request"
    assert theirs[32:] == mine[32:], "Weir changed a response"


# All of it


@dataclass(frozen=True, slots=True)
class Report:
    bytes: int
    seconds: float
    throttled: int
    reloads: int


def run(total_mb: int, *, tls: bool, seed: int = 1, clients: int = 4) -> Report:
    """Run it. Raises AssertionError if a byte is wrong, or if nothing was throttled or reloaded."""
    with ExitStack() as stack:
        port, processes = free_range(1), Processes("weir-hashing-")
        stack.callback(processes.close)
        processes.start("broker", [sys.executable, "-m", "tests.fuzz.hashing", "--broker", str(port)])
        _wait_for(port, processes)
        directory = Path(stack.enter_context(TemporaryDirectory()))
        options: tuple[str, ...] = ()
        if tls:
            cert, key = write_pair(directory, HOST)
            options = ("--tls-cert", str(cert), "--tls-key", str(key))
        slow_mb = min(total_mb // clients, SLOW_MB_MAX)
        shares = [slow_mb, *[(total_mb - slow_mb) // (clients - 1)] * (clients - 1)]
        slow_rate = produced_bytes(1000 * seed, slow_mb) // SLOW_S
        weir = stack.enter_context(Weir(f"{HOST}:{port}", quotas(slow_rate), options=options))
        over = threading.Event()
        reloading = threading.Thread(target=_reload, args=(weir, slow_rate, over))
        reloading.start()
        stack.callback(reloading.join)
        stack.callback(over.set)
        began_s = time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            ended = list(pool.map(lambda n: _client(weir, n, seed, shares[n], tls), range(clients)))
        spent_s = time.monotonic() - began_s
        reloads = weir.log.count(LOADED)
    report = Report(
        sum(each.bytes for each in ended), spent_s, sum(each.throttled for each in ended), reloads
    )
    assert report.throttled, "nobody was throttled"
    assert report.reloads > 1, "no quotas were reloaded"
    return report


def _client(weir: Weir, number: int, seed: int, total_mb: int, tls: bool) -> Result:
    sock = socket.create_connection((HOST, weir.port + 1), PATIENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls:
        sock = client_context().wrap_socket(sock)
        assert isinstance(sock, ssl.SSLSocket)
    return converse(sock, 1000 * seed + number, total_mb, b"slow" if number == 0 else b"app")


def produced_bytes(seed: int, total_mb: int) -> int:
    """Return the number of bytes of a connection's produce requests."""
    return sum(each.asked_bytes for each in exchanges(seed, total_mb * MB) if each.api_key == ApiKey.PRODUCE)


def quotas(slow_rate: int, number: int = 0) -> str:
    """Return the quota file's text; other numbers give other rates."""
    return "".join(
        f'[[quota]]\nclient_id = "{name}"\nproducer_byte_rate = {rate + number}\n'
        f"consumer_byte_rate = {RATE + number}\nrequest_percentage = {10_000 + number}\n"
        for name, rate in (("slow", slow_rate), ("app", RATE))
    )


def _reload(weir: Weir, slow_rate: int, over: threading.Event) -> None:
    """Replace the quota file until it is over. SIGHUP has it read: a file that never rests is not."""
    number, file = 0, weir.quota_file
    while not over.wait(RELOAD_EVERY_S):
        number += 1
        new = file.with_suffix(".new")
        new.write_text(quotas(slow_rate, number % 100), "utf-8")
        new.replace(file)
        os.kill(weir.pid, signal.SIGHUP)


def _wait_for(port: int, processes: Processes) -> None:
    while processes.running("broker"):
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.02)  # between tries to connect
    raise AssertionError(f"the broker has ended: {processes.log('broker').read_text()}")


def main() -> None:
    """Run it with the sizes of the command line, or be the broker."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.hashing", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5, help="in both directions together")
    parser.add_argument("--tls", action="store_true", help="clients speak TLS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", type=int, metavar="PORT", help="be the broker")
    options = parser.parse_args()
    if options.broker:
        serve(options.broker)
    os.environ["PYTHONPATH"] = str(ROOT)  # the children's: they run in directories of their own
    print(run(int(1000 * options.gigabytes), tls=options.tls, seed=options.seed))


if __name__ == "__main__":
    main()
