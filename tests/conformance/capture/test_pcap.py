"""pcap and pcapng files become events."""

from __future__ import annotations

from pathlib import Path

import dpkt
import pytest

from tests.conformance.capture.pcaps import write_pcap
from weir.conformance.capture import CaptureError, DamagedCaptureError
from weir.conformance.capture.pcap import read_pcap
from weir.conformance.capture.tcp import Segment, TcpEndpoint
from weir.conformance.events import Bytes, Closed, Event, Opened, Side

HOSTS = {"ipv4": ("10.0.0.1", "10.0.0.2"), "ipv6": ("fd00::1", "fd00::2")}


def conversation(hosts: tuple[str, str]) -> list[Segment]:
    """A connection whose second request is retransmitted and comes before its first."""
    client, broker = TcpEndpoint(hosts[0], 50_000), TcpEndpoint(hosts[1], 9092)
    return [
        Segment(1_000_000_000, client, broker, 10, syn=True),
        Segment(1_000_001_000, broker, client, 20, syn=True, acknowledged=11),
        Segment(1_000_002_000, client, broker, 16, b"second", acknowledged=21),
        Segment(1_000_003_000, client, broker, 11, b"first", acknowledged=21),
        Segment(1_000_004_000, client, broker, 16, b"second", acknowledged=21),
        Segment(1_000_005_000, broker, client, 21, b"answer", acknowledged=22, fin=True),
        Segment(1_000_006_000, client, broker, 22, fin=True, acknowledged=28),
    ]


@pytest.mark.parametrize("writer", [dpkt.pcap.Writer, dpkt.pcapng.Writer], ids=["pcap", "pcapng"])
@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
def test_a_file_becomes_the_events_of_its_connections(
    tmp_path: Path, hosts: tuple[str, str], writer: type
) -> None:
    segments = conversation(hosts)
    write_pcap(tmp_path / "p", segments, writer)
    client, broker = str(segments[0].source), str(segments[0].target)
    expected: list[Event] = [
        Opened(0, 1_000_000_000, client, broker),
        Bytes(0, 1_000_003_000, Side.CLIENT, b"first"),
        Bytes(0, 1_000_003_000, Side.CLIENT, b"second"),
        Bytes(0, 1_000_005_000, Side.SERVER, b"answer"),
        Closed(0, 1_000_005_000, Side.SERVER),
        Closed(0, 1_000_006_000, Side.CLIENT),
    ]
    assert list(read_pcap(tmp_path / "p")) == expected
    assert list(read_pcap(tmp_path / "p", [9092])) == expected
    assert list(read_pcap(tmp_path / "p", [9093])) == []


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"no pcap file at all, but long enough to have a header")
    with pytest.raises(CaptureError, match="is not a pcap file"):
        list(read_pcap(tmp_path / "p"))


def test_a_link_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    with (tmp_path / "p").open("wb") as file:
        dpkt.pcap.Writer(file, linktype=105).writepkt(b"beacon", 1)
    with pytest.raises(CaptureError, match="link type 105"):
        list(read_pcap(tmp_path / "p"))


def test_a_file_that_is_cut_yields_the_packets_before_and_is_told(tmp_path: Path) -> None:
    write_pcap(tmp_path / "p", conversation(HOSTS["ipv4"]))
    data = (tmp_path / "p").read_bytes()
    sent: set[bytes] = set()
    told: list[str] = []
    for end in range(24, len(data)):
        (tmp_path / "p").write_bytes(data[:end])
        events = list(read_pcap(tmp_path / "p", on_damage=told.append))
        sent.add(b"".join(e.data for e in events if isinstance(e, Bytes) and e.side is Side.SERVER))
    assert sent >= {b"", b"answer"}
    assert told
    (tmp_path / "p").write_bytes(data[:30])  # within the first packet's header
    with pytest.raises(DamagedCaptureError, match="cut or damaged"):
        list(read_pcap(tmp_path / "p"))
