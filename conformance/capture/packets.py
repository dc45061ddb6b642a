"""TCP segments in captured packets: link layers, IPv4 and IPv6.

A packet may be cut by the capture's snap length. Sizes come from the headers, so a segment says how many
bytes it lacks.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple

from weir.conformance.capture.tcp import Segment, TcpEndpoint

ETHERNET, RAW, LOOPBACK, COOKED, COOKED_2 = range(5)
LINKS: Final = {
    1: ETHERNET,
    101: RAW,
    12: RAW,
    14: RAW,
    228: RAW,
    229: RAW,
    0: LOOPBACK,
    108: LOOPBACK,
    113: COOKED,
    276: COOKED_2,
}
"""Form of the link layer by the link types that are read (tcpdump.org/linktypes.html)."""
OFFLOADED_BYTES_MAX: Final = 2**20
"""Maximum size (bytes) of a packet without a size in its IP head: twice that of Linux (GSO_MAX_SIZE)."""
_PROTOCOL_AND_HEAD: Final = {ETHERNET: (12, 14), COOKED: (14, 16), COOKED_2: (0, 20)}
"""Offset (bytes) of the EtherType, and size (bytes) of the head, by form."""
_HEAD_ONLY: Final = {RAW: 0, LOOPBACK: 4}
"""Size (bytes) of the head by form, where the IP version says what follows."""
_IPV4, _IPV6, _MPLS = 0x0800, 0x86DD, 0x8847
_TAGS: Final = frozenset({0x8100, 0x88A8, 0x9100})
"""EtherTypes of VLAN tags: two bytes of tag, then the next EtherType."""
_MPLS_LAST: Final = 0x100
_TCP: Final = 6
_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS: Final = frozenset({0, 43, 60, 135, _FRAGMENT, _AUTHENTICATION})
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_IPV4_HEAD: Final = Struct(">BxHxxHxBxx4s4s")
_IPV6_HEAD: Final = Struct(">4xHBx16s16s")
_TCP_HEAD: Final = Struct(">HHIIBB")
_TCP_HEAD_BYTES_MIN: Final = 20
_FRAGMENT_OFFSET: Final = 0x1FFF
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16


class Packet(NamedTuple):
    """A captured packet."""

    link: int
    """Link type (tcpdump.org/linktypes.html)."""
    time_ns: int
    """Time (ns) since the epoch."""
    data: bytes
    """Bytes from the link layer's head on, cut at the snap length."""
    wire_bytes: int
    """Size (bytes) of the packet that was sent."""


def segment_of(packet: Packet) -> Segment | None:
    """Return the TCP segment of a packet, whose link type is in `LINKS`; None if it has none, or its headers
    are cut or malformed.
    """
    try:
        return _segment(packet)
    except (error, IndexError):
        return None


def _segment(packet: Packet) -> Segment | None:
    data = packet.data
    start = _network(data, LINKS[packet.link])
    if start < 0:
        return None
    version = data[start] >> 4
    if version == 4:
        head, total, fragment, protocol, source, target = _IPV4_HEAD.unpack_from(data, start)
        end = start + total
        at = start + 4 * (head & 0xF)
        if fragment & _FRAGMENT_OFFSET or protocol != _TCP:
            return None
    elif version == 6:
        total, protocol, source, target = _IPV6_HEAD.unpack_from(data, start)
        at = start + _IPV6_HEAD.size
        end = at + total
        at = _behind_extensions(data, at, protocol)
        if at < 0:
            return None
    else:
        return None
    if not total:  # offloaded to the network card, which fills the field in (also BIG TCP)
        end = max(min(packet.wire_bytes, OFFLOADED_BYTES_MAX), len(data))
    return _tcp(packet, at, end, source, target)


def _network(data: bytes, form: int) -> int:
    """Return the offset (bytes) of the IP head; -1 without one."""
    if form in _HEAD_ONLY:
        return _HEAD_ONLY[form]
    at, start = _PROTOCOL_AND_HEAD[form]
    (protocol,) = _U16.unpack_from(data, at)
    while protocol in _TAGS:
        (protocol,) = _U16.unpack_from(data, start + 2)
        start += 4
    if protocol == _MPLS:
        while not _U32.unpack_from(data, start)[0] & _MPLS_LAST:
            start += 4
        return start + 4
    return start if protocol in (_IPV4, _IPV6) else -1


def _behind_extensions(data: bytes, at: int, protocol: int) -> int:
    """Return the offset (bytes) of the TCP head behind IPv6's extension headers; -1 without one."""
    while protocol in _EXTENSIONS:
        if protocol == _FRAGMENT and _U16.unpack_from(data, at + 2)[0] & ~7:
            return -1
        size = data[at + 1]
        if protocol == _FRAGMENT:
            skipped = 8
        else:
            skipped = 4 * (size + 2) if protocol == _AUTHENTICATION else 8 * (size + 1)
        protocol, at = data[at], at + skipped
    return at if protocol == _TCP else -1


def _tcp(packet: Packet, at: int, end: int, source: bytes, target: bytes) -> Segment | None:
    """Return the segment whose head is at `at`; its data ends at `end`, which may be cut."""
    data = packet.data
    from_port, to_port, sequence, acknowledged, words, flags = _TCP_HEAD.unpack_from(data, at)
    head_bytes = 4 * (words >> 4)
    start = at + head_bytes
    if head_bytes < _TCP_HEAD_BYTES_MIN or start > end:
        return None
    content = data[start:end]
    return Segment(
        packet.time_ns,
        TcpEndpoint(_text(source), from_port),
        TcpEndpoint(_text(target), to_port),
        sequence,
        content,
        syn=bool(flags & _SYN),
        fin=bool(flags & _FIN),
        rst=bool(flags & _RST),
        acknowledged=acknowledged if flags & _ACK else None,
        cut=end - start - len(content),
    )


@lru_cache(4096)
def _text(address: bytes) -> str:
    return str(ipaddress.ip_address(address))
