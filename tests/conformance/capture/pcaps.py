"""pcap files for tests, made by dpkt."""

from __future__ import annotations

import socket
from pathlib import Path

import dpkt

from weir.conformance.capture.tcp import Segment


def ethernet(segment: Segment) -> dpkt.ethernet.Ethernet:
    """The Ethernet frame of a segment, IPv4 or IPv6."""
    has_ack = segment.acknowledged is not None
    flags = (segment.syn * dpkt.tcp.TH_SYN) | (has_ack * dpkt.tcp.TH_ACK) | (segment.fin * dpkt.tcp.TH_FIN)
    packet = dpkt.tcp.TCP(
        sport=segment.source.port,
        dport=segment.target.port,
        seq=segment.sequence,
        ack=segment.acknowledged or 0,
        flags=flags | (segment.rst * dpkt.tcp.TH_RST),
        data=segment.data,
    )
    six = ":" in segment.source.host
    family = socket.AF_INET6 if six else socket.AF_INET
    ends = {
        "src": socket.inet_pton(family, segment.source.host),
        "dst": socket.inet_pton(family, segment.target.host),
    }
    if six:
        network = dpkt.ip6.IP6(nxt=dpkt.ip.IP_PROTO_TCP, plen=len(packet), data=packet, **ends)
        network.extension_hdrs = {}
        return dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP6, data=network)
    network = dpkt.ip.IP(p=dpkt.ip.IP_PROTO_TCP, data=packet, **ends)
    network.len = len(network)
    return dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP, data=network)


def write_pcap(path: Path, segments: list[Segment], kind: type = dpkt.pcap.Writer) -> None:
    """Write a pcap file, or with dpkt.pcapng.Writer a pcapng file; another packet comes first."""
    with path.open("wb") as file:
        writer = kind(file)
        writer.writepkt(
            bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_ARP, data=dpkt.arp.ARP())), 0.5
        )
        for segment in segments:
            writer.writepkt(bytes(ethernet(segment)), segment.time_ns / 1e9)
