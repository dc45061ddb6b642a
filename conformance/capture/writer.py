"""Writes captures: new files, and the continuation of existing ones."""

from __future__ import annotations

import fcntl
import io
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from weir.conformance.capture import blocks
from weir.conformance.capture.blocks import CaptureError, DamagedCaptureError, Index, IndexEntry, Kind, Run
from weir.conformance.capture.reader import blocks_in, last_index
from weir.conformance.events import Bytes, Event

BLOCK_BYTES: Final = 256 * 1024
"""Size (bytes) of the data from which a block of events is written."""
BLOCK_EVENTS: Final = 10_000
"""Number of events from which a block of events is written."""
SPLIT_BYTES: Final = 1024 * 1024
"""Maximum size (bytes) of the data of one event; longer data becomes several events."""
INDEX_ENTRIES: Final = 1024
"""Number of blocks of events from which an index block is written: the writer's memory is bounded."""


class CaptureWriter:
    """A capture file that is open for writing. Events must come in the order of time."""

    def __init__(self, path: Path, run: Run) -> None:
        """Create the file, or continue an existing capture with a new run. A damaged or cut tail of an
        existing capture is removed; `repaired` then says so. Raises CaptureError if the file is no capture or
        another process writes it, OSError if it cannot be written.
        """
        self.path = path
        self.repaired = ""
        """One line about the damage that was found and removed; "" if none was found."""
        self.next_connection = 0
        """A number larger than that of every connection in the file."""
        self.events = 0
        """Number of events written by this writer."""
        self._previous_index = 0
        self._entries: list[IndexEntry] = []
        self._pending: list[Event] = []
        self._pending_bytes = 0
        self._file: BinaryIO = _opened(path)
        try:
            self._offset = self._continue()
            self._put(Kind.RUN, blocks.encode(run))
            self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Size (bytes) of the file, without events that are not yet in a block."""
        return self._offset

    def write(self, event: Event) -> None:
        """Add an event to the present block, and write the block when it is full. Raises OSError."""
        data_bytes = len(event.data) if isinstance(event, Bytes) else 0
        if data_bytes > SPLIT_BYTES and isinstance(event, Bytes):
            for start in range(0, data_bytes, SPLIT_BYTES):
                part = event.data[start : start + SPLIT_BYTES]
                self.write(Bytes(event.connection, event.time_ns, event.side, part))
            return
        self._pending.append(event)
        self._pending_bytes += data_bytes
        self.next_connection = max(self.next_connection, event.connection + 1)
        self.events += 1
        if self._pending_bytes >= BLOCK_BYTES or len(self._pending) >= BLOCK_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Write the events of the present block to the file. Raises OSError."""
        if not self._pending:
            return
        entry = blocks.index_entry(self._offset, self._pending)
        payload = blocks.encode(self._pending)
        self._pending, self._pending_bytes = [], 0
        self._put(Kind.EVENTS, payload)
        self._entries.append(entry)
        if len(self._entries) >= INDEX_ENTRIES:
            self._put_index()
        self._file.flush()

    def close(self) -> None:
        """Write the last block, the index and the end block, and close the file. Raises OSError."""
        if self._file.closed:
            return
        try:
            self.flush()
            self._put_index()
            self._put(Kind.END, blocks.END.pack(self._previous_index))
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def _put_index(self) -> None:
        index = Index(self._previous_index, self.next_connection, self._entries)
        self._previous_index, self._entries = self._offset, []
        self._put(Kind.INDEX, blocks.encode(index))

    def _put(self, kind: Kind, payload: bytes) -> None:
        written = blocks.block(kind, payload)
        self._file.write(written)
        self._offset += len(written)

    def _continue(self) -> int:
        """Return the offset at which to write: behind the head of a new file, or behind the last good
        block.
        """
        file = self._file
        end = file.seek(0, io.SEEK_END)
        if not end:
            file.write(blocks.file_head())
            return blocks.FILE_HEAD.size
        file.seek(0)
        blocks.check_file_head(file.read(blocks.FILE_HEAD.size), str(self.path))
        found = last_index(file)
        if found is not None:
            self._previous_index, self.next_connection = found[0], found[1].next_connection
        else:
            end = self._scan()
            file.truncate(end)
        file.seek(end)
        return end

    def _scan(self) -> int:
        """Read all blocks, collect the index entries that no index block has, and return the end of the last
        good block.
        """
        self._file.seek(0)
        end = blocks.FILE_HEAD.size
        try:
            for found in blocks_in(self._file, str(self.path)):
                if found.kind == Kind.EVENTS and (events := blocks.events_of(found)):
                    entry = blocks.index_entry(found.offset, events)
                    self._entries.append(entry)
                    self.next_connection = max(self.next_connection, entry.connections[-1] + 1)
                elif found.kind == Kind.INDEX:
                    index = blocks.index_of(found)
                    self._previous_index, self._entries = found.offset, []
                    self.next_connection = max(self.next_connection, index.next_connection)
                end = found.end
        except DamagedCaptureError as error:
            self.repaired = f"{error}; the file continues behind its last good block"
        return end


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading and writing, created if missing, and lock it. Raises CaptureError, OSError."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise CaptureError(f"{path} is being written by another process: choose another file") from None
    return file
