"""The messages between the supervisor and its workers, and the link that carries them.

Quota tables and alterations are pickled. Both ends are processes of one program, and nobody else can write to
the link, which is a pair of connected sockets without a name.
"""

from __future__ import annotations

import array
import copyreg
import errno
import os
import pickle
import socket
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import msgspec
import trio

from weir.proxy.config.settings import Settings
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.records import Connections
from weir.proxy.net.tls.contexts import FileContents
from weir.proxy.workers.charges import Charge
from weir.proxy.workers.counts import Counts
from weir.quotas import Entity
from weir.quotas.costs.request_costs import Overrides
from weir.usage import TraceRecord, UsageRecord

PIECE_BYTES: Final = 64 * 1024
"""Maximum size (bytes) of a packet; a longer message is sent in several packets."""
RETRY_S: Final = 0.05
"""Time (s) until a packet is sent again for which the kernel had no memory, or too many sockets in flight."""
_TRANSIENT: Final = frozenset({errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS})
_LAST, _MORE = b"\1", b"\0"
"""First byte of a packet: whether it is the last one of its message."""


def _reduced(entity: Entity) -> tuple[type[Entity], tuple[object, ...]]:
    return Entity, (entity.user, entity.client_id, entity.ip, entity.topic)


copyreg.pickle(Entity, _reduced)  # a frozen class that mypyc has compiled cannot be unpickled otherwise


class Start(msgspec.Struct, tag=True, frozen=True):
    """The first message to a worker."""

    settings: Settings
    costs: Overrides
    """Request costs that the supervisor has read from `request_costs`."""
    tls: list[FileContents | None]
    """Files in force of each context of `TlsRules.files`; None for a context to make of the present files."""
    connections: int
    """Number of the worker's first connection, minus one. No two processes have connections of one number."""


class Quotas(msgspec.Struct, tag=True, frozen=True):
    """The quota table in force."""

    pickled: bytes
    in_shadow: bool
    """True if every entry is a shadow entry."""


class Brokers(msgspec.Struct, tag=True, frozen=True):
    """Known brokers: (node id, host, port)."""

    brokers: list[tuple[int, str, int]]


class Client(msgspec.Struct, tag=True, frozen=True):
    """An accepted client, whose socket comes with the message."""

    node_id: int | None
    """Node id of the broker; None for any broker."""
    bootstrap: bool
    """True if the bootstrap listener has accepted the client."""
    host: str
    port: int
    """Address of the client."""


class Charges(msgspec.Struct, tag=True, frozen=True):
    """Units that clients have used at another process."""

    charges: list[Charge]


class OthersUsed(msgspec.Struct, tag=True, frozen=True):
    """Units that clients of other Weirs have used."""

    charges: list[tuple[int, list[tuple[int, float]]]]
    """(Number of the limiter, [(age in ms, units)]). Units of request time are µs."""


class SharingState(msgspec.Struct, tag=True, frozen=True):
    """The state of hearing other Weirs: if their reports get through, and since when they do not."""

    sight: str
    """Value of a `quotas.sharing.blindness.Sight`."""
    weirs: int
    blind_ms: int
    """Time (ms) since reports got through; 0 while they do."""


class Limits(msgspec.Struct, tag=True, frozen=True):
    """Settings that have changed while Weir runs; the other settings are those of the start."""

    settings: Settings


class TakeUsage(msgspec.Struct, tag=True, frozen=True):
    """Send usage records of the interval that ends now."""

    time_ms: int
    """Unix time (ms) of the interval's beginning."""
    interval_ms: int
    instance: str


class TakeTraces(msgspec.Struct, tag=True, frozen=True):
    """Send the traces of requests that are complete."""

    offset_ms: int
    """Time (ms) that turns times of the reactor's clock into ms since 1970."""
    instance: str


class ListConnections(msgspec.Struct, tag=True, frozen=True):
    """List open connections."""

    number: int
    filter: ConnectionFilter


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Close each connection once its requests are answered, and end."""


class Flush(msgspec.Struct, tag=True, frozen=True):
    """Tell all charges now, and then answer with `Flushed`."""

    number: int


class Stored(msgspec.Struct, tag=True, frozen=True):
    """The end of an alteration of quotas."""

    number: int
    error: str | None


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The worker can serve clients."""


