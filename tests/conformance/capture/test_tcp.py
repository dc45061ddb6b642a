"""TCP segments in any order, repeated and lost, become the bytes that were sent, or say what is missing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.conformance.capture import tcp
from weir.conformance.capture.tcp import Reassembly, Segment, TcpEndpoint
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

CLIENT, BROKER = TcpEndpoint("10.0.0.1", 50_000), TcpEndpoint("10.0.0.2", 9092)


def run(segments: list[Segment], ports: frozenset[int] = frozenset()) -> list[Event]:
    reassembly = Reassembly(ports)
    events = [event for segment in segments for event in reassembly.feed(segment)]
    return [*events, *reassembly.finish()]


def sent(events: list[Event], side: Side) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Bytes) and event.side is side)


def dropped(events: list[Event]) -> list[int]:
    return [event.count for event in events if isinstance(event, Dropped)]


def handshake(first: int = 1000, second: int = 9000) -> list[Segment]:
    return [
        Segment(1, CLIENT, BROKER, first, syn=True),
        Segment(2, BROKER, CLIENT, second, syn=True, acknowledged=(first + 1) % 2**32),
    ]


def stream(data: bytes, sizes: list[int], first: int) -> list[Segment]:
    """The client's segments of these sizes; the last has the remainder."""
    segments, at = [], 0
    for size in [*sizes, len(data)]:
        part = data[at : at + size]
        if part:
            segments.append(Segment(10 + at, CLIENT, BROKER, (first + 1 + at) % 2**32, part))
        at += len(part)
    return segments


@given(
    data=st.binary(min_size=1, max_size=300),
    sizes=st.lists(st.integers(1, 40), max_size=20),
    first=st.sampled_from([0, 1000, 2**31 - 50, 2**32 - 1, 2**32 - 100]),
    seed=st.integers(0, 1000),
    again=st.lists(st.integers(1, 60), max_size=10),
)
def test_segments_that_are_repeated_and_reordered_become_the_stream(
    data: bytes, sizes: list[int], first: int, seed: int, again: list[int]
) -> None:
    segments = stream(data, sizes, first) + stream(data, again, first)
    random.Random(seed).shuffle(segments)
    events = run(handshake(first) + segments)
    assert sent(events, Side.CLIENT) == data
    assert not dropped(events)


@given(
    data=st.binary(min_size=1, max_size=300),
    sizes=st.lists(st.integers(1, 40), min_size=3, max_size=20),
    lost=st.sets(st.integers(0, 20)),
    seed=st.integers(0, 1000),
)
def test_missing_segments_are_dropped_and_counted(
    data: bytes, sizes: list[int], lost: set[int], seed: int
) -> None:
    segments = stream(data, sizes, 1000)
    kept = [segment for number, segment in enumerate(segments) if number not in lost]
    last = max((segment.sequence + len(segment.data) - 1001 for segment in kept), default=0)
    expected = b"".join(segment.data for segment in kept)
    random.Random(seed).shuffle(kept)
    events = run(handshake() + kept)
    assert sent(events, Side.CLIENT) == expected
    assert sum(dropped(events)) == last - len(expected)
    times = [event.time_ns for event in events]
    assert times == sorted(times)


def test_a_gap_is_lost_once_more_bytes_wait_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "WAITING_BYTES_MAX", 1000)
    reassembly = Reassembly()
    for segment in handshake():
        list(reassembly.feed(segment))
    found: list[Event] = []
    for number in range(1, 40):
        found += reassembly.feed(Segment(9, CLIENT, BROKER, 1001 + 50 * number, b"a" * 50))
    assert dropped(found) == [50]
    assert sent(found, Side.CLIENT) == b"a" * 50 * 39


def test_many_small_segments_behind_a_gap_take_time_in_proportion_to_their_number() -> None:
    """30,000 segments in reverse order: with a pass over all of them per segment this takes minutes."""
    count = 30_000
    segments = [Segment(9, CLIENT, BROKER, 1001 + number, b"a") for number in reversed(range(count))]
    assert sent(run(handshake() + segments), Side.CLIENT) == b"a" * count


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Segment], set[int]]:
    """Segments of requests and responses, each of which acknowledges all before it, in nearly the order in
    which they were sent, and the numbers of those that the capture lacks.
    """
    at, segments = [1001, 9001], list[Segment]()
    for number, size in enumerate(draw(st.lists(st.integers(1, 30), min_size=2, max_size=20))):
        side = draw(st.integers(0, 1))
        ends = (CLIENT, BROKER) if side == 0 else (BROKER, CLIENT)
        segments.append(Segment(3 + number, *ends, at[side], b"a" * size, acknowledged=at[1 - side]))
        at[side] += size
    for number in draw(st.lists(st.integers(1, len(segments) - 1), max_size=5)):
        segments[number - 1], segments[number] = segments[number], segments[number - 1]
    return segments, draw(st.sets(st.integers(0, len(segments) - 1), max_size=3))


