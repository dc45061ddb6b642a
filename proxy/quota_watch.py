"""Watching the quota file: a reload when it has changed, and only then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import trio
from watchfiles import awatch

WATCH_STEP_MS: Final = 500
"""How often changes are looked for; the library's default costs an idle process 1 ms of CPU per second."""

Stamp: TypeAlias = tuple[int, int, int] | None
"""What changes with the content: time of modification, size, inode; None if there is no such file."""


def stamp(path: Path) -> Stamp:
    """Return the file's stamp; take it before reading the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def follow(
    path: Path, seen: Stamp, reload: Callable[[], Awaitable[object]], unwatch: trio.Event
) -> None:
    """Await `reload()` whenever the file is no longer as it was `seen`.

    Editors and orchestrators replace files, also by way of links: so its directory is watched, in which other
    files may change as well. Cancelling waits for the watching thread, up to 5 s; `unwatch` ends that at
    once.
    """
    directory = path.parent.resolve()
    async for _changes in awatch(
        directory, watch_filter=None, recursive=False, step=WATCH_STEP_MS, stop_event=unwatch
    ):
        found = stamp(path)
        if found != seen:
            seen = found
            await reload()
