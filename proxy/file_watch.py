"""Detect changed files: compare stamps once a second.

Stamps reveal every way of replacing files: links swapped at any level of the path, as Kubernetes does, and
programs that write one of several files first. So a change counts once the files are the same for two looks.
A look takes microseconds, but runs in a thread, because a network file system may hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import trio

LOOK_S: Final = 1.0

Stamp: TypeAlias = tuple[int, int, int] | None
"""Modification time, size, inode, which change with the content; None if the file is missing."""


def stamp(path: Path) -> Stamp:
    """Return the file's stamp; take it before reading the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class FileWatch:
    """Detects changes of files that belong together."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Begin with no file read."""
        self._paths = tuple(paths)
        self._seen: tuple[Stamp, ...] = ()
        self.read: tuple[Stamp, ...] = ()
        """Stamps of the files when they were last read, or tried."""

    def stamps(self) -> tuple[Stamp, ...]:
        """Return the files' current stamps; take them before reading the files."""
        return tuple(map(stamp, self._paths))

    def has_changed(self) -> bool:
        """Return True if the files differ from those read, and are the same as at the last look."""
        found = self.stamps()
        settled, self._seen = found == self._seen, found
        return settled and found != self.read

    async def look(self) -> bool:
        """Call `has_changed` in a thread."""
        return await trio.to_thread.run_sync(self.has_changed, abandon_on_cancel=True)
