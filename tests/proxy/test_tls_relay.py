"""TLS relays under every kind of chunking: what arrives is what a plain relay delivers, and in its order."""

from __future__ import annotations

import itertools
import socket
import ssl
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proxy.rigs import Rig, unix_pair
from tests.proxy.tls_rigs import secured
from tests.proxy.wire import quota_table
from tests.wire.frames import padded
from tests.wire.messages import ping, pong, produce, produced
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.poll import READ, WRITE
from weir.proxy.net.reactor import BUFFER_BYTES
from weir.proxy.net.tls_socket import RECORD_BYTES, TlsSocket
from weir.quotas import QuotaKey

SIDES: Final = [("client",), ("broker",), ("client", "broker")]
DAY_MS: Final = 86_400_000


def small_pair() -> tuple[socket.socket, socket.socket]:
    pair = unix_pair()
    for sock in pair:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    return pair


class Conversation:
    """Produce requests through a relay, some larger than every buffer, and the answer to each once it is
    here.
    """

    def __init__(self, rig: Rig, sizes: list[int]) -> None:
        self.rig = rig
        frames = [produce(number, size) for number, size in enumerate(sizes)]
        self.asked = b"".join(frames)
        self.answers = [produced(number) for number in range(len(sizes))]
        self.ends = list(itertools.accumulate(map(len, frames)))
        self.requests, self.responses = self.asked, b""
        """What is still to be sent."""
        self.answered = 0
        self.at_broker, self.at_client = bytearray(), bytearray()

    def send(self, what: str, count: int | None = None) -> None:
        """Send so many bytes of `requests` or `responses`."""
        data: bytes = getattr(self, what)
        count = len(data) if count is None else count
        sock = self.rig.client if what == "requests" else self.rig.broker
        if data:
            setattr(self, what, self.rig.send(sock, data[:count]) + data[count:])

    def read_at_broker(self) -> None:
        self.at_broker += self.rig.take(self.rig.broker)
        while self.answered < len(self.ends) and self.ends[self.answered] <= len(self.at_broker):
            self.responses += self.answers[self.answered]
            self.answered += 1

    def read_at_client(self) -> None:
        self.at_client += self.rig.take(self.rig.client)

    def step(self, what: str, count: int) -> None:
        """Do one of the things that may happen in any order."""
        if what in ("requests", "responses"):
            self.send(what, count)
        elif what == "turn":
            self.rig.turn(count % 4)
        else:
            getattr(self, what)()

    def finish(self) -> None:
        """Let everything arrive. Time passes in large steps once nothing moves any more: mutes end."""
        idle = 0
        while idle < 30:
            before = self._state()
            self.send("requests")
            self.rig.turn()
            self.read_at_broker()
            self.send("responses")
            self.rig.turn()
            self.read_at_client()
            idle = 0 if self._state() != before else idle + 1
            if idle and idle % 10 == 0:
                self.rig.until(self.rig.clock.now_ms + DAY_MS)

    def _state(self) -> tuple[int, ...]:
        return len(self.requests), len(self.responses), len(self.at_broker), len(self.at_client)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["requests", "responses", "read_at_broker", "read_at_client", "turn"]),
        st.sampled_from([1, 5, 100, 4096, RECORD_BYTES, RECORD_BYTES + 1, 100_000, 600_000]),
    ),
    max_size=40,
)


@pytest.mark.parametrize("sides", SIDES, ids="+".join)
@given(
    sizes=st.lists(
        st.sampled_from([100, 1000, RECORD_BYTES, 70_000, BUFFER_BYTES, BUFFER_BYTES + 5, 600_000]),
        min_size=1,
        max_size=5,
    ),
    steps=STEPS,
    small=st.booleans(),
    muted=st.booleans(),
)
@settings(max_examples=7)
def test_a_tls_relay_passes_every_byte_in_order(
    sides: tuple[str, ...], sizes: list[int], steps: list[tuple[str, int]], small: bool, muted: bool
) -> None:
    table = quota_table(produce=1000) if muted else None
    delivered = []
    for tls in ((), sides):
        rig = Rig(table, pair=small_pair if small else unix_pair, tls=tls)
        talk = Conversation(rig, sizes)
        try:
            for step in steps:
                talk.step(*step)
            talk.finish()
            assert rig.ends == []
        finally:
            rig.close()
        assert talk.at_broker == talk.asked
        delivered.append(unthrottled(bytes(talk.at_client)))
    assert delivered[0] == delivered[1] == b"".join(talk.answers)


def unthrottled(answers: bytes) -> bytes:
    """Without the throttle times, which depend on when a request was whole."""
    length = len(produced())
    return b"".join(
        answers[start : start + length - 4] + bytes(4) for start in range(0, len(answers), length)
    )


