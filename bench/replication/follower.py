"""The load generator that fetches as a follower, a process that `load.generate` starts:
`python -m bench.replication.follower`.

One connection has one fetch in flight. The first fetch is full and begins a fetch session; the following
ones are incremental, with the session's epoch. All ask for the same offsets. A leader that does not know the
session is sent a full fetch again, which is an error while the load is measured.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import Final

from bench.cpu import cpu_s, rss_bytes
from bench.entry import open_connection
from bench.load import SILENCE_S, Counted, Load, LoadError, Order, serve
from bench.stats import histogram

BUFFER_BYTES: Final = 1 << 20
SESSION_ID: Final = (0x57454952).to_bytes(4, "big")
"""Session id in the incremental fetch (`fetches.SESSION_ID`; importing that would take too long)."""
_LENGTH: Final = Struct(">i")
_SESSION: Final = Struct(">ii")
_HEAD: Final = Struct(">iixihi")
"""Beginning of a response to Fetch from v12 on: length, correlation id, tagged fields (none), throttle time,
error code, session id.
"""
_HEAD_BYTES_MAX: Final = 10_000
"""Length (bytes) that no response has without its records."""
_EPOCH_MAX: Final = 2**31 - 1
_SESSION_ERRORS: Final = (70, 71)
"""FETCH_SESSION_ID_NOT_FOUND and INVALID_FETCH_SESSION_EPOCH."""


class Follower:
    """One connection that fetches from a leader."""

    def __init__(self, load: Load, content: bytes) -> None:
        """Connect. `content` has the full fetch, and behind it the incremental one. Raises OSError."""
        end = _LENGTH.size + _LENGTH.unpack_from(content)[0]
        self._full, self._incremental = content[:end], bytearray(content[end:])
        self._session_at = self._incremental.index(SESSION_ID)
        self._payload_bytes = load.payload_bytes
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._session_id = self._epoch = 0
        self.restarts = 0
        """Number of sessions that the leader did not know."""
        self._socket = open_connection(load.host, load.port, load.entry, SILENCE_S)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fetch(self) -> None:
        """Send one fetch, and receive its response. Raises OSError, LoadError."""
        if self._session_id:
            _SESSION.pack_into(self._incremental, self._session_at, self._session_id, self._epoch)
            self._socket.sendall(self._incremental)
        else:
            self._socket.sendall(self._full)
        length, error_code, session_id = self._receive()
        if error_code in _SESSION_ERRORS and self._session_id:
            self._session_id, self.restarts = 0, self.restarts + 1
        elif error_code:
            raise LoadError(f"the leader answers error code {error_code}")
        elif not session_id:
            raise LoadError("the leader begins no fetch session")
        elif not self._payload_bytes <= length < 1.5 * self._payload_bytes + _HEAD_BYTES_MAX:
            raise LoadError(f"a response has {length} bytes, of {self._payload_bytes} bytes of records")
        else:
            self._epoch = self._epoch % _EPOCH_MAX + 1 if self._session_id else 1
            self._session_id = session_id

    def _receive(self) -> tuple[int, int, int]:
        """Read a response; return its length, its error code and its session id."""
        count = 0
        while count < _HEAD.size:
            count += self._read(self._view[count:])
        length, _correlation_id, _throttle_ms, error_code, session_id = _HEAD.unpack_from(self._buffer)
        while count < _LENGTH.size + length:
            count += self._read(self._view)
        return length, error_code, session_id

    def _read(self, into: memoryview) -> int:
        count = self._socket.recv_into(into)
        if not count:
            raise LoadError("the target closed the connection")
        return count


def measure(order: Order, content: bytes) -> Counted:
    """Warm up the target until `order.begin_s`, then measure. Raises OSError, LoadError."""
    follower = Follower(order.load, content)
    try:
        follower.fetch()
        while time.monotonic() < order.begin_s:
            follower.fetch()
        return _count(follower, order.load)
    finally:
        follower.close()


def _count(follower: Follower, load: Load) -> Counted:
    pid, restarts = load.pid, follower.restarts
    began_s, own_s = time.perf_counter(), time.process_time()
    proxy_s = None if pid is None else cpu_s(pid)
    latencies = _run(follower, load.seconds)
    used_s = None if pid is None or proxy_s is None else cpu_s(pid) - proxy_s
    seconds, own_s = time.perf_counter() - began_s, time.process_time() - own_s
    if follower.restarts > restarts:
        raise LoadError("the leader forgot the fetch session")
    return Counted(
        seconds, dict(histogram(latencies)), own_s, used_s, None if pid is None else rss_bytes(pid)
    )


def _run(follower: Follower, seconds: float) -> list[int]:
    """Fetch for `seconds`; return the latencies (ns)."""
    latencies: list[int] = []
    clock = time.perf_counter_ns
    sent_ns = clock()
    until_ns = sent_ns + int(seconds * 1e9)
    while sent_ns < until_ns:
        follower.fetch()
        now_ns = clock()
        latencies.append(now_ns - sent_ns)
        sent_ns = now_ns
    return latencies


if __name__ == "__main__":
    serve(measure)
