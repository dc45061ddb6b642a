"""Reads TCP segments from pcap and pcapng files, with dpkt (the extra `pcap`)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from weir.conformance.capture.blocks import CaptureError, DamagedCaptureError
from weir.conformance.capture.reader import OnDamage
from weir.conformance.capture.tcp import Endpoint, Reassembly, Segment
from weir.conformance.events import Event

TOOL: Final = 'needs dpkt: pip install "kafka-weir[pcap]"'


def read_pcap(path: Path, ports: Iterable[int] = (), on_damage: OnDamage | None = None) -> Iterator[Event]:
    """Return the events of a pcap or pcapng file. `ports`: the brokers' ports, empty to detect them
    (`Reassembly`). Raises CaptureError if the file is no such file, or dpkt is missing; OSError if the file
    cannot be read.
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
    """Return the TCP segments of a file; other packets are skipped, and so are fragments of IP. Raises like
    `read_pcap`.
    """
    try:
        import dpkt
    except ImportError:
        raise CaptureError(f"a pcap file {TOOL}") from None
    with path.open("rb") as file:
        try:
            packets = dpkt.pcap.UniversalReader(file)
            link = packets.datalink()
        except (ValueError, dpkt.Error) as error:
            raise CaptureError(f"{path} is not a pcap file: {error}") from None
        parse = _parser(dpkt, link, path)
        for time_s, data in _whole(dpkt, packets, path):
            try:
                packet = parse(data)
            except (dpkt.Error, IndexError, ValueError):
                continue
            segment = _segment(dpkt, packet, round(time_s * 1_000_000) * 1000)
            if segment is not None:
                yield segment


def _whole(dpkt: Any, packets: Iterable[tuple[float, bytes]], path: Path) -> Iterator[tuple[float, bytes]]:
    """Return the packets up to the damage, if any. Raises DamagedCaptureError there."""
    try:
        yield from packets
    except (dpkt.Error, struct.error, ValueError) as error:
        raise DamagedCaptureError(
            f"{path} is cut or damaged: {error}; the packets before were read"
        ) from None


def _parser(dpkt: Any, link: int, path: Path) -> Any:
    """Return the function that parses a packet of this link type to IP. Raises CaptureError."""
    raw = {101, 12, 14, 228, 229}

    def ip(data: bytes) -> Any:
        return dpkt.ip6.IP6(data) if data[0] >> 4 == 6 else dpkt.ip.IP(data)

    if link in raw:
        return ip
    if link in (0, 108):  # BSD loopback: a family of four bytes
        return lambda data: ip(data[4:])
    if link == 276:  # Linux cooked, version 2
        return lambda data: ip(data[20:])
    kinds = {1: dpkt.ethernet.Ethernet, 113: dpkt.sll.SLL}
    if link not in kinds:
        raise CaptureError(
            f"{path} has link type {link}, which this Weir does not read: capture with Ethernet"
        )
    return lambda data: kinds[link](data).data


def _segment(dpkt: Any, packet: Any, time_ns: int) -> Segment | None:
    """Return the TCP segment of an IP packet; None if it has none."""
    tcp = getattr(packet, "data", None)
    if not isinstance(tcp, dpkt.tcp.TCP):
        return None
    flags = tcp.flags
    return Segment(
        time_ns,
        Endpoint(str(ipaddress.ip_address(packet.src)), tcp.sport),
        Endpoint(str(ipaddress.ip_address(packet.dst)), tcp.dport),
        tcp.seq,
        bytes(tcp.data),
        syn=bool(flags & dpkt.tcp.TH_SYN),
        ack=bool(flags & dpkt.tcp.TH_ACK),
        fin=bool(flags & dpkt.tcp.TH_FIN),
        rst=bool(flags & dpkt.tcp.TH_RST),
    )