class Flushed(msgspec.Struct, tag=True, frozen=True):
    """The answer to `Flush`, with its number: all charges were told."""

    number: int


class Report(msgspec.Struct, tag=True, frozen=True):
    """Sign of life, with the increase of the worker's counters since the last report."""

    counts: Counts


class Left(msgspec.Struct, tag=True, frozen=True):
    """Connections have ended, from these addresses."""

    hosts: list[str]


class Found(msgspec.Struct, tag=True, frozen=True):
    """A response has named a broker that the worker did not know, or another address of a broker."""

    node_id: int
    host: str
    port: int


class State(msgspec.Struct, tag=True, frozen=True):
    """A broker was reached, or could not be reached."""

    node_id: int
    failure: str | None


class Away(msgspec.Struct, tag=True, frozen=True):
    """A broker's listener must refuse connections (`away`), or may accept them again."""

    node_id: int
    away: bool


class Used(msgspec.Struct, tag=True, frozen=True):
    """Usage records and traces."""

    usage: list[UsageRecord]
    traces: list[TraceRecord]
    traces_dropped: int = 0
    """Number of further traces that were dropped."""
    rest: bool = False
    """True for what a draining worker sends unasked: the supervisor is to set times and instance."""


class Listed(msgspec.Struct, tag=True, frozen=True):
    """The answer to `ListConnections`, with its number."""

    number: int
    connections: Connections


class Alter(msgspec.Struct, tag=True, frozen=True):
    """A client alters quotas, or replication throttles."""

    number: int
    pickled: bytes
    replication: bool
    who: str
    peer: str


class AlteredAtBroker(msgspec.Struct, tag=True, frozen=True):
    """A broker has answered an alteration that the worker has forwarded."""


class Denied(msgspec.Struct, tag=True, frozen=True):
    """Further requests about quotas were denied, because their clients are no admins."""

    count: int


class Drained(msgspec.Struct, tag=True, frozen=True):
    """The worker has closed all connections and sent all messages; it ends once the supervisor has read
    them and ended the link.
    """


class Pickled(msgspec.Struct, tag=True, frozen=True):
    """A message with a name that UTF-8 cannot encode: a JSON token may contain half a surrogate pair."""

    pickled: bytes


Message: TypeAlias = (
    Start
    | Quotas
    | Brokers
    | Client
    | Charges
    | OthersUsed
    | SharingState
    | Limits
    | TakeUsage
    | TakeTraces
    | ListConnections
    | Drain
    | Flush
    | Stored
    | Ready
    | Flushed
    | Report
    | Left
    | Found
    | State
    | Away
    | Used
    | Listed
    | Alter
    | AlteredAtBroker
    | Denied
    | Drained
)
_DECODER: Final[msgspec.msgpack.Decoder[Message | Pickled]] = msgspec.msgpack.Decoder(Message | Pickled)


class LinkError(Exception):
    """The other process has gone, or has sent no message of this protocol."""


class _Unsent(NamedTuple):
    """A packet that waits to be sent."""

    packet: bytes
    client: Client | None = None
    sock: socket.socket | None = None
    """Socket of the client, which is sent along."""


