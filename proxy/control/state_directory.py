"""The state directory: files that Weir keeps for its next start, with the brokers' addresses, the last known
quotas of a store, and what clients have used.

Each has a file of its own, because usage changes every second, and the others rarely. People write
`brokers.json` by hand, and read `last-quotas.toml` as a quota file. A damaged file spoils no other.

A file that cannot be read or written is logged, and stops nothing. Only one process writes: a Weir that has
handed its listeners over writes no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

import structlog
import trio

from weir.proxy import atomic_write
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.files import read_text
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from weir.proxy.config.settings import Settings
    from weir.proxy.control.supervisor import Works

log = structlog.get_logger("weir")

T = TypeVar("T")

PERIOD_S: Final = 1.0
"""Time (s) between two looks for changed content: a killed process loses the changes since the last look."""
MODE: Final = 0o700

Content: TypeAlias = bytes | Iterable[bytes]
Put: TypeAlias = Callable[[Content], Awaitable[bool]]
"""Coroutine function that replaces a file's content. It returns False if that has failed, and logs it."""


class StateFile(Protocol):
    """One file of the state directory: its name, and its content."""

    @property
    def name(self) -> str:
        """Name of the file."""

    @property
    def period_s(self) -> float:
        """Time (s) between the beginnings of the last call of `save` and the next one."""

    async def save(self, put: Put) -> None:
        """Await `put` with the new content, unless the file has it already."""


class StateDirectory:
    """Reads the files at the start, and writes them afterwards. Without a path, there are no files."""

    def __init__(self, path: Path | None) -> None:
        """Begin without reading. `path` is that of the directory; None for none."""
        self.path: Final = path
        self._outages: dict[str, Outage] = {}
        self._abandoned = False

    def read(self, name: str, bytes_max: int, parse: Callable[[str], T]) -> T | None:
        """Return what `parse` makes of the text of a file of at most `bytes_max` bytes; None if the file is
        missing. Log a file that cannot be used, and return None. `parse` raises ValueError with the reason.
        """
        if self.path is None:
            return None
        try:
            return parse(read_text(self.path / name, bytes_max))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            log.error("state file ignored", file=str(self.path / name), reason=reason)
            return None

    async def keep(self, file: StateFile, works: Works) -> None:
        """Write a file whenever its content has changed, until cancelled; then once more."""
        if self.path is None:
            return
        path = self.path / file.name
        put = partial(self._put, path, self.outage(file.name))
        try:
            while not self._abandoned:
                began_s = trio.current_time()
                await file.save(put)
                works()
                await trio.sleep_until(began_s + file.period_s)
        finally:
            if not self._abandoned:
                with trio.CancelScope(shield=True):
                    await file.save(put)

    def outage(self, name: str) -> Outage:
        """Return the outage of writing a file."""
        new = Outage(log, "state file not written", "state file written again")
        return self._outages.setdefault(name, new)

    def abandon(self) -> None:
        """Write the files no more, because another process does."""
        self._abandoned = True

    async def _put(self, path: Path, outage: Outage, content: Content) -> bool:
        try:
            await trio.to_thread.run_sync(self._replace, path, content)
        except OSError as error:
            outage.failed(file=str(path), reason=error.strerror or str(error))
            return False
        outage.over(file=str(path))
        return True

    def _replace(self, path: Path, content: Content) -> None:
        if self._abandoned:
            return
        if not path.parent.exists():
            path.parent.mkdir(MODE, parents=True)
        atomic_write.replace(path, content)


def state_not_written(name: str, outage: Outage) -> Condition:
    """Return the condition of a file that cannot be written."""
    return problem(
        f"state_not_written {name}",
        f"{name} of state_dir cannot be written: {outage.reason}. The next start lacks it.",
        "Free the disk of state_dir, or make the directory writable to Weir's user.",
    )


def state_directory(settings: Settings, environment: Mapping[str, str]) -> StateDirectory:
    """Return the configured state directory, or the one that systemd names in STATE_DIRECTORY, the first of
    several; without both, one without files.
    """
    path = settings.state_dir or environment.get("STATE_DIRECTORY", "").partition(":")[0]
    return StateDirectory(Path(path) if path else None)
