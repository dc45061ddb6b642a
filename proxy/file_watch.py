"""Detect changed files: compare stamps once a second.

A stamp changes with every way of replacing a file, also if a link at any level of the path is swapped, as
Kubernetes does. Programs may write one of several files first, so a change counts once two successive looks
find the same stamps. A look takes microseconds; it runs in a thread, because a network file system may hang.
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
    """Return the file's stamp, None if the file is missing. Take the stamp before reading the file, so that a
    later change is detected.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class FileWatch:
    """Detects changes of files that are read together."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Begin with no file read."""
        self._paths = tuple(paths)
        self._seen: tuple[Stamp, ...] = ()
        self.read: tuple[Stamp, ...] = ()
        """Stamps of the files when they were last read, successfully or not."""

    def stamps(self) -> tuple[Stamp, ...]:
        """Return the files' present stamps. Take them before reading the files, so that a later change is
        detected.
        """
        return tuple(map(stamp, self._paths))

    def has_changed(self) -> bool:
        """Return True if the files have changed since `read`, and have not changed since the last look."""
        found = self.stamps()
        settled, self._seen = found == self._seen, found
        return settled and found != self.read

    async def look(self) -> bool:
        """Return the result of `has_changed`, called in a thread."""
        return await trio.to_thread.run_sync(self.has_changed, abandon_on_cancel=True)
