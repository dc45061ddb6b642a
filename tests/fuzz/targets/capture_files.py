"""Capture files, pcap files and TCP segments, damaged in any way. Documented error: CaptureError."""

from __future__ import annotations

import io
import os
import struct
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import dpkt

from tests.conformance.capture.pcaps import ethernet, write_pcap
from tests.fuzz.target import Grow, Target
from weir.conformance.capture import CaptureError, CaptureReader, CaptureWriter, Run, read
from weir.conformance.capture.blocks import BlockKind, block, file_head
from weir.conformance.capture.pcap import read_pcap
from weir.conformance.capture.reader import read_index, read_selected
from weir.conformance.capture.tcp import Reassembly, Segment, TcpEndpoint
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.conformance.verify import verify

CLIENT: Final = TcpEndpoint("10.0.0.1", 50_000)
BROKER: Final = TcpEndpoint("10.0.0.2", 9092)
LINKS: Final = (1, 101, 113, 0, 276, 12)
"""Link types of pcap files: Ethernet, raw, Linux cooked, BSD loopback, Linux cooked 2, raw."""
FRAME: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
EVENTS: Final[tuple[Event, ...]] = (
    Opened(0, 1, "c:1", "s:2", "bootstrap"),
    Bytes(0, 2, Side.CLIENT, FRAME),
    Dropped(0, 3, Side.SERVER, 9),
    Closed(0, 4, Side.CLIENT),
)


@cache
def _file() -> Path:
    """Return the path of a file in memory, which each run overwrites."""
    return Path(f"/proc/self/fd/{os.memfd_create('fuzz')}")


def _stored(data: bytes) -> Path:
    path = _file()
    path.write_bytes(data)
    return path


# Capture files


def run_file(data: bytes) -> None:
    """Read a damaged file by every reader, verify its events, and continue the file."""
    path, damages = _stored(data), list[str]()
    with suppress(CaptureError):
        list(read_selected(path))
    try:
        before = list(CaptureReader(io.BytesIO(data), damages.append))
        list(verify(before))
        read_index(path)
        with CaptureWriter(path, Run(1)) as writer:
            number = writer.next_connection
            writer.write(Opened(number, 9, "", ""))
    except CaptureError:
        return
    if (
        writer.repaired or not damages
    ):  # a closed file is continued without a search for damage before its end
        assert list(read(path)) == [*before, Opened(number, 9, "", "")]


def run_blocks(data: bytes) -> None:
    """Read a file whose blocks have right checksums: each part of the input is the payload of one."""
    parts = [
        block(BlockKind(1 + part[0] % len(BlockKind)), part[1:]) for part in data.split(b"\xfe\xfe") if part
    ]
    run_file(file_head() + b"".join(parts))


@cache
def file_seeds() -> tuple[bytes, ...]:
    """Return a closed capture, one of two runs, and an open one."""
    path = Path(tempfile.mkstemp()[1])
    found = []
    for _ in range(2):
        with CaptureWriter(path, Run(1)) as writer:
            for event in EVENTS:
                writer.write(event)
        found.append(path.read_bytes())
    path.unlink()
    return (*found, found[0][:-24])


def block_seeds() -> tuple[bytes, ...]:
    """Return the payloads of the blocks of a capture."""
    from weir.conformance.capture.blocks import Index, encode, index_entry

    run = b"\0" + encode(Run(1))
    events = b"\1" + encode(list(EVENTS))
    index = b"\2" + encode(Index(0, 1, [index_entry(12, list(EVENTS))]))
    return (
        b"\xfe\xfe".join((run, events, index, b"\3" + bytes(8))),
        b"\xfe\xfe".join((run, events, events)),
        b"\xfe\xfe".join((events, index, b"\3" + struct.pack(">Q", 140))),
    )


# TCP


def run_segments(data: bytes) -> None:
    """Reassemble segments of any order. Each takes ten bytes of the input, and a few of data."""
    reassembly, events, size = Reassembly(), list[Event](), 0
    for at in range(0, len(data), 10):
        part = data[at : at + 10].ljust(10, b"\0")
        flags, sequence, count = part[0], int.from_bytes(part[1:5]), part[5]
        content = part[6:] * count
        size += len(content)
        segment = Segment(
            part[6],
            CLIENT if flags & 1 else BROKER,
            BROKER if flags & 1 else CLIENT,
            sequence,
            content,
            syn=bool(flags & 2),
            acknowledged=(sequence + part[6]) % (1 << 32) if flags & 4 else None,
            fin=bool(flags & 8),
            rst=bool(flags & 16),
        )
        events += reassembly.feed(segment)
    events += reassembly.finish()
    _check(events, size)
    list(verify(events))


def _check(events: list[Event], size: int) -> None:
    times = [event.time_ns for event in events]
    assert times == sorted(times)
    assert sum(len(event.data) for event in events if isinstance(event, Bytes)) <= size
    assert all(event.count > 0 for event in events if isinstance(event, Dropped))
    opened = {event.connection for event in events if isinstance(event, Opened)}
    closed = [(event.connection, event.side) for event in events if isinstance(event, Closed)]
    assert sorted(closed) == sorted((number, side) for number in opened for side in Side)


