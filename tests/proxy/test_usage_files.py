"""Files of usage records: rotated, renamed whole, bounded, finished for the dead; a full disk spoils none."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proxy.usage_rigs import WALL_S, Desk, requests_in, text_of, usage_record
from weir.proxy.control.usage import outlet
from weir.proxy.control.usage.compression import FRAMES_BYTES, pack
from weir.proxy.control.usage.directory import PartFile, finish_for_the_dead, finished_name, unfinished_name
from weir.proxy.control.usage.files import FileRules
from weir.proxy.control.usage.outlet import OutletError
from weir.proxy.control.usage.tally import Kind, Loss
from weir.usage import UsageRecord

FIRST, SECOND = (finished_name(Kind.USAGE, "weir", number) for number in (1, 2))
ROOT = Path(__file__).parents[2]


# Writing and rotating


def test_a_usage_file_is_hidden_until_it_is_finished(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path)
    record = usage_record(7, user='ali"ce\n', client_id="ä")
    assert files.write(Kind.USAGE, [record, usage_record(8)]) == 2
    assert desk.names() == [unfinished_name(FIRST)]
    assert desk.names()[0].startswith("."), "readers of directories leave such out"
    files.close(1)
    assert desk.names() == [FIRST]
    lines = text_of(tmp_path / FIRST).splitlines()
    assert [msgspec.json.decode(line, type=UsageRecord) for line in lines] == [record, usage_record(8)]
    assert desk.tally.written == {Kind.USAGE: 2, Kind.TRACE: 0, Kind.EVENT: 0}
    assert desk.tally.written_bytes == (tmp_path / FIRST).stat().st_size
    assert desk.tally.last_written_s == WALL_S


def test_a_usage_file_is_finished_after_its_rotation_time(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path)
    files.write(Kind.USAGE, [usage_record(1)])
    desk.now_s = 59.9
    files.tend()
    assert desk.names() == [unfinished_name(FIRST)]
    desk.now_s = 60
    files.tend()
    files.tend()
    assert desk.names() == [FIRST]
    files.write(Kind.USAGE, [usage_record(2)])
    files.close(1)
    assert [requests_in(tmp_path / name) for name in (FIRST, SECOND)] == [[1], [2]]
    assert desk.tally.finished_files == 2


def test_a_usage_file_is_finished_at_its_rotation_size(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path, FileRules(1e9, 4096, 0))
    for number in range(100):
        files.tend()
        files.write(Kind.USAGE, [usage_record(number)])
    files.close(1)
    lengths = [(tmp_path / name).stat().st_size for name in desk.names()]
    assert len(lengths) > 2
    assert all(4096 <= length < 4096 + len(pack(outlet.lines([usage_record(99)]))) for length in lengths[:-1])
    assert list(chain.from_iterable(requests_in(tmp_path / name) for name in desk.names())) == list(
        range(100)
    )


def test_names_that_are_no_unicode_are_written_with_question_marks(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    files = desk.files()
    files.write(Kind.USAGE, [usage_record(1, user="half \ud83d"), usage_record(2, client_id="\udc80")])
    files.close(1)
    lines = text_of(tmp_path / FIRST).splitlines()
    first, second = (msgspec.json.decode(line, type=UsageRecord) for line in lines)
    assert (first.user, second.client_id) == ("half ?", "?")


def test_usage_files_are_readable_by_owner_and_group_only(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    files = desk.files()
    files.write(Kind.USAGE, [usage_record()])
    files.close(1)
    assert (tmp_path / FIRST).stat().st_mode & 0o137 == 0


# Bounded


def test_the_oldest_finished_usage_files_are_deleted_and_counted(tmp_path: Path) -> None:
    for age, name in enumerate(["usage-b-1.jsonl.zst", "trace-a-1.jsonl.zst", "usage-a-1.jsonl.zst"]):
        (tmp_path / name).write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    others = ["notes.txt", ".hidden", "usage-late.parquet"]
    for name in others:
        (tmp_path / name).write_bytes(b"x" * 100_000)
    desk = Desk(tmp_path, FileRules(60, 4096, 2300))
    files = desk.files()
    files.write(Kind.USAGE, [usage_record()])
    files.close(1)
    assert desk.names() == sorted(["trace-a-1.jsonl.zst", "usage-a-1.jsonl.zst", FIRST, *others])
    assert (desk.tally.deleted_files, desk.tally.deleted_bytes) == (1, 1000)


# The dead, and the living


def recovered(directory: Path, name: str, content: bytes) -> bytes | None:
    """Return the lines of the only file after a start that has found this content of an unfinished file; None
    if no file is left.
    """
    (directory / unfinished_name(name)).write_bytes(content)
    desk = Desk(directory)
    desk.files().open()
    assert desk.tally.recovered_files == 1
    assert desk.names() in ([name], [])
    return text_of(directory / name) if desk.names() else None


PACKED = [pa.compress(line, "zstd", asbytes=True) for line in (b"one\n", b"two\n")]
"""Frames of another library than Weir's."""
NOISE = bytes(random.Random(1).randbytes(FRAMES_BYTES // 3))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (PACKED[0] + PACKED[1], b"one\ntwo\n"),
        *((PACKED[0] + PACKED[1][:length], b"one\n") for length in range(len(PACKED[1]))),
        (PACKED[0] + bytes(4096), b"one\n"),
        (3 * pa.compress(NOISE, "zstd", asbytes=True) + 2 * PACKED[0], 3 * NOISE + 2 * b"one\n"),
        (PACKED[0][:-1], None),
        (b"one\n", None),
        (b"", None),
    ],
)
def test_a_killed_processs_compressed_usage_file_is_cut_after_its_last_whole_frame(
    tmp_path: Path, content: bytes, lines: bytes | None
) -> None:
    assert recovered(tmp_path, "usage-other-00000004.jsonl.zst", content) == lines