@given(conversations())
def test_bytes_come_behind_those_that_their_sender_had_received(made: tuple[list[Segment], set[int]]) -> None:
    """Missing bytes have their `Dropped` there, so a reader knows of the gap when an answer comes."""
    segments, lost = made
    needed: dict[tuple[Side, int], int] = {}
    for segment in segments:
        side, first, other = (
            (Side.CLIENT, 1001, 9001) if segment.source == CLIENT else (Side.SERVER, 9001, 1001)
        )
        assert segment.acknowledged is not None
        needed |= {
            (side, segment.sequence - first + at): segment.acknowledged - other
            for at in range(len(segment.data))
        }
    received = dict.fromkeys(Side, 0)
    kept = [segment for number, segment in enumerate(segments) if number not in lost]
    for event in run(handshake() + kept):
        if isinstance(event, Bytes):
            for _byte in event.data:
                assert received[Side(1 - event.side)] >= needed[event.side, received[event.side]]
                received[event.side] += 1
        elif isinstance(event, Dropped):
            received[event.side] += event.count
    for segment in kept:
        first = 1001 if segment.source == CLIENT else 9001
        assert received[Side(segment.source != CLIENT)] >= segment.sequence - first + len(segment.data)


def test_acknowledged_bytes_are_lost_after_a_second_where_they_were_sent() -> None:
    second = 1_000_000_000
    reassembly = Reassembly()
    for segment in handshake():
        list(reassembly.feed(segment))
    answer = Segment(3, BROKER, CLIENT, 9001, b"answer", acknowledged=1006)
    assert list(reassembly.feed(answer)) == []
    assert list(reassembly.feed(Segment(4, CLIENT, BROKER, 1006, b"next", acknowledged=9007))) == []
    more = Segment(3 + second, BROKER, CLIENT, 9007, b"more", acknowledged=1010)
    assert list(reassembly.feed(more)) == []
    last = Segment(4 + second, CLIENT, BROKER, 1010, acknowledged=9011)
    now = 4 + second
    assert list(reassembly.feed(last)) == [
        Dropped(0, now, Side.CLIENT, 5),
        Bytes(0, now, Side.SERVER, b"answer"),
        Bytes(0, now, Side.CLIENT, b"next"),
        Bytes(0, now, Side.SERVER, b"more"),
    ]


def test_bytes_that_only_an_acknowledgement_names_are_dropped_at_the_end() -> None:
    events = run([*handshake(), Segment(3, BROKER, CLIENT, 9001, acknowledged=1050)])
    assert events[1:] == [
        Dropped(0, 3, Side.CLIENT, 49),
        Closed(0, 3, Side.CLIENT),
        Closed(0, 3, Side.SERVER),
    ]


def test_bytes_that_the_capture_cut_from_a_packet_are_dropped() -> None:
    cut = Segment(3, CLIENT, BROKER, 1001, b"ask", cut=7)
    assert run([*handshake(), cut])[1:3] == [Bytes(0, 3, Side.CLIENT, b"ask"), Dropped(0, 3, Side.CLIENT, 7)]
    answer = Segment(4, BROKER, CLIENT, 9001, b"answer", acknowledged=1011)
    assert run([*handshake(), cut, answer])[1:4] == [
        Bytes(0, 3, Side.CLIENT, b"ask"),
        Dropped(0, 4, Side.CLIENT, 7),
        Bytes(0, 4, Side.SERVER, b"answer"),
    ]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_packet_of_the_opening_hides_no_byte(lost: int) -> None:
    opening = handshake()
    del opening[lost]
    events = run(
        [
            *opening,
            Segment(3, CLIENT, BROKER, 1001, acknowledged=9001),
            Segment(4, CLIENT, BROKER, 1001, b"ask", acknowledged=9001),
            Segment(5, BROKER, CLIENT, 9001, b"answer", acknowledged=1004),
        ]
    )
    assert events[1:3] == [Bytes(0, 4, Side.CLIENT, b"ask"), Bytes(0, 5, Side.SERVER, b"answer")]


def test_an_acknowledged_end_is_no_missing_byte() -> None:
    """The broker's acknowledgement of the FIN lies before the FIN in the file."""
    events = run(
        [
            *handshake(),
            Segment(3, CLIENT, BROKER, 1001, b"ask", acknowledged=9001),
            Segment(4, BROKER, CLIENT, 9001, b"answer", fin=True, acknowledged=1005),
            Segment(5, CLIENT, BROKER, 1004, fin=True, acknowledged=9001),
        ]
    )
    assert not dropped(events)
    assert sent(events, Side.SERVER) == b"answer"


