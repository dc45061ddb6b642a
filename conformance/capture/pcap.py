"""Reads packets from pcap and pcapng files, and from these packets the events of connections.

Each packet has the link type and the resolution of time of its interface. Bytes of a damaged or forged file
lead to no allocation above `PACKET_BYTES_MAX`. A packet without a byte is damage: a file of zeros would
otherwise be a packet per 16 bytes.

Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, NamedTuple

from weir.conformance.capture.blocks import CaptureError, DamagedCaptureError
from weir.conformance.capture.packets import LINKS, Packet, segment_of
from weir.conformance.capture.reader import OnDamage
from weir.conformance.capture.tcp import Reassembly, Segment
from weir.conformance.events import Event

PACKET_BYTES_MAX: Final = 262_144
"""Maximum size (bytes) of a captured packet: libpcap's MAXIMUM_SNAPLEN."""
OPTIONS_BYTES_MAX: Final = 65_536
"""Maximum size (bytes) of a block that describes a section or an interface."""
INTERFACES_MAX: Final = 4096
"""Maximum number of interfaces of a section."""
SKIPPED_BYTES: Final = 65_536
"""Number of bytes that are read at once of a block that is skipped."""
TIME_NS_MAX: Final = 2**63 - 1
"""Maximum time (ns) of a capture's event, in the year 2262."""
SECOND_NS: Final = 10**9

_PCAP_MAGICS: Final[dict[bytes, tuple[str, int]]] = {
    bytes.fromhex("d4c3b2a1"): ("<", 1000),
    bytes.fromhex("a1b2c3d4"): (">", 1000),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
    bytes.fromhex("a1b23c4d"): (">", 1),
}
"""Byte order, and unit (ns) of the fractions of seconds, by a pcap file's first bytes."""
_LINK_TYPE: Final = 0xFFFF
"""Mask of the link type: the field's higher bits have the length of the frame check sequence."""
_SECTION: Final = bytes.fromhex("0a0d0d0a")
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 1, 2, 3, 6
_BLOCK_BYTES_MIN: Final = 12
_BYTE_ORDERS: Final = {bytes.fromhex("4d3c2b1a"): "<", bytes.fromhex("1a2b3c4d"): ">"}
_RESOLUTION, _TIME_OFFSET = 9, 14
"""Options of an interface: resolution of time, and seconds to add to each time."""


class Interface(NamedTuple):
    """An interface of a pcapng file."""

    link: int
    snap_bytes: int
    """Maximum size (bytes) of captured packets, 0 without one."""
    ticks_per_s: int = 10**6
    offset_s: int = 0


def read_pcap(path: Path, ports: Iterable[int] = (), on_damage: OnDamage | None = None) -> Iterator[Event]:
    """Return the events of a pcap or pcapng file. `ports`: the brokers' ports, empty to detect them
    (`Reassembly`). At damage, or with packets of an unknown link type, call `on_damage` with one line of
    text; without `on_damage` raise DamagedCaptureError, after the last event. Raises CaptureError if the
    file is no such file, or has only packets of unknown link types; OSError if the file cannot be read.
    """
    reassembly = Reassembly(frozenset(ports))
    damage: DamagedCaptureError | None = None
    try:
        for segment in segments(path):
            yield from reassembly.feed(segment)
    except DamagedCaptureError as error:
        damage = error
    yield from reassembly.finish()
    if damage is not None:
        if on_damage is None:
            raise damage
        on_damage(str(damage))


def segments(path: Path) -> Iterator[Segment]:
    """Return the TCP segments of a file; other packets are skipped, and so are fragments of IP. Raises
    CaptureError, OSError; DamagedCaptureError after the last segment.
    """
    skipped: Counter[int] = Counter()
    some = False
    with path.open("rb") as file:
        for packet in _packets(file, path):
            if packet.link not in LINKS:
                skipped[packet.link] += 1
                continue
            some = True
            segment = segment_of(packet)
            if segment is not None:
                yield segment
    if skipped:
        links = ", ".join(f"{count} of link type {link}" for link, count in sorted(skipped.items()))
        text = f"{path} has packets that this Weir does not read ({links}): capture with Ethernet"
        raise DamagedCaptureError(f"{text}; other packets were read") if some else CaptureError(text)


def _packets(file: BinaryIO, path: Path) -> Iterator[Packet]:
    """Return the packets of a file. Raises CaptureError, DamagedCaptureError."""
    magic = file.read(4)
    try:
        if magic == _SECTION:
            yield from _PcapngPackets(file)
        elif magic in _PCAP_MAGICS:
            yield from _pcap_packets(file, *_PCAP_MAGICS[magic])
        else:
            raise CaptureError(f"{path} is not a pcap file: its first bytes are {magic.hex() or 'missing'}")
    except _DamageError as error:
        place = f" at byte {file.tell()}" if file.seekable() else ""
        raise DamagedCaptureError(
            f"{path} is cut or damaged{place}: {error}; the packets before were read"
        ) from None


class _DamageError(Exception):
    """Raised where a file is cut or damaged."""


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise _DamageError("the file ends here")
    return data


def _packet_bytes(file: BinaryIO, count: int) -> bytes:
    if not 0 < count <= PACKET_BYTES_MAX:
        raise _DamageError(f"a packet of {count} bytes, not 1 to {PACKET_BYTES_MAX}")
    return _exactly(file, count)


