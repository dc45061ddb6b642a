"""Playbooks: what happens to a connection, line by line, and what it does about it.

    with Playbook(quota_table(produce=1000)) as play:
        play.at(0).forwards(request)
        play.muted_until(2204)
        play.at(5).returns(response, told=throttled(response, 2199))

Each event must be followed by all that comes of it: bytes that go on, a mute, a violation, the close.
Whatever was not asserted before the next event, or the end, fails the test. So does a playbook in which
nothing happens, and a connection whose deadline or close a relay would not learn of.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.proxy.wire import FIRST_HOLD_MS, Wire, new_connection
from tests.wire.frames import told
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.state import State
from weir.quotas import QuotaTable


class Playbook:
    def __init__(
        self,
        table: QuotaTable | None = None,
        *,
        connection: Connection | None = None,
        in_flight_max: int = 1000,
        buffer_bytes: int = 256 * 1024,
        first_hold_ms_max: int = FIRST_HOLD_MS,
    ) -> None:
        """Quotas for a new connection, or a connection."""
        self.connection = connection or new_connection(
            table, in_flight_max=in_flight_max, buffer_bytes=buffer_bytes, first_hold_ms_max=first_hold_ms_max
        )
        self.wire = Wire(self.connection)
        self.now_ms = 0
        self._events = 0
        self._muted_until_ms = 0
        self._closed_for: CloseReason | None = None

    # Events

    def at(self, now_ms: int) -> Self:
        """It is now this late; what waited for it happens."""
        assert now_ms >= self.now_ms, "a playbook's time does not go back"
        self._nothing_left()
        self.now_ms = now_ms
        self.wire.feed(now_ms)
        return self

    def client(self, *frames: bytes) -> None:
        self._begin()
        self.wire.feed(self.now_ms, client=b"".join(frames))

    def broker(self, *frames: bytes) -> None:
        self._begin()
        self.wire.feed(self.now_ms, broker=b"".join(frames))

    def client_ends(self, *frames: bytes) -> None:
        self._begin()
        self.wire.feed(self.now_ms, client=b"".join(frames))
        self.wire.client_ends()

    def broker_ends(self, *frames: bytes) -> None:
        self._begin()
        self.wire.feed(self.now_ms, broker=b"".join(frames))
        self.wire.broker_ends()

    def wake(self, event: Callable[[], None]) -> None:
        """Something happens elsewhere: a response that was being prepared is ready."""
        self._begin()
        self.wire.wake(self.now_ms, event)

    def tick(self) -> int:
        """The connection's deadline has come; return when that is."""
        deadline_ms = self.wire.obey(self.now_ms).deadline_ms
        assert deadline_ms > self.now_ms, "the connection has no deadline"
        self.at(deadline_ms)
        self._events += 1
        return deadline_ms

    def drain(self, reason: CloseReason = CloseReason.DRAINED) -> None:
        """The process ends, which lifts all waits; or this connection does, for another reason."""
        self._begin()
        self.connection.drain(reason)
        if reason is CloseReason.DRAINED:
            self._muted_until_ms = 0
        self.wire.feed(self.now_ms)

    # What comes of them

    def to_broker(self, *frames: bytes) -> None:
        """These bytes, and no others, have gone to the broker since the last event."""
        self._same("broker", self.wire.to_broker, b"".join(frames))

    def to_client(self, *frames: bytes) -> None:
        """These bytes, and no others, have gone to the client since the last event."""
        self._same("client", self.wire.to_client, b"".join(frames))

    def muted_until(self, until_ms: int) -> None:
        assert self.connection.throttled_until_ms == until_ms
        self._muted_until_ms = until_ms

    def violation(self, reason: CloseReason, *, saying: str = "") -> None:
        effects = self.connection.effects
        assert effects.close_reason is reason, (effects.close_reason, effects.close_detail)
        assert saying in effects.close_detail
        self._closed_for = reason

    def closed(self, reason: CloseReason, *, saying: str = "") -> None:
        effects = self.wire.obey(self.now_ms)
        assert (effects.close_reason, effects.close_detail) == (reason, saying)
        self._closed_for = reason

    def waits(self, state: State) -> None:
        assert State(self.connection.state) is state

    def silent(self) -> None:
        self._nothing_left()

    # Both at once

    def forwards(self, *frames: bytes) -> None:
        self.client(*frames)
        self.to_broker(*frames)

    def returns(self, *frames: bytes, told: bytes | None = None) -> None:
        """The broker sends, and the client gets the same bytes, or `told`."""
        self.broker(*frames)
        self.to_client(*(frames if told is None else (told,)))

    def relays(self, asked: bytes, answered: bytes, *, told: bytes | None = None) -> None:
        self.forwards(asked)
        self.returns(answered, told=told)

    # Bookkeeping

    def _begin(self) -> None:
        self._nothing_left()
        self._events += 1

    def _same(self, peer: str, out: bytearray, expected: bytes) -> None:
        got = bytes(out)
        assert got == expected, f"to the {peer} went {told(got)}, expected {told(expected)}"
        out.clear()

    def _nothing_left(self) -> None:
        wire, connection = self.wire, self.connection
        assert not wire.to_broker, f"not asserted: to the broker went {told(bytes(wire.to_broker))}"
        assert not wire.to_client, f"not asserted: to the client went {told(bytes(wire.to_client))}"
        assert connection.throttled_until_ms == self._muted_until_ms, (
            f"not asserted: muted until {connection.throttled_until_ms}"
        )
        reason = wire.closed(self.now_ms)
        assert reason is self._closed_for, f"not asserted: closed for {reason}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing may be left, unless the playbook has failed already."""
        if kind is None:
            assert self._events, "a playbook without events"
            self._nothing_left()
