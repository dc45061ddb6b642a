"""A relay: one client socket, one broker socket, the session between them. It moves bytes and decides
nothing.

Reading goes into the reactor's shared buffer; the session judges it; what it says to send is sent with one
call. What a short send leaves over is kept here, and until it is gone neither side that could add to it is
read. Bytes the session has not consumed (a cut head, frames that wait out a throttle) are kept per direction
and put back in front of the next read.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, TypeAlias

import structlog

from proxy.reasons import CloseReason
from proxy.session.requests import Requests
from proxy.session.responses import Responses
from proxy.session.session import Session
from proxy.transport.poll import BROKEN, READ, WRITE
from proxy.transport.reactor import BUFFER_BYTES, Reactor, Timer
from proxy.transport.side import NOTHING, Side, Socket

log = structlog.get_logger("weir")

OnEnd: TypeAlias = Callable[["Relay", CloseReason, str], None]
"""Called once, when both sockets are closed: (relay, reason, detail for the log)."""

LINGER_MS: Final = 30_000
"""How long a client that has closed is kept for the answers to what it has asked: it may have closed only its
half, and a broker that hangs gives none.
"""
SEGMENTS_MAX: Final = 1024
"""Linux's IOV_MAX: what one sendmsg takes."""


class Relay:
    """Two connected sockets joined by a session, registered with a reactor until either ends."""

    __slots__ = (
        "_broker",
        "_calm",
        "_client",
        "_closed",
        "_linger_until_ms",
        "_on_end",
        "_reactor",
        "_timer",
        "_timer_ms",
        "session",
    )

    def __init__(
        self, reactor: Reactor, client: Socket, broker: Socket, session: Session, on_end: OnEnd
    ) -> None:
        """Take over both sockets, which must be connected and non-blocking, and start to relay."""
        self.session = session
        self._reactor = reactor
        self._client = Side(client, Requests(session).judge, CloseReason.CLIENT_RESET)
        self._broker = Side(broker, Responses(session).judge, CloseReason.BROKER_RESET)
        self._on_end = on_end
        self._calm = True
        """Both sides are read, nothing waits: the state in which nothing needs to be looked at."""
        self._closed = False
        self._linger_until_ms = 0
        self._timer: Timer | None = None
        self._timer_ms = 0
        session.on_wake = self._woken
        reactor.register(self._client.fd, READ, self._client_ready)
        reactor.register(self._broker.fd, READ, self._broker_ready)

    @property
    def received_bytes(self) -> tuple[int, int]:
        """What has come from the client, and from the broker."""
        return self._client.received_bytes, self._broker.received_bytes

    def drain(self) -> None:
        """Take no further request; close once what is under way has been answered."""
        self.session.draining = True
        self._settle()

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Close both sockets and say so, once."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for side in (self._client, self._broker):
            self._reactor.unregister(side.fd)
            side.sock.close()
            side.kept, side.own, side.unsent = b"", None, NOTHING
        self.session.end(self._reactor.now_ms)
        self._on_end(self, reason, detail)

    def _woken(self) -> None:
        """The session has something to send though nothing was read."""
        if self._closed:
            return
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001  # see _failed
            self._failed(error)
            return
        self._settle()

    # Readiness

    def _client_ready(self, events: int) -> None:
        client = self._client
        if events == READ and self._calm and not client.kept and not self.session.alone:
            self._pass_on(client)
        else:
            self._side_ready(client, events)

    def _broker_ready(self, events: int) -> None:
        broker = self._broker
        if events == READ and self._calm and not broker.kept:
            self._pass_on(broker)
        else:
            self._side_ready(broker, events)

    def _pass_on(self, side: Side) -> None:
        """What `_side_ready` does, for the usual case and in one go: nothing is kept, held back or unsent."""
        reactor, session = self._reactor, self.session
        try:
            count = side.recv_into(reactor.view)
            if not count:
                self._ended(side)
            else:
                side.received_bytes += count
                consumed = side.feed(reactor.buffer, reactor.view, count, reactor.now_ms)
                if consumed < count:
                    side.kept = bytes(reactor.view[consumed:count])
                if session.to_broker:
                    segments, session.to_broker = session.to_broker, []
                    self._send(self._broker, segments)
                if session.to_client:
                    segments, session.to_client = session.to_client, []
                    self._send(self._client, segments)
        except BlockingIOError:  # readiness that has gone by the time it is used
            return
        except OSError as error:
            self.close(side.reset, str(error))
            return
        except Exception as error:  # noqa: BLE001  # see _failed
            self._failed(error)
            return
        if session.attention or not self._calm:
            self._settle()

    def _side_ready(self, side: Side, events: int) -> None:
        try:
            if events & WRITE and side.unsent:
                self._send_more(side)
            if events & READ and side.interest & READ:
                if side is self._broker or (self._calm and not self.session.alone) or self._may_read_client():
                    self._read(side)
                else:
                    if not side.sock.recv(1, socket.MSG_PEEK):  # nothing waits: it need not, either
                        self._ended(side)
                    self._set_interest(side, read=False)
                    self._calm = False
            elif events & BROKEN:
                self.close(side.reset, "reset by peer")
                return
        except BlockingIOError:  # readiness that has gone by the time it is used
            return
        except OSError as error:
            self.close(side.reset, str(error))
            return
        except Exception as error:  # noqa: BLE001  # see _failed
            self._failed(error)
            return
        if self.session.attention or not self._calm:
            self._settle()

    def _failed(self, error: Exception) -> None:
        """A bug of ours, met in this session's bytes: the others must not suffer from it."""
        log.exception("internal error, the session is closed; please report this", exc_info=error)
        detail = (
            f"{type(error).__name__}: {error}"  # no repr: a UnicodeDecodeError's has all that was decoded
        )
        self.close(CloseReason.INTERNAL_ERROR, detail)

    def _read(self, side: Side) -> None:
        """Read once, judge, send."""
        kept = len(side.kept)
        buffer, view = self._buffer_for(side)
        count = side.sock.recv_into(view[kept:] if kept else view, self._room(side))
        if count:
            side.received_bytes += count
            self._judge(side, buffer, view, kept + count)
        else:
            self._ended(side)

    def _ended(self, side: Side) -> None:
        side.eof = True
        self._calm = False
        if side is self._client:
            self._linger_until_ms = self._reactor.now_ms + LINGER_MS

    def _room(self, side: Side) -> int:
        """How many bytes may be read; 0 for no limit.

        A blocked client may only finish the request it has begun.
        """
        if self._calm or side is self._broker or not self.session.blocked(self._reactor.now_ms):
            return 0
        return min(self.session.request_rest_bytes, BUFFER_BYTES)

    def _buffer_for(self, side: Side) -> tuple[bytearray, memoryview]:
        """Return a buffer that begins with what is kept and has room behind it.

        That is the shared one, but for a frame that must be whole to be rewritten and is larger: it grows in
        a buffer of its own, doubled when full, so that it is not copied with every read.
        """
        count = len(side.kept)
        if count < BUFFER_BYTES:
            if count:
                self._reactor.buffer[:count] = side.kept
            return self._reactor.buffer, self._reactor.view
        if side.own is None or count == len(side.own):
            side.own = bytearray(count * 2)
            side.own[:count] = side.kept
        return side.own, memoryview(side.own)

    def _judge(self, side: Side, buffer: bytearray, view: memoryview, end: int) -> None:
        """Let the session judge `buffer[:end]`; keep what it leaves, send what it says."""
        consumed = side.feed(buffer, view, end, self._reactor.now_ms)
        if buffer is side.own and not consumed:
            side.kept = view[:end]
        else:
            side.kept = bytes(view[consumed:end]) if consumed < end else b""
            side.own = None
        self._flush()

    def _flush(self) -> None:
        """Send what the session says is to be sent."""
        session = self.session
        if session.to_broker:
            segments, session.to_broker = session.to_broker, []
            self._send(self._broker, segments)
        if session.to_client:
            segments, session.to_client = session.to_client, []
            self._send(self._client, segments)

    def _send(self, side: Side, segments: list[memoryview | bytes]) -> None:
        """Send what was left unsent and all segments, with one call; keep what it leaves over."""
        if side.unsent:
            segments = [side.unsent, *segments]
        try:
            if len(segments) == 1:
                sent = side.send(segments[0])
                if sent == len(segments[0]):
                    return
            else:
                sent = side.sock.sendmsg(segments[:SEGMENTS_MAX])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(side.reset, str(error))
            return
        side.unsent = memoryview(b"".join(segments))[sent:]
        if side.unsent:
            self._calm = False

    def _send_more(self, side: Side) -> None:
        """Send more of what was left; it is not copied again, however often that takes."""
        sent = side.sock.send(side.unsent)  # not within the slice: mypyc would send twice
        side.unsent = side.unsent[sent:]

    # What to wait for

    def _settle(self) -> None:
        """Something is out of the ordinary: go on with what waited, close what has ended, wait for what is
        missing.
        """
        if self._closed:
            return
        self.session.attention = False
        try:
            self._resume(self._broker)  # first: its responses may be what the client's requests wait for
            self._resume(self._client)
        except Exception as error:  # noqa: BLE001  # see _failed
            self._failed(error)
        over = self._over()
        if over is not None:
            self.close(*over)
        elif not self._closed:
            self._set_interests()
            self._set_timer()

    def _resume(self, side: Side) -> None:
        """Judge what was kept, now that a throttle or a full socket may no longer hold it back."""
        if side.kept and not self._held_back(side):
            buffer, view = self._buffer_for(side)
            self._judge(side, buffer, view, len(side.kept))

    def _held_back(self, side: Side) -> bool:
        """Whether nothing from this side may be judged now."""
        if self._client.unsent:
            return True
        now_ms = self._reactor.now_ms
        if side is self._broker:
            return self.session.held_until_ms > now_ms
        return bool(self._broker.unsent) or self.session.blocked(now_ms)

    def _over(self) -> tuple[CloseReason, str] | None:
        """Return why the session is over, None while it is not."""
        client, broker, session = self._client, self._broker, self.session
        if session.violation is not None:
            return session.violation.reason, session.violation.detail
        if client.unsent or broker.unsent:
            return None
        if broker.eof and not (broker.kept and self._held_back(broker)):
            return CloseReason.BROKER_CLOSED, ""
        if client.eof and self._nothing_left_to_do():
            unanswered = len(session.in_flight)
            return CloseReason.CLIENT_CLOSED, f"{unanswered} requests unanswered" if unanswered else ""
        if session.draining and session.idle:
            return CloseReason.DRAINED, ""
        return None

    def _nothing_left_to_do(self) -> bool:
        """Whether a client that will send no more has had everything, or waited for long enough."""
        session, now_ms = self.session, self._reactor.now_ms
        if session.response_rest_bytes:
            self._linger_until_ms = now_ms + LINGER_MS
            return False
        if session.in_flight:
            return self._linger_until_ms <= now_ms and session.muted_until_ms <= now_ms
        return session.postponed or not (self._client.kept and self._held_back(self._client))

    def _set_interests(self) -> None:
        """Ask for readiness of exactly what could be used now.

        But for a client that may not go on: it is asked not to be read when it has something to read, which
        one that waits for its answers, or obeys its throttle, has not. That spares two calls per fetch.
        """
        client, broker = self._client, self._broker
        unsent = bool(client.unsent or broker.unsent)
        self._set_interest(client, read=not unsent and (self._may_read_client() or client.interest == READ))
        self._set_interest(broker, read=not self._held_back(broker))
        self._calm = client.interest == READ and broker.interest == READ and not self._held_back(client)

    def _may_read_client(self) -> bool:
        """Whether the client may go on, if only to the end of a request that it has begun."""
        if self._client.unsent or self._broker.unsent:
            return False
        session = self.session
        return session.request_rest_bytes > 0 or not session.blocked(self._reactor.now_ms)

    def _set_interest(self, side: Side, *, read: bool) -> None:
        interest = (READ if read and not side.eof else 0) | (WRITE if side.unsent else 0)
        if interest != side.interest:
            side.interest = interest
            self._reactor.modify(side.fd, interest)

    def _set_timer(self) -> None:
        """Be called when the session's next deadline has come."""
        now_ms = self._reactor.now_ms
        session = self.session
        times = (session.muted_until_ms, session.held_until_ms, self._linger_until_ms)
        deadlines = [time_ms for time_ms in times if time_ms > now_ms]
        deadline_ms = min(deadlines, default=0)
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._reactor.call_at(deadline_ms, self._due) if deadline_ms else None

    def _due(self) -> None:
        self._timer, self._timer_ms = None, 0
        self._settle()