def test_acknowledgements_that_contradict_each_other_hold_nothing_for_ever() -> None:
    """Each side claims to have received the bytes of the other before it sent its own."""
    events = run(
        [
            *handshake(),
            Segment(3, CLIENT, BROKER, 1001, b"ask", acknowledged=9007),
            Segment(4, BROKER, CLIENT, 9001, b"answer", acknowledged=1004),
            Segment(5, BROKER, CLIENT, 9007, acknowledged=1001 + 2**31 - 1),
        ]
    )
    assert (sent(events, Side.CLIENT), sent(events, Side.SERVER)) == (b"ask", b"answer")


def test_the_connection_that_is_silent_longest_ends_for_one_above_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp, "CONNECTIONS_MAX", 2)
    ends = [TcpEndpoint("10.0.0.1", 50_000 + number) for number in range(3)]
    order = [0, 1, 0, 2]
    reassembly = Reassembly()
    events = [
        event
        for time_ns, number in enumerate(order)
        for event in reassembly.feed(Segment(time_ns, ends[number], BROKER, 10, syn=True))
    ]
    assert [event for event in events if isinstance(event, Closed)] == [
        Closed(1, 3, Side.CLIENT),
        Closed(1, 3, Side.SERVER),
    ]


def test_both_sides_end_with_their_fins() -> None:
    events = run(
        [
            *handshake(),
            Segment(3, CLIENT, BROKER, 1001, b"ask", fin=True),
            Segment(4, BROKER, CLIENT, 9001, b"answer"),
            Segment(5, BROKER, CLIENT, 9007, fin=True),
        ]
    )
    assert events == [
        Opened(0, 1, "10.0.0.1:50000", "10.0.0.2:9092"),
        Bytes(0, 3, Side.CLIENT, b"ask"),
        Closed(0, 3, Side.CLIENT),
        Bytes(0, 4, Side.SERVER, b"answer"),
        Closed(0, 5, Side.SERVER),
    ]


def test_a_reset_ends_both_sides() -> None:
    events = run([*handshake(), Segment(3, BROKER, CLIENT, 9001, rst=True)])
    assert [type(event) for event in events] == [Opened, Closed, Closed]


def test_a_fin_before_the_missing_bytes_ends_the_side_behind_them() -> None:
    events = run(
        [*handshake(), Segment(3, CLIENT, BROKER, 1004, fin=True), Segment(4, CLIENT, BROKER, 1001, b"abc")]
    )
    assert events[1:3] == [Bytes(0, 4, Side.CLIENT, b"abc"), Closed(0, 4, Side.CLIENT)]


def test_a_new_connection_between_the_same_ends_is_another_one() -> None:
    events = run([*handshake(), Segment(3, CLIENT, BROKER, 1001, b"a"), *handshake(5000, 6000)])
    assert [event.connection for event in events if isinstance(event, Opened)] == [0, 1]


def test_a_repeated_syn_opens_no_second_connection() -> None:
    events = run([*handshake(), *handshake(), Segment(3, CLIENT, BROKER, 1001, b"a"), *handshake()])
    assert len([event for event in events if isinstance(event, Opened)]) == 1


def test_a_connection_without_its_beginning_has_missing_bytes() -> None:
    events = run([Segment(3, BROKER, CLIENT, 77, b"answer"), Segment(4, CLIENT, BROKER, 55, b"ask")])
    assert events[:5] == [
        Opened(0, 3, str(CLIENT), str(BROKER)),  # the lower port is the broker's
        Dropped(0, 3, Side.SERVER, 1),
        Bytes(0, 3, Side.SERVER, b"answer"),
        Dropped(0, 4, Side.CLIENT, 1),
        Bytes(0, 4, Side.CLIENT, b"ask"),
    ]


def test_only_connections_of_the_named_ports_are_read() -> None:
    other = Segment(1, CLIENT, TcpEndpoint("10.0.0.3", 443), 1, b"https")
    odd = TcpEndpoint("10.0.0.2", 60_000)
    events = run([other, Segment(2, odd, CLIENT, 1, b"answer")], frozenset({60_000}))
    assert events[0] == Opened(0, 2, str(CLIENT), str(odd))
    assert sent(events, Side.SERVER) == b"answer"
    assert sent(events, Side.CLIENT) == b""


def test_addresses_of_ipv6_have_brackets() -> None:
    assert str(TcpEndpoint("::1", 9092)) == "[::1]:9092"