def test_decrypted_bytes_are_read_without_another_poll() -> None:
    """One record holds a request and half of another; a mute begins between them."""
    rig = Rig(quota_table(produce=1000), pair=roomy_pair, tls=("client",))
    rig.client.tls.send(produce(1)[:-50])
    rig.turn(2)
    rig.connection.mute(5000, QuotaKey.PRODUCER_BYTE_RATE)
    rig.relay._obey()
    rig.client.tls.send(produce(1)[-50:] + ping(2))
    rig.turn(5)
    assert rig.take(rig.broker) == produce(1)
    assert not rig.relay._client.interest & READ
    rig.until(DAY_MS)
    assert rig.take(rig.broker) == ping(2)
    assert rig.reactor.timeout_s() is None
    rig.close()


def test_a_tls_relay_fills_its_buffer_from_many_records_in_one_turn() -> None:
    rig = Rig(tls=("broker",), pair=roomy_pair)
    rig.pass_on(ping(1), rig.client, rig.broker)
    assert not rig.send(rig.broker, padded(pong(1), 150_000))
    before = rig.relay.received_bytes[1]
    rig.turn()
    assert rig.relay.received_bytes[1] - before == len(padded(pong(1), 150_000))
    rig.close()


def roomy_pair() -> tuple[socket.socket, socket.socket]:
    """What is sent here can be read at once, which is not so of TCP on a busy machine."""
    pair = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 212_992)  # the most that Linux gives by default
    return pair


def test_a_tls_end_read_together_with_data_is_kept() -> None:
    """A full record, then close_notify, and no FIN: nothing is left for a poll to report."""
    far, near = secured(roomy_pair(), server=True)
    far.tls.send(b"x" * RECORD_BYTES)
    far.shutdown(socket.SHUT_WR)
    view = memoryview(bytearray(BUFFER_BYTES))
    assert near.recv_into(view) == RECORD_BYTES
    assert near.waiting()
    assert near.recv_into(view) == 0
    far.close()
    near.close()


def test_a_peeked_tls_byte_is_read_later() -> None:
    far, near = secured(unix_pair(), server=True)
    with pytest.raises(BlockingIOError):
        near.recv(1, socket.MSG_PEEK)
    far.send(b"abc")
    assert near.recv(1, socket.MSG_PEEK) == near.recv(1, socket.MSG_PEEK) == b"a"
    assert near.waiting()
    view = memoryview(bytearray(10))
    assert near.recv_into(view, 2) == 2
    assert near.recv_into(view[2:]) == 1
    assert bytes(view[:3]) == b"abc"
    far.close()
    assert near.recv(1, socket.MSG_PEEK) == b""
    near.close()


class Stalling:
    """A TLS connection whose reads need to send first while it is stalled."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.stalled = True
        self.reads = 0

    def recv_into(self, buffer: memoryview, nbytes: int) -> int:
        self.reads += 1
        if self.stalled:
            raise ssl.SSLWantWriteError
        return self._sock.recv_into(buffer, nbytes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


def test_a_tls_read_that_must_write_waits_until_the_socket_is_writable() -> None:
    rig = Rig(tls=("client",))
    (entry,) = rig.relay._tls_sides  # type: ignore[attr-defined]  # it is a TlsRelay
    side, sock = entry
    stalling = Stalling(sock._sock)
    tls_socket = TlsSocket(stalling, str)  # type: ignore[arg-type]  # it has the methods that are called
    side.sock, side.recv_into = tls_socket, tls_socket.recv_into
    rig.relay._tls_sides = [(side, tls_socket)]  # type: ignore[attr-defined]  # likewise
    rig.send(rig.client, ping(1))
    rig.reactor.turn(0)
    assert side.interest == WRITE
    rig.turn(5)
    assert stalling.reads == 1, "the session tickets fill the small buffer: nothing can be sent"
    stalling.stalled = False
    rig.take(rig.client)
    rig.turn(2)
    assert rig.take(rig.broker) == ping(1)
    assert side.interest == READ
    rig.close()


def test_a_tls_send_after_the_peer_closed_is_an_error_with_text() -> None:
    far, near = secured(unix_pair(), server=True)
    far.tls.close()
    with pytest.raises(OSError, match=r"EOF|pipe|reset"):
        near.send(b"x")
    near.close()


def test_a_drain_forwards_what_the_tls_library_has_decrypted_of_a_throttled_client() -> None:
    """To see whether a muted client has left, Weir takes a record from the kernel."""
    rig = Rig(quota_table(produce=1000), tls=("client",))
    asked = [produce(number, size, acks=0) for number, size in ((1, 12_106), (2, 1000), (3, 1000))]
    rig.pass_on(asked[0], rig.client, rig.broker)
    rig.send(rig.client, asked[1])
    rig.turn(4)
    rig.send(rig.client, asked[2])
    rig.relay.drain()
    rig.expect(rig.broker, asked[1])
    assert rig.end() is CloseReason.DRAINED
    assert rig.relay.unforwarded_bytes > len(asked[2]), "it is encrypted"
    rig.close()
