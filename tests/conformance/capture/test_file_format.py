"""Capture files: written and read again, cut, damaged, continued."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.conformance.capture import (
    CaptureError,
    CaptureReader,
    CaptureWriter,
    DamagedCaptureError,
    Run,
    blocks,
    read,
    writer,
)
from weir.conformance.capture.reader import read_index, read_selected
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

RUN = Run(time_ns=1, source="kafka-1:9092", tool="test")
NUMBERS, TIMES, SIDES = st.integers(0, 5), st.integers(0, 2**62), st.sampled_from(Side)
EVENTS = st.lists(
    st.one_of(
        st.builds(Opened, NUMBERS, TIMES, st.text(), st.text(), st.text()),
        st.builds(Bytes, NUMBERS, TIMES, SIDES, st.binary(max_size=100)),
        st.builds(Closed, NUMBERS, TIMES, SIDES),
        st.builds(Dropped, NUMBERS, TIMES, SIDES, st.integers(1, 2**40)),
    ),
    max_size=30,
)


def some_events(count: int, first: int = 0) -> list[Event]:
    opened: list[Event] = [Opened(first, 10, "c:1", "s:2", "a"), Opened(first + 1, 10, "c:2", "s:2", "b")]
    sent = [Bytes(first + n % 2, 11 + n, Side(n // 2 % 2), bytes([n % 256]) * 20) for n in range(count)]
    return [*opened, *sent]


def written(path: Path, events: list[Event], flush_every: int = 0) -> bytes:
    """Write the events, with a block for each `flush_every`, and return the file's bytes."""
    with CaptureWriter(path, RUN) as capture:
        for number, event in enumerate(events, 1):
            capture.write(event)
            if flush_every and number % flush_every == 0:
                capture.flush()
    return path.read_bytes()


