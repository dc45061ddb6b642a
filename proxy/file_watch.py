"""Detect changed files: once a second, compare each file's stamp (modification time, size and inode).

The stamp changes with every way of replacing a file, also if a link at any level of the path is swapped, as
Kubernetes does. Programs may replace several files one after another, so a change counts once two successive
comparisons find the same stamps. A comparison takes microseconds; it runs in a thread, because a network file
system may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
LOOK_S: Final = 1.0

Stamp: TypeAlias = tuple[int, int, int] | None
"""Modification time (ns), size (bytes) and inode of a file, which show a change of its content; None if the
file is missing.
"""


def stamp(path: Path) -> Stamp:
    """Return the file's modification time (ns), size (bytes) and inode; None if the file is missing. Call
    this before reading the file, so that a later change is detected.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def in_thread(function: Callable[[], T], *, abandon: bool = False) -> T:
    """Call a function in a thread of Trio. `abandon`: leave the thread alone once cancelled."""
    import trio  # commands that read files without watching them, such as `weir verify`, do without

    return await trio.to_thread.run_sync(function, abandon_on_cancel=abandon)


class FileWatch:
    """Detects changes of files that are read together."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Begin as if no file was read yet."""
        self._paths = tuple(paths)
        self._seen: tuple[Stamp, ...] = ()
        self.read: tuple[Stamp, ...] = ()
        """Results of `stamps` from before the files were last read, whether reading succeeded or not."""

    def stamps(self) -> tuple[Stamp, ...]:
        """Return the present modification time, size and inode of each file (`Stamp`). Call this before
        reading the files, so that a later change is detected.
        """
        return tuple(map(stamp, self._paths))

    def has_changed(self) -> bool:
        """Return True if the files differ from the state recorded in `read`, and are in the same state as at
        the latest call of this method. So a change counts once it has lasted from one call to the next.
        """
        found = self.stamps()
        settled, self._seen = found == self._seen, found
        return settled and found != self.read

    async def look(self) -> bool:
        """Return the result of `has_changed`. A thread computes it, because a network file system may
        hang.
        """
        return await in_thread(self.has_changed, abandon=True)
