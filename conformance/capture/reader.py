"""Reads captures, one block at a time: memory does not grow with the file."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from weir.conformance.capture import blocks
from weir.conformance.capture.blocks import (
    Block,
    BlockKind,
    CaptureError,
    DamagedCaptureError,
    Index,
    IndexEntry,
    Run,
    read_block,
)
from weir.conformance.events import Event

Source: TypeAlias = str | Path | BinaryIO
"""Path of a capture, "-" for stdin, or an open binary file, which need not be seekable."""
OnDamage: TypeAlias = Callable[[str], None]

NOT_CLOSED: Final = "the capture was not closed, so events at its end may be missing"


class CaptureReader:
    """The events of a capture: iterate over it, once."""

    def __init__(self, source: Source, on_damage: OnDamage | None = None) -> None:
        """Read the events of `source`. At a damaged or cut tail, the iteration calls `on_damage` with one
        line of text and ends; without `on_damage` it raises DamagedCaptureError. It raises CaptureError if
        the source is no capture, OSError if the source cannot be read.
        """
        self.runs: list[Run] = []
        """Runs whose start has been read so far; the last one describes the present events. A file has
        few.
        """
        is_path = isinstance(source, str | Path)
        self.name = (
            "stdin" if source == "-" else str(source if is_path else getattr(source, "name", "a capture"))
        )
        self._source = source
        self._on_damage = on_damage

    @property
    def blanked(self) -> bool:
        """True if the present run has zeros in place of the payloads of records."""
        return bool(self.runs) and self.runs[-1].blanked

    def __iter__(self) -> Iterator[Event]:
        source = sys.stdin.buffer if self._source == "-" else self._source
        if isinstance(source, str | Path):
            with Path(source).open("rb") as file:
                yield from self._events(file)
        else:
            yield from self._events(source)

    def _events(self, file: BinaryIO) -> Iterator[Event]:
        try:
            for found in blocks_in(file, self.name):
                if found.kind == BlockKind.EVENTS:
                    yield from blocks.events_of(found)
                elif found.kind == BlockKind.RUN:
                    self.runs.append(blocks.run_of(found))
        except DamagedCaptureError as error:
            if self._on_damage is None:
                raise
            self._on_damage(str(error))


def read(source: Source, on_damage: OnDamage | None = None) -> Iterator[Event]:
    """Return the events of a capture; arguments and errors are those of `CaptureReader`."""
    return iter(CaptureReader(source, on_damage))


def blocks_in(file: BinaryIO, name: str) -> Iterator[Block]:
    """Return the blocks of a capture from the start of `file`. Raises CaptureError if the file is no capture;
    DamagedCaptureError, after the last good block, if the file is damaged or was not closed.
    """
    read = _reader(file)
    head = read(blocks.FILE_HEAD.size)
    blocks.check_file_head(head, name)
    offset, kind = len(head), 0
    try:
        while (found := read_block(read, offset)) is not None:
            yield found
            offset, kind = found.end, found.kind
    except DamagedCaptureError as error:
        raise DamagedCaptureError(f"{name}: {error}") from None
    if kind != BlockKind.END:
        raise DamagedCaptureError(f"{name}: {NOT_CLOSED}")


def read_index(path: Path) -> list[IndexEntry]:
    """Return the index entries of all blocks of events, in file order; rebuilt from the blocks if the file
    has no whole index. Raises CaptureError, OSError.
    """
    with path.open("rb") as file:
        entries = _stored_index(file)
        return _rebuilt(file, str(path)) if entries is None else entries


def read_selected(
    path: Path, *, since_ns: int = 0, until_ns: int | None = None, connections: Collection[int] | None = None
) -> Iterator[Event]:
    """Return the events from `since_ns` to `until_ns` inclusive (ns since the epoch) of these connections;
    None means no limit. Reads only blocks that can have such events. Raises CaptureError, OSError.
    """
    wanted = None if connections is None else frozenset(connections)

    def is_within(first_ns: int, last_ns: int) -> bool:
        return last_ns >= since_ns and (until_ns is None or first_ns <= until_ns)

    def is_wanted(event: Event) -> bool:
        return is_within(event.time_ns, event.time_ns) and (wanted is None or event.connection in wanted)

    entries = read_index(path)
    with path.open("rb") as file:
        for entry in entries:
            if is_within(entry.first_ns, entry.last_ns) and (
                wanted is None or not wanted.isdisjoint(entry.connections)
            ):
                yield from filter(is_wanted, blocks.events_of(_block_at(file, entry.offset)))


def last_index(file: BinaryIO) -> tuple[int, Index] | None:
    """Return the offset of the latest index block, and that index, if the file ends with an end block that
    leads to an index; else None.
    """
    try:
        end = file.seek(0, 2) - blocks.END_BLOCK_BYTES
        if end < blocks.FILE_HEAD.size:
            return None
        found = _block_at(file, end)
        if found.kind != BlockKind.END or len(found.payload) != blocks.END.size:
            return None
        (offset,) = blocks.END.unpack(found.payload)
        return (offset, blocks.index_of(_block_at(file, offset))) if offset else None
    except DamagedCaptureError:
        return None


def _stored_index(file: BinaryIO) -> list[IndexEntry] | None:
    parts: list[list[IndexEntry]] = []
    found = last_index(file)
    if found is None:
        return None
    offset, index = found
    parts.append(index.entries)
    while index.previous:
        if not blocks.FILE_HEAD.size <= index.previous < offset:
            return None
        offset = index.previous
        try:
            index = blocks.index_of(_block_at(file, offset))
        except DamagedCaptureError:
            return None
        parts.append(index.entries)
    return [entry for part in reversed(parts) for entry in part]


def _rebuilt(file: BinaryIO, name: str) -> list[IndexEntry]:
    file.seek(0)
    entries: list[IndexEntry] = []
    with suppress(DamagedCaptureError):  # the index is that of the part that can be read
        entries.extend(
            blocks.index_entry(found.offset, events)
            for found in blocks_in(file, name)
            if found.kind == BlockKind.EVENTS and (events := blocks.events_of(found))
        )
    return entries


def _block_at(file: BinaryIO, offset: int) -> Block:
    if offset > file.seek(0, io.SEEK_END):
        raise DamagedCaptureError(f"no block at byte {offset}")
    file.seek(offset)
    found = read_block(_reader(file), offset)
    if found is None:
        raise DamagedCaptureError(f"no block at byte {offset}")
    return found


def _reader(file: BinaryIO) -> Callable[[int], bytes]:
    """Return a function that reads exactly n bytes, fewer only at the end of the file: a pipe may give fewer
    at once.
    """

    def read(count: int) -> bytes:
        data = file.read(count)
        if not data or len(data) == count:
            return data or b""
        parts, missing = [data], count - len(data)
        while missing and (part := file.read(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    return read


__all__ = ["CaptureError", "CaptureReader", "OnDamage", "Source", "read", "read_index", "read_selected"]