class Pipe(io.RawIOBase):
    """A source that is not seekable and gives at most seven bytes at once."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        part = self._data.read(min(7, len(buffer)))  # type: ignore[arg-type]
        buffer[: len(part)] = part  # type: ignore[index]
        return len(part)


@given(events=EVENTS, flush_every=st.integers(0, 5))
def test_events_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], flush_every: int
) -> None:
    path = tmp_path_factory.mktemp("capture") / "c"
    data = written(path, events, flush_every)
    reader = CaptureReader(path)
    assert list(reader) == events
    assert reader.runs == [RUN]
    assert list(read(io.BytesIO(data))) == events
    assert list(read(Pipe(data))) == events  # type: ignore[arg-type]  # a RawIOBase
    assert sum(entry.events for entry in read_index(path)) == len(events)


def test_every_truncation_yields_a_prefix_of_the_events_and_is_told(tmp_path: Path) -> None:
    events = some_events(9)
    data = written(tmp_path / "c", events, 4)
    seen = set()
    for end in range(blocks.FILE_HEAD.size, len(data)):
        told: list[str] = []
        found = list(read(io.BytesIO(data[:end]), told.append))
        assert found == events[: len(found)]
        assert len(told) == 1, end
        seen.add(len(found))
        with pytest.raises(DamagedCaptureError):
            list(read(io.BytesIO(data[:end])))
    assert seen == {0, 4, 8, 11}


def test_every_truncation_can_be_continued(tmp_path: Path) -> None:
    events, more = some_events(5), some_events(3, first=9)
    path = tmp_path / "c"
    data = written(path, events, 3)
    for end in range(blocks.FILE_HEAD.size, len(data)):
        path.write_bytes(data[:end])
        before = list(read(path, lambda _damage: None))
        with CaptureWriter(path, RUN) as capture:
            assert capture.repaired
            assert capture.next_connection == (max((e.connection for e in before), default=-1) + 1)
            for event in more:
                capture.write(event)
        assert list(read(path)) == [*before, *more]
        assert sum(entry.events for entry in read_index(path)) == len(before) + len(more)


@pytest.mark.parametrize("end", range(blocks.FILE_HEAD.size))
def test_a_file_without_the_whole_head_is_no_capture(end: int, tmp_path: Path) -> None:
    data = written(tmp_path / "c", [])
    with pytest.raises(CaptureError, match="not a capture"):
        list(read(io.BytesIO(data[:end])))


def test_every_changed_byte_is_told_and_yields_only_whole_blocks(tmp_path: Path) -> None:
    events = some_events(6)
    data = written(tmp_path / "c", events, 4)
    prefixes = [events[:count] for count in (0, 4, 8)]
    for position in range(blocks.FILE_HEAD.size, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0xFF
        told: list[str] = []
        assert list(read(io.BytesIO(bytes(changed)), told.append)) in prefixes
        assert told, position


def test_a_newer_version_of_the_format_is_refused(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "c", []))
    data[9] = 2
    with pytest.raises(CaptureError, match="version 2 of the capture format; this Weir reads 1"):
        list(read(io.BytesIO(bytes(data))))


def test_blocks_of_unknown_kinds_are_skipped(tmp_path: Path) -> None:
    events = some_events(2)
    data = written(tmp_path / "c", events)
    unknown = blocks.block(99, b"later")  # type: ignore[arg-type]  # no Kind
    head = blocks.FILE_HEAD.size
    assert list(read(io.BytesIO(data[:head] + unknown + data[head:]))) == events


def test_a_block_that_unpacks_to_more_than_it_says_is_damaged(tmp_path: Path) -> None:
    good = blocks.block(blocks.BlockKind.EVENTS, b"\0" * 100_000)
    bomb = blocks.BLOCK_HEAD.pack(*blocks.BLOCK_HEAD.unpack(good[:16])[:4], 10, 0)
    crc = blocks._crc(bomb[:12], good[16:])
    bomb = bomb[:12] + crc.to_bytes(4, "big") + good[16:]
    path = tmp_path / "c"
    path.write_bytes(blocks.file_head() + bomb)
    with pytest.raises(DamagedCaptureError, match="another size than its head says"):
        list(read(path))


def test_a_small_block_of_millions_of_events_is_damaged_and_costs_nothing() -> None:
    count = 3_000_000
    bomb = b"\xdd" + count.to_bytes(4) + b"\x94\2\0\1\0" * count  # Closed(0, 1, Side.CLIENT)
    data = blocks.file_head() + blocks.block(blocks.BlockKind.EVENTS, bomb)
    assert len(data) < len(bomb) // 100
    tracemalloc.start()
    with pytest.raises(DamagedCaptureError, match="more than 100000 events"):
        list(read(io.BytesIO(data)))
    assert tracemalloc.get_traced_memory()[1] < 2 * blocks.PAYLOAD_BYTES_MAX
    tracemalloc.stop()


def test_runs_continue_a_file_and_its_connection_numbers(tmp_path: Path) -> None:
    path = tmp_path / "c"
    written(path, some_events(3), 2)
    with CaptureWriter(path, Run(time_ns=2, blanked=True)) as capture:
        assert capture.next_connection == 2
        assert not capture.repaired
        for event in some_events(3, first=2):
            capture.write(event)
    reader = CaptureReader(path)
    assert list(reader) == [*some_events(3), *some_events(3, first=2)]
    assert [run.blanked for run in reader.runs] == [False, True]
    assert reader.blanked
    assert sum(entry.events for entry in read_index(path)) == 10


def test_indexes_form_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "INDEX_ENTRIES", 2)
    path, events = tmp_path / "c", some_events(9)
    written(path, events, 1)
    entries = read_index(path)
    assert len(entries) == len(events)
    assert entries == sorted(entries, key=lambda entry: entry.offset)


def test_selected_events_are_those_of_the_times_and_connections(tmp_path: Path) -> None:
    path, events = tmp_path / "c", some_events(20)
    written(path, events, 3)
    for since, until, number in itertools.product((0, 15), (None, 18), (None, 1)):
        wanted = None if number is None else {number}
        expected = [
            event
            for event in events
            if event.time_ns >= since
            and (until is None or event.time_ns <= until)
            and (number is None or event.connection == number)
        ]
        assert list(read_selected(path, since_ns=since, until_ns=until, connections=wanted)) == expected


def test_a_selection_does_not_read_other_blocks(tmp_path: Path) -> None:
    path = tmp_path / "c"
    data = bytearray(written(path, some_events(20), 3))
    first, second = read_index(path)[:2]
    data[second.offset + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    assert list(read_selected(path, until_ns=first.last_ns))
    with pytest.raises(DamagedCaptureError):
        list(read_selected(path))


def test_an_index_is_rebuilt_if_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "c"
    data = written(path, some_events(9), 4)
    whole = read_index(path)
    path.write_bytes(data[:-1])
    assert read_index(path) == whole


def test_a_file_that_another_writer_has_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with CaptureWriter(path, RUN), pytest.raises(CaptureError, match="another process"):
        CaptureWriter(path, RUN)


def test_a_file_of_something_else_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"no capture at all")
    with pytest.raises(CaptureError, match="not a capture"):
        CaptureWriter(path, RUN)
    assert path.read_bytes() == b"no capture at all"


def test_a_capture_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    written(tmp_path / "c", [])
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600


def test_long_data_is_split_into_several_events(tmp_path: Path) -> None:
    path, data = tmp_path / "c", bytes(range(256)) * 10_000
    written(path, [Bytes(0, 1, Side.CLIENT, data)])
    found = [event.data for event in read(path) if isinstance(event, Bytes)]
    assert len(found) > 1
    assert b"".join(found) == data


def test_reading_takes_memory_of_a_few_blocks_whatever_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with CaptureWriter(path, RUN) as capture:
        for number in range(640):
            capture.write(Bytes(0, number, Side.CLIENT, number.to_bytes(4, "big") * 8192))
    tracemalloc.start()
    try:
        assert sum(len(event.data) for event in read(path) if isinstance(event, Bytes)) == 640 * 32768
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * writer.BLOCK_BYTES


def test_blocks_with_many_connections_have_an_index_below_the_maximum_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 5000 connections with numbers above 65,535 would reach in 1024 blocks."""
    monkeypatch.setattr(blocks, "PAYLOAD_BYTES_MAX", 300_000)
    monkeypatch.setattr(writer, "INDEX_CONNECTIONS", 20_000)
    with CaptureWriter(tmp_path / "c", Run(1)) as out:
        for _ in range(100):
            for number in range(1000):
                out.write(Closed(70_000 + number, 1, Side.CLIENT))
            out.flush()
    assert sum(len(entry.connections) for entry in read_index(tmp_path / "c")) == 100_000


def test_the_largest_index_is_below_the_maximum_size() -> None:
    largest = blocks.IndexEntry(1 << 60, 1 << 60, 1 << 60, 1 << 30, 1 << 60, [1 << 30] * writer.BLOCK_EVENTS)
    count = writer.INDEX_CONNECTIONS // writer.BLOCK_EVENTS + 1
    assert len(blocks.encode([largest] * count)) < blocks.PAYLOAD_BYTES_MAX
