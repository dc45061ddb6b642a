"""Files are looked at once a second, and read again when they have changed.

Looking sees every way in which files are replaced: links that are swapped at any level of the path, as
Kubernetes does, and programs that write one file of several first. So a change counts when the files are the
same for two looks. A look takes microseconds, but a thread makes it: a file system on a network may be away.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import trio

LOOK_S: Final = 1.0

Stamp: TypeAlias = tuple[int, int, int] | None
"""What changes with the content: time of modification, size, inode; None if there is no such file."""


def stamp(path: Path) -> Stamp:
    """Return the file's stamp; take it before reading the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class FileWatch:
    """Tells when some files, which belong together, have changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Nothing was read yet."""
        self._paths = tuple(paths)
        self._seen: tuple[Stamp, ...] = ()
        self.read: tuple[Stamp, ...] = ()
        """The stamps of what was read, or tried, last."""

    def stamps(self) -> tuple[Stamp, ...]:
        """Return the present stamps of all files; take them before reading the files."""
        return tuple(map(stamp, self._paths))

    def has_changed(self) -> bool:
        """Whether the files are not what was read, and were the same at the last look."""
        found = self.stamps()
        settled, self._seen = found == self._seen, found
        return settled and found != self.read

    async def look(self) -> bool:
        """As `has_changed`, in a thread."""
        return await trio.to_thread.run_sync(self.has_changed, abandon_on_cancel=True)
