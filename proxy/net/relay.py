"""A relay: a client socket, a broker socket, and the connection between them. It moves bytes and decides
nothing.

The relay reads into the reactor's shared buffer, passes the bytes to the connection, and sends the bytes that
the connection hands out. It keeps bytes that a socket did not accept, and per side the bytes that the
connection has not consumed; these are put in front of the next read. The connection decides which sockets to
read, when to come back and when to close: its `Effects` say so.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, TypeAlias

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.effects import ENDED, NOTHING, SENDING, UNLIMITED
from weir.proxy.net.latency import SAMPLE
from weir.proxy.net.lingering import Lingering, close_slowly, unread_bytes
from weir.proxy.net.poll import BROKEN, LEFT, READ, WRITE
from weir.proxy.net.reactor import BUFFER_BYTES, Reactor, Timer
from weir.proxy.net.side import RelaySide, Socket
from weir.proxy.net.splicing import SPLICED_BYTES_MIN, NoPipeError, TargetError

OnEnd: TypeAlias = Callable[["Relay", CloseReason, str], None]
"""Function that is called once, when both sockets are closed: (relay, close reason, detail for the log)."""

DELIVERING: Final = frozenset(
    {
        CloseReason.DRAINED,
        CloseReason.DRAIN_TIMEOUT,
        CloseReason.CONNECTION_AGE,
    }
)
"""Reasons for which Weir itself ends a connection while its client may still send. The client's socket then
stays open for a moment, so that responses on their way are not lost.
"""
HEADS_BYTES: Final = 4096
"""Number of bytes by which a new buffer for a large frame is larger than twice the bytes read so far: room
for the frame's header.
"""
SEGMENTS_MAX: Final = 1024
"""Linux's IOV_MAX: the largest number of segments that one sendmsg takes."""


