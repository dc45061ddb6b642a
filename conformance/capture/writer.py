"""Writes captures: new files, and the continuation of existing ones."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from weir.conformance.capture import blocks
from weir.conformance.capture.blocks import (
    Block,
    BlockKind,
    CaptureError,
    DamagedCaptureError,
    Index,
    IndexEntry,
    Run,
)
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
INDEX_CONNECTIONS: Final = 500_000
"""Number of connections, counted in each block, from which an index block is written: it stays below the
maximum size of a payload.
"""


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
        self.data_bytes = 0
        """Number of bytes of connections in the blocks that this writer has written."""
        self._previous_index = 0
        self._indexed_connections = 0
        """Number of connections in the entries, counted in each."""
        self._entries: list[IndexEntry] = []
        self._pending: list[Event] = []
        self._pending_bytes = 0
        self._file: FileIO = _opened(path)
        try:
            self._offset = self._continue()
            self._put(BlockKind.RUN, blocks.encode(run))
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
        """Write the events of the present block to the file. Raises OSError; these events are then lost, and
        the file ends with its last whole block.
        """
        if not self._pending:
            return
        entry = blocks.index_entry(self._offset, self._pending)
        payload = blocks.encode(self._pending)
        self._pending, self._pending_bytes = [], 0
        self._put(BlockKind.EVENTS, payload)
        self.data_bytes += entry.data_bytes
        self._entries.append(entry)
        self._indexed_connections += len(entry.connections)
        if len(self._entries) >= INDEX_ENTRIES or self._indexed_connections >= INDEX_CONNECTIONS:
            self._put_index()

    def check_path(self) -> None:
        """Raise OSError if the path no longer leads to the file, which was removed or replaced."""
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
                return
        raise OSError(errno.ENOENT, "the file was removed or replaced while it was written")

    def close(self) -> None:
        """Write the last block, the index and the end block, and close the file. Raises OSError."""
        if self._file.closed:
            return
        try:
            self.flush()
            self._put_index()
            self._put(BlockKind.END, blocks.END.pack(self._previous_index))
            os.fsync(self._file.fileno())
            self.check_path()
        finally:
            self._file.close()

    def _put_index(self) -> None:
        index = Index(self._previous_index, self.next_connection, self._entries)
        offset = self._offset
        self._put(BlockKind.INDEX, blocks.encode(index))
        self._previous_index, self._entries, self._indexed_connections = offset, [], 0

    def _put(self, kind: BlockKind, payload: bytes) -> None:
        self._offset += self._append(blocks.block(kind, payload))

    def _append(self, data: bytes) -> int:
        """Write all of the data at the end of the file, or nothing; return its size (bytes). Raises OSError.

        A part of a block would hide all blocks behind it from readers.
        """
        start, left = self._file.tell(), memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(start)
            self._file.seek(start)
            raise
        return len(data)

    def _continue(self) -> int:
        """Return the offset at which to write: behind the head of a new file, or behind the last good
        block.
        """
        file = self._file
        end = file.seek(0, io.SEEK_END)
        if not end:
            return self._append(blocks.file_head())
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
                if found.kind == BlockKind.EVENTS and (events := blocks.events_of(found)):
                    entry = blocks.index_entry(found.offset, events)
                    self._entries.append(entry)
                    self._indexed_connections += len(entry.connections)
                    self.next_connection = max(self.next_connection, entry.connections[-1] + 1)
                elif found.kind == BlockKind.RUN:
                    blocks.run_of(found)
                elif found.kind == BlockKind.INDEX and (index := _index(found)):
                    self._previous_index, self._entries, self._indexed_connections = found.offset, [], 0
                    self.next_connection = max(self.next_connection, index.next_connection)
                end = found.end
        except DamagedCaptureError as error:
            self.repaired = f"{error}; the file continues behind its last good block"
        return end


def _index(found: Block) -> Index | None:
    """Return the block's index; None if it cannot be decoded: the blocks of events have all its facts."""
    try:
        return blocks.index_of(found)
    except DamagedCaptureError:
        return None


def _opened(path: Path) -> FileIO:
    """Open a file for reading and writing, created if missing, and lock it. Raises CaptureError, OSError. The
    file has no buffer: bytes that the disk refuses must not be written later.
    """
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise CaptureError(f"{path} is being written by another process: choose another file") from None
    return file
