"""pcap and pcapng files: each packet has its interface's link type and time, and forged sizes cost nothing.

The files are written by hand from the formats' drafts, except where dpkt writes a link layer.
"""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from pathlib import Path
from threading import Thread

import dpkt
import pytest

from tests.conformance.capture.pcaps import ethernet
from weir.conformance.capture import CaptureError, DamagedCaptureError
from weir.conformance.capture.packets import Packet, segment_of
from weir.conformance.capture.pcap import PACKET_BYTES_MAX, read_pcap
from weir.conformance.capture.tcp import Segment, TcpEndpoint
from weir.conformance.events import Bytes, Side

START_S = 1_700_000_000
CLIENT, BROKER = TcpEndpoint("10.0.0.1", 50_000), TcpEndpoint("10.0.0.2", 9092)
SYN = Segment(0, CLIENT, BROKER, 10, syn=True)
ASK = Segment(0, CLIENT, BROKER, 11, b"ask", acknowledged=21)
ETHERNET, RAW, WIFI = 1, 101, 105


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    size = struct.pack(order + "I", 12 + len(body) + -len(body) % 4)
    return struct.pack(order + "I", kind) + size + body + bytes(-len(body) % 4) + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int, options: bytes = b"", order: str = "<", snap: int = 0) -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, snap) + options, order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def packet(number: int, ticks: int, data: bytes, order: str = "<") -> bytes:
    sizes = (number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(6, struct.pack(order + "IIIII", *sizes) + data, order)


def raw(segment: Segment) -> bytes:
    return bytes(ethernet(segment).data)


def asked(path: Path) -> list[tuple[int, bytes]]:
    return [(event.time_ns, event.data) for event in read_pcap(path) if isinstance(event, Bytes)]


@pytest.mark.parametrize(
    ("options", "ticks_per_s", "offset_s"),
    [
        (b"", 10**6, 0),
        (option(9, b"\x09") + option(0, b""), 10**9, 0),
        (option(9, b"\x03"), 1000, 0),
        (option(9, b"\x8a"), 1024, 0),
        (option(2, b"eth") + option(14, struct.pack("<q", START_S)), 10**6, START_S),
    ],
)
def test_each_interface_has_its_own_link_type_and_resolution_of_time(
    tmp_path: Path, options: bytes, ticks_per_s: int, offset_s: int
) -> None:
    second = (START_S - offset_s) * ticks_per_s
    (tmp_path / "p").write_bytes(
        section()
        + interface(ETHERNET)
        + interface(RAW, options)
        + packet(0, START_S * 10**6, bytes(ethernet(SYN)))
        + packet(1, second + ticks_per_s // 2, raw(ASK))
    )
    assert asked(tmp_path / "p") == [(START_S * 10**9 + 500_000_000, b"ask")]


def test_sections_count_their_interfaces_and_have_their_own_byte_order(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(
        section()
        + interface(RAW)
        + block(4, b"names of hosts")
        + packet(0, START_S * 10**6, raw(SYN))
        + section(">")
        + interface(ETHERNET, b"", ">")
        + packet(0, START_S * 10**6, bytes(ethernet(ASK)), ">")
    )
    assert asked(tmp_path / "p") == [(START_S * 10**9, b"ask")]


def test_simple_and_old_packets_are_read(tmp_path: Path) -> None:
    data = raw(ASK)
    old = struct.pack("<HHIIII", 0, 0, 0, 7, len(data), len(data)) + data
    simple = struct.pack("<I", len(raw(SYN))) + raw(SYN)
    (tmp_path / "p").write_bytes(section() + interface(RAW, snap=200) + block(3, simple) + block(2, old))
    assert asked(tmp_path / "p") == [(7000, b"ask")]


def test_packets_of_a_link_type_that_is_not_read_are_told(tmp_path: Path) -> None:
    begin = section() + interface(WIFI) + interface(RAW) + packet(0, 1, b"beacon")
    (tmp_path / "p").write_bytes(begin)
    with pytest.raises(CaptureError, match="1 of link type 105"):
        list(read_pcap(tmp_path / "p"))
    (tmp_path / "p").write_bytes(
        begin + packet(1, 2, raw(SYN)) + packet(0, 3, b"beacon") + packet(1, 4, raw(ASK))
    )
    told: list[str] = []
    events = list(read_pcap(tmp_path / "p", on_damage=told.append))
    assert [event.data for event in events if isinstance(event, Bytes)] == [b"ask"]
    assert len(told) == 1
    assert "2 of link type 105" in told[0]


def test_a_pcap_file_may_have_nanoseconds_and_the_size_of_a_check_sequence(tmp_path: Path) -> None:
    head = struct.pack(">IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 0, 0x24000000 | ETHERNET)
    data = bytes(ethernet(ASK)) + b"\x01\x02\x03\x04"  # Ethernet's check sequence
    (tmp_path / "p").write_bytes(head + struct.pack(">IIII", START_S, 7, len(data), len(data)) + data)
    assert asked(tmp_path / "p") == [(START_S * 10**9 + 7, b"ask")]


PCAP_HEAD = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, ETHERNET)
FORGED = {
    "pcap packet of 4 GB": PCAP_HEAD + struct.pack("<IIII", 1, 0, 0xFFFFFFFF, 60),
    "pcap packet of 1 GB": PCAP_HEAD + struct.pack("<IIII", 1, 0, 1 << 30, 1 << 30),
    "pcap of zeros": PCAP_HEAD + bytes(4 << 20),
    "pcapng of zeros": section() + interface(RAW) + bytes(4 << 20),
    "pcapng block of 4 GB": section() + struct.pack("<II", 5, 0xFFFFFFFC),
    "pcapng packet of 4 GB": section()
    + interface(RAW)
    + struct.pack("<7I", 6, 1 << 31, 0, 0, 0, 0xFFFFFF00, 9),
    "pcapng simple packet of 4 GB": section() + interface(RAW) + struct.pack("<III", 3, 1 << 31, 0xFFFFFF00),
    "pcapng interface of 4 GB": section() + struct.pack("<II", 1, 0xFFFFFFFC) + bytes(1000),
    "pcapng interfaces": section() + interface(RAW) * 50_000,
    "pcapng packet of no interface": section() + packet(3, 1, b"data"),
    "pcapng packet longer than its block": section()
    + interface(RAW)
    + block(6, struct.pack("<5I", 0, 0, 0, 99, 99)),
    "pcapng packet behind the year 2262": section()
    + interface(RAW, option(9, b"\0"))
    + packet(0, 1 << 40, b"data"),
    "pcapng packet before 1970": section()
    + interface(RAW, option(14, struct.pack("<q", -(1 << 62))))
    + packet(0, 1, b"data"),
    "pcapng section without a byte order": section()[:8] + bytes(20),
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_forged_sizes_and_times_are_damage_and_cost_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p").write_bytes(data)
    began_s = time.process_time()
    tracemalloc.start()
    with pytest.raises(DamagedCaptureError, match="cut or damaged at byte"):
        list(read_pcap(tmp_path / "p"))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * PACKET_BYTES_MAX
    assert time.process_time() - began_s < 2, "4 MB of zeros are no 262,144 packets"


def test_a_damaged_file_may_come_from_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    writer = Thread(target=(tmp_path / "p").write_bytes, args=(FORGED["pcap packet of 4 GB"],))
    writer.start()
    with pytest.raises(DamagedCaptureError, match="cut or damaged: a packet of"):
        list(read_pcap(tmp_path / "p"))
    writer.join()


def packets() -> dict[str, tuple[int, bytes]]:
    """The segment in packets of other forms, by name, with their link types."""
    frame, ip = ethernet(ASK), raw(ASK)
    six = ethernet(
        Segment(0, TcpEndpoint("fd00::1", 50_000), TcpEndpoint("fd00::2", 9092), 11, b"ask", acknowledged=21)
    )
    tcp = bytes(six.data.data)
    vlan = dpkt.ethernet.Ethernet(bytes(frame)[:12] + b"\x81\0\0\7" + bytes(frame)[12:])
    head = bytearray(ip[:20])
    head[2:4] = bytes(2)
    options = struct.pack(">BBHIIBB", 6, 0, 0, 0, 0, 1, 0)[:8]
    begin = bytes(six.data)[:40]
    extended = begin[:4] + struct.pack(">HBB", 8 + len(tcp), 60, 64) + begin[8:] + options + tcp
    return {
        "VLAN": (ETHERNET, bytes(vlan)),
        "two VLAN tags": (ETHERNET, bytes(frame)[:12] + b"\x88\xa8\0\1\x81\0\0\7" + bytes(frame)[12:]),
        "MPLS": (ETHERNET, bytes(frame)[:12] + b"\x88\x47\0\1\0\x40\0\2\1\x40" + ip),
        "padded": (ETHERNET, bytes(frame) + bytes(6)),
        "IP length 0, which the network card fills in": (RAW, bytes(head) + ip[20:]),
        "IPv6": (RAW, bytes(six.data)),
        "IPv6 with options": (RAW, extended),
        "BSD loopback": (0, b"\2\0\0\0" + ip),
        "Linux cooked": (113, b"\0\0\0\1\0\6" + bytes(8) + b"\x08\0" + ip),
        "Linux cooked 2": (276, b"\x08\0" + bytes(18) + ip),
    }


@pytest.mark.parametrize("name", packets())
def test_a_segment_is_found_in_each_form_of_packet(name: str) -> None:
    link, data = packets()[name]
    found = segment_of(Packet(link, 5, data, len(data)))
    assert found is not None
    assert (found.time_ns, found.sequence, found.data, found.acknowledged, found.cut) == (
        5,
        11,
        b"ask",
        21,
        0,
    )


def test_a_cut_packet_says_how_many_bytes_it_lacks() -> None:
    data = bytes(ethernet(ASK))
    found = segment_of(Packet(ETHERNET, 5, data[:-2], len(data)))
    assert found is not None
    assert (found.data, found.cut) == (b"a", 2)


def test_packets_of_something_else_and_cut_heads_are_no_segments() -> None:
    data = bytes(ethernet(ASK))
    fragment = bytearray(raw(ASK))
    fragment[6:8] = b"\0\1"
    other = raw(ASK).replace(b"\x40\x06", b"\x40\x11", 1)
    assert segment_of(Packet(RAW, 5, bytes(fragment), 100)) is None
    assert segment_of(Packet(RAW, 5, other, 100)) is None
    assert segment_of(Packet(RAW, 5, b"\x70" + bytes(60), 100)) is None
    for size in range(14 + 20 + 14):
        assert segment_of(Packet(ETHERNET, 5, data[:size], len(data))) is None


def test_a_lost_packet_is_a_gap_before_the_answer_to_it(tmp_path: Path) -> None:
    """tcpdump lost the second request; the broker has acknowledged it."""
    with (tmp_path / "p").open("wb") as file:
        writer = dpkt.pcap.Writer(file)
        for segment in (
            SYN,
            Segment(0, BROKER, CLIENT, 20, syn=True, acknowledged=11),
            ASK,
            Segment(0, BROKER, CLIENT, 21, b"answer", acknowledged=14),
            Segment(0, BROKER, CLIENT, 27, b"second", acknowledged=20),
            Segment(0, CLIENT, BROKER, 20, b"third", acknowledged=33),
        ):
            writer.writepkt(bytes(ethernet(segment)), 1)
    order = [
        (type(event).__name__, event.side)
        for event in read_pcap(tmp_path / "p")
        if not hasattr(event, "client")
    ]
    assert order[:5] == [
        ("Bytes", Side.CLIENT),
        ("Bytes", Side.SERVER),
        ("Dropped", Side.CLIENT),
        ("Bytes", Side.SERVER),
        ("Bytes", Side.CLIENT),
    ]