def _pcap_packets(file: BinaryIO, order: str, unit_ns: int) -> Iterator[Packet]:
    head = Struct(order + "IIII")
    (link,) = Struct(order + "16xI").unpack(_exactly(file, 20))
    while data := file.read(head.size):
        if len(data) < head.size:
            raise _DamageError("the file ends within a packet's head")
        seconds, fraction, count, wire_bytes = head.unpack(data)
        time_ns = seconds * SECOND_NS + fraction * unit_ns
        yield Packet(link & _LINK_TYPE, time_ns, _packet_bytes(file, count), wire_bytes)


class _PcapngPackets:
    """The packets of a pcapng file, behind the type of its first block: iterate over them, once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._interfaces: list[Interface] = []
        self._begin_section()

    def __iter__(self) -> Iterator[Packet]:
        while kind := self._file.read(4):
            if kind == _SECTION:
                self._begin_section()
                continue
            if len(kind) < 4:
                raise _DamageError("the file ends within a block's head")
            self._left = self._body_bytes(_exactly(self._file, 4))
            packet = self._block(self._number.unpack(kind)[0])
            if packet is not None:
                yield packet
            self._skip()

    def _begin_section(self) -> None:
        """Read a section's head: the byte order may be another one, and interfaces count from 0."""
        size, magic = _exactly(self._file, 4), _exactly(self._file, 4)
        if magic not in _BYTE_ORDERS:
            raise _DamageError("a section has no byte order")
        order = _BYTE_ORDERS[magic]
        self._number = Struct(order + "I")
        self._packet = Struct(order + "IIIII")
        self._old_packet = Struct(order + "HHIIII")
        self._described = Struct(order + "HHI")
        self._option = Struct(order + "HH")
        self._seconds = Struct(order + "q")
        self._interfaces.clear()
        self._left = self._body_bytes(size) - len(magic)
        self._skip()

    def _body_bytes(self, size: bytes) -> int:
        """Return the number of bytes of a block's body, from the size (bytes) of the block."""
        (count,) = self._number.unpack(size)
        if count < _BLOCK_BYTES_MIN or count % 4:
            raise _DamageError(f"a block of {count} bytes")
        return int(count) - _BLOCK_BYTES_MIN

    def _take(self, count: int) -> bytes:
        """Return the next bytes of the block's body."""
        if count > self._left:
            raise _DamageError("a block is shorter than its contents")
        self._left -= count
        return _exactly(self._file, count)

    def _skip(self) -> None:
        """Skip the rest of the block, and its repeated size."""
        left = self._left + 4
        while left:
            left -= len(_exactly(self._file, min(left, SKIPPED_BYTES)))

    def _block(self, kind: int) -> Packet | None:
        """Read what a block has of a packet or an interface; other blocks have nothing."""
        if kind == _INTERFACE:
            self._add_interface()
        elif kind == _PACKET:
            number, high, low, count, wire_bytes = self._packet.unpack(self._take(self._packet.size))
            return self._timed(number, (high << 32) | low, count, wire_bytes)
        elif kind == _OLD_PACKET:
            number, _, high, low, count, wire_bytes = self._old_packet.unpack(
                self._take(self._old_packet.size)
            )
            return self._timed(number, (high << 32) | low, count, wire_bytes)
        elif kind == _SIMPLE_PACKET:  # it has no time
            (wire_bytes,) = self._number.unpack(self._take(4))
            snap_bytes = self._interface(0).snap_bytes or wire_bytes
            return self._timed(0, 0, min(snap_bytes, wire_bytes), wire_bytes)
        return None

    def _timed(self, number: int, ticks: int, count: int, wire_bytes: int) -> Packet:
        interface = self._interface(number)
        time_ns = interface.offset_s * SECOND_NS + ticks * SECOND_NS // interface.ticks_per_s
        if not 0 <= time_ns <= TIME_NS_MAX:
            raise _DamageError("a packet's time is not between 1970 and 2262")
        if count > self._left:
            raise _DamageError("a block is shorter than its packet")
        data = _packet_bytes(self._file, count)
        self._left -= count
        return Packet(interface.link, time_ns, data, wire_bytes)

    def _interface(self, number: int) -> Interface:
        if number >= len(self._interfaces):
            raise _DamageError(f"a packet of interface {number}, which the file does not describe")
        return self._interfaces[number]

    def _add_interface(self) -> None:
        if self._left > OPTIONS_BYTES_MAX or len(self._interfaces) >= INTERFACES_MAX:
            raise _DamageError("too many interfaces, or too long a description")
        link, _, snap_bytes = self._described.unpack(self._take(self._described.size))
        options = dict(self._options(self._take(self._left)))
        resolution = (options.get(_RESOLUTION) or b"\6")[0]
        base, exponent = (2, resolution & 0x7F) if resolution & 0x80 else (10, resolution)
        offset = options.get(_TIME_OFFSET, b"")
        offset_s = self._seconds.unpack(offset)[0] if len(offset) == self._seconds.size else 0
        self._interfaces.append(Interface(link, snap_bytes, base**exponent, offset_s))

    def _options(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + self._option.size <= len(data):
            code, size = self._option.unpack_from(data, at)
            at += self._option.size
            if not code:
                return
            yield code, data[at : at + size]
            at += size + -size % 4