def test_whole_frames_of_a_killed_process_are_recovered(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from weir.proxy.control.usage.tally import Kind
from tests.proxy.usage_rigs import Desk, usage_record
desk = Desk(Path({str(tmp_path)!r}), instance="killed")
files = desk.files()
files.open()
for number in range(10**9):
    files.write(Kind.USAGE, [usage_record(number)])
    if number == 1000:
        print("written", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        desk = Desk(tmp_path)
        desk.files().open()
        assert desk.tally.recovered_files == 0, "it lives"
        process.send_signal(signal.SIGKILL)
    desk.files().open()
    (name,) = desk.names()
    assert name == finished_name(Kind.USAGE, "killed", 1)
    found = requests_in(tmp_path / name)
    assert found == list(range(len(found)))
    assert len(found) > 1000


def test_a_usage_file_finished_during_recovery_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = PartFile(tmp_path / unfinished_name(FIRST))
    part.append(b"{}\n", 1)
    really = fcntl.flock

    def finished_before_the_lock(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", really)
        part.finish(FIRST)
        really(fd, how)

    monkeypatch.setattr(fcntl, "flock", finished_before_the_lock)
    assert finish_for_the_dead(tmp_path / unfinished_name(FIRST), FIRST) == -1
    assert [entry.name for entry in tmp_path.iterdir()] == [FIRST]


@pytest.mark.parametrize("done", [False, True])
def test_another_process_may_finish_a_usage_file_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """Between its making and its lock a file looks like one of the dead; the other is done, or at it."""
    really = fcntl.flock

    def lock_lost(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", really)
        assert finish_for_the_dead(tmp_path / unfinished_name(FIRST), FIRST) == 0
        if not done:
            raise BlockingIOError(errno.EAGAIN, "")
        really(fd, how)

    desk = Desk(tmp_path)
    files = desk.files()
    monkeypatch.setattr(fcntl, "flock", lock_lost)
    files.write(Kind.USAGE, [usage_record(5)])
    files.close(1)
    assert desk.names() == [SECOND]
    assert requests_in(tmp_path / SECOND) == [5]


def test_a_leftover_usage_file_that_cannot_be_finished_does_not_stop_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = unfinished_name("usage-other-1.jsonl.zst")
    (tmp_path / left).write_bytes(b"{}\n")

    def not_ours(_path: Path, _name: str) -> int:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr("weir.proxy.control.usage.directory.finish_for_the_dead", not_ours)
    desk, files = Desk.opened(tmp_path)
    files.write(Kind.USAGE, [usage_record()])
    files.close(1)
    assert desk.names() == sorted([left, FIRST])


def test_a_symbolic_link_named_like_a_leftover_is_not_followed(tmp_path: Path) -> None:
    """Who may make names in the directory may not cut off files elsewhere with Weir's rights."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("whole line\nand the end")
    directory = tmp_path / "usage"
    directory.mkdir()
    left = unfinished_name("usage-other-1.jsonl.zst")
    (directory / left).symlink_to(elsewhere)
    desk = Desk(directory)
    desk.files().open()
    assert elsewhere.read_text() == "whole line\nand the end"
    assert desk.names() == [left]
    assert desk.tally.recovered_files == 0


# Disks that fail


def test_a_usage_file_that_is_written_can_be_read_up_to_its_latest_write(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path)
    for number in range(1, 4):
        files.write(Kind.USAGE, [usage_record(number)])
        (name,) = desk.names()
        text = text_of((tmp_path / name).rename(tmp_path / name.removesuffix(".part")))
        assert [json.loads(line).get("requests") for line in text.splitlines()] == list(range(1, number + 1))
        (tmp_path / name.removesuffix(".part")).rename(tmp_path / name)


def test_a_compressed_usage_file_is_a_tenth_as_large_and_has_checksums(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path)
    records = [usage_record(number) for number in range(100)]
    files.write(Kind.USAGE, records)
    files.close(1)
    assert desk.names() == [FIRST]
    content = (tmp_path / FIRST).read_bytes()
    assert desk.tally.written_bytes == len(content) < len(outlet.lines(records)) / 10
    (tmp_path / FIRST).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(OSError, match="checksum"):
        text_of(tmp_path / FIRST)


def test_a_frame_that_cannot_be_truncated_is_written_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, files = Desk.opened(tmp_path)
    files.write(Kind.USAGE, [usage_record(1)])
    desk.disk.room = 30

    def fails(_fd: int, _length: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(OutletError, match="no space left"):
            files.write(Kind.USAGE, [usage_record(2), usage_record(3)])
    desk.disk.room = None
    files.open()  # as after each failure
    files.write(Kind.USAGE, [usage_record(2), usage_record(3)])
    files.close(1)
    assert [requests_in(tmp_path / name) for name in desk.names()] == [[1], [2, 3]]
    assert desk.tally.written[Kind.USAGE] == 3


def test_usage_files_keep_whole_frames_on_a_full_disk(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path)
    files.write(Kind.USAGE, [usage_record(1)])
    before = (tmp_path / unfinished_name(FIRST)).read_bytes()
    desk.disk.room = 30
    with pytest.raises(OutletError, match=rf"cannot write to {re.escape(str(tmp_path))}: no space left"):
        files.write(Kind.USAGE, [usage_record(2), usage_record(3)])
    assert (tmp_path / unfinished_name(FIRST)).read_bytes() == before
    desk.disk.room = None
    files.write(Kind.USAGE, [usage_record(2), usage_record(3)])
    files.close(1)
    assert requests_in(tmp_path / FIRST) == [1, 2, 3]
    assert desk.tally.written[Kind.USAGE] == 3


def test_a_usage_file_that_fails_to_sync_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    files = desk.files()
    files.write(Kind.USAGE, [usage_record(1)])

    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    desk.now_s = 60
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OutletError):
            files.tend()
    assert desk.names() == [unfinished_name(FIRST)]
    files.open()
    assert requests_in(tmp_path / FIRST) == [1]
    assert desk.tally.dropped[Loss.FILE_LOST] == 0


def test_a_deleted_usage_directory_is_made_again_and_its_records_counted_lost(tmp_path: Path) -> None:
    desk, files = Desk.opened(tmp_path / "usage")
    files.write(Kind.USAGE, [usage_record(1), usage_record(2)])
    (desk.path / unfinished_name(FIRST)).unlink()
    desk.path.rmdir()
    desk.now_s = 60
    with pytest.raises(OutletError):
        files.tend()
    assert desk.tally.dropped[Loss.FILE_LOST] == 2
    files.open()
    files.write(Kind.USAGE, [usage_record(3)])
    files.close(1)
    assert requests_in(desk.path / SECOND) == [3]


# Whatever happens in whatever order

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.integers(1, 90)),
        st.tuples(st.just("room"), st.integers(0, 700)),
        st.tuples(st.just("enough room"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 200)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


class Watched:
    """A directory that is looked at after each event, as a streaming reader might."""

    def __init__(self, path: Path) -> None:
        self.desk = Desk(path, FileRules(60, 4096, 0))
        self.lives = 0
        self.next = 0
        self.written: list[int] = []
        self.seen: dict[str, list[int]] = {}
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.desk.instance = f"weir{self.lives}"
        self.files = self.desk.files()
        self.files.open()

    def write(self, count: int) -> None:
        numbers = range(self.next, self.next + count)
        self.next += count
        try:
            self.files.write(Kind.USAGE, [usage_record(number) for number in numbers])
        except OutletError:
            return
        self.written += numbers

    def wait(self, seconds: int) -> None:
        self.desk.now_s += seconds
        self.files.tend()

    def kill(self, half_bytes: int) -> None:
        """What kill -9 leaves: no lock, and perhaps a part of a line or frame."""
        half = pack(b"x" * 10_000 + bytes(range(256)))[:half_bytes]
        for writing in self.files._writing.values():
            writing.part.leave()
            with writing.part.path.open("ab") as file:
                file.write(half)
        self.begin()

    def restart(self) -> None:
        self.files.close(1)
        self.begin()

    def look(self) -> None:
        """Files that can be seen are whole, and never change."""
        for path in self.desk.path.iterdir():
            if not path.name.startswith("."):
                found = requests_in(path)
                assert self.seen.setdefault(path.name, found) == found
                assert found


@settings(max_examples=15)
@given(EVENTS)
def test_a_reader_sees_whole_unchanging_usage_files(events: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        watched = Watched(Path(directory))
        for what, amount in events:
            match what:
                case "room":
                    watched.desk.disk.room = amount
                case "enough room":
                    watched.desk.disk.room = None
                case "restart":
                    watched.restart()
                case _:
                    getattr(watched, what)(amount)
            watched.look()
        watched.restart()
        watched.look()
        assert sorted(chain.from_iterable(watched.seen.values())) == watched.written
        assert watched.desk.names() == sorted(watched.seen)
        assert watched.desk.tally.written[Kind.USAGE] == len(watched.written)
