"""Records, clocks and disks for tests of the recording of usage."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec
import pyarrow as pa

from weir.proxy.control.usage.files import FileClocks, FileRules, UsageFiles
from weir.proxy.control.usage.tally import Tally
from weir.usage import VERSION, TraceRecord, UsageRecord

WALL_S = 1_763_775_570.0
RULES = FileRules(rotate_s=60, rotate_bytes=64 * 1024 * 1024, keep_bytes=0)


def usage_record(requests: int = 1, user: str = "alice", client_id: str = "app") -> UsageRecord:
    """One that `requests` tells from others."""
    return UsageRecord(
        version=VERSION,
        time_ms=0,
        interval_ms=1000,
        instance="weir",
        broker=1,
        user=user,
        client_id=client_id,
        api="produce",
        requests=requests,
    )


def trace_record(bytes_in: int = 1) -> TraceRecord:
    """One that `bytes_in` tells from others."""
    return TraceRecord(
        version=VERSION,
        time_ms=0,
        instance="weir",
        broker=1,
        user="alice",
        client_id="app",
        connection=1,
        api="produce",
        api_key=0,
        api_version=9,
        bytes_in=bytes_in,
    )


@dataclass
class Disk:
    """`os.write` until it is full; what fits of the last write is written, as by a file system."""

    room: int | None = None
    """Bytes; None: enough."""
    piece: int = 1 << 30
    """The most that one call writes."""
    calls: int = 0

    def write(self, fd: int, data: memoryview) -> int:
        self.calls += 1
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        length = min(len(data), self.piece, len(data) if self.room is None else self.room)
        if self.room is not None:
            self.room -= length
        return os.write(fd, data[:length])


@dataclass
class Desk:
    path: Path
    rules: FileRules = RULES
    instance: str = "weir"
    disk: Disk = field(default_factory=Disk)
    tally: Tally = field(default_factory=Tally)
    now_s: float = 0.0

    @classmethod
    def opened(cls, path: Path, rules: FileRules = RULES) -> tuple[Self, UsageFiles]:
        desk = cls(path, rules)
        files = desk.files()
        files.open()
        return desk, files

    def files(self) -> UsageFiles:
        clocks = FileClocks(lambda: self.now_s, lambda: WALL_S + self.now_s)
        return UsageFiles(self.path, self.instance, self.rules, self.tally, clocks, self.disk.write)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir())


def text_of(path: Path) -> bytes:
    with pa.input_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as stream:
        return bytes(stream.read())


def requests_in(path: Path) -> list[int]:
    """What tells the records of a file from others; each of its lines must be a whole record."""
    content = text_of(path)
    assert content.endswith(b"\n")
    return [msgspec.json.decode(line, type=UsageRecord).requests for line in content.splitlines()]