def run_stream(data: bytes) -> None:
    """Reassemble a stream that was cut, reordered and repeated, but lost nothing: it comes out unchanged."""
    choices, stream = data[:32], data[32:]
    start = int.from_bytes(choices[:4])
    segments = [Segment(0, CLIENT, BROKER, start, syn=True)]
    at = 0
    for choice in (*choices[4:], 255):
        if at >= len(stream):
            break
        size = 1 + choice % 16 if choice < 255 else len(stream)
        new = Segment(1, CLIENT, BROKER, (start + 1 + at) % (1 << 32), stream[at : at + size])
        segments.insert(max(1, len(segments) - (choice >> 4) % 4), new)
        if choice & 8:
            segments.append(new)
        at += size
    reassembly = Reassembly()
    events = [event for segment in segments for event in reassembly.feed(segment)]
    events += reassembly.finish()
    assert not any(isinstance(event, Dropped) for event in events)
    assert b"".join(event.data for event in events if isinstance(event, Bytes)) == stream


def segment_seeds() -> tuple[bytes, ...]:
    """Return a connection that opens, talks and closes, and one in which segments are missing."""
    start, number = 0xFFFFFFF0, 40

    def part(flags: int, sequence: int, count: int = 0) -> bytes:
        return bytes([flags]) + (sequence % (1 << 32)).to_bytes(4) + bytes([count]) + b"\1abc"

    talk = part(3, start) + part(6, number) + part(1, start + 1, 9) + part(0, number + 1, 3)
    return (
        talk + part(9, start + 37) + part(8, number + 13),
        talk + part(1, start + 90, 2) + part(1, start + 50, 2) + part(17, start + 100),
        talk + part(1, start + 10, 9) + talk,
    )


def stream_seeds() -> tuple[bytes, ...]:
    """Return streams with several orders, one across the end of the sequence numbers."""
    return tuple(
        start.to_bytes(4) + bytes(step * number % 251 for number in range(28)) + bytes(range(250))
        for start in (0, 0xFFFFFFF0)
        for step in (1, 17, 77)
    )


def segments_growing() -> dict[str, Grow]:
    """Return many segments: in order, in reverse, and repeated."""

    def at(order: Iterable[int]) -> bytes:
        return b"".join(b"\1" + (1 + 4 * one).to_bytes(4) + b"\1abcd" for one in order)

    first = b"\3" + bytes(9)
    return {
        "in order": lambda count: first + at(range(count)),
        "in reverse": lambda count: first + at(range(count, 0, -1)),
        "repeated": lambda count: first + at([1] * count),
        "each other": lambda count: first + at(range(1, 2 * count, 2)),
    }


# pcap files


def run_pcap(data: bytes) -> None:
    """Read a pcap or pcapng file of any contents."""
    try:
        events = list(read_pcap(_stored(data), on_damage=lambda _text: None))
    except CaptureError:
        return
    _check(events, len(data))


def run_packets(data: bytes) -> None:
    """Read a right pcap file with any packets, of the link type that the first byte chooses."""
    link = LINKS[data[0] % len(LINKS)] if data else 1
    packets = data[1:].split(b"\xfe\xfe")
    run_pcap(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
        + b"".join(struct.pack("<IIII", 1, 0, len(one), len(one)) + one for one in packets)
    )


def _segments() -> list[Segment]:
    return [
        Segment(1000, CLIENT, BROKER, 10, syn=True),
        Segment(2000, CLIENT, BROKER, 11, FRAME),
        Segment(3000, BROKER, CLIENT, 5, FRAME, fin=True),
        Segment(4000, TcpEndpoint("::1", 50_000), TcpEndpoint("::2", 9092), 5, FRAME),
    ]


@cache
def pcap_seeds() -> tuple[bytes, ...]:
    """Return a pcap file and a pcapng file."""
    found = []
    for kind in (dpkt.pcap.Writer, dpkt.pcapng.Writer):
        path = Path(tempfile.mkstemp()[1])
        write_pcap(path, _segments(), kind)
        found.append(path.read_bytes())
        path.unlink()
    return tuple(found)


def packet_seeds() -> tuple[bytes, ...]:
    """Return packets of each link type."""
    frames = [bytes(ethernet(segment)) for segment in _segments()]
    before = (b"", b"", b"\0\0\0\1\0\6" + bytes(8) + b"\x08\0", b"\2\0\0\0", b"\x08\0" + bytes(18), b"")
    return tuple(
        bytes([index])
        + b"\xfe\xfe".join(before[index] + frame[0 if index == 0 else 14 :] for frame in frames)
        for index in range(len(LINKS))
    )


FILES: Final = Target("capture-files", run_file, file_seeds)
BLOCKS: Final = Target("capture-blocks", run_blocks, block_seeds)
SEGMENTS: Final = Target("tcp-segments", run_segments, segment_seeds, segments_growing)
STREAMS: Final = Target("tcp-streams", run_stream, stream_seeds)
PCAPS: Final = Target("pcap-files", run_pcap, pcap_seeds)
PACKETS: Final = Target("pcap-packets", run_packets, packet_seeds)
