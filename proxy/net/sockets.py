"""Sockets with the proxy's options: listening sockets, and connections to brokers."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final, TypeAlias

import trio

from weir.proxy.addresses import Address
from weir.proxy.net.race import BadAlternatives, Race

BACKLOG: Final = 4096
"""Maximum number of connections that wait in the kernel to be accepted; the system may allow fewer
(net.core.somaxconn).
"""
KEEP_ALIVE: Final = tuple(
    (getattr(socket, name), value)
    for name, value in (
        ("TCP_KEEPIDLE", 60),
        ("TCP_KEEPALIVE", 60),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 6),
    )
    if hasattr(socket, name)
)
"""Socket options with which keepalive ends the connection of a vanished peer after two minutes of silence;
the system's default is more than two hours. (macOS has the first option under the second name.)

TCP_USER_TIMEOUT is not set: it would also end a connection whose peer is alive but does not read for that
long, such as a busy consumer or a throttling broker. Bytes sent to a vanished peer are retransmitted until
the system gives up (net.ipv4.tcp_retries2: about 15 minutes).
"""
Target: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
"""IP address and port; with IPv6 also flow information and scope. (A family that Python does not know has
other fields.)
"""
Found: TypeAlias = tuple[socket.AddressFamily, Target]
Refuse: TypeAlias = Callable[[str, int], OSError | None]
"""Function (IP address, port) that returns the reason why Weir must not connect there; None if it may."""
DELAY_S: Final = 0.25
"""Time (s) after which the next IP address of a host is tried beside the one before (RFC 8305, section 8)."""
_BAD: Final[BadAlternatives[Found]] = BadAlternatives()
NO_SUCH_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def allow_all_descriptors() -> None:
    """Raise the soft limit of open files to the hard limit: systemd's soft limit is 1,024, for programs with
    `select`.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # fs.nr_open may be below the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def ip_addresses(host: str, timeout_s: float) -> list[str]:
    """Return the IP addresses of a host, looked up in a thread. The host "", which stands for every
    interface, is returned unchanged.

    Raises OSError, also after `timeout_s`.
    """
    if not host:
        return [host]
    try:
        with trio.fail_after(timeout_s):
            found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except trio.TooSlowError:
        raise OSError(f"its IP address was not found within {timeout_s:g} s") from None
    except ValueError:  # labels of 64 bytes, or a NUL
        raise OSError("this is no host name") from None
    return list(dict.fromkeys(str(target[0]) for *_, target in found))


def listen(ips: Sequence[str], port: int) -> list[socket.socket]:
    """Return listening, non-blocking sockets for these IP addresses; "" stands for every interface.

    Raises OSError if the port is taken on any of them, or if no socket can be opened.
    """
    bound = _bind(ips, port)
    try:
        listen_again(bound)
    except OSError:
        close_all(bound)
        raise
    return bound


def listen_again(bound: Iterable[socket.socket]) -> None:
    """Have the kernel accept connections at bound sockets. Raises OSError if another socket listens at the
    same address.
    """
    for sock in bound:
        sock.listen(BACKLOG)


def _bind(ips: Sequence[str], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for ip in ips:
            try:
                sockets.append(_bind_at(ip, port) if ip else _bind_everywhere(port))
            except OSError as error:
                if error.errno not in NO_SUCH_FAMILY:
                    raise
                missing = error
    except OSError:
        close_all(sockets)
        raise
    if not sockets and missing is not None:
        raise missing
    return sockets


def close_all(sockets: list[socket.socket]) -> None:
    """Close all sockets in `sockets`."""
    for sock in sockets:
        sock.close()


def _bind_everywhere(port: int) -> socket.socket:
    """Return a socket bound to every interface: dual-stack if the system has IPv6, else IPv4 only."""
    with suppress(OSError):
        if socket.has_dualstack_ipv6():
            return _bind_at("::", port, dual_stack=True)
    return _bind_at("0.0.0.0", port)


def _bind_at(ip: str, port: int, *, dual_stack: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        sock.bind((ip, port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


async def look_up(address: Address) -> list[Found]:
    """Return the IP addresses of a host, each with its family, as targets for `connect`; looked up in a
    thread. Raises OSError.
    """
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (
        ValueError,
        OverflowError,
    ) as error:  # brokers may advertise anything: labels of 64 bytes, port -1
        raise OSError(f"no address: {error}") from None
    return list(dict.fromkeys((family, target) for family, _type, _proto, _name, target in found))


async def connect(address: Address, refuse: Refuse | None = None) -> socket.socket:
    """Return a connected, non-blocking socket with the options of `set_up`. Tries the host's IP addresses as
    RFC 8305 says, except those for which `refuse` returns an error; those that were bad come last.

    Raises the OSError of the last address. The caller sets the time limit.
    """
    failure: OSError = OSError(f"{address.host} has no address")
    targets: list[Found] = []
    for family, target in interleaved(await look_up(address)):
        refusal = None if refuse is None else refuse(str(target[0]), int(target[1]))
        if refusal is None:
            targets.append((family, target))
        else:
            failure = refusal
    race = Race(_connected, OSError, DELAY_S, socket.socket.close)
    won = None
    try:
        won = await race.run(_BAD.last(targets, trio.current_time()))
    finally:
        _BAD.note(race, won, trio.current_time())
    if won is None:
        raise list(race.failures.values())[-1] if race.failures else failure
    return won[1]


def interleaved(targets: Sequence[Found]) -> list[Found]:
    """Return the targets with IPv6 and IPv4 in turns, each family in its order, the first target first (RFC
    8305, section 4).
    """
    first = [each for each in targets if each[0] == targets[0][0]]
    others = [each for each in targets if each[0] != targets[0][0]]
    return [each for both in zip_longest(first, others) for each in both if each is not None]


async def _connected(found: Found) -> socket.socket:
    family, target = found
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await trio.socket.from_stdlib_socket(sock).connect(target)
        set_up(sock)
    except OverflowError as error:  # a port that no socket has
        sock.close()
        raise OSError(f"no address: {error}") from None
    except BaseException:
        sock.close()
        raise
    return sock


def set_up(sock: socket.socket) -> None:
    """Set TCP_NODELAY and keepalive on a connected socket. Raises OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def local_host(sock: socket.socket) -> str:
    """Return the IP address at which the peer has reached this socket; an IPv4 address mapped to IPv6 as
    IPv4.
    """
    return unmapped(str(sock.getsockname()[0]))


def unmapped(host: str) -> str:
    """Return a socket's numeric address; an IPv4 address mapped to IPv6 as IPv4.

    >>> unmapped("::ffff:10.0.0.1"), unmapped("10.0.0.1"), unmapped("::1")
    ('10.0.0.1', '10.0.0.1', '::1')
    """
    return host.removeprefix("::ffff:") if "." in host else host