class Link:
    """One end of the connection between the supervisor and a worker. `post` may be called within a turn of
    the reactor.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected SOCK_SEQPACKET socket. Call this within Trio."""
        self._plain = sock
        self._sock = trio.socket.from_stdlib_socket(sock)
        self._token = trio.lowlevel.current_trio_token()
        self._unsent: deque[_Unsent] = deque()
        self._posted = trio.Event()

    def post(self, message: Message) -> None:
        """Send this message soon, after those posted before."""
        try:
            data = msgspec.msgpack.encode(message)
        except UnicodeEncodeError:
            data = msgspec.msgpack.encode(Pickled(pickle.dumps(message)))
        for start in range(0, len(data), PIECE_BYTES):
            last = start + PIECE_BYTES >= len(data)
            self._append(_Unsent((_LAST if last else _MORE) + data[start : start + PIECE_BYTES]))

    def post_client(self, client: Client, sock: socket.socket) -> None:
        """Send a client's socket soon, and close it here."""
        self._append(_Unsent(_LAST + msgspec.msgpack.encode(client), client, sock))

    def _append(self, unsent: _Unsent) -> None:
        """Send a packet now if there is room, else as soon as there is. Waking Trio costs more."""
        if not self._unsent:
            try:
                self._plain.sendmsg(*_parts(unsent))
            except OSError:
                pass  # no room; or the other end has gone, which `send_forever` tells
            else:
                _sent(unsent)
                return
        self._unsent.append(unsent)
        self._token.run_sync_soon(self._wake, idempotent=True)

    def _wake(self) -> None:
        self._posted.set()

    async def send_forever(self) -> None:
        """Send the posted messages until cancelled. Raises LinkError."""
        while True:
            while self._unsent:
                await self._send(self._unsent[0])
                _sent(self._unsent.popleft())
            self._posted = trio.Event()
            if not self._unsent:
                await self._posted.wait()

    def unsent_clients(self) -> list[tuple[Client, socket.socket]]:
        """Return the clients that were not sent, and forget them."""
        unsent, self._unsent = self._unsent, deque()
        return [(each.client, each.sock) for each in unsent if each.client is not None and each.sock]

    async def _send(self, unsent: _Unsent) -> None:
        while True:
            try:
                await self._sock.sendmsg(*_parts(unsent))
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    raise LinkError(error.strerror or str(error)) from None
                await trio.sleep(RETRY_S)
            else:
                return

    async def receive(self) -> tuple[Message, socket.socket | None]:
        """Return the next message, and the socket sent with it: None also if this process has no descriptor
        for it. The kernel then sets MSG_CTRUNC and closes the socket. Raises LinkError.
        """
        data = b""
        while True:
            packet, sock = await self._receive()
            data += packet[1:]
            if packet[:1] == _LAST:
                return _decoded(data), sock

    async def _receive(self) -> tuple[bytes, socket.socket | None]:
        try:
            packet, ancillary, _flags, _address = await self._received()
        except OSError as error:
            raise LinkError(error.strerror or str(error)) from None
        if not packet:
            raise LinkError("it has ended")
        return packet, _socket(ancillary)

    async def _received(self) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        """Return the result of `recvmsg`. Raises OSError.

        If the other end was closed with packets that it had not read, Linux reports ECONNRESET once, before
        the packets that are still here.
        """
        size = socket.CMSG_SPACE(array.array("i").itemsize)
        try:
            return await self._sock.recvmsg(PIECE_BYTES + 1, size, _CLOEXEC)
        except ConnectionResetError:
            return await self._sock.recvmsg(PIECE_BYTES + 1, size, _CLOEXEC)

    def end(self) -> None:
        """Tell the other end that nothing more comes; it can still send."""
        with suppress(OSError):  # the other end has closed already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


def _parts(unsent: _Unsent) -> tuple[list[bytes], list[tuple[int, int, array.array[int]]]]:
    """Return the arguments of `sendmsg`."""
    fds = [] if unsent.sock is None else [unsent.sock.fileno()]
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    return [unsent.packet], ancillary


def _sent(packet: _Unsent) -> None:
    if packet.sock is not None:
        packet.sock.close()


def _decoded(data: bytes) -> Message:
    try:
        found = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise LinkError(str(error)) from None
    if isinstance(found, Pickled):
        message: Message = pickle.loads(found.pickled)  # noqa: S301  # ours
        return message
    return found


_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def _socket(ancillary: list[tuple[int, int, bytes]]) -> socket.socket | None:
    """Return the socket that came with a packet; None if none came. A descriptor that is no socket is
    closed.
    """
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
            for fd in fds:
                try:
                    return socket.socket(fileno=fd)
                except OSError:
                    os.close(fd)
    return None