class Relay:
    """Two sockets joined by a connection, registered with a reactor until either ends."""

    __slots__ = (
        "_broker",
        "_calm",
        "_client",
        "_closed",
        "_on_end",
        "_reactor",
        "_resumes",
        "_sampled_api_key",
        "_sampled_us",
        "_splices",
        "_timer",
        "_timer_ms",
        "_until_sample",
        "connection",
        "held_bytes",
        "lingering",
        "unforwarded_bytes",
    )

    def __init__(
        self, reactor: Reactor, client: Socket, broker: Socket, connection: Connection, on_end: OnEnd
    ) -> None:
        """Take over both sockets, which must be connected and non-blocking, and start relaying."""
        self.connection = connection
        self._reactor = reactor
        self._client = RelaySide(client, CloseReason.CLIENT_RESET)
        self._broker = RelaySide(broker, CloseReason.BROKER_RESET)
        self._splices = isinstance(client, socket.socket) and isinstance(broker, socket.socket)
        connection.start(self._client, self._broker, self._woken)
        self._on_end = on_end
        self._calm = True
        """True if nothing slows the relay down: both sockets are read, no output is unsent, all relays
        together
        hold fewer bytes than their limit, and bytes are kept only because a header is incomplete. Then
        `_obey` is called only if the connection demands a change.
        """
        self._closed = False
        self._resumes = False
        """True if the reactor will call `_resume` in a later turn."""
        self._until_sample = 1
        """Number of reads from the client up to the next one that is measured."""
        self._sampled_us = 0
        """Time (µs) at which a measured request was sent to the broker; 0 if none waits for its answer."""
        self._sampled_api_key = -1
        self.lingering: Lingering | None = None
        """The client's socket, if it stays open for a moment after the relay has ended; else None."""
        self.unforwarded_bytes = 0
        """Number of bytes that the client had sent and Weir had not forwarded when Weir ended the connection.
        Most of these bytes are still in the kernel.
        """
        self._timer: Timer | None = None
        self._timer_ms = 0
        self.held_bytes = 0
        """Number of bytes that both sides keep or have not sent. `Reactor.buffered` adds these numbers up for
        all relays.
        """
        if reactor.buffered.full:
            self.slow_down()
        reactor.buffered.relays.add(self)
        reactor.register(self._client.fd, READ, self._client_ready, self._failed)
        reactor.register(self._broker.fd, READ, self._broker_ready, self._failed)

    @property
    def received_bytes(self) -> tuple[int, int]:
        """Number of bytes received from the client, and from the broker."""
        return self._client.received_bytes, self._broker.received_bytes

    def drain(self, reason: CloseReason = CloseReason.DRAINED) -> None:
        """Read no more requests; close for this reason when those that were read have been answered."""
        if not self._closed:
            self._reactor.set_clock()  # requests that go on now are charged now
            self.connection.drain(reason)
            self._reactor.run(self._obey, self._failed)

    def end_wait(self, until_ms: int) -> bool:
        """Let the client go on at `until_ms` (ms), if a quota's throttle would end later; return True if
        so.
        """
        if self._closed or not self.connection.end_wait(until_ms):
            return False
        self._reactor.set_clock()
        self._reactor.run(self._obey, self._failed)
        return True

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Close both sockets and report the end, once. A client may get a moment to receive its responses
        (`lingering`).
        """
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        client = self._client
        if reason in DELIVERING or reason is CloseReason.STOPPED:
            self.unforwarded_bytes = len(client.kept) + unread_bytes(client.fd)
        for side in (client, self._broker):
            self._reactor.unregister(side.fd)
            if side is client and reason in DELIVERING:
                self.lingering = close_slowly(self._reactor, side.sock)
            else:
                side.sock.close()
            side.kept, side.own, side.unsent = b"", None, NOTHING
        self._reactor.buffered.leave(self)
        self.connection.end(self._reactor.now_ms)
        self._on_end(self, reason, detail)

    def slow_down(self) -> None:
        """Ask `Reactor.buffered` before each read from a socket, because all relays together hold too many
        bytes.
        """
        self._calm = False

    def resume(self) -> None:
        """Read from both sockets again: the bytes that all relays hold are below the limit, or this relay
        holds most of them.
        """
        self._reactor.run(self._obey, self._failed)

    # Events. The reactor guards them: a bug ends in `_failed`

    def _client_ready(self, events: int) -> None:
        client = self._client
        if (
            events == READ
            and self._calm
            and not client.kept
            and self.connection.effects.room_bytes == UNLIMITED
        ):
            if client.rest_bytes >= SPLICED_BYTES_MIN and self._spliced(client, self._broker):
                return
            self._until_sample -= 1
            if self._until_sample > 0:
                self._pass_on(client)
            else:
                self._pass_on_measured(client)
        else:
            self._slowly_ready(client, events)

    def _broker_ready(self, events: int) -> None:
        broker = self._broker
        if self._sampled_us:
            self._note_answer()
        if events == READ and self._calm and not broker.kept:
            if broker.rest_bytes >= SPLICED_BYTES_MIN and self._spliced(broker, self._client):
                return
            self._pass_on(broker)
        else:
            self._slowly_ready(broker, events)

    def _pass_on_measured(self, client: RelaySide) -> None:
        """Pass on the client's bytes. If they are one request, and no other is in flight, measure the time
        until it was sent, and later the time of the broker's answer. Otherwise try again with the next bytes.
        """
        connection, reactor = self.connection, self._reactor
        was_idle = connection.idle
        self._pass_on(client)
        api_key = connection.asked_api_key
        if was_idle and api_key >= 0 and not self._broker.unsent:
            now_us = reactor.present_us()
            reactor.latencies.forward.note(now_us - reactor.clock.now_us)
            self._sampled_us, self._sampled_api_key, self._until_sample = now_us, api_key, SAMPLE

    def _note_answer(self) -> None:
        """Measure the time after which the broker has answered the measured request."""
        waited_us = max(self._reactor.clock.now_us - self._sampled_us, 0)
        self._sampled_us = 0
        self._reactor.latencies.note_answer(self._sampled_api_key, waited_us)

    def _woken(self) -> None:
        """Send bytes that the connection has produced by itself, such as a response of Weir's own, and not
        from bytes that were read now.
        """
        if not self._closed:
            self._reactor.run(self._flush_woken, self._failed)

    def _slowly_ready(self, side: RelaySide, events: int) -> None:
        """Handle the events of a side's socket that `_pass_on` cannot: room to send, errors, or reading while
        bytes are kept or unsent. An error of the socket closes the relay.
        """
        try:
            self._side_ready(side, events)
        except BlockingIOError:  # no longer ready
            return
        except OSError as error:
            self.close(side.reset, str(error))
            return
        if self.connection.effects.changed or not self._calm:
            self._obey()

    def _failed(self, error: Exception) -> None:
        """Close the relay because a callback raised an exception: a bug in Weir."""
        detail = f"{type(error).__name__}: {error}"  # no repr: a UnicodeDecodeError's contains all the bytes
        self.close(CloseReason.INTERNAL_ERROR, detail)

    def _pass_on(self, side: RelaySide) -> None:
        """Read from one socket, pass the bytes to the connection, and send its output: the common case, in
        which no bytes were kept or left unsent before.
        """
        reactor, effects = self._reactor, self.connection.effects
        try:
            count = side.recv_into(reactor.view, side.read_bytes or reactor.read_bytes_max)
            side.read_bytes = 0
            if not count:
                self._ended(side)
            else:
                side.received_bytes += count
                consumed = self.connection.receive(side, reactor.buffer, reactor.view, count, reactor.now_ms)
                if consumed < count:
                    side.kept = bytes(reactor.view[consumed:count])
                    self._hold()
                if effects.to_broker:
                    segments, effects.to_broker = effects.to_broker, []
                    self._send(self._broker, segments)
                if effects.to_client:
                    segments, effects.to_client = effects.to_client, []
                    self._send(self._client, segments)
        except BlockingIOError:  # no longer ready
            return
        except OSError as error:
            self.close(side.reset, str(error))
            return
        if effects.changed or not self._calm:
            self._obey()

    def _spliced(self, side: RelaySide, other: RelaySide) -> bool:
        """Pass on bytes of a large frame within the kernel. Return False if somebody must see them."""
        reactor, connection = self._reactor, self.connection
        if not self._splices or reactor.read_bytes_max or not reactor.splicer.works:
            return False
        passable = connection.passable_bytes(side)
        if passable < SPLICED_BYTES_MIN:
            return False
        try:
            count, unsent = reactor.splicer.move(side.fd, other.fd, passable)
        except BlockingIOError:
            return reactor.splicer.works
        except NoPipeError:
            return False
        except TargetError as broken:
            self.close(other.reset, str(broken))
            return True
        except OSError as error:
            self.close(side.reset, str(error))
            return True
        if count:
            side.received_bytes += count
            if unsent:
                self._keep_unsent(other, unsent, 0)
            connection.passed(side, count, reactor.now_ms)
            self._flush()
            if count == passable:
                self._read_behind(side)
        else:
            self._ended(side)
        if connection.effects.changed or not self._calm:
            self._obey()
        return True

    def _read_behind(self, side: RelaySide) -> None:
        """Read few bytes at once behind spliced ones: the end of the frame, if it has not ended, and then the
        beginning of the next frame, which is likely to be large too.
        """
        side.read_bytes = side.first_bytes
        if side.rest_bytes and self._calm and not self._closed:
            self._pass_on(side)
            side.read_bytes = side.first_bytes

    def _side_ready(self, side: RelaySide, events: int) -> None:
        if events & WRITE and side.unsent:
            sent = side.sock.send(side.unsent)  # not within the slice: mypyc would send twice
            side.unsent = side.unsent[sent:]
            if not side.unsent:
                side.unsent_bytes = 0
                self._hold()
        if events & READ and side.interest & READ:
            if self._may_read(side):
                if side is self._broker or self.connection.wake(self._reactor.now_ms).read_client:
                    self._read(side)
                    return
                if not side.sock.recv(1, socket.MSG_PEEK):
                    self._ended(side)
            self._set_interest(side, read=False)
            self._calm = False
        elif events & BROKEN:
            self.close(side.reset, "reset by peer")
        elif events & LEFT:
            self._left(side)

    def _read(self, side: RelaySide) -> None:
        """Read from one socket behind the kept bytes, pass all bytes to the connection, and send its
        output.
        """
        kept = len(side.kept)
        buffer, view = self._buffer_for(side)
        room = 0
        if side is self._client:
            room = min(self.connection.effects.room_bytes, len(view) - kept)
            if not room:
                self._present(side)
                return
            room = min(room, self._reactor.read_bytes_max or room)
        count = side.recv_into(view[kept:] if kept else view, room)
        if count:
            side.received_bytes += count
            self._receive(side, buffer, view, kept + count)
        else:
            self._ended(side)

    def _ended(self, side: RelaySide) -> None:
        self._left(side)
        side.half = ENDED

    def _left(self, side: RelaySide) -> None:
        self._calm = False
        self.connection.leave(side)

    def _buffer_for(self, side: RelaySide) -> tuple[bytearray, memoryview]:
        """Return a buffer that begins with the side's kept bytes and has room behind them.

        That is the shared buffer, except for a larger frame that must be complete to be rewritten. Such a
        frame grows in a buffer of its own, which doubles when full, so that reads do not copy it each time.
        """
        count = len(side.kept)
        if count < BUFFER_BYTES:
            if count:
                self._reactor.buffer[:count] = side.kept
            return self._reactor.buffer, self._reactor.view
        if side.own is None or count == len(side.own):
            side.own = bytearray(count * 2 + HEADS_BYTES)
            side.own[:count] = side.kept
        return side.own, memoryview(side.own)

    def _receive(self, side: RelaySide, buffer: bytearray, view: memoryview, end: int) -> None:
        """Pass `buffer[:end]` to the connection; keep the bytes that it does not consume, and send its
        output.
        """
        consumed = self.connection.receive(side, buffer, view, end, self._reactor.now_ms)
        if buffer is side.own and not consumed:
            side.kept = view[:end]
        else:
            side.kept = bytes(view[consumed:end]) if consumed < end else b""
            side.own = None
        if side.kept or self.held_bytes:
            self._hold()
        self._flush()

    def _keep(self, side: RelaySide, data: bytearray) -> None:
        """Keep bytes that were read from this side behind those that are kept already."""
        side.received_bytes += len(data)
        side.kept, side.own = b"".join((side.kept, data)), None
        self._hold()

    def _flush_woken(self) -> None:
        self._flush()
        self.connection.effects.change()
        self._obey()

    def _flush(self) -> None:
        """Send the bytes that the connection has put into `effects.to_broker` and `effects.to_client`."""
        effects = self.connection.effects
        if effects.to_broker:
            segments, effects.to_broker = effects.to_broker, []
            self._send(self._broker, segments)
        if effects.to_client:
            segments, effects.to_client = effects.to_client, []
            self._send(self._client, segments)

    def _send(self, side: RelaySide, segments: list[memoryview | bytes]) -> None:
        """Send the bytes left unsent before and these segments with one call; keep the bytes that the socket
        does not accept.
        """
        if side.unsent:
            segments = [side.unsent, *segments]
        try:
            if len(segments) == 1:
                sent = side.send(segments[0])
                if sent == len(segments[0]):
                    return
            else:
                sent = side.sock.sendmsg(segments[:SEGMENTS_MAX])
                if sent == sum(map(len, segments)):
                    if side.unsent:
                        side.unsent, side.unsent_bytes = NOTHING, 0
                        self._hold()
                    return
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(side.reset, str(error))
            return
        self._keep_unsent(side, b"".join(segments), sent)

    def _keep_unsent(self, side: RelaySide, whole: bytes, sent: int) -> None:
        """Keep these bytes until the socket has room, except for the first ones, which were sent."""
        side.unsent, side.unsent_bytes = memoryview(whole)[sent:], len(whole)
        self._calm = False
        self._hold()

    # The process's limit

    def _hold(self) -> None:
        """Update `held_bytes`, and report the change to `Reactor.buffered`, which limits the bytes that all
        relays hold.
        """
        if self._closed:
            return
        held = self._client.held_bytes + self._broker.held_bytes
        change, self.held_bytes = held - self.held_bytes, held
        if change:
            self._reactor.buffered.change(self, change)

    def _may_read(self, side: RelaySide) -> bool:
        """Return True if the limit of `Reactor.buffered` allows reading from this side."""
        buffered = self._reactor.buffered
        return not buffered.full or buffered.may_read(self, client=side is self._client)

    # Effects

    def _obey(self) -> None:
        """Pass kept bytes to the connection, then carry out what the connection demands: close, choose the
        sockets to read, set the timer.
        """
        if self._closed:
            return
        connection, now_ms = self.connection, self._reactor.now_ms
        effects = connection.wake(now_ms)
        self._flush()
        # The broker first: its responses may be what the client's requests wait for.
        if self._broker.kept and effects.read_broker:
            self._present(self._broker)
            connection.wake(now_ms)
        if self._client.kept and effects.read_client:
            self._present(self._client)
        effects = connection.settle(now_ms)
        if effects.close_reason is not None:
            self.close(effects.close_reason, effects.close_detail)
            return
        # A client that may not go on is muted only once it has sent something. A client that waits for its
        # responses, or obeys its throttle, sends nothing: that saves two system calls per fetch.
        client, broker = self._client, self._broker
        unsent = bool(client.unsent or broker.unsent)
        read_client = effects.read_client or (client.interest == READ and not unsent)
        read_broker = effects.read_broker
        full = self._reactor.buffered.full
        if full:
            read_client = read_client and self._may_read(client)
            read_broker = read_broker and self._may_read(broker)
        self._set_interest(client, read=read_client)
        self._set_interest(broker, read=read_broker)
        self._calm = (
            client.interest == READ == broker.interest
            and (effects.read_client or not client.kept)
            and not full
        )
        self._set_timer(effects.deadline_ms)
        if effects.again and not self._resumes:
            self._resumes = True
            self._reactor.later(self._resume, self._failed)

    def _resume(self) -> None:
        """Process the frames that were kept because the connection had reached its limit of frames for one
        turn.
        """
        self._resumes = False
        self._obey()

    def _present(self, side: RelaySide) -> None:
        """Pass the kept bytes of this side to the connection again."""
        buffer, view = self._buffer_for(side)
        self._receive(side, buffer, view, len(side.kept))

    def _set_interest(self, side: RelaySide, *, read: bool) -> None:
        interest = WRITE if side.unsent else 0
        if read and side.half != ENDED:
            interest |= READ
        elif side.half == SENDING:
            interest |= LEFT
        if interest != side.interest:
            side.interest = interest
            self._reactor.modify(side.fd, interest)

    def _set_timer(self, deadline_ms: int) -> None:
        """Set the timer to the connection's next deadline (ms); 0 for no deadline."""
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._reactor.call_at(deadline_ms, self._due, self._failed) if deadline_ms else None

    def _due(self) -> None:
        self._timer, self._timer_ms = None, 0
        self._obey()
