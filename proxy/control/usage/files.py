"""Write records to files, one JSON object per line, compressed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from weir.proxy.control.usage import directory
from weir.proxy.control.usage.compression import pack
from weir.proxy.control.usage.directory import PartFile, UnevenError, Write
from weir.proxy.control.usage.outlet import OutletError, Record, lines
from weir.proxy.control.usage.tally import Kind, Loss, Tally

if TYPE_CHECKING:
    from pathlib import Path


class FileRules(NamedTuple):
    """Limits of the usage files: age (s) and size (bytes) at which a file is finished and a new one begun,
    and the maximum size of all finished files. Sizes are those of the compressed files.
    """

    rotate_s: float
    rotate_bytes: int
    keep_bytes: int
    """Maximum size (bytes) of all finished files together; 0 for no limit."""


class FileClocks(NamedTuple):
    """The monotonic clock and the wall clock, both in seconds."""

    monotonic_s: Callable[[], float]
    wall_s: Callable[[], float]
    """Function that returns the Unix time (s)."""


class _Writing(NamedTuple):
    """A file that is being written, the name that it gets when finished, and the time (s) at which to finish
    it.
    """

    part: PartFile
    name: str
    until_s: float


class UsageFiles:
    """A destination of usage records (`Outlet`): files in the usage directory."""

    def __init__(
        self,
        path: Path,
        instance: str,
        rules: FileRules,
        tally: Tally,
        clocks: FileClocks,
        write: Write = os.write,
    ) -> None:
        """Begin with no open file. `instance` is the name of this process, used as a part of file names."""
        self.name = str(path)
        self._path = path
        self._instance = instance
        self._rules = rules
        self._tally = tally
        self._clocks = clocks
        self._write = write
        self._writing: dict[Kind, _Writing] = {}
        self._number = 0

    def open(self) -> None:
        """Create the directory if it is missing, and finish files that killed processes have left. Raises
        OutletError.
        """
        try:
            directory.make(self._path)
            directory.recover(self._path, self._tally)
        except OSError as error:
            raise self._told(error) from None

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        """Write the records to the file of this kind, and return their number.

        Raises OutletError if no record was written; readers then find the file unchanged.
        """
        content = pack(lines(records))
        try:
            writing = self._writing.get(kind) or self._begin(kind)
            writing.part.append(content, len(records))
        except UnevenError as error:
            self._writing.pop(kind).part.leave()  # a part of a frame has no line, and is cut off later
            raise self._told(error) from None
        except OSError as error:
            raise self._told(error) from None
        self._tally.note_written(kind, len(records), len(content), self._clocks.wall_s())
        return len(records)

    def tend(self) -> None:
        """Finish each file that has reached its maximum age or size. Raises OutletError."""
        now_s = self._clocks.monotonic_s()
        for kind, writing in list(self._writing.items()):
            if now_s >= writing.until_s or writing.part.length >= self._rules.rotate_bytes:
                self._finish(kind)

    def close(self, timeout_s: float) -> None:
        """Finish all files. `timeout_s` is ignored: finishing takes as long as the disk needs."""
        del timeout_s
        for kind in list(self._writing):
            with suppress(OutletError):  # counted; the file is finished at the next start
                self._finish(kind)

    def _begin(self, kind: Kind) -> _Writing:
        """Create the next file for records of this kind. Raises OSError."""
        while True:
            self._number += 1
            name = directory.finished_name(kind, self._instance, self._number)
            try:
                part = PartFile(self._path / directory.unfinished_name(name), self._write)
            except (FileExistsError, BlockingIOError):  # another Weir took it for an abandoned file
                continue
            until_s = self._clocks.monotonic_s() + self._rules.rotate_s
            self._writing[kind] = _Writing(part, name, until_s)
            return self._writing[kind]

    def _finish(self, kind: Kind) -> None:
        """Finish the open file of this kind. Then delete the oldest finished files if all together are larger
        than the limit. Raises OutletError.
        """
        writing = self._writing.pop(kind)
        try:
            if not writing.part.length:
                writing.part.discard()
                return
            writing.part.finish(writing.name)
        except OSError as error:
            if not writing.part.path.exists():
                self._tally.note_dropped(Loss.FILE_LOST, writing.part.records)
            raise self._told(error) from None
        self._tally.finished_files += 1
        self._tidy()

    def _tidy(self) -> None:
        """Finish the files of killed processes, and delete the oldest files beyond `keep_bytes`. Raises
        OutletError.
        """
        try:
            directory.recover(self._path, self._tally)
            if self._rules.keep_bytes:
                directory.prune(self._path, self._rules.keep_bytes, self._tally)
        except OSError as error:
            raise self._told(error) from None

    def _told(self, error: OSError) -> OutletError:
        return OutletError(f"cannot write to {self._path}: {(error.strerror or str(error)).lower()}")
